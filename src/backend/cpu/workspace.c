/* The workspace: one block of memory carved into the intermediates of a batch. */
#include <string.h>

#include "backend/cpu/cpu.h"

/* Hands out aligned pieces; with no base it only counts. */
struct carver {
    uint8_t *base;
    size_t used;
};

static void *carve(struct carver *c, size_t bytes)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (bytes + 63) / 64 * 64;
    return p;
}

static float *carve_floats(struct carver *c, size_t rows, int ld)
{
    return carve(c, rows * (size_t)ld * sizeof(float));
}

/* Of up to `most` digits. */
static struct digits carve_digits(struct carver *c, size_t rows, int ld, int most)
{
    return (struct digits){carve(c, rows * (size_t)digits_row_bytes(ld, most)), carve_floats(c, rows, ld / QUANT_GROUP), carve_floats(c, rows, ld / QUANT_GROUP), ld, 0};
}

static struct act carve_act(struct carver *c, size_t rows, int width)
{
    struct act a = {.ld = round_up(width, 128)};
    a.x = carve_floats(c, rows, a.ld);
    a.sums = carve_floats(c, rows, a.ld / QUANT_GROUP);
    a.digits = carve_digits(c, rows, a.ld, DIGITS_MAX);
    a.bf16 = (struct bf16_run){(uint16_t *)(void *)a.digits.d, a.ld, 0}; /* rows are in one form or the other */
    return a;
}

/* Rows begin on lines, an odd number of them apart, so that rows of a power of two do not fall on the same places of a cache. */
static int row_width(int n)
{
    return round_up(n, 2 * BLOCK_ROWS) + BLOCK_ROWS;
}

/* Rows of heads, side by side or behind each other with a line between two heads. */
static float *carve_heads(struct carver *c, size_t rows, int ld)
{
    return carve(c, (rows * (size_t)ld + (size_t)ld / GDN_DIM * BLOCK_ROWS) * sizeof(float));
}

/* Outputs of products for m rows: each is written before it is read, and those of a mixer, of attention and of the experts are never alive together. */
static void carve_outputs(struct workspace *ws, size_t m, struct carver *c)
{
    struct carver delta = *c, attention = *c, experts = *c;
    ws->qkv.x = carve_heads(&delta, m, ws->ld_conv);
    ws->conv = carve_floats(&delta, m, ws->ld_conv);
    ws->z.x = carve_heads(&delta, m, ws->ld_z);
    ws->b = carve_floats(&delta, m, ws->ld_heads);
    ws->a = carve_floats(&delta, m, ws->ld_heads);
    ws->q = carve_floats(&attention, m, ws->ld_q);
    ws->k = carve_floats(&attention, m, ws->ld_kv);
    ws->v = carve_floats(&attention, m, ws->ld_kv);
    ws->expert_out = carve_floats(&experts, m * EXPERTS_PER_TOKEN, ws->ld_hidden);
    if (delta.used > c->used) c->used = delta.used;
    if (attention.used > c->used) c->used = attention.used;
    if (experts.used > c->used) c->used = experts.used;
}

static void carve_all(struct workspace *ws, const struct model_shape *s, int max_rows, int max_logits,
                      struct carver *c)
{
    size_t n = (size_t)max_rows, slots = n * EXPERTS_PER_TOKEN, m = n < CPU_MIXER_ROWS ? n : CPU_MIXER_ROWS;
    int q_dim = s->n_q_heads * HEAD_DIM, value_dim = shape_gdn_value_dim(s);
    ws->ld_conv = row_width(shape_conv_dim(s));
    ws->ld_z = row_width(value_dim);
    ws->ld_heads = round_up(s->n_gdn_v_heads, BLOCK_ROWS);
    ws->ld_q = row_width(2 * q_dim);
    ws->ld_kv = row_width(s->n_kv_heads * HEAD_DIM);
    ws->ld_experts = round_up(s->n_experts, BLOCK_ROWS);
    ws->ld_hidden = row_width(s->hidden);
    ws->x = carve_floats(c, n, s->hidden);
    ws->norm = carve_act(c, n, s->hidden);
    ws->routed = (struct act){.ld = ws->norm.ld, .digits = carve_digits(c, n, ws->norm.ld, 2)};
    ws->routed.bf16 = (struct bf16_run){(uint16_t *)(void *)ws->routed.digits.d, ws->norm.ld, 0};
    ws->value_digits = ws->router_digits = carve_digits(c, n, ws->norm.ld, DIGITS_MAX);
    ws->router_digits.count = DIGITS_MAX;
    ws->rotary = carve_floats(c, n, ROTARY_DIM);
    carve_outputs(ws, m, c);
    ws->mixed = carve_act(c, m, value_dim > q_dim ? value_dim : q_dim);
    ws->router = carve_floats(c, n, ws->ld_experts);
    ws->shared_gate = carve_floats(c, n, BLOCK_ROWS);
    ws->top = carve(c, slots * sizeof *ws->top);
    ws->top_weight = carve_floats(c, slots, 1);
    ws->groups = carve(c, (size_t)s->n_experts * sizeof *ws->groups);
    ws->slot_token = carve(c, slots * sizeof *ws->slot_token);
    ws->slot_weight = carve_floats(c, slots, 1);
    ws->slot_of = carve(c, slots * sizeof *ws->slot_of);
    ws->inner = carve_act(c, slots, s->expert_dim);
    ws->shared = carve_act(c, n, s->shared_dim);
    ws->shared_out = carve_floats(c, m, ws->ld_hidden);
    ws->head = carve_act(c, (size_t)max_logits, s->hidden);
}

size_t cpu_workspace_bytes(const struct model_shape *shape, int max_rows)
{
    struct workspace ws = {0};
    struct carver c = {0};
    carve_all(&ws, shape, max_rows, max_rows, &c);
    if (max_rows > CPU_SHORT_ROWS) carve_all(&ws, shape, CPU_SHORT_ROWS, CPU_SHORT_ROWS, &c);
    return c.used;
}

lily_status workspace_new(struct workspace *ws, struct arena *arena, const struct model_shape *s, int max_rows, int max_logits,
                          struct lily_err *err)
{
    struct carver c = {0};
    void *block;
    memset(ws, 0, sizeof *ws);
    carve_all(ws, s, max_rows, max_logits, &c);
    LILY_TRY(arena_take(arena, c.used, "the workspace", &block, err));
    c = (struct carver){.base = block};
    carve_all(ws, s, max_rows, max_logits, &c);
    return LILY_OK;
}
