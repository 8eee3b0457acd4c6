/* The forward pass in double precision. Section names are those of MODEL.md. */
#include "model/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct ref {
    const struct model_config *config;
    const struct checkpoint *ck;
    const struct model_shape *s;
    int n; /* tokens */
    struct reference_rounding rounding;
    char prefix[64];
};

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double *doubles(size_t rows, size_t cols)
{
    return mem_new(rows * cols * sizeof(double));
}

/* out (n, rows) = x (n, cols) * W^T, W being the module `name` behind the prefix (one expert of a stack when experts > 0). */
struct product {
    const char *name;
    int experts, expert, rows, cols;
};

static lily_status multiply(const struct ref *r, struct product p, const double *x, int n, double *out,
                            struct lily_err *err)
{
    char path[160];
    snprintf(path, sizeof path, "%s%s", r->prefix, p.name);
    struct module_want want = {path, p.experts, p.rows, p.cols};
    struct module_view m;
    LILY_TRY(checkpoint_module(r->ck, &want, &m, err));
    float *w = mem_new(sizeof *w * (size_t)p.cols);
    double *rounded = NULL;
    if (r->rounding.input) {
        rounded = doubles((size_t)n, (size_t)p.cols);
        memcpy(rounded, x, sizeof *x * (size_t)n * (size_t)p.cols);
        x = rounded;
        for (int t = 0; t < n; t++) r->rounding.input(rounded + (size_t)t * (size_t)p.cols, p.cols);
    }
    for (int o = 0; o < p.rows; o++) {
        module_row(&m, p.expert, o, w);
        for (int t = 0; t < n; t++) {
            double y = 0;
            for (int i = 0; i < p.cols; i++) y += (double)w[i] * x[(size_t)t * (size_t)p.cols + (size_t)i];
            out[(size_t)t * (size_t)p.rows + (size_t)o] = y;
        }
    }
    free(rounded);
    free(w);
    return LILY_OK;
}

static lily_status vector_of(const struct ref *r, const char *name, size_t n, float **out, struct lily_err *err)
{
    char path[160];
    snprintf(path, sizeof path, "%s%s", r->prefix, name);
    *out = mem_new(sizeof **out * n);
    lily_status st = checkpoint_vector(r->ck, path, n, *out, err);
    if (st != LILY_OK) {
        free(*out);
        *out = NULL;
    }
    return st;
}

