/*
 * The decode kernels of a CUDA card as one more tier: each step of a pass against double precision, from what the card itself
 * had before the step, so that a tolerance is about one step. Weights are random codes; the oracle unpacks them itself.
 */
#include "check_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "counts.h"

static struct lily_err err;

static bool ok(lily_status st)
{
    if (st != LILY_OK) case_fail("%s", err.msg);
    return st == LILY_OK;
}

/* ---- weights ---- */

static struct tensor_view tensor_of(const void *data, enum dtype dtype, size_t bytes)
{
    return (struct tensor_view){.name = "random", .file = "", .dtype = dtype, .data = data, .bytes = bytes};
}

static struct module *module_new(struct rig *g, struct random *r, int experts, int rows, int cols, int bits)
{
    struct module *m = &g->modules[g->n_modules++];
    size_t n = (size_t)experts * (size_t)rows, groups = n * (size_t)cols / 64, bytes = n * (size_t)cols * (size_t)bits / 8;
    *m = (struct module){experts, rows, cols, bits, malloc(bytes), malloc(groups * 2), malloc(groups * 2), NULL};
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t v = random_u64(r);
        memcpy(m->codes + i, &v, 8);
    }
    for (size_t i = 0; i < groups; i++) {
        float s = (0.5f + fabsf(random_float(r))) * (random_u64(r) & 1 ? 1.0f : -1.0f) / (float)(1 << (bits - 1)) / sqrtf((float)cols);
        m->scales[i] = bf16_from_f32(s);
        m->biases[i] = bf16_from_f32(-s * (float)(1 << (bits - 1)) * (1 + 0.1f * random_float(r)));
    }
    struct module_view v = {experts, rows, cols, bits, tensor_of(m->codes, DTYPE_U32, bytes), tensor_of(m->scales, DTYPE_BF16, groups * 2),
                            tensor_of(m->biases, DTYPE_BF16, groups * 2)};
    ok(g->be->ops->load_matrix(g->be, &v, &m->device, &err));
    return m;
}

static struct param *param_new(struct rig *g, struct random *r, int n, float lo, float hi)
{
    struct param *p = &g->params[g->n_params++];
    *p = (struct param){malloc(sizeof(float) * (size_t)n), NULL};
    for (int i = 0; i < n; i++) p->data[i] = lo + (hi - lo) * 0.5f * (1 + random_float(r));
    ok(g->be->ops->load_vector(g->be, p->data, (size_t)n, &p->device, &err));
    return p;
}

struct weight module_weight(const struct module *m, int expert, int row, int k)
{
    size_t at = ((size_t)expert * (size_t)m->rows + (size_t)row) * (size_t)m->cols + (size_t)k, group = at / 64;
    int q = m->bits == 8 ? m->codes[at] : m->codes[at / 2] >> (at % 2 * 4) & 15;
    return (struct weight){q, (double)bf16_to_f32(m->scales[group]), (double)bf16_to_f32(m->biases[group])};
}

/* ---- products ---- */

/* What the digits of gemv.cuh lose of numbers that go through together: 21 bits of the largest of up to 256, 17 in the upper 32 of 64. */
void add_digits(struct row *x)
{
    for (int k = 0; k < x->n; k++) {
        int lo = k / 128 * 128 - 128, hi = lo + 384, e;
        double most = 0;
        for (int i = lo < 0 ? 0 : lo; i < hi && i < x->n; i++) most = fmax(most, fabs(x->v[i]));
        frexp(most, &e);
        x->tol[k] += ldexp(k & 32 ? 8.0 : 0.5, e - 21);
    }
}

/* Columns [from, from + n) of a row of a module times those of x, whose digits were added. */
struct close product(const struct module *m, int expert, int row, const struct row *x, int from, int n)
{
    struct close y = {0, 0};
    double size = 0;
    for (int k = 0; k < n; k++) {
        struct weight w = module_weight(m, expert, row, from + k);
        double f = w.q * w.scale + w.bias;
        y.v += f * x->v[from + k];
        y.tol += fabs(f) * x->tol[from + k];
        size += (fabs(w.q * w.scale) + fabs(w.bias)) * fabs(x->v[from + k]);
    }
    y.tol += (n / 64 + 24) * UNIT_ROUNDOFF * size;
    return y;
}

