/* The growable array of token ids. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer.h"

/* The capacity that holds n ids. */
static size_t cap_for(const struct ids *ids, size_t n)
{
    size_t cap = ids->cap ? ids->cap : 64;
    while (cap < n) cap += cap / 2;
    return cap;
}

static void reserve(struct ids *ids, size_t extra)
{
    size_t cap = cap_for(ids, ids->n + extra);
    if (cap == ids->cap) return;
    ids->data = mem_resize(ids->data, cap * sizeof *ids->data);
    ids->cap = cap;
}

void ids_add(struct ids *ids, int32_t id)
{
    if (ids->n == ids->cap) reserve(ids, 1);
    ids->data[ids->n++] = id;
}

void ids_append(struct ids *ids, const int32_t *data, size_t n)
{
    if (!n) return;
    reserve(ids, n);
    memcpy(ids->data + ids->n, data, n * sizeof *data);
    ids->n += n;
}

bool ids_try_append(struct ids *ids, const int32_t *data, size_t n)
{
    size_t cap = cap_for(ids, ids->n + n);
    if (cap > ids->cap) {
        int32_t *grown = mem_try_resize(ids->data, cap, sizeof *grown);
        if (!grown) return false;
        ids->data = grown;
        ids->cap = cap;
    }
    ids_append(ids, data, n);
    return true;
}

void ids_clear(struct ids *ids)
{
    ids->n = 0;
}

void ids_free(struct ids *ids)
{
    free(ids->data);
    memset(ids, 0, sizeof *ids);
}
