/*
 * Softmax attention of decode, AVX-512: the query heads of one token that share a KV head, over keys and values in bf16.
 *
 * A vector is 32 dimensions as they are stored, taken apart into the even and the odd ones by a shift and a mask, so that
 * queries and outputs lie in that order, too. Scores: a lane is a dimension, and the sums over the lanes of two keys' scores are
 * folded together. Outputs: a lane is a dimension, and a few keys are added to 32 dimensions of all heads in registers. A head's
 * sums have the same order whatever heads are beside it. Where both processors of a machine read keys as fast as they can,
 * half of the time is arithmetic, so the next block is asked for all along, line by line.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/vec_avx512.h"

enum {
    HEADS = 8,               /* at once, at most */
    STEPS = HEAD_DIM / 32,
    ROW_BYTES = HEAD_DIM * 2,
    PART = 16,               /* keys whose values are added together: 8 KB */
};

struct row_state {
    float q[STEPS][2][HEADS][16];   /* even and odd dimensions of each step */
    float out[STEPS][HEADS][2][16]; /* not yet divided by the sums */
    float score[GRID / 2][2][HEADS]; /* of two keys a vector; then weights */
    float max[2][HEADS], sum[2][HEADS], keep[2][HEADS]; /* sums of even and odd keys; keep: what the new maxima leave of out and sum */
} __attribute__((aligned(64)));

/* A block's keys or values, and those of the next block, which are asked for. */
struct rows_at {
    const uint8_t *now, *next;
};

ALWAYS_INLINE __m512 even_dims(__m512i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

ALWAYS_INLINE __m512 odd_dims(__m512i x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)));
}

/* Lane i is the sum over the lanes of v[i], in the same order for each. */
ALWAYS_INLINE __m512 sum_each16(const __m512 v[16])
{
    __m512 a[8], b[4], c[2];
    UNROLL8(i, 8, a[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));)
    UNROLL4(i, 4, {
        const __m512d x = _mm512_castps_pd(a[2 * i]), y = _mm512_castps_pd(a[2 * i + 1]);
        b[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    })
    UNROLL2(i, 2, c[i] = _mm512_add_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88), _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));)
    return _mm512_add_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
}

/* Scores of the keys s and s+1 of the block, of which it has n; behind the last one: -inf. */
ALWAYS_INLINE void score_keys(struct row_state *a, const struct rows_at *keys, int s, int n, int heads)
{
    const uint8_t *k0 = keys->now + s * ROW_BYTES, *k1 = s + 1 < n ? k0 + ROW_BYTES : k0, *ask = keys->next + s * ROW_BYTES;
    __m512 sum[16];
    UNROLL8(i, 8, sum[i] = sum[8 + i] = _mm512_setzero_ps();)
#pragma GCC unroll 1
    for (int i = 0; i < STEPS; i++) {
        const __m512i x = _mm512_loadu_si512(k0 + 64 * i), y = _mm512_loadu_si512(k1 + 64 * i);
        const __m512 x0 = even_dims(x), x1 = odd_dims(x), y0 = even_dims(y), y1 = odd_dims(y);
        __builtin_prefetch(ask + 64 * i, 0, 2);
        __builtin_prefetch(ask + ROW_BYTES + 64 * i, 0, 2);
        UNROLL8(h, heads, {
            const __m512 q = _mm512_load_ps(a->q[i][0][h]);
            sum[h] = _mm512_fmadd_ps(q, x0, sum[h]);
            sum[8 + h] = _mm512_fmadd_ps(q, y0, sum[8 + h]);
        })
        UNROLL8(h, heads, {
            const __m512 q = _mm512_load_ps(a->q[i][1][h]);
            sum[h] = _mm512_fmadd_ps(q, x1, sum[h]);
            sum[8 + h] = _mm512_fmadd_ps(q, y1, sum[8 + h]);
        })
    }
    const __mmask16 there = s + 1 < n ? 0xffff : 0x00ff;
    _mm512_store_ps(a->score[s / 2][0], _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), there, sum_each16(sum)));
}