struct row row_new(const float *x, int n)
{
    struct row r = {n, calloc((size_t)n, sizeof(double)), calloc((size_t)n, sizeof(double))};
    for (int i = 0; x && i < n; i++) r.v[i] = (double)x[i];
    return r;
}

void row_free(struct row *r)
{
    free(r->v);
    free(r->tol);
}

/* x times the norm's weight with its digits; *rms: the factor that the sums still need. */
struct row normed_row(const struct rig *g, const float *x, const struct param *w, double *rms)
{
    struct row r = row_new(x, g->shape.hidden);
    double ss = 0;
    for (int k = 0; k < r.n; k++) {
        ss += r.v[k] * r.v[k];
        r.v[k] *= (double)w->data[k];
        r.tol[k] = UNIT_ROUNDOFF * fabs(r.v[k]);
    }
    *rms = 1 / sqrt(ss / r.n + (double)g->shape.rms_eps);
    add_digits(&r);
    return r;
}

/* A product with a normed row. */
struct close projected(const struct module *m, int expert, int row, const struct row *x, double rms)
{
    struct close y = product(m, expert, row, x, 0, x->n);
    return (struct close){y.v * rms, y.tol * rms + 80 * UNIT_ROUNDOFF * fabs(y.v * rms)};
}

struct close sigmoid_of(struct close x)
{
    double y = 1 / (1 + exp(-x.v));
    return (struct close){y, 0.25 * x.tol + (8 + fabs(x.v)) * 4 * UNIT_ROUNDOFF * y * (1 - y) + 4 * UNIT_ROUNDOFF * y};
}

struct close silu_of(struct close x)
{
    struct close s = sigmoid_of((struct close){x.v, 0});
    return (struct close){x.v * s.v, 1.1 * x.tol + fabs(x.v) * s.tol + 2 * UNIT_ROUNDOFF * fabs(x.v * s.v)};
}

struct close times(struct close a, struct close b)
{
    return (struct close){a.v * b.v, fabs(a.v) * b.tol + fabs(b.v) * a.tol + a.tol * b.tol + UNIT_ROUNDOFF * fabs(a.v * b.v)};
}

void expect_row(const char *what, long at, float got, struct close want)
{
    expect_close(what, at, got, want.v, want.tol);
}

/* ---- the rig ---- */

static void moe_new(struct rig *g, struct random *r, int bits)
{
    const struct model_shape *s = &g->shape;
    g->router = module_new(g, r, 1, s->n_experts, s->hidden, 8);
    g->gate = module_new(g, r, s->n_experts, s->expert_dim, s->hidden, bits);
    g->up = module_new(g, r, s->n_experts, s->expert_dim, s->hidden, bits);
    g->down = module_new(g, r, s->n_experts, s->hidden, s->expert_dim, bits);
    g->shared_gate_proj = module_new(g, r, 1, s->shared_dim, s->hidden, bits);
    g->shared_up = module_new(g, r, 1, s->shared_dim, s->hidden, bits);
    g->shared_down = module_new(g, r, 1, s->hidden, s->shared_dim, bits);
    g->shared_gate = module_new(g, r, 1, 1, s->hidden, 8);
    g->moe_norm = param_new(g, r, s->hidden, 0.7f, 1.3f);
    g->moe = (struct moe_weights){.norm = g->moe_norm->device, .router = g->router->device, .gate = g->gate->device, .up = g->up->device,
                                  .down = g->down->device, .shared_gate_proj = g->shared_gate_proj->device,
                                  .shared_up = g->shared_up->device,
                                  .shared_down = g->shared_down->device, .shared_gate = g->shared_gate->device};
}

