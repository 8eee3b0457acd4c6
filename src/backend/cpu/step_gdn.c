/* Gated DeltaNet layers (MODEL.md, Gated DeltaNet): projections, convolution, gates, delta rule, gated norm, output. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

/* How rows of heads lie in this batch: prefill leaves a line between two heads, so that they do not fall on the same places of a cache. */
static void lay_heads(const struct cpu_backend *c, struct head_rows *h, int ld)
{
    const bool behind = c->batch->phase == PHASE_PREFILL;
    h->ld = behind ? GDN_DIM : ld;
    h->step = behind ? (long)c->batch->n_rows * GDN_DIM + BLOCK_ROWS : GDN_DIM;
}

static struct linear to_heads(const struct matrix *m, const struct head_rows *h, int head)
{
    return (struct linear){m, head_row(h, head, 0), (int)h->ld, h->step == GDN_DIM ? 0 : h->step};
}

/*
 * The fast mode: queries, keys and z from fewer digits than values, beta and decay, whose errors the state keeps. `in` has the
 * coarse ones.
 */
static void project_coarse_and_fine(struct cpu_backend *c, const struct gdn_weights *w, const struct act *in)
{
    struct workspace *ws = &c->ws;
    const int values = 2 * c->base.shape.n_gdn_k_heads; /* the first head of them */
    struct matrix qk = matrix_rows(w->in_qkv, 0, values * GDN_DIM), v = matrix_rows(w->in_qkv, values * GDN_DIM, w->in_qkv->rows);
    struct linear coarse[] = {to_heads(&qk, &ws->qkv, 0), to_heads(w->in_z, &ws->z, 0)};
    struct linear fine[] = {to_heads(&v, &ws->qkv, values), {w->in_b, ws->b, ws->ld_heads, 0}, {w->in_a, ws->a, ws->ld_heads, 0}};
    struct act exact = *in;
    exact.digits = ws->value_digits;
    cpu_linear(c, coarse, 2, in, c->batch->n_rows);
    cpu_linear(c, fine, 3, &exact, c->batch->n_rows);
}

void cpu_step_gdn_in(struct backend *be, const struct gdn_weights *w)
{
    struct cpu_backend *c = cpu_of(be);
    struct workspace *ws = &c->ws;
    lay_heads(c, &ws->qkv, ws->ld_conv);
    lay_heads(c, &ws->z, ws->ld_z);
    struct linear l[] = {to_heads(w->in_qkv, &ws->qkv, 0),
                         to_heads(w->in_z, &ws->z, 0),
                         {w->in_b, ws->b, ws->ld_heads, 0},
                         {w->in_a, ws->a, ws->ld_heads, 0}};
    const bool fine = c->now.delta != c->now.count;
    struct norm norm = {.weight = w->norm, .more = fine ? &ws->value_digits : NULL};
    ws->norm.digits.count = c->now.delta;
    ws->value_digits.count = c->now.count;
    for (int i = 0; i < 4; i++) norm.fp32 |= reads_fp32(&ws->norm, l[i].matrix);
    cpu_norm_rows(c, ws->x, &norm, &ws->norm);
    if (fine) project_coarse_and_fine(c, w, &ws->norm);
    else cpu_linear(c, l, 4, &ws->norm, c->batch->n_rows);
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
                               .u = head_row(&ws->qkv, head, row),
                               .weight = j->w->conv->data + (size_t)channel * CONV_WIDTH,
                               .out = ws->conv + (long)row * ws->ld_conv + channel,
                               .ld_h = conv_dim,
                               .ld_u = (int)ws->qkv.ld,
                               .ld_out = ws->ld_conv,
                               .channels = GDN_DIM,
                               .n = b->n};
        c->kernels.conv_silu(&job);
        row += b->n;
    }
    if (head >= 2 * s->n_gdn_k_heads) return;
    float scale = head < s->n_gdn_k_heads ? (float)(1 / sqrt((double)GDN_DIM)) : 1;
    for (int t = 0; t < row; t++) {
        float *x = ws->conv + (long)t * ws->ld_conv + channel;
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
        const float *rows = ws->conv + (long)row * ws->ld_conv;
        struct gdn_job job = {
            .state = b->seq->recurrent + ((size_t)j->index * (size_t)s->n_gdn_v_heads + (size_t)head) * GDN_DIM * GDN_DIM,
            .v_lo = strip * STRIP,
            .v_hi = (strip + 1) * STRIP,
            .q = rows + key_head * GDN_DIM,
            .k = rows + (s->n_gdn_k_heads + key_head) * GDN_DIM,
            .v = rows + (2 * s->n_gdn_k_heads + head) * GDN_DIM,
            .ldqk = ws->ld_conv,
            .ldv = ws->ld_conv,
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
        j->c->kernels.gated_norm(o, o, j->w->out_norm->data, head_row(&ws->z, (int)head, t), s->rms_eps);
        act_groups(j->c, &ws->mixed, t, (int)head * (GDN_DIM / QUANT_GROUP), GDN_DIM / QUANT_GROUP);
    }
}

