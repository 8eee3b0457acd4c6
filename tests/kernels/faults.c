/* Planted faults: a table whose kernels work, and then do one thing wrong. The checker must notice each of them. */
#include <string.h>

#include "base/num.h"
#include "check.h"

const char *const fault_names[FAULTS] = {"a wrong value", "bits that depend on company", "a write behind the output",
                                         "a read behind the input"};

static struct cpu_kernels inner;
static enum fault active;
static volatile float sink;

/* One fault on an output of n floats and an input that ends at `input_end`. `company`: more than the row itself was computed. */
static void spoil(float *out, long n, const float *input_end, bool company)
{
    switch (active) {
    case FAULT_VALUE: out[n / 2] = out[n / 2] * 1.01f + 1e-3f; break;
    case FAULT_BITS:
        if (company) out[n / 2] = f32_from_bits(f32_bits(out[n / 2]) ^ 1);
        break;
    case FAULT_WRITE: out[n] = 0; break;
    default: sink = input_end[16]; break;
    }
}

static void spoil_matmul(const struct block_job *j)
{
    int last = 0;
    for (int i = 0; i < j->n; i++) {
        int row = j->rows ? j->rows[i] : i;
        if (row > last) last = row;
    }
    spoil(j->y + (long)(j->n - 1) * j->ldy, BLOCK_ROWS, j->act->x + (long)(last + 1) * j->act->ld, j->n > 1);
}

static void matmul_q4(const struct block_job *j)
{
    inner.matmul_q4(j);
    spoil_matmul(j);
}

static void matmul_q8(const struct block_job *j)
{
    inner.matmul_q8(j);
    spoil_matmul(j);
}

static void matmul_f32(const struct block_job *j)
{
    inner.matmul_f32(j);
    spoil_matmul(j);
}

static void spoil_digits(const struct digit_job *j)
{
    int last = 0;
    for (int i = 0; i < j->n; i++) {
        int row = j->rows ? j->rows[i] : i;
        if (row > last) last = row;
    }
    spoil(j->y + (long)(j->n - 1) * j->ldy, BLOCK_ROWS, j->act->scales + (long)(last + 1) * (j->act->ld / QUANT_GROUP), j->n > 1);
}

static void matmul_q4_digits(const struct digit_job *j)
{
    inner.matmul_q4_digits(j);
    spoil_digits(j);
}

static void matmul_q8_digits(const struct digit_job *j)
{
    inner.matmul_q8_digits(j);
    spoil_digits(j);
}

static void split_digits(const struct digit_row *out, const float *x, int n_groups)
{
    inner.split_digits(out, x, n_groups);
    spoil(out->scales, n_groups, x + 64L * n_groups, n_groups > 1);
}

static void matmul_q4_bf16(const struct bf16_job *j)
{
    int first = panel_row(j->act->n, j->first), last = panel_row(j->act->n, j->last);
    inner.matmul_q4_bf16(j);
    spoil(j->y + (long)(last - first - 1) * j->ldy, BLOCK_ROWS, (const float *)(const void *)(j->act->x + (long)last * j->act->ld), last - first > 1);
}

static void round_bf16(const struct bf16_run *out, int row, int group, const float *x, int n_groups)
{
    inner.round_bf16(out, row, group, x, n_groups);
    if (active == FAULT_VALUE) out->x[(long)panel_row(out->n, panel_of(out->n, row)) * out->ld] ^= 1;
    else if (active == FAULT_WRITE) out->x[(long)out->n * out->ld] = 0;
    else if (active == FAULT_READ) sink = x[64L * n_groups + 16];
}

static void place_bf16(const struct bf16_run *out, int row, const uint16_t *x)
{
    inner.place_bf16(out, row, x);
    if (active == FAULT_VALUE) out->x[(long)panel_row(out->n, panel_of(out->n, row)) * out->ld] ^= 1;
    else if (active == FAULT_WRITE) out->x[(long)out->n * out->ld] = 0;
    else if (active == FAULT_READ) sink = x[out->ld + 32];
}

static void gdn(const struct gdn_job *j)
{
    inner.gdn(j);
    spoil(j->o + (long)(j->n - 1) * j->ldo + j->v_lo, j->v_hi - j->v_lo, j->k + (long)(j->n - 1) * j->ldqk + GDN_DIM, j->n > 1);
}

static void gdn_chunk(const struct gdn_chunk *j)
{
    inner.gdn_chunk(j);
    spoil(j->o + (long)(j->n - 1) * j->ldo, j->heads * GDN_DIM, j->k + (long)(j->n - 1) * j->ldqk + GDN_DIM, j->n * j->heads > 1);
}