static void mixers_new(struct rig *g, struct random *r, int bits)
{
    const struct model_shape *s = &g->shape;
    int conv = shape_conv_dim(s), value = shape_gdn_value_dim(s), heads = s->n_gdn_v_heads;
    int q = s->n_q_heads * HEAD_DIM, kv = s->n_kv_heads * HEAD_DIM;
    g->norm = param_new(g, r, s->hidden, 0.7f, 1.3f);
    g->in_qkv = module_new(g, r, 1, conv, s->hidden, bits);
    g->in_z = module_new(g, r, 1, value, s->hidden, bits);
    g->in_b = module_new(g, r, 1, heads, s->hidden, bits);
    g->in_a = module_new(g, r, 1, heads, s->hidden, bits);
    g->out = module_new(g, r, 1, s->hidden, value, bits);
    g->conv = param_new(g, r, conv * CONV_WIDTH, -0.6f, 0.6f);
    g->a_log = param_new(g, r, heads, -2, 1);
    g->dt_bias = param_new(g, r, heads, -4, 0);
    g->out_norm = param_new(g, r, GDN_DIM, 0.7f, 1.3f);
    g->gdn = (struct gdn_weights){.norm = g->norm->device, .in_qkv = g->in_qkv->device, .in_z = g->in_z->device, .in_b = g->in_b->device,
                                  .in_a = g->in_a->device, .conv = g->conv->device, .a_log = g->a_log->device,
                                  .dt_bias = g->dt_bias->device,
                                  .out_norm = g->out_norm->device, .out = g->out->device};
    g->q = module_new(g, r, 1, 2 * q, s->hidden, bits);
    g->k = module_new(g, r, 1, kv, s->hidden, bits);
    g->v = module_new(g, r, 1, kv, s->hidden, bits);
    g->o = module_new(g, r, 1, s->hidden, q, bits);
    g->q_norm = param_new(g, r, HEAD_DIM, 0.7f, 1.3f);
    g->k_norm = param_new(g, r, HEAD_DIM, 0.7f, 1.3f);
    g->attn = (struct attn_weights){.norm = g->norm->device, .q = g->q->device, .k = g->k->device, .v = g->v->device,
                                    .q_norm = g->q_norm->device, .k_norm = g->k_norm->device, .o = g->o->device};
}

/* A code of every row is not what the card has: some step must notice. */
static void plant(struct module *m)
{
    for (size_t row = 0; row < (size_t)m->experts * (size_t)m->rows; row++) {
        size_t at = row * (size_t)m->cols + 3;
        m->codes[m->bits == 8 ? at : at / 2] ^= 0x80;
    }
}

static bool rig_new(struct rig *g, struct random *r, const struct rig_form *f)
{
    struct cuda_options o = {.device = CUDA_ANY, .max_rows = 64, .max_logits = 8, .kv_f32 = f->kv_f32, .state_bytes = 256 << 20};
    *g = (struct rig){.form = *f};
    g->shape = (struct model_shape){.hidden = f->hidden, .n_layers = 2, .vocab = f->vocab, .n_q_heads = f->q_heads,
                                    .n_kv_heads = f->q_heads / GQA, .n_gdn_k_heads = f->k_heads, .n_gdn_v_heads = f->v_heads,
                                    .n_experts = f->experts,
                                    .expert_dim = f->expert_dim, .shared_dim = f->shared_dim, .max_positions = 4096, .rms_eps = 1e-6f,
                                    .rope_theta = 1e7, .n_full = 1, .n_linear = 1, .is_full = {true, false}};
    o.shape = g->shape;
    if (!ok(cuda_backend_new(&o, &g->be, &err))) return false;
    g->be->watched = true;
    g->embed = module_new(g, r, 1, f->vocab, f->hidden, f->bits);
    g->head = module_new(g, r, 1, f->vocab, f->hidden, f->bits);
    g->head_norm = param_new(g, r, f->hidden, 0.7f, 1.3f);
    mixers_new(g, r, f->bits);
    moe_new(g, r, f->bits);
    for (int i = 0; i < f->n_seqs; i++) {
        if (!ok(g->be->ops->seq_new(g->be, &g->seqs[i].seq, &err))) return false;
        seq_oracle_new(g, &g->seqs[i]);
    }
    return !case_failed();
}

