/*
 * Softmax attention for every SIMD tier, in the vectors that a tier has named before (vec, LANES, vec_… of vec_*.h);
 * empty without. For the tiers alone.
 *
 * A job's query rows (tokens x heads of one KV head) go together over blocks of 64 keys at absolute positions. In scores a
 * lane is a query row, so that each sums over the dimensions, takes its maximum and adds its weights up on its own and in one
 * order; in outputs a lane is a dimension, and a row adds just the keys it may see. So a row's bits do not depend on company.
 * K and V are widened once for all rows, a few keys or dimensions at a time, so that they stay in the first-level cache; few
 * rows take V as it is stored. The next block is asked for while this one is computed: evenly where memory is the limit, since
 * requests in a row wait for the few buffers that they go through.
 */
#ifndef LILY_BACKEND_CPU_ATTN_H
#define LILY_BACKEND_CPU_ATTN_H

#ifdef LANES
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/unroll.h"

/* Sums that fit into registers: 8 of 16, or 16 of 32. */
enum { ATTN_SUMS = LANES == 8 ? 8 : 16, TILE_KEYS = 8, TILE_ROWS = ATTN_SUMS / 2, STRIP = 2 * LANES };

struct attn_state {
    float q[ATTN_MAX_ROWS / LANES][HEAD_DIM][LANES]; /* queries, a lane for each row */
    float score[GRID][ATTN_MAX_ROWS];                /* scores of a block, then weights */
    float keys[TILE_KEYS][HEAD_DIM];                 /* a few keys, widened */
    float values[GRID][STRIP];                       /* a strip of the block's values, widened */
    float max[ATTN_MAX_ROWS], sum[ATTN_MAX_ROWS], keep[ATTN_MAX_ROWS]; /* keep: what the new maximum leaves of out and sum */
    const struct attn_job *job;
    const uint8_t *block_keys, *block_values; /* as they are stored */
    const uint8_t *next_keys, *next_values;   /* of the block after this one; NULL: none */
    int rows, lanes; /* query rows: present, and in whole vectors */
    int first, n;    /* the block: position of its first key, number of keys */
} __attribute__((aligned(64)));

ALWAYS_INLINE float *attn_out(const struct attn_state *a, int row)
{
    const struct attn_job *j = a->job;
    return j->out + (long)(row / j->n_q) * j->ldo_row + (long)(row % j->n_q) * j->ldo;
}

/* Keys of the block that a row may see. */
ALWAYS_INLINE int attn_sees(const struct attn_state *a, int row)
{
    int n = a->job->n_keys + row / a->job->n_q - a->first;
    return n < 0 ? 0 : n < a->n ? n : a->n;
}

static void attn_begin(struct attn_state *a, const struct attn_job *j)
{
    a->job = j;
    a->rows = j->n_rows * j->n_q;
    a->lanes = (a->rows + LANES - 1) / LANES;
    for (int r = 0; r < a->lanes * LANES; r++) {
        const float *q = j->q + (long)(r / j->n_q) * j->ldq_row + (long)(r % j->n_q) * j->ldq;
        a->max[r] = -INFINITY, a->sum[r] = 0;
        for (int i = 0; i < HEAD_DIM; i++) a->q[r / LANES][i][r % LANES] = r < a->rows ? q[i] : 0;
    }
}

ALWAYS_INLINE vec attn_load(const uint8_t *row, int i, bool bf16)
{
    return bf16 ? vec_bf16(row + 2 * i) : vec_load((const float *)(const void *)(row + 4 * i));
}

static void attn_take_block(struct attn_state *a, int first)
{
    const struct attn_job *j = a->job;
    const uint8_t *page = j->pages[first / GRID];
    int left = j->n_keys + j->n_rows - 1 - first;
    a->first = first, a->n = left < GRID ? left : GRID;
    a->block_keys = page + j->k_offset;
    a->block_values = page + j->v_offset;
    page = left > GRID ? j->pages[first / GRID + 1] : NULL;
    a->next_keys = page ? page + j->k_offset : NULL;
    a->next_values = page ? page + j->v_offset : NULL;
}

ALWAYS_INLINE size_t attn_row_bytes(bool bf16)
{
    return HEAD_DIM * (bf16 ? 2 : 4);
}

