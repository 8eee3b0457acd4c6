/* Each decode step of a CUDA card in double precision, from what the card had before it. Formulas: MODEL.md. */
#include "check_cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

#define NORM_ROUNDOFF (64 * UNIT_ROUNDOFF) /* of 1/sqrt of a sum of squares */

static double *zeros(size_t n)
{
    return calloc(n, sizeof(double));
}

void seq_oracle_new(const struct rig *g, struct seq_oracle *s)
{
    size_t conv = 3 * (size_t)shape_conv_dim(&g->shape), columns = (size_t)shape_gdn_value_dim(&g->shape);
    size_t kv = (size_t)RIG_TOKENS * 2 * (size_t)g->shape.n_kv_heads * HEAD_DIM;
    s->conv = zeros(conv), s->conv_tol = zeros(conv);
    s->state = zeros(columns * GDN_DIM), s->state_tol = zeros(columns);
    s->kv = zeros(kv), s->kv_tol = zeros(kv);
}

void seq_oracle_free(struct seq_oracle *s)
{
    free(s->conv);
    free(s->conv_tol);
    free(s->state);
    free(s->state_tol);
    free(s->kv);
    free(s->kv_tol);
}

static struct seq_oracle *seq_of(struct rig *g, int row)
{
    return &g->seqs[row / g->rows_each];
}

/* ---- attention ---- */

void check_attn_in(struct rig *g, const float *x)
{
    int q = g->shape.n_q_heads * 2 * HEAD_DIM, kv = g->shape.n_kv_heads * HEAD_DIM;
    for (int r = 0; r < g->n_rows; r++) {
        double rms;
        struct row in = normed_row(g, x + (size_t)r * (size_t)g->shape.hidden, g->norm, &rms);
        float *u = peek(g, PEEK_U, r, q + 2 * kv);
        for (int i = 0; i < q + 2 * kv; i++) {
            if (g->form.kv_f32 && !(i < q && i & HEAD_DIM) && i < q + kv) continue; /* the step has normed and turned them already */
            const struct module *m = i < q ? g->q : i < q + kv ? g->k : g->v;
            struct close y = projected(m, 0, i < q ? i : (i - q) % kv, &in, rms);
            expect_row("u", i, u[i], i < q && i & HEAD_DIM ? sigmoid_of(y) : y);
        }
        free(u);
        row_free(&in);
    }
}

/* Norm and rotation of a head's 256 numbers, times a factor. */
static void turn(const struct rig *g, const float *u, const struct param *w, int pos, double factor, struct close *out)
{
    double ss = 0;
    for (int i = 0; i < HEAD_DIM; i++) ss += (double)u[i] * (double)u[i];
    double rms = 1 / sqrt(ss / HEAD_DIM + (double)g->shape.rms_eps);
    for (int i = 0; i < HEAD_DIM; i++) {
        out[i].v = (double)u[i] * rms * (double)w->data[i] * factor;
        out[i].tol = NORM_ROUNDOFF * fabs(out[i].v);
    }
    for (int i = 0; i < ROTARY_DIM / 2; i++) {
        double angle = pos * pow(g->shape.rope_theta, -2.0 * i / ROTARY_DIM), c = cos(angle), s = sin(angle);
        struct close a = out[i], b = out[i + ROTARY_DIM / 2];
        double tol = (NORM_ROUNDOFF + 4 * UNIT_ROUNDOFF) * (fabs(a.v) + fabs(b.v));
        out[i] = (struct close){a.v * c - b.v * s, tol};
        out[i + ROTARY_DIM / 2] = (struct close){a.v * s + b.v * c, tol};
    }
}

/* As the cache keeps it; near the middle between two numbers of bf16 the card may take the other one. */
static struct close kept(const struct rig *g, struct close x)
{
    if (g->form.kv_f32) return x;
    double v = (double)bf16_to_f32(bf16_from_f32((float)x.v)), low = (double)bf16_to_f32(bf16_from_f32((float)(x.v - x.tol)));
    double high = (double)bf16_to_f32(bf16_from_f32((float)(x.v + x.tol)));
    return (struct close){v, high - low};
}

