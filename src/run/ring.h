/*
 * A ring of records from one writing thread to one reading thread, without locks. A record is a kind and some bytes; it is
 * put whole or not at all, so a reader that is slow fills the ring and the writer knows.
 *
 * Threads: ring_put by one thread, ring_take by another. Owned: ring_free, when neither uses it any more.
 */
#ifndef LILY_RUN_RING_H
#define LILY_RUN_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct ring {
    uint8_t *data; /* owned; (size) */
    size_t size;   /* a power of two */
    _Atomic size_t put, taken; /* bytes ever; put - taken are inside */
};

enum {
    RING_MAX_SHARE = 4,  /* a record may take a quarter of the ring */
    RING_LAST_BYTES = 2048 /* kept free for the last record, which therefore always finds room */
};

void ring_init(struct ring *r, size_t size);
void ring_free(struct ring *r);
size_t ring_max_record(const struct ring *r); /* bytes that one record may hold */

/* false: there is no room now. n is at most ring_max_record. */
bool ring_put(struct ring *r, uint32_t kind, const void *data, size_t n);
bool ring_is_half_full(const struct ring *r); /* for the writer; the reader may be emptying it */
/* The last record of all, of at most RING_LAST_BYTES with its head. */
void ring_put_last(struct ring *r, uint32_t kind, const void *data, size_t n);
/* Takes the oldest record; its bytes replace out's. false: there is none. */
bool ring_take(struct ring *r, uint32_t *kind, struct buf *out);

#endif
