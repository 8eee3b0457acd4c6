/* What attention of every SIMD tier shares: the running softmax of the heads of one job. For the tiers alone. */
#ifndef LILY_BACKEND_CPU_ATTN_H
#define LILY_BACKEND_CPU_ATTN_H

#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/unroll.h"

struct attn_state {
    float score[ATTN_MAX_Q][GRID]; /* scores of a block, then their weights */
    float acc[ATTN_MAX_Q][HEAD_DIM];
    float max[ATTN_MAX_Q], sum[ATTN_MAX_Q], keep[ATTN_MAX_Q]; /* keep: what the new maximum leaves of acc and sum */
    const struct attn_job *job;
    const uint8_t *keys, *values; /* of the block */
    int n;                        /* keys in the block */
} __attribute__((aligned(64)));

ALWAYS_INLINE void attn_begin(struct attn_state *a, const struct attn_job *j)
{
    a->job = j;
    for (int h = 0; h < j->n_q; h++) a->max[h] = -INFINITY, a->sum[h] = 0;
    memset(a->acc, 0, (size_t)j->n_q * sizeof *a->acc);
}

/* Moves to the block of 64 keys from `first`. */
ALWAYS_INLINE void attn_take_block(struct attn_state *a, int first)
{
    const struct attn_job *j = a->job;
    a->keys = j->pages[first / GRID] + j->k_offset;
    a->values = j->pages[first / GRID] + j->v_offset;
    a->n = j->n_keys - first < GRID ? j->n_keys - first : GRID;
}

/* The byte of element i of row s of the block's keys or values. */
ALWAYS_INLINE const uint8_t *attn_at(const uint8_t *rows, int s, int i, bool bf16)
{
    return rows + ((size_t)s * HEAD_DIM + (size_t)i) * (bf16 ? 2 : 4);
}

#endif