static void rig_free(struct rig *g)
{
    if (!g->be) return;
    for (int i = 0; i < g->form.n_seqs; i++) {
        if (g->seqs[i].seq) g->be->ops->seq_free(g->be, g->seqs[i].seq);
        seq_oracle_free(&g->seqs[i]);
    }
    for (int i = 0; i < g->n_modules; i++) {
        g->be->ops->free_matrix(g->be, g->modules[i].device);
        free(g->modules[i].codes);
        free(g->modules[i].scales);
        free(g->modules[i].biases);
    }
    for (int i = 0; i < g->n_params; i++) {
        g->be->ops->free_vector(g->be, g->params[i].device);
        free(g->params[i].data);
    }
    g->be->ops->destroy(g->be);
}

float *peek(const struct rig *g, enum cuda_peek what, int row, int n)
{
    float *out = calloc((size_t)n, sizeof *out);
    ok(cuda_peek(g->be, what, row, out, (size_t)n, &err));
    return out;
}

static float *hidden_of(const struct rig *g)
{
    float *x = calloc((size_t)g->n_rows * (size_t)g->shape.hidden, sizeof *x);
    g->be->ops->step.read_hidden(g->be, x);
    return x;
}

/* ---- a pass, step by step ---- */

static void check_embed(const struct rig *g, const float *x)
{
    for (int r = 0; r < g->n_rows; r++)
        for (int k = 0; k < g->shape.hidden; k++) {
            struct weight w = module_weight(g->embed, 0, g->ids[r], k);
            expect_close("embedding", k, x[r * g->shape.hidden + k], (double)fmaf((float)w.q, (float)w.scale, (float)w.bias), 0);
        }
}

static void check_logits(const struct rig *g, const float *x, const float *logits)
{
    for (int r = 0; r < g->n_rows; r++) {
        double rms;
        struct row in = normed_row(g, x + (size_t)r * (size_t)g->shape.hidden, g->head_norm, &rms);
        const float *got = logits + (size_t)r * (size_t)shape_logits_ld(&g->shape);
        for (int i = 0; i < g->shape.vocab; i++) expect_row("logit", i, got[i], projected(g->head, 0, i, &in, rms));
        row_free(&in);
    }
}

static void mixers(struct rig *g, float **x)
{
    const struct step_table *step = &g->be->ops->step;
    for (int linear = 0; linear < 2 && !case_failed(); linear++) {
        if (linear) step->gdn_in(g->be, &g->gdn), check_gdn_in(g, *x);
        else step->attn_in(g->be, &g->attn, 0), check_attn_in(g, *x);
        if (linear) step->gdn_mix(g->be, &g->gdn, 0), check_gdn_mix(g);
        else step->attn_mix(g->be, 0), check_attn_mix(g);
        if (linear) step->gdn_out(g->be, &g->gdn);
        else step->attn_out(g->be, &g->attn);
        float *before = *x;
        *x = hidden_of(g);
        check_out(g, linear, before, *x);
        free(before);
        step->moe_route(g->be, &g->moe);
        check_route(g, *x);
        step->moe_experts(g->be, &g->moe);
        before = *x;
        *x = hidden_of(g);
        check_experts(g, before, *x);
        free(before);
    }
}

