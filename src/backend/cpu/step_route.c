/* Routing of the mixture of experts (MODEL.md, MoE block): norm, router and top 8, choices sorted by expert. */
#include <math.h>

#include "backend/cpu/cpu.h"

enum {
    MANY_ROWS = 8, /* of a thread, so many that each reads the whole router */
};

/* The softmax over the chosen experts: renormalised probabilities, in which the softmax's own denominator cancels. */
static void weigh_experts(float *weight, const float *logits, const int32_t *top)
{
    float sum = 0;
    for (int i = 0; i < EXPERTS_PER_TOKEN; i++) sum += weight[i] = expf(logits[top[i]] - logits[top[0]]);
    for (int i = 0; i < EXPERTS_PER_TOKEN; i++) weight[i] /= sum;
}

/* Sorts the batch's choices by expert, in order of rows within each. */
static void group_slots(struct workspace *ws, int n_rows, int n_experts)
{
    int count[MAX_EXPERTS] = {0}, next[MAX_EXPERTS], n_slots = n_rows * EXPERTS_PER_TOKEN, at = 0;
    for (int i = 0; i < n_slots; i++) count[ws->top[i]]++;
    ws->n_groups = 0;
    for (int e = 0; e < n_experts; e++) {
        next[e] = at;
        if (count[e]) ws->groups[ws->n_groups++] = (struct expert_group){e, at, count[e]};
        at += count[e];
    }
    for (int i = 0; i < n_slots; i++) {
        int slot = next[ws->top[i]]++;
        ws->slot_token[slot] = i / EXPERTS_PER_TOKEN;
        ws->slot_weight[slot] = ws->top_weight[i];
        ws->slot_of[i] = slot;
    }
}

static void choose_experts(struct workspace *ws, const struct cpu_kernels *k, int n_experts, long from, long to)
{
    for (long t = from; t < to; t++) {
        const float *logits = ws->router + t * ws->ld_experts;
        int32_t *top = ws->top + t * EXPERTS_PER_TOKEN;
        float *shared = ws->shared_gate + t * BLOCK_ROWS;
        k->top_experts(top, logits, n_experts);
        weigh_experts(ws->top_weight + t * EXPERTS_PER_TOKEN, logits, top);
        *shared = 1 / (1 + expf(-*shared));
    }
}

/* A normed row as the routed experts' gate and up read it, where other matrices read it otherwise. */
static void routed_row(struct cpu_backend *c, long t, const float *x)
{
    struct workspace *ws = &c->ws;
    const int n_groups = ws->norm.ld / QUANT_GROUP;
    const struct act row = act_run(&ws->routed, t, 1);
    if (row.bf16.n) c->kernels.round_bf16(&row.bf16, 0, 0, x, n_groups);
    if (row.digits.count == 0 || row.digits.count == ws->norm.digits.count) return;
    const struct digit_row out = digit_row(&row.digits, 0, 0);
    c->kernels.split_digits(&out, x, n_groups);
}

struct route_job {
    struct cpu_backend *c;
    const struct moe_weights *w;
    bool fp32; /* normed rows are read so */
};

/* The router's normed rows, which reads no bf16. */
static struct act router_rows(const struct cpu_backend *c)
{
    struct act in = c->ws.norm;
    in.bf16.n = 0;
    if (c->now.router) in.digits = c->ws.router_digits;
    return in;
}

static bool any_reads_fp32(const struct cpu_backend *c, const struct moe_weights *w)
{
    const struct act *norm = &c->ws.norm, router = router_rows(c);
    return reads_fp32(&router, w->router) || reads_fp32(&router, w->shared_gate) || reads_fp32(norm, w->shared_gate_proj) || reads_fp32(norm, w->shared_up) ||
           reads_fp32(norm, w->gate) || reads_fp32(norm, w->up);
}

/* Norm, products and choice of a piece of rows, whose digits (in the first rows of router_digits) stay in the second-level cache. */
static void route_piece(const struct route_job *j, const struct digits *digits, long from, int n)
{
    struct cpu_backend *c = j->c;
    struct workspace *ws = &c->ws;
    struct act in = act_run(&ws->norm, from, n);
    in.bf16.n = 0;
    for (int i = 0; i < n; i++) {
        const float *row = cpu_norm_row(c, ws->x, j->w->norm, &ws->norm, from + i, j->fp32 ? from + i : from);
        routed_row(c, from + i, row);
        if (!c->now.router) continue;
        struct digit_row out = digit_row(digits, i, 0);
        c->kernels.split_digits(&out, row, in.ld / QUANT_GROUP);
    }
    if (c->now.router) in.digits = *digits;
    product_blocks(c, &(struct product){.matrix = j->w->router, .act = &in, .n = n, .y = ws->router + from * ws->ld_experts, .ldy = ws->ld_experts}, 0, j->w->router->n_blocks);
    product_blocks(c, &(struct product){.matrix = j->w->shared_gate, .act = &in, .n = n, .y = ws->shared_gate + from * BLOCK_ROWS, .ldy = BLOCK_ROWS}, 0, 1);
    choose_experts(ws, &c->kernels, c->base.shape.n_experts, from, from + n);
}

static void route_part(void *arg, int thread, int n_threads)
{
    const struct route_job *j = arg;
    long lo, hi;
    pool_range(j->c->batch->n_rows, thread, n_threads, &lo, &hi);
    struct digit_row first = digit_row(&j->c->ws.router_digits, lo, 0);
    struct digits digits = {first.d, first.scales, first.sums, j->c->ws.norm.ld, first.count};
    for (long from = lo; from < hi; from += ROWS_AT_ONCE) route_piece(j, &digits, from, hi - from < ROWS_AT_ONCE ? (int)(hi - from) : ROWS_AT_ONCE);
}

/* One thread's rows after another, or for few rows one thread's row blocks: a row's bits are the same. */
void cpu_step_moe_route(struct backend *be, const struct moe_weights *w)
{
    struct cpu_backend *c = cpu_of(be);
    struct workspace *ws = &c->ws;
    int n = c->batch->n_rows;
    ws->norm.digits.count = c->now.count;
    if (n >= MANY_ROWS * pool_size(c->pool)) {
        run_rows(c, route_part, &(struct route_job){c, w, any_reads_fp32(c, w)});
    } else {
        struct linear l[] = {{w->router, ws->router, ws->ld_experts, 0}, {w->shared_gate, ws->shared_gate, BLOCK_ROWS, 0}};
        const struct norm norm = {.weight = w->norm, .fp32 = true};
        const struct act in = router_rows(c);
        cpu_norm_rows(c, ws->x, &norm, &ws->norm);
        for (int t = 0; t < n; t++) routed_row(c, t, in.x + (long)t * in.ld);
        for (int t = 0; t < n && c->now.router; t++) {
            struct digit_row out = digit_row(&ws->router_digits, t, 0);
            c->kernels.split_digits(&out, in.x + (long)t * in.ld, in.ld / QUANT_GROUP);
        }
        cpu_linear(c, l, 2, &in, n);
        choose_experts(ws, &c->kernels, be->shape.n_experts, 0, n);
    }
    group_slots(ws, n, be->shape.n_experts);
}