static void spoil_attention(const struct attn_job *j)
{
    long row = j->n_rows - 1, head = j->n_q - 1;
    spoil(j->out + row * j->ldo_row + head * j->ldo, HEAD_DIM, j->q + row * j->ldq_row + head * j->ldq + HEAD_DIM, j->n_q * j->n_rows > 1);
}

static void attention(const struct attn_job *j)
{
    inner.attention(j);
    spoil_attention(j);
}

static void attention_row(const struct attn_job *j)
{
    inner.attention_row(j);
    spoil_attention(j);
}

static void attention_fast(const struct attn_job *j)
{
    inner.attention_fast(j);
    spoil_attention(j);
}

static void conv_silu(const struct conv_job *j)
{
    inner.conv_silu(j);
    spoil(j->out + (long)(j->n - 1) * j->ld_out, j->channels, j->u + (long)(j->n - 1) * j->ld_u + j->channels, false);
}

static void rms_norm(float *out, const float *x, const float *w, int n, float eps)
{
    inner.rms_norm(out, x, w, n, eps);
    spoil(out, n, w + n, false);
}

static void l2_norm(float *out, const float *x, float scale)
{
    inner.l2_norm(out, x, scale);
    spoil(out, GDN_DIM, x + GDN_DIM, false);
}

static void gated_norm(float *out, const float *o, const float *w, const float *z, float eps)
{
    inner.gated_norm(out, o, w, z, eps);
    spoil(out, GDN_DIM, z + GDN_DIM, false);
}

static void silu_mul(float *out, const float *gate, const float *up, int n)
{
    inner.silu_mul(out, gate, up, n);
    spoil(out, n, up + n, false);
}

static void sigmoid_mul(float *out, const float *x, const float *gate, int n)
{
    inner.sigmoid_mul(out, x, gate, n);
    spoil(out, n, gate + n, false);
}

static void add_scaled(float *y, const float *x, float a, int n)
{
    inner.add_scaled(y, x, a, n);
    spoil(y, n, x + n, false);
}

static void group_sums(float *sums, const float *x, int n_groups)
{
    inner.group_sums(sums, x, n_groups);
    spoil(sums, n_groups, x + 64L * n_groups, false);
}

static void top_experts(int32_t *top, const float *x, int n)
{
    inner.top_experts(top, x, n);
    if (active == FAULT_VALUE) top[n % 8] = n - 1 - top[n % 8];
    else if (active == FAULT_WRITE) top[8] = 0;
    else sink = x[n];
}

/* After fault_kernels: a tier without tiles has no kernels of the fast mode. */
bool fault_applies(const char *func, enum fault fault)
{
    if (strstr(func, "bf16") && !inner.matmul_q4_bf16) return false;
    if (strcmp(func, "gdn_chunk") == 0) return inner.gdn_chunk;
    if (strcmp(func, "attention_fast") == 0 && !inner.attention_fast) return false;
    if (strcmp(func, "attention_row") == 0 && !inner.attention_row) return false;
    if (fault != FAULT_BITS) return true;
    return strncmp(func, "matmul", 6) == 0 || strcmp(func, "split_digits") == 0 || strcmp(func, "gdn") == 0 || strncmp(func, "attention", 9) == 0;
}

void fault_kernels(struct cpu_kernels *k, enum fault fault)
{
    inner = *k;
    active = fault;
    *k = (struct cpu_kernels){.tier = inner.tier,
                              .matmul_q4 = matmul_q4,
                              .matmul_q8 = matmul_q8,
                              .matmul_f32 = matmul_f32,
                              .matmul_q4_digits = matmul_q4_digits,
                              .matmul_q8_digits = matmul_q8_digits,
                              .split_digits = split_digits,
                              .matmul_q4_bf16 = inner.matmul_q4_bf16 ? matmul_q4_bf16 : NULL,
                              .round_bf16 = inner.round_bf16 ? round_bf16 : NULL,
                              .place_bf16 = inner.place_bf16 ? place_bf16 : NULL,
                              .gdn = gdn,
                              .gdn_chunk = inner.gdn_chunk ? gdn_chunk : NULL,
                              .attention = attention,
                              .attention_row = inner.attention_row ? attention_row : NULL,
                              .top_experts = top_experts,
                              .attention_fast = inner.attention_fast ? attention_fast : NULL,
                              .conv_silu = conv_silu,
                              .rms_norm = rms_norm,
                              .l2_norm = l2_norm,
                              .gated_norm = gated_norm,
                              .silu_mul = silu_mul,
                              .sigmoid_mul = sigmoid_mul,
                              .add_scaled = add_scaled,
                              .group_sums = group_sums};
}
