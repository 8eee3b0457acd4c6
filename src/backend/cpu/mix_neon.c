/* Token mixing kernels, NEON tier: gated delta rule, attention, convolution. */
#include "backend/cpu/vec_neon.h"

#include "backend/cpu/attn.h"

/* Token t for 4*vectors value columns from c. Each column sums over k in order, whatever the width. */
ALWAYS_INLINE void gdn_token(const struct gdn_job *j, float *state, int ld, int t, int c, int vectors)
{
    const float *q = j->q + (long)t * j->ldqk, *k = j->k + (long)t * j->ldqk, *v = j->v + (long)t * j->ldv + c;
    float *o = j->o + (long)t * j->ldo + c, decay = j->g[(long)t * j->ldg];
    float32x4_t sum[8], e[8];
    UNROLL8(m, vectors, sum[m] = vdupq_n_f32(0);)
    for (int i = 0; i < GDN_DIM; i++)
        UNROLL8(m, vectors, sum[m] = vfmaq_n_f32(sum[m], vld1q_f32(state + i * ld + 4 * m), k[i]);)
    UNROLL8(m, vectors, {
        float32x4_t miss = vfmsq_n_f32(vld1q_f32(v + 4 * m), sum[m], decay);
        e[m] = vmulq_n_f32(miss, j->beta[(long)t * j->ldg]);
        sum[m] = vdupq_n_f32(0);
    })
    for (int i = 0; i < GDN_DIM; i++)
        UNROLL8(m, vectors, {
            float *at = state + i * ld + 4 * m;
            float32x4_t s = vfmaq_n_f32(vmulq_n_f32(vld1q_f32(at), decay), e[m], k[i]);
            vst1q_f32(at, s);
            sum[m] = vfmaq_n_f32(sum[m], s, q[i]);
        })
    UNROLL8(m, vectors, vst1q_f32(o + 4 * m, sum[m]);)
}

#include "backend/cpu/gdn.h"

static void gdn(const struct gdn_job *j)
{
    int c = j->v_lo;
    for (; c + 32 <= j->v_hi; c += 32) gdn_columns(j, c, 8);
    for (; c < j->v_hi; c += 16) gdn_columns(j, c, 4);
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
