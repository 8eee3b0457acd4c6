/* Gated DeltaNet layers (MODEL.md, Gated DeltaNet): projections, convolution, gates, delta rule, gated norm, output. */
#include <math.h>

#include "backend/cpu/cpu.h"

void cpu_step_gdn_in(struct backend *be, const struct gdn_weights *w)
{
    struct cpu_backend *c = cpu_of(be);
    struct workspace *ws = &c->ws;
    cpu_norm_rows(c, ws->x, w->norm, &ws->norm, c->now.delta);
    struct linear l[] = {{w->in_qkv, ws->qkv, ws->ld_qkv},
                         {w->in_z, ws->z, ws->ld_z},
                         {w->in_b, ws->b, ws->ld_heads},
                         {w->in_a, ws->a, ws->ld_heads}};
    cpu_linear(c, l, 4, &ws->norm, c->batch->n_rows);
}

struct mix_job {
    struct cpu_backend *c;
    const struct gdn_weights *w;
    int index; /* among the gated-delta layers */
};

/* Convolution and SiLU of one head's 128 channels over every sequence; q and k are then L2-normalised. */
static void conv_head(const struct mix_job *j, int head)
{
    struct cpu_backend *c = j->c;
    struct workspace *ws = &c->ws;
    const struct model_shape *s = &c->base.shape;
    int channel = head * GDN_DIM, conv_dim = shape_conv_dim(s), row = 0;
    for (int i = 0; i < c->batch->n_seqs; i++) {
        const struct batch_seq *b = &c->batch->seqs[i];
        struct conv_job job = {.history = b->seq->conv + (size_t)j->index * CONV_HISTORY * (size_t)conv_dim + channel,
                               .u = ws->qkv + (long)row * ws->ld_qkv + channel,
                               .weight = j->w->conv->data + (size_t)channel * CONV_WIDTH,
                               .out = ws->conv + (long)row * ws->ld_qkv + channel,
                               .ld_h = conv_dim,
                               .ld_u = ws->ld_qkv,
                               .ld_out = ws->ld_qkv,
                               .channels = GDN_DIM,
                               .n = b->n};
        c->kernels.conv_silu(&job);
        row += b->n;
    }
    if (head >= 2 * s->n_gdn_k_heads) return;
    float scale = head < s->n_gdn_k_heads ? (float)(1 / sqrt((double)GDN_DIM)) : 1;
    for (int t = 0; t < row; t++) {
        float *x = ws->conv + (long)t * ws->ld_qkv + channel;
        c->kernels.l2_norm(x, x, scale);
    }
}

/* b becomes beta = sigmoid(b); a becomes the decay g = exp(-exp(A_log) * softplus(a + dt_bias)). */
static void gates_row(const struct mix_job *j, int t)
{
    struct workspace *ws = &j->c->ws;
    float *b = ws->b + (long)t * ws->ld_heads, *a = ws->a + (long)t * ws->ld_heads;
    for (int h = 0; h < j->c->base.shape.n_gdn_v_heads; h++) {
        float u = a[h] + j->w->dt_bias->data[h];
        float softplus = fmaxf(u, 0) + log1pf(expf(-fabsf(u)));
        a[h] = expf(-expf(j->w->a_log->data[h]) * softplus);
        b[h] = 1 / (1 + expf(-b[h]));
    }
}

static void conv_part(void *arg, int thread, int n_threads)
{
    const struct mix_job *j = arg;
    const struct model_shape *s = &j->c->base.shape;
    long lo, hi;
    pool_range(2 * s->n_gdn_k_heads + s->n_gdn_v_heads, thread, n_threads, &lo, &hi);
    for (long h = lo; h < hi; h++) conv_head(j, (int)h);
    pool_range(j->c->batch->n_rows, thread, n_threads, &lo, &hi);
    for (long t = lo; t < hi; t++) gates_row(j, (int)t);
}

enum { STRIP = 64, STRIPS = GDN_DIM / STRIP };

/* The delta rule of one strip of value columns of one head, over every sequence. */
static void delta_strip(const struct mix_job *j, int head, int strip)
{
    struct cpu_backend *c = j->c;
    struct workspace *ws = &c->ws;
    const struct model_shape *s = &c->base.shape;
    int key_head = head / (s->n_gdn_v_heads / s->n_gdn_k_heads), row = 0;
    for (int i = 0; i < c->batch->n_seqs; i++) {
        const struct batch_seq *b = &c->batch->seqs[i];
        const float *rows = ws->conv + (long)row * ws->ld_qkv;
        struct gdn_job job = {
            .state = b->seq->recurrent + ((size_t)j->index * (size_t)s->n_gdn_v_heads + (size_t)head) * GDN_DIM * GDN_DIM,
            .v_lo = strip * STRIP,
            .v_hi = (strip + 1) * STRIP,
            .q = rows + key_head * GDN_DIM,
            .k = rows + (s->n_gdn_k_heads + key_head) * GDN_DIM,
            .v = rows + (2 * s->n_gdn_k_heads + head) * GDN_DIM,
            .ldqk = ws->ld_qkv,
            .ldv = ws->ld_qkv,
            .g = ws->a + (long)row * ws->ld_heads + head,
            .beta = ws->b + (long)row * ws->ld_heads + head,
            .ldg = ws->ld_heads,
            .n = b->n,
            .o = ws->mixed.x + (long)row * ws->mixed.ld + head * GDN_DIM,
            .ldo = ws->mixed.ld};
        c->kernels.gdn(&job);
        row += b->n;
    }
}

static void delta_part(void *arg, int thread, int n_threads)
{
    const struct mix_job *j = arg;
    long lo, hi;
    pool_range((long)j->c->base.shape.n_gdn_v_heads * STRIPS, thread, n_threads, &lo, &hi);
    for (long i = lo; i < hi; i++) delta_strip(j, (int)(i / STRIPS), (int)(i % STRIPS));
}

static void gated_norm_part(void *arg, int thread, int n_threads)
{
    const struct mix_job *j = arg;
    struct workspace *ws = &j->c->ws;
    const struct model_shape *s = &j->c->base.shape;
    long lo, hi;
    pool_range((long)j->c->batch->n_rows * s->n_gdn_v_heads, thread, n_threads, &lo, &hi);
    for (long i = lo; i < hi; i++) {
        long t = i / s->n_gdn_v_heads, head = i % s->n_gdn_v_heads;
        float *o = ws->mixed.x + t * ws->mixed.ld + head * GDN_DIM;
        j->c->kernels.gated_norm(o, o, j->w->out_norm->data, ws->z + t * ws->ld_z + head * GDN_DIM, s->rms_eps);
        act_groups(j->c, &ws->mixed, t, (int)head * (GDN_DIM / QUANT_GROUP), GDN_DIM / QUANT_GROUP);
    }
}

void cpu_step_gdn_mix(struct backend *be, const struct gdn_weights *w, int index)
{
    struct mix_job job = {cpu_of(be), w, index};
    pool_run(job.c->pool, conv_part, &job);
    pool_run(job.c->pool, delta_part, &job);
    pool_run(job.c->pool, gated_norm_part, &job);
}

void cpu_step_gdn_out(struct backend *be, const struct gdn_weights *w)
{
    struct cpu_backend *c = cpu_of(be);
    struct linear l = {w->out, c->ws.shared_out, c->ws.ld_hidden};
    cpu_linear(c, &l, 1, &c->ws.mixed, c->batch->n_rows);
    cpu_add_rows(c, c->ws.shared_out, c->ws.ld_hidden);
}
