/* Full attention layers (MODEL.md, Full attention): projections, norms, rotation, KV append, softmax attention, output. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/rotary.h"

struct attn_step {
    struct cpu_backend *c;
    const struct attn_weights *w;
    int index; /* among the full-attention layers */
};

/* Query heads of one row: norm, rotation, and the softmax scale 1/16, all in place. */
static void query_row(const struct attn_step *j, long t)
{
    struct cpu_backend *c = j->c;
    const float scale = 1.0f / 16; /* 1/sqrt(256), a power of two: exact */
    for (int h = 0; h < c->base.shape.n_q_heads; h++) {
        float *q = c->ws.q + t * c->ws.ld_q + (long)h * 2 * HEAD_DIM;
        c->kernels.rms_norm(q, q, j->w->q_norm->data, HEAD_DIM, c->base.shape.rms_eps);
        rotary_apply(q, c->ws.rotary + t * ROTARY_DIM);
        for (int i = 0; i < HEAD_DIM; i++) q[i] *= scale;
    }
}

static void key_value_row(const struct attn_step *j, long t)
{
    struct cpu_backend *c = j->c;
    const struct row_place *place = &c->place[t];
    for (int h = 0; h < c->base.shape.n_kv_heads; h++) {
        float *k = c->ws.k + t * c->ws.ld_kv + (long)h * HEAD_DIM;
        c->kernels.rms_norm(k, k, j->w->k_norm->data, HEAD_DIM, c->base.shape.rms_eps);
        rotary_apply(k, c->ws.rotary + t * ROTARY_DIM);
        size_t offset = state_k_offset(&c->states, j->index, h);
        state_kv_store(place->seq, offset, place->pos, k);
        state_kv_store(place->seq, offset + c->states.head_bytes, place->pos,
                       c->ws.v + t * c->ws.ld_kv + (long)h * HEAD_DIM);
    }
}

static void append_part(void *arg, int thread, int n_threads)
{
    const struct attn_step *j = arg;
    long lo, hi;
    pool_range(j->c->batch->n_rows, thread, n_threads, &lo, &hi);
    for (long t = lo; t < hi; t++) {
        query_row(j, t);
        key_value_row(j, t);
    }
}

void cpu_step_attn_in(struct backend *be, const struct attn_weights *w, int index)
{
    struct cpu_backend *c = cpu_of(be);
    struct workspace *ws = &c->ws;
    cpu_norm_rows(c, ws->x, w->norm, &ws->norm, c->now.count);
    struct linear l[] = {{w->q, ws->q, ws->ld_q}, {w->k, ws->k, ws->ld_kv}, {w->v, ws->v, ws->ld_kv}};
    cpu_linear(c, l, 3, &ws->norm, c->batch->n_rows);
    struct attn_step job = {c, w, index};
    run_rows(c, append_part, &job);
}

/* Query heads of one KV head, for consecutive rows of one sequence. */
struct attn_unit {
    int row, n_rows;   /* of the batch */
    int head, n_heads;
};

/* Prefill of the fast mode, where a kernel is made for it. */
static bool is_fast(const struct cpu_backend *c)
{
    return c->attn_work && c->batch->phase == PHASE_PREFILL;
}

/* Decode, where a kernel is made for it: one row at a time, whatever rows of its sequence are beside it. */
static bool is_row(const struct cpu_backend *c)
{
    return c->kernels.attention_row && c->batch->phase == PHASE_DECODE && c->states.kv_bf16;
}

/* Attention of a unit; then the output gate and the group sums. */
static void attend(const struct attn_step *j, const struct attn_unit *u, int part)
{
    struct cpu_backend *c = j->c;
    struct workspace *ws = &c->ws;
    const struct model_shape *s = &c->base.shape;
    const struct row_place *place = &c->place[u->row];
    size_t offset = state_k_offset(&c->states, j->index, u->head / (s->n_q_heads / s->n_kv_heads));
    float *q = ws->q + (long)u->row * ws->ld_q + (long)u->head * 2 * HEAD_DIM;
    float *out = ws->mixed.x + (long)u->row * ws->mixed.ld + (long)u->head * HEAD_DIM;
    struct attn_job job = {.q = q,
                           .ldq = 2 * HEAD_DIM,
                           .ldq_row = ws->ld_q,
                           .n_q = u->n_heads,
                           .n_rows = u->n_rows,
                           .pages = place->seq->pages,
                           .k_offset = offset,
                           .v_offset = offset + c->states.head_bytes,
                           .bf16 = c->states.kv_bf16,
                           .n_keys = place->pos + 1,
                           .out = out,
                           .ldo = HEAD_DIM,
                           .ldo_row = ws->mixed.ld};
    if (is_fast(c)) {
        job.work = c->attn_work + (size_t)part * ATTN_WORK_BYTES;
        c->kernels.attention_fast(&job);
    } else if (is_row(c)) {
        c->kernels.attention_row(&job);
    } else {
        c->kernels.attention(&job);
    }
    for (int t = 0; t < u->n_rows; t++, q += ws->ld_q, out += ws->mixed.ld) {
        for (int h = 0; h < u->n_heads; h++) {
            float *o = out + (long)h * HEAD_DIM;
            c->kernels.sigmoid_mul(o, o, q + (long)h * 2 * HEAD_DIM + HEAD_DIM, HEAD_DIM);
        }
        act_groups(c, &ws->mixed, u->row + t, u->head * (HEAD_DIM / QUANT_GROUP), u->n_heads * (HEAD_DIM / QUANT_GROUP));
    }
}

/*
 * Units are the query heads of one KV head for as many query rows as a kernel takes, the heads halved while there are fewer rows
 * than threads; those of the fast kernel, which takes many, have fewer rows when there would be too few units. Threads take
 * them in turn, since later rows see more keys.
 */
static void mix_part(void *arg, int thread, int n_threads)
{
    const struct attn_step *j = arg;
    const struct batch *b = j->c->batch;
    const bool fast = is_fast(j->c);
    const int most = fast ? ATTN_TILE_ROWS : ATTN_MAX_ROWS;
    int heads = j->c->base.shape.n_q_heads, group = heads / j->c->base.shape.n_kv_heads, at_once, row = 0, n = 0;
    while (group > most || (group % 2 == 0 && (long)b->n_rows * (heads / group) < n_threads)) group = group % 2 ? 1 : group / 2;
    at_once = is_row(j->c) ? 1 : most / group;
    while (fast && at_once > 4 && (long)b->n_rows * (heads / group) < (long)at_once * n_threads) at_once /= 2;
    for (int i = 0; i < b->n_seqs; row += b->seqs[i++].n)
        for (int t = 0; t < b->seqs[i].n; t += at_once)
            for (int h = 0; h < heads; h += group) {
                if (n++ % n_threads != thread) continue;
                int left = b->seqs[i].n - t;
                attend(j, &(struct attn_unit){row + t, left < at_once ? left : at_once, h, group}, thread);
            }
}

void cpu_step_attn_mix(struct backend *be, int index)
{
    struct attn_step job = {cpu_of(be), NULL, index};
    pool_run(job.c->pool, mix_part, &job);
}

void cpu_step_attn_out(struct backend *be, const struct attn_weights *w)
{
    struct cpu_backend *c = cpu_of(be);
    struct linear l = {w->o, c->ws.shared_out, c->ws.ld_hidden};
    cpu_linear(c, &l, 1, &c->ws.mixed, c->batch->n_rows);
    cpu_add_rows(c, c->ws.shared_out, c->ws.ld_hidden);
}
