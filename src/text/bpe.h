/*
 * Byte-pair merging inside pieces: of all adjacent pairs, the one with the lowest rank (the leftmost of equals) is joined,
 * until no pair is left. Time O(n log n), memory O(n).
 *
 * Each merge looks two pairs up in a table that the processor's cache does not hold, and the next merge depends on them.
 * So pieces go in batches: while one waits for memory, the others go on.
 *
 * Threads: a struct bpe_batch belongs to one caller. Lifetime: owned by the caller of bpe_batch_new; pieces added are views
 * that live until the batch is emptied (n = 0).
 *
 *     bpe_batch_add(im, b, piece, n); … bpe_batch_run(im, b); bpe_batch_ids(im, b, 0, out); … b->n = 0;
 */
#ifndef LILY_TEXT_BPE_H
#define LILY_TEXT_BPE_H

#include "text/image.h"
#include "text/tokenizer.h"

enum { BPE_LANES = 16 };

struct bpe_lane;
struct bpe_long;

struct bpe_batch {
    int n;                  /* pieces in it, at most BPE_LANES */
    struct bpe_lane *lanes; /* owned */
    struct bpe_long *heap;  /* owned; work space of long pieces */
    uint64_t steps;         /* moves in heaps so far: what the tests bound */
};

struct bpe_batch *bpe_batch_new(void);
void bpe_batch_free(struct bpe_batch *b);

/* Adds a piece of n > 0 bytes; the batch has room. */
void bpe_batch_add(const struct image *im, struct bpe_batch *b, const uint8_t *piece, size_t n);
/* Merges all that were added. */
void bpe_batch_run(const struct image *im, struct bpe_batch *b);
/* Appends the ids of piece i after bpe_batch_run; false when there is no memory. */
bool bpe_batch_ids(const struct image *im, struct bpe_batch *b, int i, struct ids *out);

#endif
