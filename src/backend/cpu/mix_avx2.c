/* Token mixing kernels, AVX2 tier: gated delta rule, attention, convolution. */
#include "backend/cpu/attn.h"
#include "backend/cpu/vec_avx2.h"

/* Token t for 8*vectors value columns from c. Each column sums over k in order, whatever the width. */
ALWAYS_INLINE void gdn_token(const struct gdn_job *j, int t, int c, int vectors)
{
    const float *q = j->q + (long)t * j->ldqk, *k = j->k + (long)t * j->ldqk, *v = j->v + (long)t * j->ldv + c;
    float *state = j->state + c, *o = j->o + (long)t * j->ldo + c;
    __m256 decay = _mm256_set1_ps(j->g[(long)t * j->ldg]), beta = _mm256_set1_ps(j->beta[(long)t * j->ldg]);
    __m256 sum[8], e[8];
    UNROLL8(m, vectors, sum[m] = _mm256_setzero_ps();)
    for (int i = 0; i < GDN_DIM; i++) {
        __m256 ki = _mm256_broadcast_ss(k + i);
        UNROLL8(m, vectors, sum[m] = _mm256_fmadd_ps(_mm256_loadu_ps(state + i * GDN_DIM + 8 * m), ki, sum[m]);)
    }
    UNROLL8(m, vectors, {
        e[m] = _mm256_mul_ps(beta, _mm256_fnmadd_ps(decay, sum[m], _mm256_loadu_ps(v + 8 * m)));
        sum[m] = _mm256_setzero_ps();
    })
    for (int i = 0; i < GDN_DIM; i++) {
        __m256 ki = _mm256_broadcast_ss(k + i), qi = _mm256_broadcast_ss(q + i);
        UNROLL8(m, vectors, {
            float *at = state + i * GDN_DIM + 8 * m;
            __m256 s = _mm256_fmadd_ps(e[m], ki, _mm256_mul_ps(decay, _mm256_loadu_ps(at)));
            _mm256_storeu_ps(at, s);
            sum[m] = _mm256_fmadd_ps(s, qi, sum[m]);
        })
    }
    UNROLL8(m, vectors, _mm256_storeu_ps(o + 8 * m, sum[m]);)
}

/* All tokens for one run of columns, so that a narrow part of the state stays in the cache. */
ALWAYS_INLINE void gdn_columns(const struct gdn_job *j, int c, int vectors)
{
    for (int t = 0; t < j->n; t++) gdn_token(j, t, c, vectors);
}

static void gdn(const struct gdn_job *j)
{
    int c = j->v_lo;
    for (; c + 64 <= j->v_hi; c += 64) gdn_columns(j, c, 8);
    for (; c + 32 <= j->v_hi; c += 32) gdn_columns(j, c, 4);
    for (; c < j->v_hi; c += 16) gdn_columns(j, c, 2);
}

/* Heads and keys that are worked on together: 8 sums, enough to hide the latency of a multiply-add. */
enum { HEADS = 4, KEYS = 2 };

ALWAYS_INLINE __m256 load_row(const uint8_t *rows, int s, int i, bool bf16)
{
    const uint8_t *at = attn_at(rows, s, i, bf16);
    return bf16 ? load_bf16(at) : _mm256_loadu_ps((const float *)(const void *)at);
}

