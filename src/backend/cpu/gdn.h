/*
 * The gated delta rule over several tokens, for every SIMD tier: included behind the tier's gdn_token, which lets token t pass
 * over `vectors` vectors (64 columns at most) from c, whose state has rows ld apart.
 *
 * Several tokens pass over a copy without gaps: rows of the state lie a power of two apart, so that a strip of it would have
 * but a part of the first-level cache's places.
 */
#ifndef LILY_BACKEND_CPU_GDN_H
#define LILY_BACKEND_CPU_GDN_H

#ifdef LANES
#include "backend/cpu/kernels.h"
#include "backend/cpu/unroll.h"

ALWAYS_INLINE void gdn_copy(float *to, int ld_to, const float *from, int ld_from, int vectors)
{
    for (int i = 0; i < GDN_DIM; i++)
        for (int m = 0; m < vectors; m++) vec_store(to + (long)i * ld_to + m * LANES, vec_load(from + (long)i * ld_from + m * LANES));
}

/* Asks for the rows of token t. They lie too far from those before for the processor to know. */
ALWAYS_INLINE void gdn_ask(const struct gdn_job *j, int t, int c, int vectors)
{
    if (t >= j->n) return;
    for (int i = 0; i < GDN_DIM; i += 16) {
        __builtin_prefetch(j->k + (long)t * j->ldqk + i);
        __builtin_prefetch(j->q + (long)t * j->ldqk + i);
    }
    for (int i = 0; i < vectors * LANES; i += 16) __builtin_prefetch(j->v + (long)t * j->ldv + c + i);
}

ALWAYS_INLINE void gdn_columns(const struct gdn_job *j, int c, int vectors)
{
    float strip[GDN_DIM * 64] __attribute__((aligned(64)));
    const int width = vectors * LANES;
    if (j->n == 1) {
        gdn_token(j, j->state + c, GDN_DIM, 0, c, vectors);
        return;
    }
    gdn_copy(strip, width, j->state + c, GDN_DIM, vectors);
    for (int t = 0; t < j->n; t++) {
        gdn_ask(j, t + 2, c, vectors);
        gdn_token(j, strip, width, t, c, vectors);
    }
    gdn_copy(j->state + c, GDN_DIM, strip, width, vectors);
}

#endif
#endif
