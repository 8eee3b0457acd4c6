/* Token mixing kernels, AVX-512 tier: gated delta rule, attention, convolution. */
#include "backend/cpu/attn.h"
#include "backend/cpu/vec_avx512.h"

/* Token t for 16*vectors value columns from c. Each column sums over k in order, whatever the width. */
ALWAYS_INLINE void gdn_token(const struct gdn_job *j, int t, int c, int vectors)
{
    const float *q = j->q + (long)t * j->ldqk, *k = j->k + (long)t * j->ldqk, *v = j->v + (long)t * j->ldv + c;
    float *state = j->state + c, *o = j->o + (long)t * j->ldo + c;
    __m512 decay = _mm512_set1_ps(j->g[(long)t * j->ldg]), beta = _mm512_set1_ps(j->beta[(long)t * j->ldg]);
    __m512 sum[8], e[8];
    UNROLL8(m, vectors, sum[m] = _mm512_setzero_ps();)
    for (int i = 0; i < GDN_DIM; i++) {
        __m512 ki = _mm512_set1_ps(k[i]);
        UNROLL8(m, vectors, sum[m] = _mm512_fmadd_ps(_mm512_loadu_ps(state + i * GDN_DIM + 16 * m), ki, sum[m]);)
    }
    UNROLL8(m, vectors, {
        e[m] = _mm512_mul_ps(beta, _mm512_fnmadd_ps(decay, sum[m], _mm512_loadu_ps(v + 16 * m)));
        sum[m] = _mm512_setzero_ps();
    })
    for (int i = 0; i < GDN_DIM; i++) {
        __m512 ki = _mm512_set1_ps(k[i]), qi = _mm512_set1_ps(q[i]);
        UNROLL8(m, vectors, {
            float *at = state + i * GDN_DIM + 16 * m;
            __m512 s = _mm512_fmadd_ps(e[m], ki, _mm512_mul_ps(decay, _mm512_loadu_ps(at)));
            _mm512_storeu_ps(at, s);
            sum[m] = _mm512_fmadd_ps(s, qi, sum[m]);
        })
    }
    UNROLL8(m, vectors, _mm512_storeu_ps(o + 16 * m, sum[m]);)
}

/* All tokens for one run of columns, so that a narrow part of the state stays in the cache. */
ALWAYS_INLINE void gdn_columns(const struct gdn_job *j, int c, int vectors)
{
    for (int t = 0; t < j->n; t++) gdn_token(j, t, c, vectors);
}

static void gdn(const struct gdn_job *j)
{
    int c = j->v_lo;
    for (; c + 128 <= j->v_hi; c += 128) gdn_columns(j, c, 8);
    for (; c + 64 <= j->v_hi; c += 64) gdn_columns(j, c, 4);
    for (; c < j->v_hi; c += 16) gdn_columns(j, c, 1);
}

/* Heads and keys that are worked on together. */
enum { HEADS = 8, KEYS = 2 };

ALWAYS_INLINE __m512 load_row(const uint8_t *rows, int s, int i, bool bf16)
{
    const uint8_t *at = attn_at(rows, s, i, bf16);
    return bf16 ? load16_bf16(at) : _mm512_loadu_ps((const float *)(const void *)at);
}

/* Scores of `heads` heads from h with keys s and s+1; a last odd key stands for both. */
ALWAYS_INLINE void score_tile(struct attn_state *a, int h, int heads, int s, bool bf16)
{
    int last = s + 1 < a->n ? s + 1 : s;
    __m512 first_sum[8], last_sum[8];
    UNROLL8(m, 8, first_sum[m] = last_sum[m] = _mm512_setzero_ps();)
    for (int i = 0; i < HEAD_DIM; i += 16) {
        __m512 x0 = load_row(a->keys, s, i, bf16), x1 = load_row(a->keys, last, i, bf16);
        UNROLL8(m, heads, {
            __m512 q = _mm512_loadu_ps(a->job->q + (long)(h + m) * a->job->ldq + i);
            first_sum[m] = _mm512_fmadd_ps(q, x0, first_sum[m]);
            last_sum[m] = _mm512_fmadd_ps(q, x1, last_sum[m]);
        })
    }
    float first_out[8], last_out[8];
    _mm256_storeu_ps(first_out, sum_each(first_sum));
    _mm256_storeu_ps(last_out, sum_each(last_sum));
    for (int m = 0; m < heads; m++) {
        a->score[h + m][s] = first_out[m];
        a->score[h + m][last] = last_out[m];
    }
}

