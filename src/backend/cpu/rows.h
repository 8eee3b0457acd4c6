/* What the matrix kernels of every SIMD tier share: the activation rows that are computed together. For the tiers alone. */
#ifndef LILY_BACKEND_CPU_ROWS_H
#define LILY_BACKEND_CPU_ROWS_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/unroll.h"

enum form { Q4, Q8, F32 };
enum { LINE = 64, QUADS = QUANT_GROUP / 4, PANEL_MAX = 8 };

ALWAYS_INLINE int tile_bytes(enum form f)
{
    return f == Q4 ? Q4_TILE_BYTES : f == Q8 ? Q8_TILE_BYTES : F32_TILE_BYTES;
}

/* A few activation rows and where their results go. */
struct rows {
    const float *x[PANEL_MAX], *sums[PANEL_MAX];
    float *y[PANEL_MAX];
};

ALWAYS_INLINE void take_rows(struct rows *r, const struct block_job *j, int first, int count)
{
    for (int i = 0; i < count; i++) {
        long row = j->rows ? j->rows[first + i] : first + i;
        r->x[i] = j->act->x + row * j->act->ld;
        r->sums[i] = j->act->sums + row * (j->act->ld / QUANT_GROUP);
        r->y[i] = j->y + (long)(first + i) * j->ldy;
    }
}

/* Tile t of a row block. */
struct group {
    const uint8_t *tile;
    const float *w; /* unpacked: 64 lines of 16, in the order of k */
    int t;
};

#endif
