/* Inside the AVX2 tier: its parts, and vector helpers (number formats, sums across lanes, exponential). For *_avx2.c alone. */
#ifndef LILY_BACKEND_CPU_VEC_AVX2_H
#define LILY_BACKEND_CPU_VEC_AVX2_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/unroll.h"

/* The parts of the tier, for cpu_kernels_avx2 alone. */
void cpu_kernels_avx2_matmul(struct cpu_kernels *k);
void cpu_kernels_avx2_mix(struct cpu_kernels *k);
void cpu_kernels_avx2_elem(struct cpu_kernels *k);
void cpu_kernels_avx2_digits(struct cpu_kernels *k);

#ifdef __AVX2__
#include <immintrin.h>

/* 8 consecutive bf16 values, any alignment. */
ALWAYS_INLINE __m256 load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

/* Names for code that is written once for every vector width (attn.h). max of a NaN and b is b. */
typedef __m256 vec;
#define LANES 8
#define vec_load(p) _mm256_loadu_ps(p)
#define vec_store(p, x) _mm256_storeu_ps(p, x)
#define vec_all(x) _mm256_set1_ps(x)
#define vec_bf16(p) load_bf16(p)
#define vec_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vec_add(a, b) _mm256_add_ps(a, b)
#define vec_sub(a, b) _mm256_sub_ps(a, b)
#define vec_mul(a, b) _mm256_mul_ps(a, b)
#define vec_div(a, b) _mm256_div_ps(a, b)
#define vec_max(a, b) _mm256_max_ps(a, b)

/* ((0+1)+(2+3)) + ((4+5)+(6+7)) */
ALWAYS_INLINE float sum_lanes(__m256 v)
{
    __m128 lo = _mm256_castps256_ps128(v), hi = _mm256_extractf128_ps(v, 1);
    __m128 pairs = _mm_hadd_ps(lo, hi), quads = _mm_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(quads, _mm_movehdup_ps(quads)));
}

/*
 * e^x to about 1 ulp for x up to 0, as softmax and sigmoid have it: x = n ln 2 + r, a polynomial in r, and 2^n in two factors so
 * that results below the normal range round once more instead of vanishing. Far below 0 it is 0; NaN stays NaN because maxps
 * returns its second operand.
 */
ALWAYS_INLINE __m256 exp_ps(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-105.0f), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 p = _mm256_set1_ps(0x1.6a2352p-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a6cp-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f4p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.55549p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    __m256i rest = _mm256_sub_epi32(whole, half);
    __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}

/* 1/(1+e^-x), by e^-|x| so that the exponential never overflows. */
ALWAYS_INLINE __m256 sigmoid_ps(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    __m256 e = exp_ps(_mm256_or_ps(x, sign));
    return _mm256_div_ps(_mm256_blendv_ps(one, e, x), _mm256_add_ps(one, e));
}

#endif
#endif
