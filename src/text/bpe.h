/*
 * Byte-pair merging inside one piece: of all adjacent pairs, the one with the lowest rank (the leftmost of equals) is
 * joined, until no pair is left. Time O(n log n), memory O(n).
 *
 * Threads: a struct bpe_work belongs to one caller. Lifetime: bpe_free releases it; zero-initialised is ready.
 */
#ifndef LILY_TEXT_BPE_H
#define LILY_TEXT_BPE_H

#include "text/image.h"
#include "text/tokenizer.h"

struct bpe_link;
struct bpe_work {
    struct bpe_link *links; /* owned; of long pieces */
    uint64_t *heap;     /* owned */
    size_t cap;         /* bytes of a piece that both have room for */
    uint64_t steps;     /* moves in the heap so far: what the tests bound */
};
void bpe_free(struct bpe_work *w);

/* Appends the ids of a piece of n > 0 bytes. */
void bpe_encode(const struct image *im, struct bpe_work *w, const uint8_t *piece, size_t n, struct ids *out);

#endif