/* y = x / sqrt(mean(x^2) + eps) * w; y may be x. */
static void rms_row(double *y, const double *x, const float *w, int n, double eps)
{
    double ss = 0;
    for (int i = 0; i < n; i++) ss += x[i] * x[i];
    double scale = 1 / sqrt(ss / n + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * scale * (double)w[i];
}

static lily_status norm_rows(const struct ref *r, const char *name, const double *x, double *y, struct lily_err *err)
{
    float *w;
    LILY_TRY(vector_of(r, name, (size_t)r->s->hidden, &w, err));
    for (int t = 0; t < r->n; t++) {
        size_t at = (size_t)t * (size_t)r->s->hidden;
        rms_row(y + at, x + at, w, r->s->hidden, (double)r->s->rms_eps);
    }
    free(w);
    return LILY_OK;
}

/* RoPE: half-split pairs of the first 64 dimensions. */
static void rotate(const struct ref *r, double *x, int pos)
{
    enum { HALF = ROTARY_DIM / 2 };
    for (int j = 0; j < HALF; j++) {
        double angle = pos * pow(r->s->rope_theta, -2.0 * j / ROTARY_DIM), c = cos(angle), s = sin(angle);
        double a = x[j], b = x[j + HALF];
        x[j] = a * c - b * s;
        x[j + HALF] = a * s + b * c;
    }
}

/* Softmax attention of query q at position t over keys 0 … t of one KV head; out += nothing, it is overwritten. */
static void attend(const double *q, const double *k, const double *v, int stride, int t, double *out)
{
    double *p = doubles((size_t)t + 1, 1), max = -INFINITY, sum = 0;
    for (int s = 0; s <= t; s++) {
        double dot = 0;
        for (int i = 0; i < HEAD_DIM; i++) dot += q[i] * k[(size_t)s * (size_t)stride + (size_t)i];
        p[s] = dot / 16;
        if (p[s] > max) max = p[s];
    }
    for (int s = 0; s <= t; s++) sum += p[s] = exp(p[s] - max);
    memset(out, 0, sizeof *out * HEAD_DIM);
    for (int s = 0; s <= t; s++)
        for (int i = 0; i < HEAD_DIM; i++) out[i] += p[s] / sum * v[(size_t)s * (size_t)stride + (size_t)i];
    free(p);
}

struct attn_rows {
    double *qg, *k, *v, *o; /* owned; (n, 2*q_dim), (n, kv_dim), (n, kv_dim), (n, q_dim) */
};

static lily_status attn_project(const struct ref *r, const double *x, struct attn_rows *a, struct lily_err *err)
{
    const struct model_shape *s = r->s;
    int q_dim = s->n_q_heads * HEAD_DIM, kv_dim = s->n_kv_heads * HEAD_DIM;
    float *q_norm = NULL, *k_norm = NULL;
    lily_status st;
    LILY_TRY_GOTO(multiply(r, (struct product){"self_attn.q_proj", 0, 0, 2 * q_dim, s->hidden}, x, r->n, a->qg, err), out);
    LILY_TRY_GOTO(multiply(r, (struct product){"self_attn.k_proj", 0, 0, kv_dim, s->hidden}, x, r->n, a->k, err), out);
    LILY_TRY_GOTO(multiply(r, (struct product){"self_attn.v_proj", 0, 0, kv_dim, s->hidden}, x, r->n, a->v, err), out);
    LILY_TRY_GOTO(vector_of(r, "self_attn.q_norm.weight", HEAD_DIM, &q_norm, err), out);
    LILY_TRY_GOTO(vector_of(r, "self_attn.k_norm.weight", HEAD_DIM, &k_norm, err), out);
    for (int t = 0; t < r->n; t++) {
        for (int h = 0; h < s->n_q_heads; h++) {
            double *q = a->qg + (size_t)t * 2 * (size_t)q_dim + (size_t)h * 2 * HEAD_DIM;
            rms_row(q, q, q_norm, HEAD_DIM, (double)s->rms_eps);
            rotate(r, q, t);
        }
        for (int h = 0; h < s->n_kv_heads; h++) {
            double *k = a->k + (size_t)t * (size_t)kv_dim + (size_t)h * HEAD_DIM;
            rms_row(k, k, k_norm, HEAD_DIM, (double)s->rms_eps);
            rotate(r, k, t);
            if (!r->rounding.kv) continue;
            r->rounding.kv(k, HEAD_DIM);
            r->rounding.kv(a->v + (size_t)t * (size_t)kv_dim + (size_t)h * HEAD_DIM, HEAD_DIM);
        }
    }
out:
    free(q_norm);
    free(k_norm);
    return st;
}

/* Full attention. x (n, hidden) normed input; y (n, hidden). */
static lily_status attention(const struct ref *r, const double *x, double *y, struct lily_err *err)
{
    const struct model_shape *s = r->s;
    size_t n = (size_t)r->n, q_dim = (size_t)s->n_q_heads * HEAD_DIM, kv_dim = (size_t)s->n_kv_heads * HEAD_DIM;
    struct attn_rows a = {doubles(n, 2 * q_dim), doubles(n, kv_dim), doubles(n, kv_dim), doubles(n, q_dim)};
    lily_status st;
    LILY_TRY_GOTO(attn_project(r, x, &a, err), out);
    for (size_t t = 0; t < n; t++)
        for (int h = 0; h < s->n_q_heads; h++) {
            const double *q = a.qg + t * 2 * q_dim + (size_t)h * 2 * HEAD_DIM, *gate = q + HEAD_DIM;
            double *o = a.o + t * q_dim + (size_t)h * HEAD_DIM;
            size_t kv = (size_t)(h / (s->n_q_heads / s->n_kv_heads)) * HEAD_DIM;
            attend(q, a.k + kv, a.v + kv, (int)kv_dim, (int)t, o);
            for (int i = 0; i < HEAD_DIM; i++) o[i] *= sigmoid(gate[i]);
        }
    st = multiply(r, (struct product){"self_attn.o_proj", 0, 0, s->hidden, (int)q_dim}, a.o, r->n, y, err);
out:
    free(a.qg);
    free(a.k);
    free(a.v);
    free(a.o);
    return st;
}

/* Convolution over time and SiLU: u (n, conv_dim) in place, history before the start is zero. */
static void convolve(const struct ref *r, double *u, const float *w)
{
    int dim = shape_conv_dim(r->s);
    for (int c = 0; c < dim; c++) {
        double h[CONV_WIDTH] = {0};
        for (int t = 0; t < r->n; t++) {
            double *x = u + (size_t)t * (size_t)dim + c, y = 0;
            memmove(h, h + 1, sizeof h - sizeof h[0]);
            h[CONV_WIDTH - 1] = *x;
            for (int j = 0; j < CONV_WIDTH; j++) y += (double)w[c * CONV_WIDTH + j] * h[j];
            *x = silu(y);
        }
    }
}

static void l2_normalise(double *x, double scale)
{
    double ss = 0;
    for (int i = 0; i < GDN_DIM; i++) ss += x[i] * x[i];
    for (int i = 0; i < GDN_DIM; i++) x[i] *= scale / sqrt(ss + 1e-6);
}

/* One token of one head: S (v 128, k 128) decays, is corrected towards v, and is read with q. */
static void delta_step(double *S, const double *q, const double *k, const double *v, double g, double beta, double *o)
{
    for (int i = 0; i < GDN_DIM; i++) {
        double *row = S + i * GDN_DIM, predicted = 0, out = 0;
        for (int c = 0; c < GDN_DIM; c++) predicted += (row[c] *= g) * k[c];
        double e = beta * (v[i] - predicted);
        for (int c = 0; c < GDN_DIM; c++) out += (row[c] += e * k[c]) * q[c];
        o[i] = out;
    }
}

struct gdn_rows {
    double *u, *z, *b, *a, *o;              /* owned; (n, conv_dim), (n, value_dim), (n, heads), (n, heads), (n, value_dim) */
    float *conv, *a_log, *dt_bias, *norm;   /* owned */
};

static lily_status gdn_project(const struct ref *r, const double *x, struct gdn_rows *g, struct lily_err *err)
{
    const struct model_shape *s = r->s;
    int conv = shape_conv_dim(s), value = shape_gdn_value_dim(s), heads = s->n_gdn_v_heads;
    LILY_TRY(multiply(r, (struct product){"linear_attn.in_proj_qkv", 0, 0, conv, s->hidden}, x, r->n, g->u, err));
    LILY_TRY(multiply(r, (struct product){"linear_attn.in_proj_z", 0, 0, value, s->hidden}, x, r->n, g->z, err));
    LILY_TRY(multiply(r, (struct product){"linear_attn.in_proj_b", 0, 0, heads, s->hidden}, x, r->n, g->b, err));
    LILY_TRY(multiply(r, (struct product){"linear_attn.in_proj_a", 0, 0, heads, s->hidden}, x, r->n, g->a, err));
    LILY_TRY(vector_of(r, "linear_attn.conv1d.weight", (size_t)conv * CONV_WIDTH, &g->conv, err));
    LILY_TRY(vector_of(r, "linear_attn.A_log", (size_t)heads, &g->a_log, err));
    LILY_TRY(vector_of(r, "linear_attn.dt_bias", (size_t)heads, &g->dt_bias, err));
    return vector_of(r, "linear_attn.norm.weight", GDN_DIM, &g->norm, err);
}

/* The recurrence of value head h over all tokens, then the gated norm. */
static void gdn_head(const struct ref *r, const struct gdn_rows *g, int h)
{
    const struct model_shape *s = r->s;
    int conv = shape_conv_dim(s), value = shape_gdn_value_dim(s), heads = s->n_gdn_v_heads;
    int key = h / (heads / s->n_gdn_k_heads);
    double *S = doubles(GDN_DIM, GDN_DIM);
    for (int t = 0; t < r->n; t++) {
        const double *row = g->u + (size_t)t * (size_t)conv, *z = g->z + (size_t)t * (size_t)value + h * GDN_DIM;
        double *o = g->o + (size_t)t * (size_t)value + h * GDN_DIM, q[GDN_DIM], k[GDN_DIM];
        memcpy(q, row + key * GDN_DIM, sizeof q);
        memcpy(k, row + (s->n_gdn_k_heads + key) * GDN_DIM, sizeof k);
        l2_normalise(q, 1 / sqrt((double)GDN_DIM));
        l2_normalise(k, 1);
        double u = g->a[(size_t)t * (size_t)heads + h] + (double)g->dt_bias[h];
        double softplus = fmax(u, 0) + log1p(exp(-fabs(u)));
        double decay = exp(-exp((double)g->a_log[h]) * softplus), beta = sigmoid(g->b[(size_t)t * (size_t)heads + h]);
        delta_step(S, q, k, row + (2 * s->n_gdn_k_heads + h) * GDN_DIM, decay, beta, o);
        rms_row(o, o, g->norm, GDN_DIM, (double)s->rms_eps);
        for (int i = 0; i < GDN_DIM; i++) o[i] *= silu(z[i]);
    }
    free(S);
}

/* Gated DeltaNet. */
static lily_status gdn(const struct ref *r, const double *x, double *y, struct lily_err *err)
{
    const struct model_shape *s = r->s;
    size_t n = (size_t)r->n, value = (size_t)shape_gdn_value_dim(s), heads = (size_t)s->n_gdn_v_heads;
    struct gdn_rows g = {.u = doubles(n, (size_t)shape_conv_dim(s)),
                         .z = doubles(n, value),
                         .b = doubles(n, heads),
                         .a = doubles(n, heads),
                         .o = doubles(n, value)};
    lily_status st;
    LILY_TRY_GOTO(gdn_project(r, x, &g, err), out);
    convolve(r, g.u, g.conv);
    for (int h = 0; h < s->n_gdn_v_heads; h++) gdn_head(r, &g, h);
    st = multiply(r, (struct product){"linear_attn.out_proj", 0, 0, s->hidden, (int)value}, g.o, r->n, y, err);
out:
    free(g.u);
    free(g.z);
    free(g.b);
    free(g.a);
    free(g.o);
    free(g.conv);
    free(g.a_log);
    free(g.dt_bias);
    free(g.norm);
    return st;
}

/* down * (silu(gate*x) * (up*x)) of one expert for one token; names carry the module's own prefix. */
struct expert_names {
    const char *gate, *up, *down;
    int experts, expert, width;
};

static lily_status expert(const struct ref *r, const struct expert_names *e, const double *x, double *y,
                          struct lily_err *err)
{
    int h = r->s->hidden;
    double *gate = doubles((size_t)e->width, 1), *up = doubles((size_t)e->width, 1);
    lily_status st;
    LILY_TRY_GOTO(multiply(r, (struct product){e->gate, e->experts, e->expert, e->width, h}, x, 1, gate, err), out);
    LILY_TRY_GOTO(multiply(r, (struct product){e->up, e->experts, e->expert, e->width, h}, x, 1, up, err), out);
    for (int i = 0; i < e->width; i++) gate[i] = silu(gate[i]) * up[i];
    st = multiply(r, (struct product){e->down, e->experts, e->expert, h, e->width}, gate, 1, y, err);
out:
    free(gate);
    free(up);
    return st;
}

/* The 8 largest probabilities, renormalised; P is consumed. */
static lily_status routed(const struct ref *r, double *P, const double *x, double *y, struct lily_err *err)
{
    const struct model_shape *s = r->s;
    int chosen[EXPERTS_PER_TOKEN];
    double weight[EXPERTS_PER_TOKEN], sum = 0, *f = doubles((size_t)s->hidden, 1);
    lily_status st = LILY_OK;
    for (int i = 0; i < EXPERTS_PER_TOKEN; i++) {
        int best = 0;
        for (int e = 1; e < s->n_experts; e++)
            if (P[e] > P[best]) best = e;
        chosen[i] = best;
        sum += weight[i] = P[best];
        P[best] = -1;
    }
    for (int i = 0; i < EXPERTS_PER_TOKEN && st == LILY_OK; i++) {
        struct expert_names names = {"mlp.switch_mlp.gate_proj", "mlp.switch_mlp.up_proj", "mlp.switch_mlp.down_proj",
                                     s->n_experts, chosen[i], s->expert_dim};
        st = expert(r, &names, x, f, err);
        for (int c = 0; c < s->hidden; c++) y[c] += weight[i] / sum * f[c];
    }
    free(f);
    return st;
}

/* MoE block of one token: y = routed experts + sigmoid(shared gate) * shared expert. */
static lily_status moe_token(const struct ref *r, const double *x, double *y, struct lily_err *err)
{
    const struct model_shape *s = r->s;
    double *P = doubles((size_t)s->n_experts, 1), *f = doubles((size_t)s->hidden, 1), max = -INFINITY, sum = 0, gate;
    const struct expert_names shared = {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
                                        "mlp.shared_expert.down_proj", 0, 0, s->shared_dim};
    lily_status st;
    memset(y, 0, sizeof *y * (size_t)s->hidden);
    LILY_TRY_GOTO(multiply(r, (struct product){"mlp.gate", 0, 0, s->n_experts, s->hidden}, x, 1, P, err), out);
    for (int e = 0; e < s->n_experts; e++) max = fmax(max, P[e]);
    for (int e = 0; e < s->n_experts; e++) sum += P[e] = exp(P[e] - max);
    for (int e = 0; e < s->n_experts; e++) P[e] /= sum;
    LILY_TRY_GOTO(routed(r, P, x, y, err), out);
    LILY_TRY_GOTO(expert(r, &shared, x, f, err), out);
    LILY_TRY_GOTO(multiply(r, (struct product){"mlp.shared_expert_gate", 0, 0, 1, s->hidden}, x, 1, &gate, err), out);
    for (int c = 0; c < s->hidden; c++) y[c] += sigmoid(gate) * f[c];
out:
    free(P);
    free(f);
    return st;
}

static void add(double *x, const double *y, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] += y[i];
}

