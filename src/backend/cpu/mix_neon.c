/* Token mixing kernels, NEON tier: gated delta rule, attention, convolution. */
#include "backend/cpu/attn.h"
#include "backend/cpu/vec_neon.h"

/* Token t for 4*vectors value columns from c. Each column sums over k in order, whatever the width. */
ALWAYS_INLINE void gdn_token(const struct gdn_job *j, int t, int c, int vectors)
{
    const float *q = j->q + (long)t * j->ldqk, *k = j->k + (long)t * j->ldqk, *v = j->v + (long)t * j->ldv + c;
    float *state = j->state + c, *o = j->o + (long)t * j->ldo + c, decay = j->g[(long)t * j->ldg];
    float32x4_t sum[8], e[8];
    UNROLL8(m, vectors, sum[m] = vdupq_n_f32(0);)
    for (int i = 0; i < GDN_DIM; i++)
        UNROLL8(m, vectors, sum[m] = vfmaq_n_f32(sum[m], vld1q_f32(state + i * GDN_DIM + 4 * m), k[i]);)
    UNROLL8(m, vectors, {
        float32x4_t miss = vfmsq_n_f32(vld1q_f32(v + 4 * m), sum[m], decay);
        e[m] = vmulq_n_f32(miss, j->beta[(long)t * j->ldg]);
        sum[m] = vdupq_n_f32(0);
    })
    for (int i = 0; i < GDN_DIM; i++)
        UNROLL8(m, vectors, {
            float *at = state + i * GDN_DIM + 4 * m;
            float32x4_t s = vfmaq_n_f32(vmulq_n_f32(vld1q_f32(at), decay), e[m], k[i]);
            vst1q_f32(at, s);
            sum[m] = vfmaq_n_f32(sum[m], s, q[i]);
        })
    UNROLL8(m, vectors, vst1q_f32(o + 4 * m, sum[m]);)
}

/* All tokens for one run of columns, so that a narrow part of the state stays in the cache. */
ALWAYS_INLINE void gdn_columns(const struct gdn_job *j, int c, int vectors)
{
    for (int t = 0; t < j->n; t++) gdn_token(j, t, c, vectors);
}

static void gdn(const struct gdn_job *j)
{
    int c = j->v_lo;
    for (; c + 32 <= j->v_hi; c += 32) gdn_columns(j, c, 8);
    for (; c < j->v_hi; c += 16) gdn_columns(j, c, 4);
}

/* Heads that are worked on together. */
enum { HEADS = 4 };

ALWAYS_INLINE float32x4_t load_row(const uint8_t *rows, int s, int i, bool bf16)
{
    const uint8_t *at = attn_at(rows, s, i, bf16);
    return bf16 ? load4_bf16(at) : vreinterpretq_f32_u8(vld1q_u8(at));
}

/* Scores of `heads` heads from h with key s: four sums each, by dimension. */
ALWAYS_INLINE void score_tile(struct attn_state *a, int h, int heads, int s, bool bf16)
{
    float32x4_t sum[4][4];
    UNROLL4(m, heads, UNROLL4(p, 4, sum[m][p] = vdupq_n_f32(0);))
    for (int i = 0; i < HEAD_DIM; i += 16) {
        float32x4_t x[4];
        UNROLL4(p, 4, x[p] = load_row(a->keys, s, i + 4 * p, bf16);)
        UNROLL4(m, heads, {
            const float *q = a->job->q + (long)(h + m) * a->job->ldq + i;
            UNROLL4(p, 4, sum[m][p] = vfmaq_f32(sum[m][p], vld1q_f32(q + 4 * p), x[p]);)
        })
    }
    UNROLL4(m, heads, {
        float32x4_t all = vaddq_f32(vaddq_f32(sum[m][0], sum[m][1]), vaddq_f32(sum[m][2], sum[m][3]));
        a->score[h + m][s] = vaddvq_f32(all);
    })
}

