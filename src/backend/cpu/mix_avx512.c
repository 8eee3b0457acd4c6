/* Token mixing kernels, AVX-512 tier: gated delta rule, attention, convolution. */
#include "backend/cpu/vec_avx512.h"

#include "backend/cpu/attn.h"

/* Token t for 16*vectors value columns from c. Each column sums over even and odd k, then both, whatever the width. */
ALWAYS_INLINE void gdn_token(const struct gdn_job *j, float *state, int ld, int t, int c, int vectors)
{
    const float *q = j->q + (long)t * j->ldqk, *k = j->k + (long)t * j->ldqk, *v = j->v + (long)t * j->ldv + c;
    float *o = j->o + (long)t * j->ldo + c;
    __m512 decay = _mm512_set1_ps(j->g[(long)t * j->ldg]), beta = _mm512_set1_ps(j->beta[(long)t * j->ldg]);
    __m512 sum[4], odd[4], e[4];
    UNROLL4(m, vectors, sum[m] = odd[m] = _mm512_setzero_ps();)
    for (int i = 0; i < GDN_DIM; i += 2) {
        __m512 k0 = _mm512_set1_ps(k[i]), k1 = _mm512_set1_ps(k[i + 1]);
        const float *at = state + i * ld;
        UNROLL4(m, vectors, {
            sum[m] = _mm512_fmadd_ps(_mm512_loadu_ps(at + 16 * m), k0, sum[m]);
            odd[m] = _mm512_fmadd_ps(_mm512_loadu_ps(at + ld + 16 * m), k1, odd[m]);
        })
    }
    UNROLL4(m, vectors, {
        e[m] = _mm512_mul_ps(beta, _mm512_fnmadd_ps(decay, _mm512_add_ps(sum[m], odd[m]), _mm512_loadu_ps(v + 16 * m)));
        sum[m] = _mm512_setzero_ps();
    })
    for (int i = 0; i < GDN_DIM; i++) {
        __m512 ki = _mm512_set1_ps(k[i]), qi = _mm512_set1_ps(q[i]);
        UNROLL4(m, vectors, {
            float *at = state + i * ld + 16 * m;
            __m512 s = _mm512_fmadd_ps(e[m], ki, _mm512_mul_ps(decay, _mm512_loadu_ps(at)));
            _mm512_storeu_ps(at, s);
            sum[m] = _mm512_fmadd_ps(s, qi, sum[m]);
        })
    }
    UNROLL4(m, vectors, _mm512_storeu_ps(o + 16 * m, sum[m]);)
}

#include "backend/cpu/gdn.h"

static void gdn(const struct gdn_job *j)
{
    int c = j->v_lo;
    for (; c + 64 <= j->v_hi; c += 64) gdn_columns(j, c, 4);
    for (; c < j->v_hi; c += 16) gdn_columns(j, c, 1);
}

static void conv_silu(const struct conv_job *j)
{
    const __m512i channel = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    for (int c = 0; c < j->channels; c += 16) {
        __m512 w[4], h[4];
        UNROLL4(i, CONV_WIDTH, w[i] = _mm512_i32gather_ps(channel, j->weight + (long)c * CONV_WIDTH + i, 4);)
        UNROLL4(i, CONV_HISTORY, h[i] = _mm512_loadu_ps(j->history + (long)i * j->ld_h + c);)
        for (int t = 0; t < j->n; t++) {
            __builtin_prefetch(j->u + (long)(t + 8) * j->ld_u + c);
            __m512 u = _mm512_loadu_ps(j->u + (long)t * j->ld_u + c), y = _mm512_mul_ps(w[0], h[0]);
            y = _mm512_fmadd_ps(w[1], h[1], y);
            y = _mm512_fmadd_ps(w[2], h[2], y);
            y = _mm512_fmadd_ps(w[3], u, y);
            _mm512_storeu_ps(j->out + (long)t * j->ld_out + c, _mm512_mul_ps(y, sigmoid_ps(y)));
            h[0] = h[1], h[1] = h[2], h[2] = u;
        }
        UNROLL4(i, CONV_HISTORY, _mm512_storeu_ps(j->history + (long)i * j->ld_h + c, h[i]);)
    }
}

void cpu_kernels_avx512_mix(struct cpu_kernels *k)
{
    k->gdn = gdn;
    k->attention = attention;
    k->conv_silu = conv_silu;
}
