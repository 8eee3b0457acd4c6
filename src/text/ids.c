/* The growable array of token ids. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer.h"

static void reserve(struct ids *ids, size_t extra)
{
    size_t need = ids->n + extra;
    if (need <= ids->cap) return;
    size_t cap = ids->cap ? ids->cap : 64;
    while (cap < need) cap += cap / 2;
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

void ids_clear(struct ids *ids)
{
    ids->n = 0;
}

void ids_free(struct ids *ids)
{
    free(ids->data);
    memset(ids, 0, sizeof *ids);
}
