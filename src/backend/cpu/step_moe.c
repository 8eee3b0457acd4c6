/* The experts of the mixture (MODEL.md, MoE block): grouped products of the chosen ones and of the shared one, weighted sum. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/unroll.h"

struct expert_job {
    struct cpu_backend *c;
    const struct moe_weights *w;
    bool gathered; /* an expert's rows are laid together, a piece at a time */
    bool apart;    /* they are read from ws.routed, not from ws.norm */
    bool prefill;
};

/* Outputs of gate and up that fit on the stack: few row blocks of many rows, or many of one row. */
enum { MAX_PIECE = 256, INNER_BLOCKS = 8, ONE_ROW_BLOCKS = MAX_PIECE * INNER_BLOCKS };

/* A thread's share of all (group, row block) units, in units of cost; a unit belongs to the share in which it begins. */
struct share {
    double lo, hi, at;
    int unit; /* row blocks that stay together */
};

/* Reading a block costs about as much as computing four rows with it; unpacking it for tiles, as many as those of two. */
static double block_cost(const struct cpu_backend *c, int n_rows)
{
    return n_rows + (c->now.bf16 ? 32.0 : 4.0);
}

/* In prefill whole pairs of groups of the next product's input stay together, so that they can be completed where they are made. */
static struct share share_of(const struct expert_job *j, int blocks, int shared_blocks, int thread, int n_threads)
{
    const struct cpu_backend *c = j->c;
    double total = shared_blocks * block_cost(c, c->batch->n_rows);
    for (int g = 0; g < c->ws.n_groups; g++) total += blocks * block_cost(c, c->ws.groups[g].n);
    return (struct share){total * thread / n_threads, total * (thread + 1) / n_threads, 0, j->prefill ? INNER_BLOCKS : 1};
}

/* A place of the share as one of the next `blocks` row blocks. */
static int share_block(const struct share *s, double place, int blocks, double cost)
{
    double block = ceil((place - s->at) / (cost * s->unit)) * s->unit;
    return block <= 0 ? 0 : block >= blocks ? blocks : (int)block;
}

/* Which of the next `blocks` units belong to the share: [*first, *last). */
static void take_blocks(struct share *s, int blocks, double cost, int *first, int *last)
{
    *first = share_block(s, s->lo, blocks, cost);
    *last = share_block(s, s->hi, blocks, cost);
    s->at += blocks * cost;
}

/* One expert (routed or shared), its rows, and the row blocks of a thread. */
struct expert_run {
    const struct matrix *gate, *up, *down;
    int expert, lo, hi;
    struct act in;        /* normed rows of the batch */
    const int32_t *rows;  /* those of the expert; NULL: all in order */
    bool gathered;        /* as in the job */
    int first, n;        /* rows of inner and out */
    struct act *inner;
    bool completes;      /* groups of inner as the next product reads them, at once */
    float *out;          /* (…, ld_hidden) */
    const int32_t *tokens; /* (n) the batch row of each row; NULL: in order */
    const float *weights;  /* of row i in its token: at i * ld_weights */
    int ld_weights;
};

/* inner = silu(gate*x) * (up*x) of one row and n_blocks row blocks. In prefill the next product's form of it is made at once. */
static void inner_row(struct cpu_backend *c, const struct expert_run *e, int row, int block, int n_blocks, const float *gate, const float *up)
{
    struct act *inner = e->inner;
    float *x = inner->x + (long)(e->first + row) * inner->ld + (long)block * BLOCK_ROWS, here[INNER_BLOCKS * BLOCK_ROWS] __attribute__((aligned(64)));
    const int n = n_blocks * BLOCK_ROWS;
    if (!e->completes) {
        c->kernels.silu_mul(x, gate, up, n);
        return;
    }
    if (!reads_fp32(inner, e->down)) x = here;
    c->kernels.silu_mul(x, gate, up, n);
    if (x == here && n_blocks < INNER_BLOCKS) memset(here + n, 0, sizeof here - sizeof *here * (size_t)n);
    const struct act run = act_run(inner, e->first, e->n);
    act_groups_of(c, &run, row, block * BLOCK_ROWS / QUANT_GROUP, n / QUANT_GROUP, x);
}