/* One decoder layer: x += mixer(norm(x)); x += moe(norm(x)). scratch: two blocks of (n, hidden). */
static lily_status layer(struct ref *r, int index, double *x, double *norm, double *y, struct lily_err *err)
{
    size_t h = (size_t)r->s->hidden, n = (size_t)r->n;
    snprintf(r->prefix, sizeof r->prefix, "model.layers.%d.", index);
    LILY_TRY(norm_rows(r, "input_layernorm.weight", x, norm, err));
    LILY_TRY(r->s->is_full[index] ? attention(r, norm, y, err) : gdn(r, norm, y, err));
    add(x, y, n * h);
    LILY_TRY(norm_rows(r, "post_attention_layernorm.weight", x, norm, err));
    for (size_t t = 0; t < n; t++) LILY_TRY(moe_token(r, norm + t * h, y + t * h, err));
    add(x, y, n * h);
    return LILY_OK;
}

static lily_status embed(const struct ref *r, const int32_t *ids, double *x, struct lily_err *err)
{
    struct module_want want = {"model.embed_tokens", 0, r->s->vocab, r->s->hidden};
    struct module_view m;
    LILY_TRY(checkpoint_module(r->ck, &want, &m, err));
    float *row = mem_new(sizeof *row * (size_t)r->s->hidden);
    for (int t = 0; t < r->n; t++) {
        module_row(&m, 0, ids[t], row);
        for (int i = 0; i < r->s->hidden; i++) x[(size_t)t * (size_t)r->s->hidden + (size_t)i] = (double)row[i];
    }
    free(row);
    return LILY_OK;
}