/* acc = acc*keep + the weighted values of the block, for `heads` heads from h, 16 dimensions at a time. */
ALWAYS_INLINE void value_tile(struct attn_state *a, int h, int heads, bool bf16)
{
    for (int i = 0; i < HEAD_DIM; i += 16) {
        float32x4_t acc[4][4];
        UNROLL4(m, heads, UNROLL4(p, 4, acc[m][p] = vmulq_n_f32(vld1q_f32(a->acc[h + m] + i + 4 * p), a->keep[h + m]);))
        for (int s = 0; s < a->n; s++) {
            float32x4_t v[4];
            UNROLL4(p, 4, v[p] = load_row(a->values, s, i + 4 * p, bf16);)
            UNROLL4(m, heads, UNROLL4(p, 4, acc[m][p] = vfmaq_n_f32(acc[m][p], v[p], a->score[h + m][s]);))
        }
        UNROLL4(m, heads, UNROLL4(p, 4, vst1q_f32(a->acc[h + m] + i + 4 * p, acc[m][p]);))
    }
}

/* Turns the scores of head h into weights relative to the new maximum and updates the sum. */
static void soften(struct attn_state *a, int h)
{
    float *score = a->score[h], max = a->max[h];
    for (int s = a->n; s < GRID; s++) score[s] = -INFINITY;
    float32x4_t top = vld1q_f32(score), sum = vdupq_n_f32(0);
    for (int s = 4; s < GRID; s += 4) top = vmaxnmq_f32(top, vld1q_f32(score + s));
    max = fmaxf(max, vmaxnmvq_f32(top));
    for (int s = 0; s < GRID; s += 4) {
        float32x4_t p = exp_ps(vsubq_f32(vld1q_f32(score + s), vdupq_n_f32(max)));
        vst1q_f32(score + s, p);
        sum = vaddq_f32(sum, p);
    }
    float keep = vgetq_lane_f32(exp_ps(vdupq_n_f32(a->max[h] - max)), 0);
    a->keep[h] = keep;
    a->sum[h] = a->sum[h] * keep + vaddvq_f32(sum);
    a->max[h] = max;
}

ALWAYS_INLINE void attend_block(struct attn_state *a, int h, int heads, bool bf16)
{
    for (int s = 0; s < a->n; s++) score_tile(a, h, heads, s, bf16);
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
    for (int h = 0; h < j->n_q; h++)
        for (int i = 0; i < HEAD_DIM; i += 4)
            vst1q_f32(j->out + (long)h * j->ldo + i, vdivq_f32(vld1q_f32(a.acc[h] + i), vdupq_n_f32(a.sum[h])));
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
    for (int c = 0; c < j->channels; c += 4) {
        float32x4x4_t w = vld4q_f32(j->weight + (long)c * CONV_WIDTH); /* one vector for each tap */
        float32x4_t h[4];
        UNROLL4(i, CONV_HISTORY, h[i] = vld1q_f32(j->history + (long)i * j->ld_h + c);)
        for (int t = 0; t < j->n; t++) {
            float32x4_t u = vld1q_f32(j->u + (long)t * j->ld_u + c), y = vmulq_f32(w.val[0], h[0]);
            y = vfmaq_f32(y, w.val[1], h[1]);
            y = vfmaq_f32(y, w.val[2], h[2]);
            y = vfmaq_f32(y, w.val[3], u);
            vst1q_f32(j->out + (long)t * j->ld_out + c, vmulq_f32(y, sigmoid_ps(y)));
            h[0] = h[1], h[1] = h[2], h[2] = u;
        }
        UNROLL4(i, CONV_HISTORY, vst1q_f32(j->history + (long)i * j->ld_h + c, h[i]);)
    }
}

void cpu_kernels_neon_mix(struct cpu_kernels *k)
{
    k->gdn = gdn;
    k->attention = attention;
    k->conv_silu = conv_silu;
}