/* Widens the keys from s on; behind the block's last they are zeros. */
ALWAYS_INLINE void attn_take_keys(struct attn_state *a, int s, bool bf16)
{
    for (int k = 0; k < TILE_KEYS; k++) {
        const uint8_t *key = a->block_keys + (size_t)(s + k) * attn_row_bytes(bf16);
        if (s + k < a->n)
            for (int i = 0; i < HEAD_DIM; i += LANES) vec_store(a->keys[k] + i, attn_load(key, i, bf16));
        else
            memset(a->keys[k], 0, sizeof a->keys[k]);
    }
}

/* The values of key s from dimension i on. */
ALWAYS_INLINE vec attn_value(const struct attn_state *a, int s, int i, bool bf16)
{
    return attn_load(a->block_values + (size_t)s * attn_row_bytes(bf16), i, bf16);
}

/* Part `part` of `parts` of the next block's keys or values. */
ALWAYS_INLINE void attn_prefetch(const uint8_t *rows, int part, int parts, bool bf16)
{
    int bytes = GRID * HEAD_DIM * (bf16 ? 2 : 4) / parts;
    if (rows)
        for (int i = 0; i < bytes; i += 64) __builtin_prefetch(rows + part * bytes + i, 0, 2);
}

/* Scores of the rows of one or two vectors from u with `keys` keys, which lie in a->keys from `at` on; of the block, from s. */
ALWAYS_INLINE void score_tile(struct attn_state *a, int u, int vectors, int s, int at, int keys)
{
    vec sum[8][2];
    UNROLL8(k, keys, UNROLL2(v, vectors, sum[k][v] = vec_all(0);))
    const float *key = a->keys[at], *q = a->q[u][0];
    for (int i = 0; i < HEAD_DIM; i++) {
        vec x[2];
        UNROLL2(v, vectors, x[v] = vec_load(q + v * HEAD_DIM * LANES + i * LANES);)
        UNROLL8(k, keys, {
            vec w = vec_all(key[k * HEAD_DIM + i]);
            UNROLL2(v, vectors, sum[k][v] = vec_fma(w, x[v], sum[k][v]);)
        })
    }
    UNROLL8(k, keys, UNROLL2(v, vectors, vec_store(a->score[s + at + k] + (u + v) * LANES, sum[k][v]);))
}

ALWAYS_INLINE void score_block(struct attn_state *a, bool bf16)
{
    for (int s = 0; s < a->n; s += TILE_KEYS) {
        int u = 0;
        attn_prefetch(a->next_keys, s / TILE_KEYS, GRID / TILE_KEYS, bf16);
        attn_take_keys(a, s, bf16);
        for (; u + 2 <= a->lanes; u += 2)
            for (int at = 0; at < TILE_KEYS; at += ATTN_SUMS / 2) score_tile(a, u, 2, s, at, ATTN_SUMS / 2);
        if (u < a->lanes) score_tile(a, u, 1, s, 0, TILE_KEYS);
    }
}

/* Turns the scores of one vector of rows into weights relative to their new maxima and updates their sums. */
ALWAYS_INLINE void soften(struct attn_state *a, int u)
{
    float *score = a->score[0] + u * LANES;
    vec old = vec_load(a->max + u * LANES), max = old, sum = vec_all(0);
    for (int s = 0; s < a->n; s++) max = vec_max(vec_load(score + s * ATTN_MAX_ROWS), max);
    for (int s = 0; s < a->n; s++) {
        vec p = exp_ps(vec_sub(vec_load(score + s * ATTN_MAX_ROWS), max));
        vec_store(score + s * ATTN_MAX_ROWS, p);
        sum = vec_add(sum, p);
    }
    vec keep = exp_ps(vec_sub(old, max));
    vec_store(a->keep + u * LANES, keep);
    vec_store(a->sum + u * LANES, vec_fma(vec_load(a->sum + u * LANES), keep, sum));
    vec_store(a->max + u * LANES, max);
}

/* Scores of keys that a row may not see. */
static void mask_block(struct attn_state *a)
{
    for (int r = 0; r < a->rows; r++)
        for (int s = attn_sees(a, r); s < a->n; s++) a->score[s][r] = -INFINITY;
}