/* Rows of an expert that are multiplied together: from … to-1 of `in`, as a product takes them; the expert's row `first` is in's first. */
struct piece {
    const struct act *in;
    const int32_t *rows;
    int n, from, to, first;
};

/* The same for a piece; gate's blocks `next` come after. */
static void inner_piece(struct cpu_backend *c, const struct expert_run *e, const struct piece *p, int block, int n_blocks, struct block_run next)
{
    enum { LD = INNER_BLOCKS * BLOCK_ROWS };
    float gate[MAX_PIECE * LD] __attribute__((aligned(64))), up[MAX_PIECE * LD] __attribute__((aligned(64)));
    struct product product = {.matrix = e->gate, .expert = e->expert, .act = p->in, .rows = p->rows, .n = p->n, .ldy = LD};
    product.next = (struct block_run){matrix_block(e->up, e->expert, block), n_blocks};
    product_run(c, &product, p->from, p->to, block, n_blocks, gate);
    product.matrix = e->up, product.next = next;
    product_run(c, &product, p->from, p->to, block, n_blocks, up);
    for (int r = 0; r < p->to - p->from; r++) inner_row(c, e, p->first + p->from + r, block, n_blocks, gate + r * LD, up + r * LD);
}

/* The first blocks of gate from b on that are computed together; none: e NULL, or b its end. */
static struct block_run inner_run(const struct expert_run *e, int b)
{
    if (!e || b == e->hi) return (struct block_run){NULL, 0};
    int most = e->n == 1 && !e->completes ? ONE_ROW_BLOCKS : INNER_BLOCKS;
    return (struct block_run){matrix_block(e->gate, e->expert, b), e->hi - b < most ? e->hi - b : most};
}

static void inner_blocks_of(struct cpu_backend *c, const struct expert_run *e, const struct piece *p, const struct expert_run *after)
{
    for (int b = e->lo, n; b < e->hi; b += n) {
        n = inner_run(e, b).n;
        inner_piece(c, e, p, b, n, b + n < e->hi ? inner_run(e, b + n) : inner_run(after, after ? after->lo : 0));
    }
}

/* Memory for rows that are laid together, for one thread: they and the weights of two row blocks stay in its second-level cache. */
enum { GATHER_BYTES = 1 << 20, GATHER_DIGITS = 64 };

/* Rows of one form that go there. */
static int gather_rows(const struct act *a)
{
    if (a->bf16.n) {
        const int panels = GATHER_BYTES / (PANEL_ROWS * a->ld * (int)sizeof *a->bf16.x), rows = panels * PANEL_ROWS;
        return rows < MAX_PIECE ? rows : MAX_PIECE;
    }
    const long bytes = digits_row_bytes(a->ld, a->digits.count) + 2 * a->ld / QUANT_GROUP * (long)sizeof(float);
    return GATHER_BYTES / bytes < GATHER_DIGITS ? (int)(GATHER_BYTES / bytes) : GATHER_DIGITS;
}

static void copy_digits(const struct digit_row *to, const struct digit_row *from, int n_groups)
{
    memcpy(to->d, from->d, (size_t)n_groups * QUANT_GROUP * (size_t)from->count);
    memcpy(to->scales, from->scales, sizeof(float) * (size_t)n_groups);
    memcpy(to->sums, from->sums, sizeof(float) * (size_t)n_groups);
}

enum { ASK_ROWS = 2 /* between a request and copying */, LINE = 64 /* bytes */ };