/* The sum over the lanes of each of 8 vectors, every one in the order of sum_lanes. */
ALWAYS_INLINE __m256 sum_each(const __m256 v[8])
{
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* Scores of `heads` heads from h with keys s and s+1; a last odd key stands for both. */
ALWAYS_INLINE void score_tile(struct attn_state *a, int h, int heads, int s, bool bf16)
{
    int last = s + 1 < a->n ? s + 1 : s;
    __m256 sum[KEYS * HEADS];
    UNROLL8(i, KEYS * HEADS, sum[i] = _mm256_setzero_ps();)
    for (int i = 0; i < HEAD_DIM; i += 8) {
        __m256 x0 = load_row(a->keys, s, i, bf16), x1 = load_row(a->keys, last, i, bf16);
        UNROLL4(m, heads, {
            __m256 q = _mm256_loadu_ps(a->job->q + (long)(h + m) * a->job->ldq + i);
            sum[2 * m] = _mm256_fmadd_ps(q, x0, sum[2 * m]);
            sum[2 * m + 1] = _mm256_fmadd_ps(q, x1, sum[2 * m + 1]);
        })
    }
    float out[8];
    _mm256_storeu_ps(out, sum_each(sum));
    for (int m = 0; m < heads; m++) {
        a->score[h + m][s] = out[2 * m];
        a->score[h + m][last] = out[2 * m + 1];
    }
}

/* acc = acc*keep + the weighted values of the block, for `heads` heads from h, 16 dimensions at a time. */
ALWAYS_INLINE void value_tile(struct attn_state *a, int h, int heads, bool bf16)
{
    for (int i = 0; i < HEAD_DIM; i += 16) {
        __m256 acc[HEADS][2];
        UNROLL4(m, heads, {
            __m256 keep = _mm256_broadcast_ss(&a->keep[h + m]);
            acc[m][0] = _mm256_mul_ps(keep, _mm256_load_ps(a->acc[h + m] + i));
            acc[m][1] = _mm256_mul_ps(keep, _mm256_load_ps(a->acc[h + m] + i + 8));
        })
        for (int s = 0; s < a->n; s++) {
            __m256 v0 = load_row(a->values, s, i, bf16), v1 = load_row(a->values, s, i + 8, bf16);
            UNROLL4(m, heads, {
                __m256 p = _mm256_broadcast_ss(&a->score[h + m][s]);
                acc[m][0] = _mm256_fmadd_ps(p, v0, acc[m][0]);
                acc[m][1] = _mm256_fmadd_ps(p, v1, acc[m][1]);
            })
        }
        UNROLL4(m, heads, {
            _mm256_store_ps(a->acc[h + m] + i, acc[m][0]);
            _mm256_store_ps(a->acc[h + m] + i + 8, acc[m][1]);
        })
    }
}

/* Turns the scores of head h into weights relative to the new maximum and updates the sum. */
static void soften(struct attn_state *a, int h)
{
    float *score = a->score[h], lanes[8], max = a->max[h];
    for (int s = a->n; s < GRID; s++) score[s] = -INFINITY;
    __m256 top = _mm256_load_ps(score), sum = _mm256_setzero_ps();
    for (int s = 8; s < GRID; s += 8) top = _mm256_max_ps(_mm256_load_ps(score + s), top);
    _mm256_storeu_ps(lanes, top);
    for (int i = 0; i < 8; i++) max = lanes[i] > max ? lanes[i] : max;
    for (int s = 0; s < GRID; s += 8) {
        __m256 p = exp_ps(_mm256_sub_ps(_mm256_load_ps(score + s), _mm256_set1_ps(max)));
        _mm256_store_ps(score + s, p);
        sum = _mm256_add_ps(sum, p);
    }
    _mm256_storeu_ps(lanes, exp_ps(_mm256_set1_ps(a->max[h] - max)));
    a->keep[h] = lanes[0];
    a->sum[h] = a->sum[h] * lanes[0] + sum_lanes(sum);
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
        for (; h < j->n_q; h++) attend_block(&a, h, 1, bf16);
    }
    for (int h = 0; h < j->n_q; h++) {
        __m256 sum = _mm256_set1_ps(a.sum[h]);
        for (int i = 0; i < HEAD_DIM; i += 8)
            _mm256_storeu_ps(j->out + (long)h * j->ldo + i, _mm256_div_ps(_mm256_load_ps(a.acc[h] + i), sum));
    }
}

static void attention(const struct attn_job *j)
{
    if (j->bf16)
        attend(j, true);
    else
        attend(j, false);
}

/* Weights of 8 channels, one vector per tap. */
ALWAYS_INLINE void load_taps(__m256 w[CONV_WIDTH], const float *p)
{
    __m256 r[4];
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4 * i)), _mm_loadu_ps(p + 16 + 4 * i), 1);
    __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    __m256 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    w[0] = _mm256_shuffle_ps(a, c, 0x44);
    w[1] = _mm256_shuffle_ps(a, c, 0xee);
    w[2] = _mm256_shuffle_ps(b, d, 0x44);
    w[3] = _mm256_shuffle_ps(b, d, 0xee);
}

static void conv_silu(const struct conv_job *j)
{
    for (int c = 0; c < j->channels; c += 8) {
        __m256 w[CONV_WIDTH], h[CONV_HISTORY];
        load_taps(w, j->weight + (long)c * CONV_WIDTH);
        for (int i = 0; i < CONV_HISTORY; i++) h[i] = _mm256_loadu_ps(j->history + (long)i * j->ld_h + c);
        for (int t = 0; t < j->n; t++) {
            __m256 u = _mm256_loadu_ps(j->u + (long)t * j->ld_u + c), y = _mm256_mul_ps(w[0], h[0]);
            y = _mm256_fmadd_ps(w[1], h[1], y);
            y = _mm256_fmadd_ps(w[2], h[2], y);
            y = _mm256_fmadd_ps(w[3], u, y);
            _mm256_storeu_ps(j->out + (long)t * j->ld_out + c, _mm256_mul_ps(y, sigmoid_ps(y)));
            h[0] = h[1], h[1] = h[2], h[2] = u;
        }
        for (int i = 0; i < CONV_HISTORY; i++) _mm256_storeu_ps(j->history + (long)i * j->ld_h + c, h[i]);
    }
}

void cpu_kernels_avx2_mix(struct cpu_kernels *k)
{
    k->gdn = gdn;
    k->attention = attention;
    k->conv_silu = conv_silu;
}
