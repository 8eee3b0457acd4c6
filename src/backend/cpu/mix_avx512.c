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

/* 16*vectors channels from c, so that neighbouring lines of a row are asked for together. */
ALWAYS_INLINE void conv_channels(const struct conv_job *j, int c, int vectors)
{
    const __m512i channel = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    __m512 w[4][4], h[4][4];
    UNROLL4(m, vectors, {
        const float *weight = j->weight + (long)(c + 16 * m) * CONV_WIDTH;
        UNROLL4(i, CONV_WIDTH, w[m][i] = _mm512_i32gather_ps(channel, weight + i, 4);)
        UNROLL4(i, CONV_HISTORY, h[m][i] = _mm512_loadu_ps(j->history + (long)i * j->ld_h + c + 16 * m);)
    })
    for (int t = 0; t < j->n; t++) {
        const float *u = j->u + (long)t * j->ld_u + c;
        float *out = j->out + (long)t * j->ld_out + c;
        UNROLL4(m, vectors, {
            __builtin_prefetch(u + 8L * j->ld_u + 16 * m);
            __m512 x = _mm512_loadu_ps(u + 16 * m), y = _mm512_mul_ps(w[m][0], h[m][0]);
            y = _mm512_fmadd_ps(w[m][1], h[m][1], y);
            y = _mm512_fmadd_ps(w[m][2], h[m][2], y);
            y = _mm512_fmadd_ps(w[m][3], x, y);
            _mm512_storeu_ps(out + 16 * m, _mm512_mul_ps(y, sigmoid_ps(y)));
            h[m][0] = h[m][1];
            h[m][1] = h[m][2];
            h[m][2] = x;
        })
    }
    UNROLL4(m, vectors, UNROLL4(i, CONV_HISTORY, _mm512_storeu_ps(j->history + (long)i * j->ld_h + c + 16 * m, h[m][i]);))
}

static void conv_silu(const struct conv_job *j)
{
    int c = 0;
    for (; c + 32 <= j->channels; c += 32) conv_channels(j, c, 2);
    for (; c < j->channels; c += 16) conv_channels(j, c, 1);
}

void cpu_kernels_avx512_mix(struct cpu_kernels *k)
{
    k->gdn = gdn;
    k->attention = attention;
    k->attention_row = cpu_attention_row_avx512;
    k->conv_silu = conv_silu;
}
