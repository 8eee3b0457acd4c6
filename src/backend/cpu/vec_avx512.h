/* Inside the AVX-512 tier: its parts, and vector helpers (number formats, sums across lanes, exponential). For *_avx512.c alone. */
#ifndef LILY_BACKEND_CPU_VEC_AVX512_H
#define LILY_BACKEND_CPU_VEC_AVX512_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/unroll.h"

/* The parts of the tier, for cpu_kernels_avx512 alone. */
void cpu_kernels_avx512_matmul(struct cpu_kernels *k);
void cpu_kernels_avx512_mix(struct cpu_kernels *k);
void cpu_kernels_avx512_elem(struct cpu_kernels *k);
void cpu_digits_avx512(const struct digit_job *job); /* for the AMX tier, too */
void cpu_q8_digits_avx512(const struct digit_job *job);
void cpu_attention_row_avx512(const struct attn_job *job);
void cpu_split_digits_avx512(const struct digit_row *out, const float *x, int n_groups);

#ifdef __AVX512F__
#include <immintrin.h>

/* 16 consecutive bf16 values, any alignment. */
ALWAYS_INLINE __m512 load16_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

/* Names for code that is written once for every vector width (attn.h). max of a NaN and b is b. */
typedef __m512 vec;
#define LANES 16
#define vec_load(p) _mm512_loadu_ps(p)
#define vec_store(p, x) _mm512_storeu_ps(p, x)
#define vec_all(x) _mm512_set1_ps(x)
#define vec_bf16(p) load16_bf16(p)
#define vec_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vec_add(a, b) _mm512_add_ps(a, b)
#define vec_sub(a, b) _mm512_sub_ps(a, b)
#define vec_mul(a, b) _mm512_mul_ps(a, b)
#define vec_div(a, b) _mm512_div_ps(a, b)
#define vec_max(a, b) _mm512_max_ps(a, b)

/* Lane i plus lane i+8. */
ALWAYS_INLINE __m256 fold_halves(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

/* The sum over the lanes of each of 8 vectors, in the same order for each. */
ALWAYS_INLINE __m256 sum_each(const __m512 v[8])
{
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(fold_halves(v[0]), fold_halves(v[1])), _mm256_hadd_ps(fold_halves(v[2]), fold_halves(v[3])));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(fold_halves(v[4]), fold_halves(v[5])), _mm256_hadd_ps(fold_halves(v[6]), fold_halves(v[7])));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

ALWAYS_INLINE float sum_lanes(__m512 v)
{
    __m256 half = fold_halves(v);
    __m128 quad = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    __m128 pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

/*
 * e^x to about 1 ulp for x up to 0, as softmax and sigmoid have it: x = n ln 2 + r, a polynomial in r, times 2^n. Far below 0 it
 * is 0; NaN stays NaN because maxps returns its second operand.
 */
ALWAYS_INLINE __m512 exp_ps(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-105.0f), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    __m512 p = _mm512_set1_ps(0x1.6a2352p-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a6cp-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f4p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.55549p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
    return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n);
}

/* 1/(1+e^-x), by e^-|x| so that the exponential never overflows. */
ALWAYS_INLINE __m512 sigmoid_ps(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
    __m512 e = exp_ps(_mm512_or_ps(x, sign));
    __m512 above = _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), one, e);
    return _mm512_div_ps(above, _mm512_add_ps(one, e));
}

#endif
#endif
