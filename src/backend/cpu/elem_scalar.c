/* Row kernels, scalar tier: norms, gates, sums; and the scalar tier's table. */
#include <math.h>

#include "backend/cpu/scalar.h"
#include "base/num.h"

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static double sum_squares(const float *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += (double)x[i] * x[i];
    return s;
}

static void rms_norm(float *out, const float *x, const float *w, int n, float eps)
{
    float r = (float)(1 / sqrt(sum_squares(x, n) / n + eps));
    for (int i = 0; i < n; i++) out[i] = x[i] * r * w[i];
}

static void l2_norm(float *out, const float *x, float scale)
{
    float r = (float)(scale / sqrt(sum_squares(x, GDN_DIM) + 1e-6));
    for (int i = 0; i < GDN_DIM; i++) out[i] = x[i] * r;
}

static void gated_norm(float *out, const float *o, const float *w, const float *z, float eps)
{
    float r = (float)(1 / sqrt(sum_squares(o, GDN_DIM) / GDN_DIM + eps));
    for (int i = 0; i < GDN_DIM; i++) out[i] = o[i] * r * w[i] * (z[i] * sigmoid(z[i]));
}

static void silu_mul(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

static void sigmoid_mul(float *out, const float *x, const float *gate, int n)
{
    for (int i = 0; i < n; i++) out[i] = x[i] * sigmoid(gate[i]);
}

static void add_scaled(float *y, const float *x, float a, int n)
{
    for (int i = 0; i < n; i++) y[i] += a * x[i];
}

/* A whole number in the order of x: both zeros are one, NaN is below -infinity. */
static int32_t order_of(float x)
{
    int32_t bits = (int32_t)f32_bits(x + 0.0f);
    if (isnan(x)) return INT32_MIN;
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

static void top_experts(int32_t *top, const float *x, int n)
{
    for (int e = 0; e < n; e++) {
        int at = e < EXPERTS_PER_TOKEN ? e : EXPERTS_PER_TOKEN;
        while (at > 0 && order_of(x[e]) > order_of(x[top[at - 1]])) {
            if (at < EXPERTS_PER_TOKEN) top[at] = top[at - 1];
            at--;
        }
        if (at < EXPERTS_PER_TOKEN) top[at] = e;
    }
}

void cpu_kernels_scalar(struct cpu_kernels *k)
{
    k->tier = CPU_SCALAR;
    cpu_kernels_scalar_matmul(k);
    cpu_kernels_scalar_mix(k);
    cpu_kernels_scalar_digits(k);
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
    k->gated_norm = gated_norm;
    k->silu_mul = silu_mul;
    k->sigmoid_mul = sigmoid_mul;
    k->add_scaled = add_scaled;
    k->top_experts = top_experts;
}