/* Asks for a row that is copied soon: no processor knows which one comes. */
static void ask_row(const struct act *a, int32_t row)
{
    const struct act at = act_run(a, row, 1);
    const char *from = a->bf16.n ? (const char *)at.bf16.x : (const char *)at.digits.d;
    const long bytes = a->bf16.n ? a->ld * (long)sizeof *at.bf16.x : (long)a->ld * a->digits.count;
    for (long i = 0; i < bytes; i += LINE) __builtin_prefetch(from + i, 0, 2);
}

/* n rows of `a` by their numbers, one behind the other at `to`. */
static struct act gather(const struct cpu_backend *c, const struct act *a, const int32_t *rows, int n, uint8_t *to)
{
    const int n_groups = a->ld / QUANT_GROUP;
    const size_t digit_bytes = (size_t)n * (size_t)digits_row_bytes(a->ld, a->digits.count);
    float *scales = (float *)(void *)(to + digit_bytes);
    struct act out = {.ld = a->ld, .digits = {(int8_t *)to, scales, scales + n * n_groups, a->ld, a->digits.count}};
    out.bf16 = (struct bf16_run){(uint16_t *)(void *)to, a->ld, a->bf16.n ? n : 0};
    for (int i = 0; i < n; i++) {
        if (i + ASK_ROWS < n) ask_row(a, rows[i + ASK_ROWS]);
        const struct act row = act_run(a, rows[i], 1);
        if (a->bf16.n) {
            c->kernels.place_bf16(&out.bf16, i, row.bf16.x);
        } else {
            const struct digit_row from = digit_row(&row.digits, 0, 0), at = digit_row(&out.digits, i, 0);
            copy_digits(&at, &from, n_groups);
        }
    }
    return out;
}

NOINLINE static void inner_gathered(struct cpu_backend *c, const struct expert_run *e, const struct expert_run *after)
{
    uint8_t memory[GATHER_BYTES] __attribute__((aligned(64)));
    const int most = gather_rows(&e->in), n_pieces = (e->n + most - 1) / most;
    for (int i = 0; i < n_pieces; i++) {
        const int from = (int)((long)e->n * i / n_pieces), n = (int)((long)e->n * (i + 1) / n_pieces) - from;
        const struct act in = gather(c, &e->in, e->rows + from, n, memory);
        inner_blocks_of(c, e, &(struct piece){&in, NULL, n, 0, n, from}, after);
    }
}

static void inner_blocks(struct cpu_backend *c, const struct expert_run *e, const struct expert_run *after)
{
    if (e->gathered) {
        inner_gathered(c, e, after);
        return;
    }
    const struct product p = {.act = &e->in, .rows = e->rows, .n = e->n};
    for (int from = 0, to; from < e->n; from = to) {
        to = product_piece(&p, from);
        inner_blocks_of(c, e, &(struct piece){&e->in, e->rows, e->n, from, to, 0}, after);
    }
}

static void down_blocks(struct cpu_backend *c, const struct expert_run *e, const struct expert_run *after)
{
    struct act in = act_run(e->inner, e->first, e->n);
    struct product p = {.matrix = e->down, .expert = e->expert, .act = &in, .n = e->n, .y = e->out + (long)e->first * c->ws.ld_hidden, .ldy = c->ws.ld_hidden};
    if (after) p.next = (struct block_run){matrix_block(after->down, after->expert, after->lo), after->hi - after->lo};
    product_blocks(c, &p, e->lo, e->hi);
}

static struct expert_run shared_run(const struct expert_job *j)
{
    struct workspace *ws = &j->c->ws;
    return (struct expert_run){.gate = j->w->shared_gate_proj,
                               .up = j->w->shared_up,
                               .down = j->w->shared_down,
                               .in = ws->norm,
                               .n = j->c->batch->n_rows,
                               .inner = &ws->shared,
                               .completes = j->prefill,
                               .out = ws->shared_out,
                               .weights = ws->shared_gate,
                               .ld_weights = BLOCK_ROWS};
}

