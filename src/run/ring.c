/* The ring: two counters that only grow; each is written by one side. */
#include "run/ring.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct head {
    uint32_t kind, n;
};

void ring_init(struct ring *r, size_t size)
{
    r->data = mem_new(size);
    r->size = size;
    atomic_init(&r->put, 0);
    atomic_init(&r->taken, 0);
}

void ring_free(struct ring *r)
{
    free(r->data);
    r->data = NULL;
}

size_t ring_max_record(const struct ring *r)
{
    return r->size / RING_MAX_SHARE - sizeof(struct head);
}

static void copy_in(struct ring *r, size_t at, const void *data, size_t n)
{
    size_t begin = at & (r->size - 1), first = n < r->size - begin ? n : r->size - begin;
    if (first) memcpy(r->data + begin, data, first);
    if (n > first) memcpy(r->data, (const uint8_t *)data + first, n - first);
}

static void copy_out(const struct ring *r, size_t at, void *data, size_t n)
{
    size_t begin = at & (r->size - 1), first = n < r->size - begin ? n : r->size - begin;
    memcpy(data, r->data + begin, first);
    if (n > first) memcpy((uint8_t *)data + first, r->data, n - first);
}

static bool put(struct ring *r, uint32_t kind, const void *data, size_t n, size_t spare)
{
    struct head head = {kind, (uint32_t)n};
    size_t at = atomic_load_explicit(&r->put, memory_order_relaxed);
    size_t used = at - atomic_load_explicit(&r->taken, memory_order_acquire);
    if (used + sizeof head + n + spare > r->size) return false;
    copy_in(r, at, &head, sizeof head);
    copy_in(r, at + sizeof head, data, n);
    atomic_store_explicit(&r->put, at + sizeof head + n, memory_order_release);
    return true;
}

bool ring_is_half_full(const struct ring *r)
{
    size_t at = atomic_load_explicit(&r->put, memory_order_relaxed);
    return at - atomic_load_explicit(&r->taken, memory_order_relaxed) > r->size / 2;
}

bool ring_put(struct ring *r, uint32_t kind, const void *data, size_t n)
{
    return put(r, kind, data, n, RING_LAST_BYTES);
}

void ring_put_last(struct ring *r, uint32_t kind, const void *data, size_t n)
{
    bool fits = put(r, kind, data, n, 0);
    assert(fits);
    (void)fits;
}

bool ring_take(struct ring *r, uint32_t *kind, struct buf *out)
{
    struct head head;
    size_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed);
    if (taken == atomic_load_explicit(&r->put, memory_order_acquire)) return false;
    copy_out(r, taken, &head, sizeof head);
    buf_clear(out);
    buf_reserve(out, head.n);
    copy_out(r, taken + sizeof head, out->data, head.n);
    out->len = head.n;
    out->data[head.n] = 0;
    *kind = head.kind;
    atomic_store_explicit(&r->taken, taken + sizeof head + head.n, memory_order_release);
    return true;
}