static void pass(struct rig *g, struct random *r, int rows_each)
{
    const struct step_table *step = &g->be->ops->step;
    struct batch_seq bs[RIG_SEQS];
    int32_t at[RIG_ROWS];
    float *logits = calloc((size_t)RIG_ROWS * (size_t)shape_logits_ld(&g->shape), sizeof *logits);
    g->n_rows = 0;
    g->rows_each = rows_each;
    for (int i = 0; i < g->form.n_seqs; i++) {
        if (!ok(g->be->ops->seq_reserve(g->be, g->seqs[i].seq, rows_each, &err))) return;
        bs[i] = (struct batch_seq){g->seqs[i].seq, rows_each};
        for (int t = 0; t < rows_each; t++, g->n_rows++) {
            g->ids[g->n_rows] = random_int(r, 0, g->shape.vocab - 1);
            at[g->n_rows] = g->n_rows;
        }
    }
    struct batch b = {PHASE_DECODE, g->form.n_seqs, bs, g->n_rows, g->ids, g->n_rows, at, logits, false};
    step->begin(g->be, &b);
    step->embed(g->be, g->embed->device);
    float *x = hidden_of(g);
    check_embed(g, x);
    mixers(g, &x);
    step->head(g->be, g->head_norm->device, g->head->device);
    if (ok(step->end(g->be, &err)) && !case_failed()) check_logits(g, x, logits);
    free(x);
    free(logits);
}

/* planted: of which module, -1: none. Returns how many modules there are. */
static int check_form(const struct rig_form *f, struct random *r, int planted)
{
    static const int rows[] = {1, 2, 8, 1, 4, 3, 8, 8, 5};
    size_t passes = f->hidden < 1000 ? sizeof rows / sizeof *rows : f->n_seqs > 1 ? 2 : 4; /* the oracle is slow */
    struct rig g = {0};
    case_begin("decode", "hidden %d, %d bits, %s cache, %d sequences", f->hidden, f->bits, f->kv_f32 ? "fp32" : "bf16", f->n_seqs);
    bool made = rig_new(&g, r, f);
    if (made && planted >= 0) plant(&g.modules[planted]);
    if (made)
        for (size_t i = 0; i < passes && !case_failed(); i++)
            pass(&g, r, rows[i] * f->n_seqs <= RIG_ROWS ? rows[i] : RIG_ROWS / f->n_seqs);
    rig_free(&g);
    case_end();
    return g.n_modules;
}

/* Every planted fault must fail its case. */
static void self_test(const struct rig_form *f, struct random *r)
{
    long passed = counts.passed, failed = counts.failed;
    counts.quiet = true;
    for (int i = 0, n = 1; i < n; i++) {
        long before = counts.failed;
        n = check_form(f, r, i);
        if (counts.failed > before) passed++;
        else printf("FAIL self-test cuda: a wrong code of module %d of %d went unnoticed\n", i, n), failed++;
    }
    counts.quiet = false;
    counts.passed = passed;
    counts.failed = failed;
}

void check_cuda(void)
{
    static const struct rig_form forms[] = {
        {.hidden = 256, .bits = 4, .vocab = 320, .q_heads = 8, .k_heads = 2, .v_heads = 4, .experts = 16, .expert_dim = 64,
         .shared_dim = 64, .n_seqs = 1},
        {.hidden = 320, .bits = 8, .vocab = 250, .q_heads = 8, .k_heads = 2, .v_heads = 6, .experts = 40, .expert_dim = 192,
         .shared_dim = 128, .n_seqs = 3, .kv_f32 = true},
        {.hidden = 2048, .bits = 4, .vocab = 9000, .q_heads = 16, .k_heads = 16, .v_heads = 32, .experts = 24, .expert_dim = 512,
         .shared_dim = 512, .n_seqs = 1},
        {.hidden = 2048, .bits = 4, .vocab = 4000, .q_heads = 16, .k_heads = 16, .v_heads = 32, .experts = 24, .expert_dim = 512,
         .shared_dim = 512, .n_seqs = 8},
    };
    struct cuda_card card;
    struct random r = {options.seed};
    if (cuda_probe(CUDA_ANY, &card, &err) != LILY_OK) {
        printf("SKIP kernels of tier cuda: %s\n", err.msg);
        counts.skipped++;
        return;
    }
    counts.tier = "cuda";
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) check_form(&forms[i], &r, -1);
    check_cuda_synth(&r);
    self_test(&forms[0], &r);
}