static struct expert_run routed_run(const struct expert_job *j, const struct expert_group *g)
{
    struct workspace *ws = &j->c->ws;
    return (struct expert_run){.gate = j->w->gate,
                               .up = j->w->up,
                               .down = j->w->down,
                               .in = j->apart ? ws->routed : ws->norm,
                               .expert = g->expert,
                               .rows = ws->slot_token + g->first,
                               .gathered = j->gathered,
                               .first = g->first,
                               .n = g->n,
                               .inner = &ws->inner,
                               .completes = j->prefill,
                               .out = ws->expert_out,
                               .tokens = ws->slot_token + g->first,
                               .weights = ws->slot_weight + g->first,
                               .ld_weights = 1};
}

/* after: what this thread runs next; NULL: nothing. */
typedef void (*blocks_fn)(struct cpu_backend *c, const struct expert_run *e, const struct expert_run *after);

/* Runs fn over this thread's share of the row blocks of the shared and of every chosen expert. */
static void run_share(const struct expert_job *j, struct share share, int blocks, int shared_blocks, blocks_fn fn)
{
    struct expert_run e = {.lo = 0}, after = shared_run(j);
    take_blocks(&share, shared_blocks, block_cost(j->c, after.n), &after.lo, &after.hi);
    for (int g = 0; g < j->c->ws.n_groups; g++) {
        int lo, hi;
        take_blocks(&share, blocks, block_cost(j->c, j->c->ws.groups[g].n), &lo, &hi);
        if (lo == hi) continue;
        e = after;
        after = routed_run(j, &j->c->ws.groups[g]);
        after.lo = lo, after.hi = hi;
        fn(j->c, &e, &after);
    }
    fn(j->c, &after, NULL);
}

static void inner_part(void *arg, int thread, int n_threads)
{
    const struct expert_job *j = arg;
    int blocks = j->w->gate->n_blocks, shared_blocks = j->w->shared_gate_proj->n_blocks;
    run_share(j, share_of(j, blocks, shared_blocks, thread, n_threads), blocks, shared_blocks, inner_blocks);
}

static void sums_part(void *arg, int thread, int n_threads)
{
    const struct expert_job *j = arg;
    struct cpu_backend *c = j->c;
    struct workspace *ws = &c->ws;
    long lo, hi;
    pool_range((long)c->batch->n_rows * EXPERTS_PER_TOKEN, thread, n_threads, &lo, &hi);
    for (int g = 0; g < ws->n_groups; g++) {
        const struct expert_group *e = &ws->groups[g];
        const struct act run = act_run(&ws->inner, e->first, e->n);
        for (long r = lo > e->first ? lo : e->first; r < hi && r < e->first + e->n; r++)
            act_groups(c, &run, r - e->first, 0, c->base.shape.expert_dim / QUANT_GROUP);
    }
    pool_range(c->batch->n_rows, thread, n_threads, &lo, &hi);
    for (long r = lo; r < hi; r++) act_groups(c, &ws->shared, r, 0, c->base.shape.shared_dim / QUANT_GROUP);
}

static void down_part(void *arg, int thread, int n_threads)
{
    const struct expert_job *j = arg;
    int blocks = j->w->down->n_blocks, shared_blocks = j->w->shared_down->n_blocks;
    run_share(j, share_of(j, blocks, shared_blocks, thread, n_threads), blocks, shared_blocks, down_blocks);
}