/* ---- prefill: everything of a key head and its value heads, one chunk of the grid of 64 after another, inside a thread's cache ---- */

enum { MAX_SHARED = 4 }; /* value heads of a key head that are computed together */

/* Some value heads of one key head in one sequence. */
struct head_run {
    const struct mix_job *j;
    const struct batch_seq *seq;
    int row, key_head, head, n_heads;
    float history[2 + MAX_SHARED][CONV_HISTORY * GDN_DIM]; /* q, k, the values: rows before the chunk */
    float q[GRID * GDN_DIM], k[GRID * GDN_DIM], v[GRID * MAX_SHARED * GDN_DIM], o[GRID * MAX_SHARED * GDN_DIM];
} __attribute__((aligned(64)));

/* Rows before the first chunk, from the state; conv_silu takes them on from chunk to chunk. Heads are those of qkv. */
static void load_history(float *to, const struct head_run *r, int head)
{
    int conv_dim = shape_conv_dim(&r->j->c->base.shape);
    const float *from = r->seq->seq->conv + (size_t)r->j->index * CONV_HISTORY * (size_t)conv_dim + (size_t)head * GDN_DIM;
    for (int i = 0; i < CONV_HISTORY; i++) memcpy(to + i * GDN_DIM, from + (long)i * conv_dim, sizeof(float) * GDN_DIM);
}

/* One head of n rows from batch row t on; out has rows of ld. */
static void conv_rows(const struct head_run *r, float *history, int head, long t, int n, float *out, int ld)
{
    struct workspace *ws = &r->j->c->ws;
    r->j->c->kernels.conv_silu(&(struct conv_job){.history = history,
                                                  .u = head_row(&ws->qkv, head, t),
                                                  .weight = r->j->w->conv->data + (size_t)head * GDN_DIM * CONV_WIDTH,
                                                  .out = out,
                                                  .ld_h = GDN_DIM,
                                                  .ld_u = (int)ws->qkv.ld,
                                                  .ld_out = ld,
                                                  .channels = GDN_DIM,
                                                  .n = n});
}

static void norm_rows(const struct head_run *r, float *x, int n, float scale)
{
    for (int t = 0; t < n; t++) r->j->c->kernels.l2_norm(x + t * GDN_DIM, x + t * GDN_DIM, scale);
}

static void delta_rows(struct head_run *r, long t, int n)
{
    const struct model_shape *s = &r->j->c->base.shape;
    struct workspace *ws = &r->j->c->ws;
    const struct cpu_kernels *k = &r->j->c->kernels;
    const int width = r->n_heads * GDN_DIM;
    struct gdn_chunk c = {.state = r->seq->seq->recurrent + ((size_t)r->j->index * (size_t)s->n_gdn_v_heads + (size_t)r->head) * GDN_DIM * GDN_DIM,
                          .q = r->q,
                          .k = r->k,
                          .v = r->v,
                          .ldqk = GDN_DIM,
                          .ldv = width,
                          .g = ws->a + t * ws->ld_heads + r->head,
                          .beta = ws->b + t * ws->ld_heads + r->head,
                          .ldg = ws->ld_heads,
                          .heads = r->n_heads,
                          .n = n,
                          .o = r->o,
                          .ldo = width};
    if (k->gdn_chunk) {
        k->gdn_chunk(&c);
        return;
    }
    for (int h = 0; h < r->n_heads; h++) {
        struct gdn_job one = gdn_of_chunk(&c, h);
        k->gdn(&one);
    }
}

