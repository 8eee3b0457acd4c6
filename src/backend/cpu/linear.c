/* What several steps share: matrix products over the pool, normed rows, residual sums. */
#include "backend/cpu/cpu.h"

/*
 * Parts for each thread: one that is held up leaves more of them to the others. In prefill a part has its own way through all
 * rows, so fewer of them.
 */
enum { DECODE_PARTS = 16, PREFILL_PARTS = 8, PART_BYTES = 512 << 10 };

struct linear_job {
    struct cpu_backend *c;
    const struct linear *l;
    int n_linear, n_rows;
    const struct act *act;
};

int run_parts(const struct cpu_backend *c, int units)
{
    const int threads = pool_size(c->pool), most = c->batch->phase == PHASE_DECODE ? threads : threads * PREFILL_PARTS;
    return units < threads ? threads : units < most ? units : most;
}

void run_rows(struct cpu_backend *c, pool_fn fn, void *arg)
{
    if (c->batch->n_rows == 1)
        fn(arg, 0, 1);
    else
        pool_run_parts(c->pool, run_parts(c, c->batch->n_rows / ROWS_AT_ONCE), fn, arg);
}

void run_blocks(struct cpu_backend *c, size_t bytes, pool_fn fn, void *arg)
{
    const int threads = pool_size(c->pool);
    const size_t most = c->batch->phase == PHASE_DECODE ? DECODE_PARTS : PREFILL_PARTS, parts = bytes / PART_BYTES / (size_t)threads;
    pool_run_parts(c->pool, threads * (parts < 1 ? 1 : parts > most ? (int)most : (int)parts), fn, arg);
}

static bool on_tiles(const struct product *p)
{
    return p->act->bf16.n && p->matrix->kind == MATRIX_Q4 && !p->rows;
}

/* A piece's rows stay in the second-level cache, and codes are unpacked once for all of them. */
enum { PIECE_PANELS = 8, PIECE_BYTES = 1 << 20 };

int product_piece(const struct product *p, int from)
{
    if (p->act->bf16.n && !p->rows) {
        const int fit = PIECE_BYTES / (PANEL_ROWS * p->act->bf16.ld * (int)sizeof *p->act->bf16.x);
        int last = panel_of(p->act->bf16.n, from) + (fit < 1 ? 1 : fit > PIECE_PANELS ? PIECE_PANELS : fit), all = panel_count(p->act->bf16.n);
        return panel_row(p->act->bf16.n, last < all ? last : all);
    }
    int piece = p->act->digits.count ? 64 : 48;
    return p->n - from < piece ? p->n : from + piece;
}

void product_run(const struct cpu_backend *c, const struct product *p, int from, int to, int block, int n_blocks, float *y)
{
    const uint8_t *data = matrix_block(p->matrix, p->expert, block);
    if (on_tiles(p)) {
        int n = p->act->bf16.n;
        struct later_sums sums = p->sums;
        if (sums.x) sums.x += (long)block * BLOCK_ROWS + (sums.rows ? 0 : (long)from * sums.ld);
        if (sums.rows) sums.rows += from;
        c->kernels.matmul_q4_bf16(&(struct bf16_job){.block = data,
                                                     .n_blocks = n_blocks,
                                                     .col_tiles = p->matrix->col_tiles,
                                                     .act = &p->act->bf16,
                                                     .first = panel_of(n, from),
                                                     .last = panel_of(n, to - 1) + 1,
                                                     .y = y,
                                                     .ldy = p->ldy,
                                                     .sums = sums,
                                                     .next = p->next.at});
        return;
    }
    struct act act = p->rows ? *p->act : act_run(p->act, from, to - from);
    struct block_job job = {.block = data,
                            .col_tiles = p->matrix->col_tiles,
                            .act = &act,
                            .rows = p->rows ? p->rows + from : NULL,
                            .n = to - from,
                            .y = y,
                            .ldy = p->ldy};
    matrix_run(&c->kernels, p->matrix, &job, n_blocks, p->next);
}

/* Row blocks first … last-1 for a piece, head by head where these lie apart. */
static void product_heads(const struct cpu_backend *c, const struct product *p, int from, int to, long first, long last)
{
    struct product part = *p;
    for (long b = first, end; b < last; b = end) {
        end = (b / HEAD_BLOCKS + 1) * HEAD_BLOCKS;
        if (!p->step || end > last) end = last;
        part.next = end < last ? (struct block_run){matrix_block(p->matrix, p->expert, (int)end), (int)(last - end)} : p->next;
        float *y = p->step ? p->y + b / HEAD_BLOCKS * p->step + b % HEAD_BLOCKS * BLOCK_ROWS : p->y + b * BLOCK_ROWS;
        product_run(c, &part, from, to, (int)b, (int)(end - b), y + (long)from * p->ldy);
    }
}

void product_blocks(const struct cpu_backend *c, const struct product *p, long first, long last)
{
    for (int from = 0, to; first < last && from < p->n; from = to) {
        to = product_piece(p, from);
        product_heads(c, p, from, to, first, last);
    }
}

/* Row blocks of one product. */
struct linear_run {
    const struct linear *l;
    long first, n; /* n 0: none */
};

/* Row blocks of all products in one list: those of lo … hi-1 that belong to the product of lo. */
static struct linear_run linear_run(const struct linear_job *j, long lo, long hi)
{
    const struct linear *l = j->l;
    if (lo == hi) return (struct linear_run){l, 0, 0};
    for (; lo >= l->matrix->n_blocks; l++) lo -= l->matrix->n_blocks, hi -= l->matrix->n_blocks;
    return (struct linear_run){l, lo, (hi < l->matrix->n_blocks ? hi : l->matrix->n_blocks) - lo};
}