/* acc = acc*keep + the weighted values of the block, for `heads` heads from h, 32 dimensions at a time. */
ALWAYS_INLINE void value_tile(struct attn_state *a, int h, int heads, bool bf16)
{
    for (int i = 0; i < HEAD_DIM; i += 32) {
        __m512 acc[8][2];
        UNROLL8(m, heads, {
            __m512 keep = _mm512_set1_ps(a->keep[h + m]);
            acc[m][0] = _mm512_mul_ps(keep, _mm512_load_ps(a->acc[h + m] + i));
            acc[m][1] = _mm512_mul_ps(keep, _mm512_load_ps(a->acc[h + m] + i + 16));
        })
        for (int s = 0; s < a->n; s++) {
            __m512 v0 = load_row(a->values, s, i, bf16), v1 = load_row(a->values, s, i + 16, bf16);
            UNROLL8(m, heads, {
                __m512 p = _mm512_set1_ps(a->score[h + m][s]);
                acc[m][0] = _mm512_fmadd_ps(p, v0, acc[m][0]);
                acc[m][1] = _mm512_fmadd_ps(p, v1, acc[m][1]);
            })
        }
        UNROLL8(m, heads, {
            _mm512_store_ps(a->acc[h + m] + i, acc[m][0]);
            _mm512_store_ps(a->acc[h + m] + i + 16, acc[m][1]);
        })
    }
}

/* Turns the scores of head h into weights relative to the new maximum and updates the sum. */
static void soften(struct attn_state *a, int h)
{
    float *score = a->score[h], lanes[16], max = a->max[h];
    for (int s = a->n; s < GRID; s++) score[s] = -INFINITY;
    __m512 top = _mm512_load_ps(score), sum = _mm512_setzero_ps();
    for (int s = 16; s < GRID; s += 16) top = _mm512_max_ps(_mm512_load_ps(score + s), top);
    _mm512_storeu_ps(lanes, top);
    for (int i = 0; i < 16; i++) max = lanes[i] > max ? lanes[i] : max;
    for (int s = 0; s < GRID; s += 16) {
        __m512 p = exp_ps(_mm512_sub_ps(_mm512_load_ps(score + s), _mm512_set1_ps(max)));
        _mm512_store_ps(score + s, p);
        sum = _mm512_add_ps(sum, p);
    }
    float keep = _mm512_cvtss_f32(exp_ps(_mm512_set1_ps(a->max[h] - max)));
    a->keep[h] = keep;
    a->sum[h] = a->sum[h] * keep + sum_lanes(sum);
    a->max[h] = max;
}

ALWAYS_INLINE void attend_block(struct attn_state *a, int h, int heads, bool bf16)
{
    for (int s = 0; s < a->n; s += KEYS) score_tile(a, h, heads, s, bf16);
    for (int m = 0; m < heads; m++) soften(a, h + m);
    value_tile(a, h, heads, bf16);
}

ALWAYS_INLINE void attend(const struct attn_job *j, bool bf16)
{
    struct attn_state a;
    attn_begin(&a, j);
    for (int first = 0; first < j->n_keys; first += GRID) {
        attn_take_block(&a, first);
        int h = 0;
        for (; h + HEADS <= j->n_q; h += HEADS) attend_block(&a, h, HEADS, bf16);
        for (; h + 2 <= j->n_q; h += 2) attend_block(&a, h, 2, bf16);
        if (h < j->n_q) attend_block(&a, h, 1, bf16);
    }
    for (int h = 0; h < j->n_q; h++) {
        __m512 sum = _mm512_set1_ps(a.sum[h]);
        for (int i = 0; i < HEAD_DIM; i += 16)
            _mm512_storeu_ps(j->out + (long)h * j->ldo + i, _mm512_div_ps(_mm512_load_ps(a.acc[h] + i), sum));
    }
}

static void attention(const struct attn_job *j)
{
    if (j->bf16)
        attend(j, true);
    else
        attend(j, false);
}

static void conv_silu(const struct conv_job *j)
{
    const __m512i channel = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    for (int c = 0; c < j->channels; c += 16) {
        __m512 w[4], h[4];
        UNROLL4(i, CONV_WIDTH, w[i] = _mm512_i32gather_ps(channel, j->weight + (long)c * CONV_WIDTH + i, 4);)
        UNROLL4(i, CONV_HISTORY, h[i] = _mm512_loadu_ps(j->history + (long)i * j->ld_h + c);)
        for (int t = 0; t < j->n; t++) {
            __m512 u = _mm512_loadu_ps(j->u + (long)t * j->ld_u + c), y = _mm512_mul_ps(w[0], h[0]);
            y = _mm512_fmadd_ps(w[1], h[1], y);
            y = _mm512_fmadd_ps(w[2], h[2], y);
            y = _mm512_fmadd_ps(w[3], u, y);
            _mm512_storeu_ps(j->out + (long)t * j->ld_out + c, _mm512_mul_ps(y, sigmoid_ps(y)));
            h[0] = h[1], h[1] = h[2], h[2] = u;
        }
        UNROLL4(i, CONV_HISTORY, _mm512_storeu_ps(j->history + (long)i * j->ld_h + c, h[i]);)
    }
}

void cpu_kernels_avx512_mix(struct cpu_kernels *k)
{
    k->gdn = gdn;
    k->attention = attention;
    k->conv_silu = conv_silu;
}