/* Gated norm, sums and digits of a row's value head. */
static void finish_head(const struct mix_job *j, const float *o, long t, int head)
{
    struct workspace *ws = &j->c->ws;
    float row[GDN_DIM] __attribute__((aligned(64)));
    j->c->kernels.gated_norm(row, o, j->w->out_norm->data, head_row(&ws->z, head, t), j->c->base.shape.rms_eps);
    act_groups_of(j->c, &ws->mixed, t, head * (GDN_DIM / QUANT_GROUP), GDN_DIM / QUANT_GROUP, row);
    if (reads_fp32(&ws->mixed, j->w->out)) memcpy(ws->mixed.x + t * ws->mixed.ld + head * GDN_DIM, row, sizeof row);
}

/* n rows of one chunk, from batch row t on. */
static void run_chunk(struct head_run *r, long t, int n)
{
    const struct model_shape *s = &r->j->c->base.shape;
    const int keys = s->n_gdn_k_heads, width = r->n_heads * GDN_DIM;
    conv_rows(r, r->history[0], r->key_head, t, n, r->q, GDN_DIM);
    conv_rows(r, r->history[1], keys + r->key_head, t, n, r->k, GDN_DIM);
    for (int h = 0; h < r->n_heads; h++) conv_rows(r, r->history[2 + h], 2 * keys + r->head + h, t, n, r->v + h * GDN_DIM, width);
    norm_rows(r, r->q, n, (float)(1 / sqrt((double)GDN_DIM)));
    norm_rows(r, r->k, n, 1);
    delta_rows(r, t, n);
    for (int i = 0; i < n; i++) {
        for (int h = 0; h < r->n_heads; h++) finish_head(r->j, r->o + i * width + h * GDN_DIM, t + i, r->head + h);
    }
}

/* The state of these heads where the caller wants it kept. */
static void keep_heads(const struct head_run *r, float *kept)
{
    const size_t head = (size_t)GDN_DIM * GDN_DIM, at = ((size_t)r->j->index * (size_t)r->j->c->base.shape.n_gdn_v_heads + (size_t)r->head) * head;
    memcpy(kept + at, r->seq->seq->recurrent + at, sizeof *kept * head * (size_t)r->n_heads);
}

/* A run's chunks end on the grid: on multiples of 64 of the position, whatever rows the pass has. */
static void run_heads(struct head_run *r)
{
    const struct mix_job *j = r->j;
    const int keys = j->c->base.shape.n_gdn_k_heads, n = r->seq->n;
    load_history(r->history[0], r, r->key_head);
    load_history(r->history[1], r, keys + r->key_head);
    for (int h = 0; h < r->n_heads; h++) load_history(r->history[2 + h], r, 2 * keys + r->head + h);
    for (int t = 0, count; t < n; t += count) {
        count = GRID - j->c->place[r->row + t].pos % GRID;
        if (count > n - t) count = n - t;
        run_chunk(r, r->row + t, count);
        float *kept = state_kept(r->seq->seq, j->c->place[r->row + t].pos + count);
        if (kept) keep_heads(r, kept);
    }
}

static void gates_part(void *arg, int thread, int n_threads)
{
    const struct mix_job *j = arg;
    long lo, hi;
    pool_range(j->c->batch->n_rows, thread, n_threads, &lo, &hi);
    for (long t = lo; t < hi; t++) gates_row(j, (int)t);
}