static void append(struct rig *g, const float *u, struct seq_oracle *s)
{
    int q = g->shape.n_q_heads * 2 * HEAD_DIM, kv = g->shape.n_kv_heads * HEAD_DIM;
    double *k = s->kv + (size_t)s->length * 2 * (size_t)kv, *k_tol = s->kv_tol + (size_t)s->length * 2 * (size_t)kv;
    for (int h = 0; h < g->shape.n_kv_heads; h++) {
        struct close x[HEAD_DIM];
        turn(g, u + q + h * HEAD_DIM, g->k_norm, s->length, 1, x);
        for (int i = 0; i < HEAD_DIM; i++) {
            struct close key = kept(g, x[i]), value = kept(g, (struct close){(double)u[q + kv + h * HEAD_DIM + i], 0});
            k[h * HEAD_DIM + i] = key.v, k_tol[h * HEAD_DIM + i] = key.tol;
            k[kv + h * HEAD_DIM + i] = value.v, k_tol[kv + h * HEAD_DIM + i] = value.tol;
        }
    }
    s->length++;
}

/* One query head over all keys. Queries and weights are two parts of bf16 each where the cache is bf16. */
static void attend(const struct rig *g, const struct seq_oracle *s, int head, const struct close *q, struct close *o)
{
    int kv = g->shape.n_kv_heads * HEAD_DIM, at = head / GQA * HEAD_DIM;
    double score[RIG_TOKENS], most = -INFINITY, sum = 0, off = 0;
    for (int t = 0; t < s->length; t++) {
        const double *k = s->kv + (size_t)t * 2 * (size_t)kv + at, *tol = s->kv_tol + (size_t)t * 2 * (size_t)kv + at;
        double dot = 0, error = 0;
        for (int i = 0; i < HEAD_DIM; i++) {
            dot += q[i].v * k[i];
            error += q[i].tol * fabs(k[i]) + fabs(q[i].v) * tol[i] + (0x1p-17 + HEAD_DIM * UNIT_ROUNDOFF) * fabs(q[i].v * k[i]);
        }
        score[t] = dot;
        most = fmax(most, dot);
        off = fmax(off, error + 4 * UNIT_ROUNDOFF * fabs(dot));
    }
    for (int t = 0; t < s->length; t++) sum += score[t] = exp(score[t] - most);
    for (int i = 0; i < HEAD_DIM; i++) {
        double size = 0, error = 0, y = 0;
        for (int t = 0; t < s->length; t++) {
            size_t v = (size_t)t * 2 * (size_t)kv + (size_t)(kv + at + i);
            y += score[t] / sum * s->kv[v];
            size += score[t] / sum * fabs(s->kv[v]);
            error += score[t] / sum * s->kv_tol[v];
        }
        o[i] = (struct close){y, error + size * (2 * (exp(off) - 1) + 0x1p-16 + (double)(s->length + 64) * UNIT_ROUNDOFF)};
    }
}

void check_attn_mix(struct rig *g)
{
    int n_q = g->shape.n_q_heads, u_n = (2 * n_q + 2 * g->shape.n_kv_heads) * HEAD_DIM;
    if (g->form.kv_f32) { /* the queries are turned in place: only the sequence's tokens are counted */
        for (int r = 0; r < g->n_rows; r++) seq_of(g, r)->length++;
        return;
    }
    for (int r = 0; r < g->n_rows; r++) {
        struct seq_oracle *s = seq_of(g, r);
        float *u = peek(g, PEEK_U, r, u_n), *mix = peek(g, PEEK_MIX, r, n_q * HEAD_DIM);
        int pos = s->length;
        append(g, u, s);
        for (int h = 0; h < n_q; h++) {
            struct close q[HEAD_DIM], o[HEAD_DIM];
            turn(g, u + h * 2 * HEAD_DIM, g->q_norm, pos, 0.0625, q);
            attend(g, s, h, q, o);
            for (int i = 0; i < HEAD_DIM; i++) {
                struct close gate = {(double)u[h * 2 * HEAD_DIM + HEAD_DIM + i], 0};
                expect_row("attention", h * HEAD_DIM + i, mix[h * HEAD_DIM + i], times(o[i], gate));
            }
        }
        free(u);
        free(mix);
    }
}

/* ---- gated delta rule ---- */