lily_status reference_forward(const struct model_config *config, const struct checkpoint *ck, const int32_t *ids, int n,
                              const struct reference_out *out, struct lily_err *err)
{
    struct ref r = {.config = config, .ck = ck, .s = &config->shape, .n = n, .rounding = out->rounding};
    size_t size = (size_t)n * (size_t)r.s->hidden;
    double *x = doubles(size, 1), *norm = doubles(size, 1), *y = doubles(size, 1);
    lily_status st;
    LILY_TRY_GOTO(embed(&r, ids, x, err), out);
    if (out->hidden) memcpy(out->hidden, x, sizeof *x * size);
    for (int i = 0; i < r.s->n_layers; i++) {
        LILY_TRY_GOTO(layer(&r, i, x, norm, y, err), out);
        if (out->hidden) memcpy(out->hidden + (size_t)(i + 1) * size, x, sizeof *x * size);
    }
    snprintf(r.prefix, sizeof r.prefix, "model.");
    LILY_TRY_GOTO(norm_rows(&r, "norm.weight", x, norm, err), out);
    r.prefix[0] = 0;
    if (out->logits)
        st = multiply(&r, (struct product){"lm_head", 0, 0, r.s->vocab, r.s->hidden}, norm, n, out->logits, err);
out:
    free(x);
    free(norm);
    free(y);
    return st;
}