static void heads_part(void *arg, int thread, int n_threads)
{
    const struct mix_job *j = arg;
    const struct batch *b = j->c->batch;
    const struct model_shape *s = &j->c->base.shape;
    const int shared = s->n_gdn_v_heads / s->n_gdn_k_heads;
    long lo, hi;
    pool_range(s->n_gdn_v_heads, thread, n_threads, &lo, &hi);
    struct head_run r = {.j = j};
    for (r.head = (int)lo; r.head < hi; r.head += r.n_heads) {
        r.key_head = r.head / shared;
        int left = (r.key_head + 1) * shared < hi ? (r.key_head + 1) * shared - r.head : (int)hi - r.head;
        r.n_heads = left < MAX_SHARED ? left : MAX_SHARED;
        r.row = 0;
        for (int i = 0; i < b->n_seqs; r.row += b->seqs[i++].n) {
            r.seq = &b->seqs[i];
            run_heads(&r);
        }
    }
}

/* All channels of batch row t before the convolution. */
static void copy_channels(float *to, const struct cpu_backend *c, long t)
{
    for (int h = 0; h < shape_conv_dim(&c->base.shape) / GDN_DIM; h++) memcpy(to + (long)h * GDN_DIM, head_row(&c->ws.qkv, h, t), sizeof *to * GDN_DIM);
}

/* The rows before the place among these rows whose state is kept: it is on the grid, as is where they begin, so they are here. */
static void keep_history_inside(const struct mix_job *j, const struct batch_seq *b, int row)
{
    const struct model_shape *s = &j->c->base.shape;
    const size_t conv_dim = (size_t)shape_conv_dim(s);
    const int n = b->seq->kept_at - j->c->place[row].pos;
    float *kept = state_kept(b->seq, b->seq->kept_at);
    if (!kept || n <= 0 || n > b->n) return;
    kept += shape_recurrent_floats(s) + (size_t)j->index * CONV_HISTORY * conv_dim;
    for (int k = 0; k < CONV_HISTORY; k++) copy_channels(kept + (size_t)k * conv_dim, j->c, row + n + k - CONV_HISTORY);
}

/* The last rows become the history, when no head reads the old one any more. */
static void keep_history(const struct mix_job *j)
{
    const struct batch *b = j->c->batch;
    const size_t conv_dim = (size_t)shape_conv_dim(&j->c->base.shape);
    for (int i = 0, row = 0; i < b->n_seqs; row += b->seqs[i++].n) {
        float *history = b->seqs[i].seq->conv + (size_t)j->index * CONV_HISTORY * conv_dim;
        const int n = b->seqs[i].n;
        keep_history_inside(j, &b->seqs[i], row);
        for (int k = 0; k < CONV_HISTORY; k++) {
            const int from = n + k - CONV_HISTORY;
            float *to = history + (size_t)k * conv_dim;
            if (from < 0) memcpy(to, history + (size_t)(n + k) * conv_dim, sizeof *to * conv_dim);
            else copy_channels(to, j->c, row + from);
        }
    }
}

void cpu_step_gdn_mix(struct backend *be, const struct gdn_weights *w, int index)
{
    struct mix_job job = {cpu_of(be), w, index};
    struct pool *pool = job.c->pool;
    const int key_heads = job.c->base.shape.n_gdn_k_heads; /* a part has one with its value heads, unless there are more threads */
    if (job.c->batch->phase == PHASE_PREFILL) {
        run_rows(job.c, gates_part, &job);
        pool_run_parts(pool, key_heads > pool_size(pool) ? key_heads : pool_size(pool), heads_part, &job);
        keep_history(&job);
        return;
    }
    pool_run(pool, conv_part, &job);
    pool_run(pool, delta_part, &job);
    pool_run(pool, gated_norm_part, &job);
}

void cpu_step_gdn_out(struct backend *be, const struct gdn_weights *w)
{
    struct cpu_backend *c = cpu_of(be);
    struct linear l = {w->out, c->ws.shared_out, c->ws.ld_hidden, 0};
    cpu_linear(c, &l, 1, &c->ws.mixed, c->batch->n_rows);
    cpu_add_rows(c, c->ws.shared_out, c->ws.ld_hidden);
}
