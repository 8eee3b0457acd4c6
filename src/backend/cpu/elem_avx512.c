/* Row kernels, AVX-512 tier: norms, gates, sums. Sums of squares are in double, as in the scalar tier. */
#include <math.h>

#include "backend/cpu/vec_avx512.h"
#include "spec/shape.h"

static double sum_squares(const float *x, int n)
{
    __m512d s[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    for (int i = 0; i < n; i += 16)
        UNROLL2(j, 2, {
            __m512d v = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8 * j));
            s[j] = _mm512_fmadd_pd(v, v, s[j]);
        })
    __m512d t = _mm512_add_pd(s[0], s[1]);
    __m256d u = _mm256_add_pd(_mm512_castpd512_pd256(t), _mm512_extractf64x4_pd(t, 1));
    __m128d v = _mm_add_pd(_mm256_castpd256_pd128(u), _mm256_extractf128_pd(u, 1));
    return _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v)));
}

static void rms_norm(float *out, const float *x, const float *w, int n, float eps)
{
    __m512 r = _mm512_set1_ps((float)(1 / sqrt(sum_squares(x, n) / n + eps)));
    for (int i = 0; i < n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), r), _mm512_loadu_ps(w + i)));
}

static void l2_norm(float *out, const float *x, float scale)
{
    __m512 r = _mm512_set1_ps((float)(scale / sqrt(sum_squares(x, GDN_DIM) + 1e-6)));
    for (int i = 0; i < GDN_DIM; i += 16) _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), r));
}

static void gated_norm(float *out, const float *o, const float *w, const float *z, float eps)
{
    __m512 r = _mm512_set1_ps((float)(1 / sqrt(sum_squares(o, GDN_DIM) / GDN_DIM + eps)));
    for (int i = 0; i < GDN_DIM; i += 16) {
        __m512 gate = _mm512_loadu_ps(z + i), x = _mm512_mul_ps(_mm512_loadu_ps(o + i), r);
        gate = _mm512_mul_ps(gate, sigmoid_ps(gate));
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_mul_ps(x, _mm512_loadu_ps(w + i)), gate));
    }
}

static void silu_mul(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i += 16) {
        __m512 g = _mm512_loadu_ps(gate + i);
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_mul_ps(g, sigmoid_ps(g)), _mm512_loadu_ps(up + i)));
    }
}

static void sigmoid_mul(float *out, const float *x, const float *gate, int n)
{
    for (int i = 0; i < n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), sigmoid_ps(_mm512_loadu_ps(gate + i))));
}

static void add_scaled(float *y, const float *x, float a, int n)
{
    __m512 factor = _mm512_set1_ps(a);
    for (int i = 0; i < n; i += 16)
        _mm512_storeu_ps(y + i, _mm512_fmadd_ps(factor, _mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
}

static void group_sums(float *sums, const float *x, int n_groups)
{
    for (int g = 0; g < n_groups; g++) {
        const float *p = x + (long)g * QUANT_GROUP;
        __m512 a = _mm512_add_ps(_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16));
        __m512 b = _mm512_add_ps(_mm512_loadu_ps(p + 32), _mm512_loadu_ps(p + 48));
        sums[g] = sum_lanes(_mm512_add_ps(a, b));
    }
}

/* Whole numbers in the order of x: both zeros are one, NaN is the second lowest, and the lowest stands for what is not there. */
static __m512i orders_of(const float *x, int n)
{
    const __mmask16 there = n < 16 ? (__mmask16)((1u << n) - 1) : 0xffff;
    __m512 v = _mm512_add_ps(_mm512_maskz_loadu_ps(there, x), _mm512_setzero_ps());
    __m512i bits = _mm512_castps_si512(v), flip = _mm512_and_si512(_mm512_srai_epi32(bits, 31), _mm512_set1_epi32(0x7fffffff));
    __m512i key = _mm512_mask_mov_epi32(_mm512_xor_si512(bits, flip), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), _mm512_set1_epi32(INT32_MIN + 1));
    return _mm512_mask_mov_epi32(_mm512_set1_epi32(INT32_MIN), there, key);
}

/* Eight times the highest of all, which then counts as not there; without a branch that would depend on the numbers. */
static void top_experts(int32_t *top, const float *x, int n)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i keys[(MAX_EXPERTS + 15) / 16];
    const int vectors = (n + 15) / 16;
    for (int i = 0; i < vectors; i++) keys[i] = orders_of(x + 16 * i, n - 16 * i);
    for (int r = 0; r < EXPERTS_PER_TOKEN; r++) {
        __m512i best = keys[0], place = lane;
        for (int i = 1; i < vectors; i++) {
            place = _mm512_mask_mov_epi32(place, _mm512_cmpgt_epi32_mask(keys[i], best), _mm512_add_epi32(lane, _mm512_set1_epi32(16 * i)));
            best = _mm512_max_epi32(best, keys[i]);
        }
        __mmask16 highest = _mm512_cmpeq_epi32_mask(best, _mm512_set1_epi32(_mm512_reduce_max_epi32(best)));
        int at = _mm512_reduce_min_epi32(_mm512_mask_mov_epi32(_mm512_set1_epi32(INT32_MAX), highest, place));
        keys[at / 16] = _mm512_mask_mov_epi32(keys[at / 16], (__mmask16)(1u << at % 16), _mm512_set1_epi32(INT32_MIN));
        top[r] = at;
    }
}

void cpu_kernels_avx512_elem(struct cpu_kernels *k)
{
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
    k->gated_norm = gated_norm;
    k->silu_mul = silu_mul;
    k->sigmoid_mul = sigmoid_mul;
    k->add_scaled = add_scaled;
    k->group_sums = group_sums;
    k->top_experts = top_experts;
}