/* The list cut evenly. Parts are begun in their order, so this thread's next is probably the one that lies `threads` on. */
static void linear_part(void *arg, int part, int n_parts)
{
    const struct linear_job *j = arg;
    const int after = part + pool_size(j->c->pool);
    long total = 0, lo, hi, then_lo = 0, then_hi = 0;
    for (int i = 0; i < j->n_linear; i++) total += j->l[i].matrix->n_blocks;
    pool_range(total, part, n_parts, &lo, &hi);
    if (after < n_parts) pool_range(total, after, n_parts, &then_lo, &then_hi);
    for (struct linear_run run = linear_run(j, lo, hi), next; run.n; lo += run.n, run = next) {
        next = linear_run(j, lo + run.n, hi);
        const struct linear_run ask = next.n ? next : linear_run(j, then_lo, then_hi);
        struct product p = {.matrix = run.l->matrix, .act = j->act, .n = j->n_rows, .y = run.l->y, .ldy = run.l->ldy, .step = run.l->step};
        if (ask.n) p.next = (struct block_run){matrix_block(ask.l->matrix, 0, (int)ask.first), (int)ask.n};
        product_blocks(j->c, &p, run.first, run.first + run.n);
    }
}

void cpu_linear(struct cpu_backend *c, const struct linear *l, int n_linear, const struct act *act, int n_rows)
{
    struct linear_job job = {c, l, n_linear, n_rows, act};
    size_t bytes = 0;
    for (int i = 0; i < n_linear; i++) bytes += l[i].matrix->bytes;
    run_blocks(c, bytes, linear_part, &job);
}

struct act act_run(const struct act *a, long row, int n)
{
    struct digit_row first = digit_row(&a->digits, row, 0);
    struct act out = {.ld = a->ld};
    if (a->x) out.x = a->x + row * a->ld, out.sums = a->sums + row * (a->ld / QUANT_GROUP);
    out.digits = (struct digits){first.d, first.scales, first.sums, a->ld, a->digits.count};
    out.bf16 = (struct bf16_run){a->bf16.x + row * a->ld, a->ld, a->bf16.n ? n : 0};
    return out;
}

/* An odd last group takes the empty one behind it along: tiles read both. */
static int whole_pairs(int group, int n)
{
    return (group + n + 1) / 2 * 2 - group;
}

void act_groups(const struct cpu_backend *c, const struct act *a, long row, int group, int n)
{
    act_groups_of(c, a, row, group, n, a->x + row * a->ld + (long)group * QUANT_GROUP);
}

/* The groups as bf16 or digits, where products read them so. */
static void act_forms(const struct cpu_backend *c, const struct act *a, long row, int group, int n, const float *x)
{
    if (a->bf16.n) c->kernels.round_bf16(&a->bf16, (int)row, group, x, whole_pairs(group, n));
    if (!a->digits.count) return;
    struct digit_row out = digit_row(&a->digits, row, group);
    c->kernels.split_digits(&out, x, n);
}

void act_groups_of(const struct cpu_backend *c, const struct act *a, long row, int group, int n, const float *x)
{
    c->kernels.group_sums(a->sums + row * (a->ld / QUANT_GROUP) + group, x, n);
    act_forms(c, a, row, group, n, x);
}

bool reads_fp32(const struct act *a, const struct matrix *m)
{
    return !(m->kind == MATRIX_Q4 && (a->bf16.n || a->digits.count)) && !(m->kind == MATRIX_Q8 && a->digits.count == DIGITS_MAX);
}

struct norm_job {
    struct cpu_backend *c;
    const float *x;
    const struct norm *norm;
    const struct act *out;
};

const float *cpu_norm_row(const struct cpu_backend *c, const float *x, const struct vector *w, const struct act *out, long t, long place)
{
    const struct model_shape *s = &c->base.shape;
    const int groups = s->hidden / QUANT_GROUP;
    float *row = out->x + place * out->ld;
    c->kernels.rms_norm(row, x + t * s->hidden, w->data, s->hidden, s->rms_eps);
    if (place == t) act_groups(c, out, t, 0, groups);
    else act_forms(c, out, t, 0, groups, row);
    return row;
}

static void norm_part(void *arg, int thread, int n_threads)
{
    const struct norm_job *j = arg;
    long lo, hi;
    pool_range(j->c->batch->n_rows, thread, n_threads, &lo, &hi);
    for (long t = lo; t < hi; t++) {
        const float *row = cpu_norm_row(j->c, j->x, j->norm->weight, j->out, t, j->norm->fp32 ? t : lo);
        if (!j->norm->more) continue;
        struct digit_row more = digit_row(j->norm->more, t, 0);
        j->c->kernels.split_digits(&more, row, j->out->ld / QUANT_GROUP);
    }
}

void cpu_norm_rows(struct cpu_backend *c, const float *x, const struct norm *norm, const struct act *out)
{
    run_rows(c, norm_part, &(struct norm_job){c, x, norm, out});
}

struct add_job {
    struct cpu_backend *c;
    const float *y;
    int ldy;
};

static void add_part(void *arg, int thread, int n_threads)
{
    const struct add_job *j = arg;
    int hidden = j->c->base.shape.hidden;
    long lo, hi;
    pool_range(j->c->batch->n_rows, thread, n_threads, &lo, &hi);
    for (long t = lo; t < hi; t++) j->c->kernels.add_scaled(j->c->ws.x + t * hidden, j->y + t * j->ldy, 1, hidden);
}

void cpu_add_rows(struct cpu_backend *c, const float *y, int ldy)
{
    struct add_job job = {c, y, ldy};
    run_rows(c, add_part, &job);
}
