/* Token mixing kernels, scalar tier: gated delta rule, attention, convolution. MODEL.md, Full attention and Gated DeltaNet. */
#include <math.h>
#include <string.h>

#include "backend/cpu/scalar.h"
#include "base/num.h"

static void gdn(const struct gdn_job *j)
{
    for (int t = 0; t < j->n; t++) {
        const float *q = j->q + (long)t * j->ldqk, *k = j->k + (long)t * j->ldqk, *v = j->v + (long)t * j->ldv;
        float g = j->g[(long)t * j->ldg], beta = j->beta[(long)t * j->ldg];
        float predicted[GDN_DIM] = {0}, e[GDN_DIM], out[GDN_DIM] = {0};
        for (int i = 0; i < GDN_DIM; i++)
            for (int c = j->v_lo; c < j->v_hi; c++) predicted[c] += j->state[i * GDN_DIM + c] * k[i];
        for (int c = j->v_lo; c < j->v_hi; c++) e[c] = beta * (v[c] - g * predicted[c]);
        for (int i = 0; i < GDN_DIM; i++)
            for (int c = j->v_lo; c < j->v_hi; c++) {
                float s = g * j->state[i * GDN_DIM + c] + e[c] * k[i];
                j->state[i * GDN_DIM + c] = s;
                out[c] += s * q[i];
            }
        memcpy(j->o + (long)t * j->ldo + j->v_lo, out + j->v_lo, sizeof(float) * (size_t)(j->v_hi - j->v_lo));
    }
}

static float element(const uint8_t *base, long i, bool bf16)
{
    if (bf16) return bf16_to_f32(load_u16(base + 2 * i));
    return f32_from_bits(load_u32(base + 4 * i));
}

/* One query head: softmax over blocks of 64 keys, rescaling when a block raises the maximum. */
static void attend(const struct attn_job *j, int n_keys, const float *q, float *out)
{
    float max = -INFINITY, sum = 0, acc[HEAD_DIM] = {0};
    for (int first = 0; first < n_keys; first += GRID) {
        const uint8_t *page = j->pages[first / GRID], *keys = page + j->k_offset, *values = page + j->v_offset;
        int n = n_keys - first < GRID ? n_keys - first : GRID;
        float score[GRID], block_max = -INFINITY;
        for (int s = 0; s < n; s++) {
            float dot = 0;
            for (int i = 0; i < HEAD_DIM; i++) dot += q[i] * element(keys, (long)s * HEAD_DIM + i, j->bf16);
            score[s] = dot;
            if (dot > block_max) block_max = dot;
        }
        float new_max = block_max > max ? block_max : max, keep = expf(max - new_max);
        sum *= keep;
        for (int i = 0; i < HEAD_DIM; i++) acc[i] *= keep;
        for (int s = 0; s < n; s++) {
            float p = expf(score[s] - new_max);
            sum += p;
            for (int i = 0; i < HEAD_DIM; i++) acc[i] += p * element(values, (long)s * HEAD_DIM + i, j->bf16);
        }
        max = new_max;
    }
    for (int i = 0; i < HEAD_DIM; i++) out[i] = acc[i] / sum;
}

static void attention(const struct attn_job *j)
{
    for (int t = 0; t < j->n_rows; t++)
        for (int h = 0; h < j->n_q; h++)
            attend(j, j->n_keys + t, j->q + (long)t * j->ldq_row + (long)h * j->ldq, j->out + (long)t * j->ldo_row + (long)h * j->ldo);
}

static void conv_silu(const struct conv_job *j)
{
    for (int c = 0; c < j->channels; c++) {
        const float *w = j->weight + (long)c * CONV_WIDTH;
        float h0 = j->history[c], h1 = j->history[j->ld_h + c], h2 = j->history[2 * j->ld_h + c];
        for (int t = 0; t < j->n; t++) {
            float u = j->u[(long)t * j->ld_u + c];
            float y = w[0] * h0 + w[1] * h1 + w[2] * h2 + w[3] * u;
            j->out[(long)t * j->ld_out + c] = y / (1 + expf(-y));
            h0 = h1, h1 = h2, h2 = u;
        }
        j->history[c] = h0, j->history[j->ld_h + c] = h1, j->history[2 * j->ld_h + c] = h2;
    }
}

void cpu_kernels_scalar_mix(struct cpu_kernels *k)
{
    k->gdn = gdn;
    k->attention = attention;
    k->conv_silu = conv_silu;
}
