/* Full attention layers (MODEL.md, Full attention): projections, norms, rotation, KV append, softmax attention, output. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/rotary.h"
#include "backend/cpu/unroll.h"

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
    struct linear l[] = {{w->q, ws->q, ws->ld_q, 0}, {w->k, ws->k, ws->ld_kv, 0}, {w->v, ws->v, ws->ld_kv, 0}};
    struct norm norm = {.weight = w->norm};
    ws->norm.digits.count = c->now.count;
    for (int i = 0; i < 3; i++) norm.fp32 |= reads_fp32(&ws->norm, l[i].matrix);
    cpu_norm_rows(c, ws->x, &norm, &ws->norm);
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
    return c->attn_fast && c->batch->phase == PHASE_PREFILL;
}

/* Decode, where a kernel is made for it: one row at a time, whatever rows of its sequence are beside it. */
static bool is_row(const struct cpu_backend *c)
{
    return c->kernels.attention_row && c->batch->phase == PHASE_DECODE && c->states.kv_bf16;
}

NOINLINE static void attend_fast(const struct cpu_backend *c, struct attn_job *job)
{
    uint8_t work[ATTN_WORK_BYTES] __attribute__((aligned(64)));
    job->work = work;
    c->kernels.attention_fast(job);
}

/* Attention of a unit; then the output gate and the group sums. */
static void attend(const struct attn_step *j, const struct attn_unit *u)
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
        attend_fast(c, &job);
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

/* How a pass is cut into units: as many query heads and rows at most. */
struct attn_cut {
    const struct attn_step *step;
    int heads, rows;
};

/*
 * Units are the query heads of one KV head for as many query rows as a kernel takes, the heads halved while there are fewer rows
 * than threads; those of the fast kernel, which takes many, have fewer rows when there would be too few units.
 */
static struct attn_cut attn_cut(const struct attn_step *j)
{
    const struct cpu_backend *c = j->c;
    const bool fast = is_fast(c);
    const int most = fast ? ATTN_TILE_ROWS : ATTN_MAX_ROWS, heads = c->base.shape.n_q_heads, threads = pool_size(c->pool);
    const long rows = c->batch->n_rows;
    struct attn_cut cut = {.step = j, .heads = heads / c->base.shape.n_kv_heads};
    while (cut.heads > most || (cut.heads % 2 == 0 && rows * (heads / cut.heads) < threads)) cut.heads = cut.heads % 2 ? 1 : cut.heads / 2;
    cut.rows = is_row(c) ? 1 : most / cut.heads;
    while (fast && cut.rows > 4 && rows * (heads / cut.heads) < (long)cut.rows * threads) cut.rows /= 2;
    return cut;
}

/* Parts take units in turn, since later rows see more keys. */
static void mix_part(void *arg, int part, int n_parts)
{
    const struct attn_cut *cut = arg;
    const struct batch *b = cut->step->c->batch;
    for (int i = 0, row = 0, n = 0; i < b->n_seqs; row += b->seqs[i++].n)
        for (int t = 0; t < b->seqs[i].n; t += cut->rows)
            for (int h = 0; h < cut->step->c->base.shape.n_q_heads; h += cut->heads) {
                if (n++ % n_parts != part) continue;
                const int left = b->seqs[i].n - t;
                attend(cut->step, &(struct attn_unit){row + t, left < cut->rows ? left : cut->rows, h, cut->heads});
            }
}

void cpu_step_attn_mix(struct backend *be, int index)
{
    struct attn_step job = {cpu_of(be), NULL, index};
    struct attn_cut cut = attn_cut(&job);
    const struct batch *b = job.c->batch;
    int units = 0;
    for (int i = 0; i < b->n_seqs; i++) units += (b->seqs[i].n + cut.rows - 1) / cut.rows * (job.c->base.shape.n_q_heads / cut.heads);
    pool_run_parts(job.c->pool, run_parts(job.c, units), mix_part, &cut);
}

void cpu_step_attn_out(struct backend *be, const struct attn_weights *w)
{
    struct cpu_backend *c = cpu_of(be);
    struct linear l = {w->o, c->ws.shared_out, c->ws.ld_hidden, 0};
    cpu_linear(c, &l, 1, &c->ws.mixed, c->batch->n_rows);
    cpu_add_rows(c, c->ws.shared_out, c->ws.ld_hidden);
}