/* Where a strip's values are: widened before, or as they are stored. */
enum value_form { WIDENED, STORED_BF16, STORED_F32 };

ALWAYS_INLINE vec strip_value(const struct attn_state *a, int s, int strip, int v, enum value_form form)
{
    if (form == WIDENED) return vec_load(a->values[s] + v * LANES);
    return attn_value(a, s, strip * STRIP + v * LANES, form == STORED_BF16);
}

/* out = out*keep + the weighted values, for `rows` rows from r that see the same n keys, and one strip of dimensions. */
ALWAYS_INLINE void value_tile(struct attn_state *a, int r, int rows, int n, int strip, enum value_form form)
{
    vec acc[8][2];
    float *out[8];
    UNROLL8(m, rows, {
        vec keep = vec_all(a->keep[r + m]);
        out[m] = attn_out(a, r + m) + strip * STRIP;
        UNROLL2(v, 2, acc[m][v] = a->first ? vec_mul(keep, vec_load(out[m] + v * LANES)) : vec_all(0);)
    })
    const float *weight = a->score[0] + r;
    const size_t share = STRIP * (form == STORED_BF16 ? 2 : 4); /* of the next block's values, asked for with each key */
    const uint8_t *next = a->next_values ? a->next_values + (size_t)strip * GRID * share : a->block_values;
    for (int s = 0; s < n; s++) {
        if (form != WIDENED)
            for (size_t i = 0; i < share; i += 64) __builtin_prefetch(next + (size_t)s * share + i, 0, 2);
        vec v0 = strip_value(a, s, strip, 0, form), v1 = strip_value(a, s, strip, 1, form);
        UNROLL8(m, rows, {
            vec p = vec_all(weight[s * ATTN_MAX_ROWS + m]);
            acc[m][0] = vec_fma(p, v0, acc[m][0]);
            acc[m][1] = vec_fma(p, v1, acc[m][1]);
        })
    }
    UNROLL8(m, rows, UNROLL2(v, 2, vec_store(out[m] + v * LANES, acc[m][v]);))
}

ALWAYS_INLINE void value_strip(struct attn_state *a, int strip, enum value_form form)
{
    for (int r = 0; r < a->rows;) {
        int n = attn_sees(a, r);
        if (r + TILE_ROWS <= a->rows && attn_sees(a, r + TILE_ROWS - 1) == n) {
            value_tile(a, r, TILE_ROWS, n, strip, form);
            r += TILE_ROWS;
        } else {
            value_tile(a, r++, 1, n, strip, form);
        }
    }
}

ALWAYS_INLINE void value_block(struct attn_state *a, bool bf16)
{
    for (int strip = 0; strip < HEAD_DIM / STRIP; strip++) {
        if (a->rows <= TILE_ROWS) {
            value_strip(a, strip, bf16 ? STORED_BF16 : STORED_F32);
            continue;
        }
        attn_prefetch(a->next_values, strip, HEAD_DIM / STRIP, bf16);
        for (int s = 0; s < a->n; s++)
            for (int i = 0; i < STRIP; i += LANES) vec_store(a->values[s] + i, attn_value(a, s, strip * STRIP + i, bf16));
        value_strip(a, strip, WIDENED);
    }
}

ALWAYS_INLINE void attend(struct attn_state *a, const struct attn_job *j, bool bf16)
{
    attn_begin(a, j);
    for (int first = 0; first < j->n_keys + j->n_rows - 1; first += GRID) {
        attn_take_block(a, first);
        score_block(a, bf16);
        if (first + a->n > j->n_keys) mask_block(a);
        for (int u = 0; u < a->lanes; u++) soften(a, u);
        value_block(a, bf16);
    }
    for (int r = 0; r < a->rows; r++) {
        float *out = attn_out(a, r);
        vec sum = vec_all(a->sum[r]);
        for (int i = 0; i < HEAD_DIM; i += LANES) vec_store(out + i, vec_div(vec_load(out + i), sum));
    }
}

static void attention(const struct attn_job *j)
{
    struct attn_state a;
    if (j->bf16)
        attend(&a, j, true);
    else
        attend(&a, j, false);
}

#endif
#endif