static struct close convolved(const struct rig *g, struct seq_oracle *s, int channel, struct close in)
{
    int dim = shape_conv_dim(&g->shape);
    const float *taps = g->conv->data + (size_t)channel * CONV_WIDTH;
    struct close y = {(double)taps[3] * in.v, fabs((double)taps[3]) * in.tol};
    double size = fabs(y.v);
    for (int j = 0; j < 3; j++) {
        double *v = s->conv + j * dim + channel, *tol = s->conv_tol + j * dim + channel, p = (double)taps[j] * *v;
        y.v += p;
        y.tol += fabs((double)taps[j]) * *tol;
        size += fabs(p);
        *v = j < 2 ? v[dim] : in.v;
        *tol = j < 2 ? tol[dim] : in.tol;
    }
    y.tol += 4 * UNIT_ROUNDOFF * size;
    return y;
}

static struct close decay_of(const struct rig *g, int head, struct close a)
{
    double x = a.v + (double)g->dt_bias->data[head], soft = fmax(x, 0) + log1p(exp(-fabs(x))), rate = exp((double)g->a_log->data[head]);
    double p = rate * soft, tol = rate * (a.tol + 4 * UNIT_ROUNDOFF * (fabs(x) + 1)) + 8 * UNIT_ROUNDOFF * p;
    return (struct close){exp(-p), exp(-p) * (tol + 4 * UNIT_ROUNDOFF)};
}

void check_gdn_in(struct rig *g, const float *x)
{
    const struct model_shape *s = &g->shape;
    int conv = shape_conv_dim(s), value = shape_gdn_value_dim(s), heads = s->n_gdn_v_heads;
    for (int r = 0; r < g->n_rows; r++) {
        double rms;
        struct row in = normed_row(g, x + (size_t)r * (size_t)s->hidden, g->norm, &rms);
        float *u = peek(g, PEEK_U, r, conv + value), *gates = peek(g, PEEK_GATES, r, 2 * heads);
        for (int i = 0; i < conv; i++)
            expect_row("convolution", i, u[i], silu_of(convolved(g, seq_of(g, r), i, projected(g->in_qkv, 0, i, &in, rms))));
        for (int i = 0; i < value; i++) {
            struct close w = {(double)g->out_norm->data[i % GDN_DIM], 0};
            expect_row("z", i, u[conv + i], times(silu_of(projected(g->in_z, 0, i, &in, rms)), w));
        }
        for (int h = 0; h < heads; h++) {
            expect_row("beta", h, gates[h], sigmoid_of(projected(g->in_b, 0, h, &in, rms)));
            expect_row("decay", h, gates[heads + h], decay_of(g, h, projected(g->in_a, 0, h, &in, rms)));
        }
        free(u);
        free(gates);
        row_free(&in);
    }
}

static void unit(const float *x, double length, double *out)
{
    double ss = 1e-6;
    for (int i = 0; i < GDN_DIM; i++) ss += (double)x[i] * (double)x[i];
    for (int i = 0; i < GDN_DIM; i++) out[i] = (double)x[i] / sqrt(ss) * length;
}

/* One token of one column: check_mix.c has the argument for the bound; q and k have an error of their own here. */
static struct close delta(double *s, double *bound, const double *q, const double *k, double v, double beta, double decay)
{
    double predicted = 0, size = 0, kk = 0, qq = 0, step = 0, out = 0, out_size = 0, kq = 0;
    for (int i = 0; i < GDN_DIM; i++) {
        predicted += s[i] * k[i], size += fabs(s[i] * k[i]);
        kk += k[i] * k[i], qq += q[i] * q[i], kq += fabs(k[i] * q[i]);
    }
    double e = beta * (v - decay * predicted);
    double e_error = beta * decay * (NORM_ROUNDOFF + (GDN_DIM + 3) * UNIT_ROUNDOFF) * size;
    e_error += 4 * UNIT_ROUNDOFF * (fabs(beta * v) + fabs(e));
    for (int i = 0; i < GDN_DIM; i++) {
        double rounding = 3 * UNIT_ROUNDOFF * fabs(decay * s[i]) + (NORM_ROUNDOFF + 3 * UNIT_ROUNDOFF) * fabs(e * k[i]);
        out_size += fabs(decay * s[i] * q[i]);
        s[i] = decay * s[i] + e * k[i];
        step += rounding * rounding;
        out += s[i] * q[i];
    }
    *bound = *bound * decay * fmax(1, fabs(1 - beta * kk)) * (1 + 1e-4) + e_error * sqrt(kk) + sqrt(step);
    out_size += fabs(e) * kq;
    return (struct close){out, *bound * sqrt(qq) + (2 * NORM_ROUNDOFF + (GDN_DIM + 4) * UNIT_ROUNDOFF) * out_size + e_error * kq};
}

