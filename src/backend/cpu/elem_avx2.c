/* Row kernels, AVX2 tier: norms, gates, sums. Sums of squares are in double, as in the scalar tier. */
#include <math.h>

#include "backend/cpu/vec_avx2.h"

static double sum_squares(const float *x, int n)
{
    __m256d s[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
    for (int i = 0; i < n; i += 16)
        for (int j = 0; j < 4; j++) {
            __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * j));
            s[j] = _mm256_fmadd_pd(v, v, s[j]);
        }
    __m256d t = _mm256_add_pd(_mm256_add_pd(s[0], s[1]), _mm256_add_pd(s[2], s[3]));
    __m128d u = _mm_add_pd(_mm256_castpd256_pd128(t), _mm256_extractf128_pd(t, 1));
    return _mm_cvtsd_f64(_mm_add_sd(u, _mm_unpackhi_pd(u, u)));
}

static void rms_norm(float *out, const float *x, const float *w, int n, float eps)
{
    __m256 r = _mm256_set1_ps((float)(1 / sqrt(sum_squares(x, n) / n + eps)));
    for (int i = 0; i < n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), r), _mm256_loadu_ps(w + i)));
}

static void l2_norm(float *out, const float *x, float scale)
{
    __m256 r = _mm256_set1_ps((float)(scale / sqrt(sum_squares(x, GDN_DIM) + 1e-6)));
    for (int i = 0; i < GDN_DIM; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), r));
}

static void gated_norm(float *out, const float *o, const float *w, const float *z, float eps)
{
    __m256 r = _mm256_set1_ps((float)(1 / sqrt(sum_squares(o, GDN_DIM) / GDN_DIM + eps)));
    for (int i = 0; i < GDN_DIM; i += 8) {
        __m256 gate = _mm256_loadu_ps(z + i), x = _mm256_mul_ps(_mm256_loadu_ps(o + i), r);
        gate = _mm256_mul_ps(gate, sigmoid_ps(gate));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(x, _mm256_loadu_ps(w + i)), gate));
    }
}

static void silu_mul(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i += 8) {
        __m256 g = _mm256_loadu_ps(gate + i);
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(g, sigmoid_ps(g)), _mm256_loadu_ps(up + i)));
    }
}

static void sigmoid_mul(float *out, const float *x, const float *gate, int n)
{
    for (int i = 0; i < n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), sigmoid_ps(_mm256_loadu_ps(gate + i))));
}

static void add_scaled(float *y, const float *x, float a, int n)
{
    __m256 factor = _mm256_set1_ps(a);
    for (int i = 0; i < n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(factor, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
}

static void group_sums(float *sums, const float *x, int n_groups)
{
    for (int g = 0; g < n_groups; g++) {
        const float *p = x + (long)g * QUANT_GROUP;
        __m256 s[4];
        for (int j = 0; j < 4; j++) s[j] = _mm256_add_ps(_mm256_loadu_ps(p + 16 * j), _mm256_loadu_ps(p + 16 * j + 8));
        sums[g] = sum_lanes(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
    }
}

void cpu_kernels_avx2_elem(struct cpu_kernels *k)
{
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
    k->gated_norm = gated_norm;
    k->silu_mul = silu_mul;
    k->sigmoid_mul = sigmoid_mul;
    k->add_scaled = add_scaled;
    k->group_sums = group_sums;
}