/* x += weight * down * inner of an expert, for the row blocks e->lo … e->hi-1; after: as in blocks_fn. */
static void add_down(struct cpu_backend *c, const struct expert_run *e, const struct expert_run *after)
{
    enum { BLOCKS = 16, LD = (BLOCKS + 1) * BLOCK_ROWS }; /* an odd number of lines: rows then fall on many places of a cache */
    float out[MAX_PIECE * LD] __attribute__((aligned(64)));
    const struct act in = act_run(e->inner, e->first, e->n);
    struct product p = {.matrix = e->down, .expert = e->expert, .act = &in, .n = e->n, .ldy = LD, .sums = {c->ws.x, e->tokens, c->base.shape.hidden}};
    for (int from = 0, to; from < e->n; from = to) {
        to = product_piece(&p, from);
        for (int b = e->lo, n; b < e->hi; b += n) {
            n = e->hi - b < BLOCKS ? e->hi - b : BLOCKS;
            p.next = (struct block_run){NULL, 0};
            if (b + n == e->hi && after) p.next = (struct block_run){matrix_block(after->down, after->expert, after->lo), BLOCKS};
            product_run(c, &p, from, to, b, n, out);
            for (int r = from; r < to; r++) {
                float *x = c->ws.x + (long)(e->tokens ? e->tokens[r] : r) * c->base.shape.hidden + (long)b * BLOCK_ROWS;
                c->kernels.add_scaled(x, out + (r - from) * LD, e->weights[r * e->ld_weights], n * BLOCK_ROWS);
            }
        }
    }
}

/*
 * In prefill: a thread has some columns of the residual stream and adds all experts to them, in the order of their numbers, the
 * shared one last. So outputs of 8 experts for each row need not wait in memory.
 */
static void add_down_part(void *arg, int thread, int n_threads)
{
    const struct expert_job *j = arg;
    long lo, hi;
    pool_range(j->w->down->n_blocks, thread, n_threads, &lo, &hi);
    if (lo == hi) return;
    struct expert_run e = {.lo = 0}, after = {.lo = 0};
    for (int g = 0; g <= j->c->ws.n_groups; g++) {
        e = after;
        after = g < j->c->ws.n_groups ? routed_run(j, &j->c->ws.groups[g]) : shared_run(j);
        after.lo = (int)lo, after.hi = (int)hi;
        if (g > 0) add_down(j->c, &e, &after);
    }
    add_down(j->c, &after, NULL);
}

/* x += sum of the chosen experts by weight, best first, + the shared expert by its gate. */
static void combine_part(void *arg, int thread, int n_threads)
{
    const struct expert_job *j = arg;
    struct workspace *ws = &j->c->ws;
    int hidden = j->c->base.shape.hidden;
    long lo, hi;
    pool_range(j->c->batch->n_rows, thread, n_threads, &lo, &hi);
    for (long t = lo; t < hi; t++) {
        float *x = ws->x + t * hidden;
        for (int i = 0; i < EXPERTS_PER_TOKEN; i++)
            j->c->kernels.add_scaled(x, ws->expert_out + (long)ws->slot_of[t * EXPERTS_PER_TOKEN + i] * ws->ld_hidden,
                                     ws->top_weight[t * EXPERTS_PER_TOKEN + i], hidden);
        j->c->kernels.add_scaled(x, ws->shared_out + t * ws->ld_hidden, ws->shared_gate[t * BLOCK_ROWS], hidden);
    }
}

/* Of the chosen experts; the shared one is not counted. */
static size_t chosen_bytes(const struct expert_job *j, const struct matrix *m)
{
    return m->expert_bytes * (size_t)j->c->ws.n_groups;
}

void cpu_step_moe_experts(struct backend *be, const struct moe_weights *w)
{
    struct expert_job job = {.c = cpu_of(be), .w = w};
    const struct act *routed = &job.c->ws.routed;
    job.gathered = (routed->digits.count || routed->bf16.n) && w->gate->kind == MATRIX_Q4 && w->up->kind == MATRIX_Q4;
    job.apart = job.gathered && (routed->bf16.n || routed->digits.count != job.c->ws.norm.digits.count);
    job.prefill = job.c->batch->phase == PHASE_PREFILL;
    run_blocks(job.c, chosen_bytes(&job, w->gate) + chosen_bytes(&job, w->up), inner_part, &job);
    if (job.prefill) {
        pool_run(job.c->pool, add_down_part, &job);
    } else {
        pool_run(job.c->pool, sums_part, &job);
        run_blocks(job.c, chosen_bytes(&job, w->down), down_part, &job);
        run_rows(job.c, combine_part, &job);
    }
    cpu_set_digits(job.c, BETWEEN);
}
