/* Records on their way into a ring. */
#include "run/outbox.h"

#include <string.h>

struct head {
    uint32_t kind, n;
};

static void put_one(struct outbox *o, struct ring *r, enum job_record kind, const void *data, size_t n)
{
    struct head head = {(uint32_t)kind, (uint32_t)n};
    if (outbox_is_empty(o) && ring_put(r, kind, data, n)) {
        o->wrote |= !o->whole || ring_is_half_full(r);
        return;
    }
    buf_add(&o->waiting, &head, sizeof head);
    buf_add(&o->waiting, data, n);
}

/* The bytes of a text that go into the next record: all, or as many whole characters as fit. */
static size_t share(const char *text, size_t n, size_t most)
{
    if (n <= most) return n;
    n = most;
    while (n > 1 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
    return n;
}

void outbox_put(struct outbox *o, struct ring *r, enum job_record kind, const void *data, size_t n)
{
    const char *p = data;
    do {
        size_t part = (kind <= JOB_CALL_ARGUMENTS && kind != JOB_CALL_START) || kind == JOB_CALL_TEXT ? share(p, n, ring_max_record(r)) : n;
        put_one(o, r, kind, p, part);
        p += part;
        n -= part;
    } while (n > 0);
}

bool outbox_flush(struct outbox *o, struct ring *r)
{
    bool moved = false;
    while (!outbox_is_empty(o)) {
        struct head head;
        memcpy(&head, o->waiting.data + o->at, sizeof head);
        if (!ring_put(r, head.kind, o->waiting.data + o->at + sizeof head, head.n)) return moved;
        o->at += sizeof head + head.n;
        moved = true;
    }
    outbox_clear(o);
    return moved;
}

bool outbox_is_empty(const struct outbox *o)
{
    return o->at == o->waiting.len;
}

void outbox_clear(struct outbox *o)
{
    o->at = 0;
    buf_clear(&o->waiting);
}

bool outbox_take_wrote(struct outbox *o)
{
    bool wrote = o->wrote;
    o->wrote = false;
    return wrote;
}

void outbox_free(struct outbox *o)
{
    buf_free(&o->waiting);
}
