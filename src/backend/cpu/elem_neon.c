/* Row kernels, NEON tier: norms, gates, sums. Sums of squares are in double, as in the scalar tier. */
#include <math.h>

#include "backend/cpu/vec_neon.h"

static double sum_squares(const float *x, int n)
{
    float64x2_t s[4] = {vdupq_n_f64(0), vdupq_n_f64(0), vdupq_n_f64(0), vdupq_n_f64(0)};
    for (int i = 0; i < n; i += 8)
        UNROLL4(j, 4, {
            float64x2_t v = vcvt_f64_f32(vld1_f32(x + i + 2 * j));
            s[j] = vfmaq_f64(s[j], v, v);
        })
    return vaddvq_f64(vaddq_f64(vaddq_f64(s[0], s[1]), vaddq_f64(s[2], s[3])));
}

static void rms_norm(float *out, const float *x, const float *w, int n, float eps)
{
    float32x4_t r = vdupq_n_f32((float)(1 / sqrt(sum_squares(x, n) / n + eps)));
    for (int i = 0; i < n; i += 4) vst1q_f32(out + i, vmulq_f32(vmulq_f32(vld1q_f32(x + i), r), vld1q_f32(w + i)));
}

static void l2_norm(float *out, const float *x, float scale)
{
    float32x4_t r = vdupq_n_f32((float)(scale / sqrt(sum_squares(x, GDN_DIM) + 1e-6)));
    for (int i = 0; i < GDN_DIM; i += 4) vst1q_f32(out + i, vmulq_f32(vld1q_f32(x + i), r));
}

static void gated_norm(float *out, const float *o, const float *w, const float *z, float eps)
{
    float32x4_t r = vdupq_n_f32((float)(1 / sqrt(sum_squares(o, GDN_DIM) / GDN_DIM + eps)));
    for (int i = 0; i < GDN_DIM; i += 4) {
        float32x4_t gate = vld1q_f32(z + i), x = vmulq_f32(vld1q_f32(o + i), r);
        gate = vmulq_f32(gate, sigmoid_ps(gate));
        vst1q_f32(out + i, vmulq_f32(vmulq_f32(x, vld1q_f32(w + i)), gate));
    }
}

static void silu_mul(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i += 4) {
        float32x4_t g = vld1q_f32(gate + i);
        vst1q_f32(out + i, vmulq_f32(vmulq_f32(g, sigmoid_ps(g)), vld1q_f32(up + i)));
    }
}

static void sigmoid_mul(float *out, const float *x, const float *gate, int n)
{
    for (int i = 0; i < n; i += 4) vst1q_f32(out + i, vmulq_f32(vld1q_f32(x + i), sigmoid_ps(vld1q_f32(gate + i))));
}

static void add_scaled(float *y, const float *x, float a, int n)
{
    for (int i = 0; i < n; i += 4) vst1q_f32(y + i, vfmaq_n_f32(vld1q_f32(y + i), vld1q_f32(x + i), a));
}

static void group_sums(float *sums, const float *x, int n_groups)
{
    for (int g = 0; g < n_groups; g++) {
        const float *p = x + (long)g * QUANT_GROUP;
        float32x4_t s[4];
        UNROLL4(j, 4, {
            s[j] = vaddq_f32(vaddq_f32(vld1q_f32(p + 16 * j), vld1q_f32(p + 16 * j + 4)),
                             vaddq_f32(vld1q_f32(p + 16 * j + 8), vld1q_f32(p + 16 * j + 12)));
        })
        sums[g] = vaddvq_f32(vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
    }
}

void cpu_kernels_neon_elem(struct cpu_kernels *k)
{
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
    k->gated_norm = gated_norm;
    k->silu_mul = silu_mul;
    k->sigmoid_mul = sigmoid_mul;
    k->add_scaled = add_scaled;
    k->group_sums = group_sums;
}