void check_gdn_mix(struct rig *g)
{
    const struct model_shape *s = &g->shape;
    int conv = shape_conv_dim(s), heads = s->n_gdn_v_heads, k_heads = s->n_gdn_k_heads;
    for (int r = 0; r < g->n_rows; r++) {
        struct seq_oracle *seq = seq_of(g, r);
        float *u = peek(g, PEEK_U, r, conv + heads * GDN_DIM), *gates = peek(g, PEEK_GATES, r, 2 * heads);
        float *mix = peek(g, PEEK_MIX, r, heads * GDN_DIM), *squares = peek(g, PEEK_SQUARES, r, heads * 4);
        for (int h = 0; h < heads; h++) {
            double q[GDN_DIM], k[GDN_DIM];
            struct close sum = {0, 0};
            unit(u + h / (heads / k_heads) * GDN_DIM, 0.08838834764831845, q);
            unit(u + (k_heads + h / (heads / k_heads)) * GDN_DIM, 1, k);
            for (int c = 0; c < GDN_DIM; c++) {
                int at = h * GDN_DIM + c;
                double v = (double)u[2 * k_heads * GDN_DIM + at];
                double *state = seq->state + (size_t)at * GDN_DIM;
                struct close o = delta(state, seq->state_tol + at, q, k, v, (double)gates[h], (double)gates[heads + h]);
                expect_row("o", at, mix[at], times(o, (struct close){(double)u[conv + at], 0}));
                sum.v += o.v * o.v;
                sum.tol += 2 * fabs(o.v) * o.tol + o.tol * o.tol;
            }
            sum.tol += 64 * UNIT_ROUNDOFF * sum.v;
            expect_row("squares", h, squares[4 * h] + squares[4 * h + 1] + squares[4 * h + 2] + squares[4 * h + 3], sum);
        }
        free(u);
        free(gates);
        free(mix);
        free(squares);
    }
}

/* ---- output projections ---- */

void check_out(const struct rig *g, bool linear, const float *before, const float *after)
{
    const struct module *m = linear ? g->out : g->o;
    int hidden = g->shape.hidden, heads = g->shape.n_gdn_v_heads;
    for (int r = 0; r < g->n_rows; r++) {
        float *mix = peek(g, PEEK_MIX, r, m->cols), *squares = peek(g, PEEK_SQUARES, r, heads * 4);
        struct row in = row_new(mix, m->cols);
        add_digits(&in);
        for (int i = 0; i < hidden; i++) {
            struct close y = {(double)before[r * hidden + i], 0};
            double size = fabs(y.v);
            for (int at = 0; at < m->cols; at += GDN_DIM) {
                struct close p = product(m, 0, i, &in, at, GDN_DIM);
                const float *ss = squares + at / GDN_DIM * 4;
                double mean = ((double)ss[0] + (double)ss[1] + (double)ss[2] + (double)ss[3]) / GDN_DIM;
                double f = linear ? 1 / sqrt(mean + (double)g->shape.rms_eps) : 1;
                y.v += p.v * f;
                y.tol += p.tol * f + 16 * UNIT_ROUNDOFF * fabs(p.v * f);
                size += fabs(p.v * f);
            }
            y.tol += (m->cols / GDN_DIM + 8) * UNIT_ROUNDOFF * size;
            expect_row(linear ? "x behind the delta rule" : "x behind attention", i, after[r * hidden + i], y);
        }
        row_free(&in);
        free(mix);
        free(squares);
    }
}

/* ---- mixture of experts ---- */

