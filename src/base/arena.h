/*
 * An arena: big blocks that are taken one by one and freed together, side by side in huge pages. Mapped each on its own, those
 * below the size of a huge page get none, and the others only what lies between its borders.
 *
 * Zeroed memory is an empty arena. Owned: arena_free. Thread rule: one at a time.
 */
#ifndef LILY_BASE_ARENA_H
#define LILY_BASE_ARENA_H

#include <stdint.h>

#include "base/mem.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* owned list */
    uint8_t *at;                /* where the next block may lie */
    size_t rest;                /* bytes behind it */
};

/* A block of zeroes, aligned to 64 bytes, the arena's. Fails as mem_big does. */
lily_status arena_take(struct arena *a, size_t n_bytes, const char *what, void **out, struct lily_err *err);
void arena_free(struct arena *a); /* with all blocks; it is empty again */

#endif
