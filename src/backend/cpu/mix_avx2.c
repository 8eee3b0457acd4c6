/* Token mixing kernels, AVX2 tier: gated delta rule, attention, convolution. */
#include "backend/cpu/vec_avx2.h"

#include "backend/cpu/attn.h"

/* Token t for 8*vectors value columns from c. Each column sums over k in order, whatever the width. */
ALWAYS_INLINE void gdn_token(const struct gdn_job *j, float *state, int ld, int t, int c, int vectors)
{
    const float *q = j->q + (long)t * j->ldqk, *k = j->k + (long)t * j->ldqk, *v = j->v + (long)t * j->ldv + c;
    float *o = j->o + (long)t * j->ldo + c;
    __m256 decay = _mm256_set1_ps(j->g[(long)t * j->ldg]), beta = _mm256_set1_ps(j->beta[(long)t * j->ldg]);
    __m256 sum[8], e[8];
    UNROLL8(m, vectors, sum[m] = _mm256_setzero_ps();)
    for (int i = 0; i < GDN_DIM; i++) {
        __m256 ki = _mm256_broadcast_ss(k + i);
        UNROLL8(m, vectors, sum[m] = _mm256_fmadd_ps(_mm256_loadu_ps(state + i * ld + 8 * m), ki, sum[m]);)
    }
    UNROLL8(m, vectors, {
        e[m] = _mm256_mul_ps(beta, _mm256_fnmadd_ps(decay, sum[m], _mm256_loadu_ps(v + 8 * m)));
        sum[m] = _mm256_setzero_ps();
    })
    for (int i = 0; i < GDN_DIM; i++) {
        __m256 ki = _mm256_broadcast_ss(k + i), qi = _mm256_broadcast_ss(q + i);
        UNROLL8(m, vectors, {
            float *at = state + i * ld + 8 * m;
            __m256 s = _mm256_fmadd_ps(e[m], ki, _mm256_mul_ps(decay, _mm256_loadu_ps(at)));
            _mm256_storeu_ps(at, s);
            sum[m] = _mm256_fmadd_ps(s, qi, sum[m]);
        })
    }
    UNROLL8(m, vectors, _mm256_storeu_ps(o + 8 * m, sum[m]);)
}

#include "backend/cpu/gdn.h"

static void gdn(const struct gdn_job *j)
{
    int c = j->v_lo;
    for (; c + 32 <= j->v_hi; c += 32) gdn_columns(j, c, 4);
    for (; c < j->v_hi; c += 16) gdn_columns(j, c, 2);
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
