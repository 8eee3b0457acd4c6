/* Inside the NEON tier: its parts, and vector helpers (number formats, exponential). For *_neon.c alone. */
#ifndef LILY_BACKEND_CPU_VEC_NEON_H
#define LILY_BACKEND_CPU_VEC_NEON_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/unroll.h"

/* The parts of the tier, for cpu_kernels_neon alone. */
void cpu_kernels_neon_matmul(struct cpu_kernels *k);
void cpu_kernels_neon_mix(struct cpu_kernels *k);
void cpu_kernels_neon_elem(struct cpu_kernels *k);
void cpu_kernels_neon_digits(struct cpu_kernels *k);

#ifdef __aarch64__
#include <arm_neon.h>

/* 4 consecutive bf16 values at an even address. */
ALWAYS_INLINE float32x4_t load4_bf16(const uint8_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

/* Names for code that is written once for every vector width (attn.h). max of a NaN and b is b. */
typedef float32x4_t vec;
#define LANES 4
#define vec_load(p) vld1q_f32(p)
#define vec_store(p, x) vst1q_f32(p, x)
#define vec_all(x) vdupq_n_f32(x)
#define vec_bf16(p) load4_bf16(p)
#define vec_fma(a, b, c) vfmaq_f32(c, a, b)
#define vec_add(a, b) vaddq_f32(a, b)
#define vec_sub(a, b) vsubq_f32(a, b)
#define vec_mul(a, b) vmulq_f32(a, b)
#define vec_div(a, b) vdivq_f32(a, b)
#define vec_max(a, b) vmaxnmq_f32(a, b)

/*
 * e^x to about 1 ulp for x up to 0, as softmax and sigmoid have it: x = n ln 2 + r, a polynomial in r, and 2^n in two factors so
 * that results below the normal range round once more instead of vanishing. Far below 0 it is 0; fmax of NaN is NaN.
 */
ALWAYS_INLINE float32x4_t exp_ps(float32x4_t x)
{
    x = vmaxq_f32(x, vdupq_n_f32(-105.0f));
    float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(0x1.715476p+0f)));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1f));
    r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20f));
    float32x4_t p = vdupq_n_f32(0x1.6a2352p-10f);
    p = vfmaq_f32(vdupq_n_f32(0x1.123a6cp-7f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.5558f4p-5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.55549p-3f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.fffffcp-2f), p, r);
    p = vaddq_f32(vfmaq_f32(r, vmulq_f32(r, r), p), vdupq_n_f32(1.0f));
    int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    int32x4_t rest = vsubq_s32(whole, half);
    float32x4_t a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    float32x4_t b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
    return vmulq_f32(vmulq_f32(p, a), b);
}

/* 1/(1+e^-x), by e^-|x| so that the exponential never overflows. */
ALWAYS_INLINE float32x4_t sigmoid_ps(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f);
    float32x4_t e = exp_ps(vnegq_f32(vabsq_f32(x)));
    uint32x4_t negative = vcltzq_s32(vreinterpretq_s32_f32(x));
    return vdivq_f32(vbslq_f32(negative, e, one), vaddq_f32(one, e));
}

#endif
#endif