void check_route(const struct rig *g, const float *x)
{
    const struct model_shape *s = &g->shape;
    for (int r = 0; r < g->n_rows; r++) {
        double rms;
        struct row in = normed_row(g, x + (size_t)r * (size_t)s->hidden, g->moe_norm, &rms);
        float *router = peek(g, PEEK_ROUTER, r, s->n_experts), *shared = peek(g, PEEK_SHARED, r, s->shared_dim);
        float *gate = peek(g, PEEK_GATE, r, 1);
        for (int i = 0; i < s->n_experts; i++) expect_row("router", i, router[i], projected(g->router, 0, i, &in, rms));
        for (int i = 0; i < s->shared_dim; i++)
            expect_row("shared expert", i, shared[i],
                       times(silu_of(projected(g->shared_gate_proj, 0, i, &in, rms)), projected(g->shared_up, 0, i, &in, rms)));
        expect_row("shared gate", 0, gate[0], sigmoid_of(projected(g->shared_gate, 0, 0, &in, rms)));
        free(router);
        free(shared);
        free(gate);
        row_free(&in);
    }
}

/* The 8 highest of the card's own logits, the first of equal ones, and their softmax. */
static void choose(const float *logits, int n, int *top, double *weight)
{
    double sum = 0;
    for (int k = 0; k < EXPERTS_PER_TOKEN; k++) {
        top[k] = -1;
        for (int e = 0; e < n; e++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken |= top[j] == e;
            if (!taken && (top[k] < 0 || logits[e] > logits[top[k]])) top[k] = e;
        }
        sum += weight[k] = exp((double)logits[top[k]] - (double)logits[top[0]]);
    }
    for (int k = 0; k < EXPERTS_PER_TOKEN; k++) weight[k] /= sum;
}

static void add_expert(const struct module *down, int expert, int i, const struct row *in, double weight, struct close *y, double *size)
{
    struct close p = product(down, expert, i, in, 0, in->n);
    y->v += weight * p.v;
    y->tol += weight * (p.tol + 32 * UNIT_ROUNDOFF * fabs(p.v));
    *size += fabs(weight * p.v);
}

void check_experts(const struct rig *g, const float *before, const float *after)
{
    const struct model_shape *s = &g->shape;
    int hidden = s->hidden, ld = (s->expert_dim + 127) / 128 * 128;
    for (int r = 0; r < g->n_rows; r++) {
        double rms, weight[EXPERTS_PER_TOKEN];
        int top[EXPERTS_PER_TOKEN];
        struct row in = normed_row(g, before + (size_t)r * (size_t)hidden, g->moe_norm, &rms), chosen[EXPERTS_PER_TOKEN], always;
        float *router = peek(g, PEEK_ROUTER, r, s->n_experts), *shared = peek(g, PEEK_SHARED, r, s->shared_dim);
        float *gate = peek(g, PEEK_GATE, r, 1);
        float *inner = peek(g, PEEK_INNER, r, EXPERTS_PER_TOKEN * ld);
        choose(router, s->n_experts, top, weight);
        for (int k = 0; k < EXPERTS_PER_TOKEN; k++) {
            for (int i = 0; i < s->expert_dim; i++)
                expect_row("expert", k * ld + i, inner[k * ld + i],
                           times(silu_of(projected(g->gate, top[k], i, &in, rms)), projected(g->up, top[k], i, &in, rms)));
            chosen[k] = row_new(inner + k * ld, s->expert_dim);
            add_digits(&chosen[k]);
        }
        always = row_new(shared, s->shared_dim);
        add_digits(&always);
        for (int i = 0; i < hidden; i++) {
            struct close y = {(double)before[r * hidden + i], 0};
            double size = fabs(y.v);
            for (int k = 0; k < EXPERTS_PER_TOKEN; k++) add_expert(g->down, top[k], i, &chosen[k], weight[k], &y, &size);
            add_expert(g->shared_down, 0, i, &always, (double)gate[0], &y, &size);
            y.tol += 24 * UNIT_ROUNDOFF * size;
            expect_row("x behind the experts", i, after[r * hidden + i], y);
        }
        for (int k = 0; k < EXPERTS_PER_TOKEN; k++) row_free(&chosen[k]);
        row_free(&always);
        row_free(&in);
        free(router);
        free(shared);
        free(gate);
        free(inner);
    }
}