/* Turns the scores of a block into weights relative to the new maxima and updates their sums. */
ALWAYS_INLINE void soften(struct row_state *a, int n)
{
    const __m512 old = _mm512_load_ps(a->max[0]);
    __m512 max = old, sum = _mm512_setzero_ps();
    for (int s = 0; s < n; s += 2) max = _mm512_max_ps(_mm512_load_ps(a->score[s / 2][0]), max);
    max = _mm512_max_ps(max, _mm512_shuffle_f32x4(max, max, 0x4e));
    for (int s = 0; s < n; s += 2) {
        const __m512 p = exp_ps(_mm512_sub_ps(_mm512_load_ps(a->score[s / 2][0]), max));
        _mm512_store_ps(a->score[s / 2][0], p);
        sum = _mm512_add_ps(sum, p);
    }
    const __m512 keep = exp_ps(_mm512_sub_ps(old, max));
    _mm512_store_ps(a->keep[0], keep);
    _mm512_store_ps(a->sum[0], _mm512_fmadd_ps(_mm512_load_ps(a->sum[0]), keep, sum));
    _mm512_store_ps(a->max[0], max);
}

/* out = out*keep + the weighted values of the block, a few keys by 32 dimensions at a time. */
ALWAYS_INLINE void add_values(struct row_state *a, const struct rows_at *values, int n, int heads)
{
    for (int from = 0; from < n; from += PART) {
        const int to = n - from < PART ? n : from + PART;
        const uint8_t *ask = values->next + from * ROW_BYTES;
#pragma GCC unroll 1
        for (int i = 0; i < STEPS; i++) {
            __m512 out[HEADS][2];
            UNROLL8(h, heads, UNROLL2(odd, 2, out[h][odd] = _mm512_load_ps(a->out[i][h][odd]);))
            if (from == 0) UNROLL8(h, heads, UNROLL2(odd, 2, out[h][odd] = _mm512_mul_ps(_mm512_set1_ps(a->keep[0][h]), out[h][odd]);))
            for (int s = from; s < to; s++, ask += 64) {
                const __m512i x = _mm512_loadu_si512(values->now + s * ROW_BYTES + 64 * i);
                const __m512 x0 = even_dims(x), x1 = odd_dims(x);
                __builtin_prefetch(ask, 0, 2);
                UNROLL8(h, heads, {
                    const __m512 p = _mm512_set1_ps(a->score[s / 2][s % 2][h]);
                    out[h][0] = _mm512_fmadd_ps(p, x0, out[h][0]);
                    out[h][1] = _mm512_fmadd_ps(p, x1, out[h][1]);
                })
            }
            UNROLL8(h, heads, UNROLL2(odd, 2, _mm512_store_ps(a->out[i][h][odd], out[h][odd]);))
        }
    }
}

static void begin(struct row_state *a, const struct attn_job *j, int first, int heads)
{
    memset(a->out, 0, sizeof a->out);
    memset(a->sum, 0, sizeof a->sum);
    _mm512_store_ps(a->max[0], _mm512_set1_ps(-INFINITY));
    for (int h = 0; h < heads; h++)
        for (int d = 0; d < HEAD_DIM; d++) a->q[d / 32][d % 2][h][d % 32 / 2] = j->q[(long)(first + h) * j->ldq + d];
}

static void finish(const struct row_state *a, const struct attn_job *j, int first, int heads)
{
    for (int h = 0; h < heads; h++) {
        const float sum = a->sum[0][h] + a->sum[1][h];
        for (int d = 0; d < HEAD_DIM; d++) j->out[(long)(first + h) * j->ldo + d] = a->out[d / 32][h][d % 2][d % 32 / 2] / sum;
    }
}

ALWAYS_INLINE void attend(const struct attn_job *j, int first, int heads)
{
    struct row_state a;
    begin(&a, j, first, heads);
    for (int at = 0; at < j->n_keys; at += GRID) {
        const int n = j->n_keys - at < GRID ? j->n_keys - at : GRID;
        const uint8_t *page = j->pages[at / GRID], *next = j->n_keys - at > GRID ? j->pages[at / GRID + 1] : page;
        for (int s = 0; s < n; s += 2) score_keys(&a, &(struct rows_at){page + j->k_offset, next + j->k_offset}, s, n, heads);
        soften(&a, n);
        add_values(&a, &(struct rows_at){page + j->v_offset, next + j->v_offset}, n, heads);
    }
    finish(&a, j, first, heads);
}

void cpu_attention_row_avx512(const struct attn_job *j)
{
    for (int h = 0, n; h < j->n_q; h += n) {
        const int left = j->n_q - h;
        n = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (n == 8) attend(j, h, 8);
        else if (n == 4) attend(j, h, 4);
        else if (n == 2) attend(j, h, 2);
        else attend(j, h, 1);
    }
}
