/* What several steps share: matrix products over the pool, normed rows, residual sums. */
#include "backend/cpu/cpu.h"

struct linear_job {
    struct cpu_backend *c;
    const struct linear *l;
    int n_linear, n_rows;
    const struct act *act;
};

/* Row blocks of all products in one list, cut evenly. */
static void linear_part(void *arg, int thread, int n_threads)
{
    const struct linear_job *j = arg;
    long total = 0, lo, hi, before = 0;
    for (int i = 0; i < j->n_linear; i++) total += j->l[i].matrix->n_blocks;
    pool_range(total, thread, n_threads, &lo, &hi);
    for (int i = 0; i < j->n_linear; i++) {
        const struct linear *l = &j->l[i];
        long first = lo > before ? lo - before : 0, last = hi - before;
        if (last > l->matrix->n_blocks) last = l->matrix->n_blocks;
        for (long block = first; block < last; block++) {
            struct block_job job = {.block = matrix_block(l->matrix, 0, (int)block),
                                    .col_tiles = l->matrix->col_tiles,
                                    .act = j->act,
                                    .n = j->n_rows,
                                    .y = l->y + block * BLOCK_ROWS,
                                    .ldy = l->ldy};
            matrix_run(&j->c->kernels, l->matrix, &job);
        }
        before += l->matrix->n_blocks;
    }
}

void cpu_linear(struct cpu_backend *c, const struct linear *l, int n_linear, const struct act *act, int n_rows)
{
    struct linear_job job = {c, l, n_linear, n_rows, act};
    pool_run(c->pool, linear_part, &job);
}

struct norm_job {
    struct cpu_backend *c;
    const float *x;
    const struct vector *w;
    struct act *out;
};

static void norm_part(void *arg, int thread, int n_threads)
{
    const struct norm_job *j = arg;
    const struct model_shape *s = &j->c->base.shape;
    long lo, hi;
    pool_range(j->c->batch->n_rows, thread, n_threads, &lo, &hi);
    for (long t = lo; t < hi; t++) {
        float *row = j->out->x + t * j->out->ld;
        j->c->kernels.rms_norm(row, j->x + t * s->hidden, j->w->data, s->hidden, s->rms_eps);
        j->c->kernels.group_sums(j->out->sums + t * (j->out->ld / QUANT_GROUP), row, s->hidden / QUANT_GROUP);
    }
}

void cpu_norm_rows(struct cpu_backend *c, const float *x, const struct vector *w, struct act *out)
{
    struct norm_job job = {c, x, w, out};
    pool_run(c->pool, norm_part, &job);
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
    pool_run(c->pool, add_part, &job);
}
