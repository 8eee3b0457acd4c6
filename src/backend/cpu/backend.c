/* The CPU backend object: creation, weights, and the table of its steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/measure.h"
#include "backend/cpu/rotary.h"
#include "base/mem.h"

static void destroy(struct backend *be)
{
    struct cpu_backend *c = cpu_of(be);
    state_pool_free(&c->states);
    arena_free(&c->weights);
    pool_free(c->pool);
    free(c->place);
    free(c->other.place);
    free(c);
}

static lily_status load_matrix(struct backend *be, const struct module_view *m, struct matrix **out,
                               struct lily_err *err)
{
    struct cpu_backend *c = cpu_of(be);
    struct matrix want, found;
    LILY_TRY(matrix_describe(m, &want, err));
    if (!c->packed || !packed_find(c->packed, m->weight.name, &want, &found)) return matrix_pack(m, c->pool, &c->weights, out, err);
    *out = mem_new(sizeof found);
    **out = found;
    return LILY_OK;
}

static void free_matrix(struct backend *be, struct matrix *m)
{
    (void)be;
    free(m);
}

static lily_status load_vector(struct backend *be, const float *data, size_t n, struct vector **out,
                               struct lily_err *err)
{
    void *own;
    *out = NULL;
    LILY_TRY(arena_take(&cpu_of(be)->weights, n * sizeof(float), "a vector of weights", &own, err));
    memcpy(own, data, n * sizeof(float));
    *out = mem_new(sizeof **out);
    **out = (struct vector){.n = n, .data = own};
    return LILY_OK;
}

static void free_vector(struct backend *be, struct vector *v)
{
    (void)be;
    free(v);
}

static lily_status seq_new(struct backend *be, struct seq **out, struct lily_err *err)
{
    return state_seq_new(&cpu_of(be)->states, out, err);
}

static void seq_free(struct backend *be, struct seq *s)
{
    (void)be;
    state_seq_free(s);
}

static void seq_reset(struct backend *be, struct seq *s)
{
    (void)be;
    state_seq_reset(s);
}

static int seq_length(const struct seq *s)
{
    return s->length;
}

static lily_status seq_reserve(struct backend *be, struct seq *s, int n, struct lily_err *err)
{
    (void)be;
    return state_seq_reserve(s, n, err);
}

static lily_status border_save(struct backend *be, const struct seq *s, struct border **out, struct lily_err *err)
{
    (void)be;
    return state_border_save(s, out, err);
}

static lily_status seq_keep(struct backend *be, struct seq *s, int length, struct lily_err *err)
{
    (void)be;
    return state_seq_keep(s, length, err);
}

static lily_status border_kept(struct backend *be, struct seq *s, int length, struct border **out, struct lily_err *err)
{
    (void)be;
    (void)err;
    return state_border_kept(s, length, out);
}

static void border_restore(struct backend *be, struct seq *s, const struct border *b)
{
    (void)be;
    state_border_restore(s, b);
}

static void border_free(struct backend *be, struct border *b)
{
    (void)be;
    state_border_free(b);
}

static size_t border_bytes(const struct backend *be)
{
    return state_border_bytes(&((const struct cpu_backend *)be)->states);
}

static size_t page_bytes(const struct backend *be)
{
    return ((const struct cpu_backend *)be)->states.pages.page_bytes;
}

static void seq_share(struct backend *be, struct seq *s, const struct border *b, int n)
{
    (void)be;
    state_seq_share(s, b, n);
}

static lily_status border_export(struct backend *be, const struct border *b, int part, size_t at, size_t n, void *out, struct lily_err *err)
{
    (void)be;
    (void)err;
    memcpy(out, state_border_part(b, part) + at, n);
    return LILY_OK;
}

static lily_status border_import(struct backend *be, int length, const struct border *base, int n_shared,
                                 const struct border_source *src, struct border **out, struct lily_err *err)
{
    const struct border_shape shape = {length, base, n_shared};
    return state_border_import(&cpu_of(be)->states, &shape, src, out, err);
}

static void read_hidden(struct backend *be, float *out)
{
    struct cpu_backend *c = cpu_of(be);
    memcpy(out, c->ws.x, sizeof(float) * (size_t)c->batch->n_rows * (size_t)be->shape.hidden);
}

static void set_aside(struct backend *be)
{
    struct cpu_backend *c = cpu_of(be);
    const struct pass_memory here = {c->ws, c->place, c->batch, c->now, c->at};
    c->ws = c->other.ws;
    c->place = c->other.place;
    c->batch = c->other.batch;
    c->now = c->other.now;
    c->at = c->other.at;
    c->other = here;
}

static const struct backend_ops cpu_ops = {
    .step = {.begin = cpu_step_begin,
             .embed = cpu_step_embed,
             .gdn_in = cpu_step_gdn_in,
             .gdn_mix = cpu_step_gdn_mix,
             .gdn_out = cpu_step_gdn_out,
             .attn_in = cpu_step_attn_in,
             .attn_mix = cpu_step_attn_mix,
             .attn_out = cpu_step_attn_out,
             .moe_route = cpu_step_moe_route,
             .moe_experts = cpu_step_moe_experts,
             .head = cpu_step_head,
             .end = cpu_step_end,
             .read_hidden = read_hidden},
    .destroy = destroy,
    .load_matrix = load_matrix,
    .free_matrix = free_matrix,
    .load_vector = load_vector,
    .free_vector = free_vector,
    .seq_new = seq_new,
    .seq_free = seq_free,
    .seq_reset = seq_reset,
    .seq_length = seq_length,
    .seq_reserve = seq_reserve,
    .border_save = border_save,
    .seq_keep = seq_keep,
    .border_kept = border_kept,
    .border_restore = border_restore,
    .border_free = border_free,
    .border_bytes = border_bytes,
    .page_bytes = page_bytes,
    .seq_share = seq_share,
    .border_export = border_export,
    .border_import = border_import,
    .seq_fill = cpu_seq_fill,
    .measure = cpu_measure,
    .joules = cpu_joules,
    .set_aside = set_aside,
    .take_rows = cpu_take_rows,
};

/*
 * Digits of activations for 4-bit matrices: chosen by phase, tier and mode, never by the number of rows. Two digits
 * (about 15 bits of the largest value of a group; SPEED.md has the error) are faster where the products of many rows are bound
 * by arithmetic. Three are as exact as fp32, and with VNNI decode reads memory faster by them. Plain C keeps fp32.
 * The fast mode takes one for the inputs of the routed experts, and for queries, keys and z of the delta rule layers, between the
 * ends; with AMX it multiplies bf16 there, which is faster. The router's 8-bit codes are multiplied with three wherever VNNI is.
 */
static struct digit_choice digits_of(enum cpu_tier tier, bool fast, enum phase phase)
{
    bool vnni = tier == CPU_AVX512 || tier == CPU_AMX;
    if (phase == PHASE_DECODE) return (struct digit_choice){.count = vnni ? 3 : 0, .delta = vnni ? 3 : 0};
    if (tier == CPU_SCALAR) return (struct digit_choice){0};
    if (tier == CPU_AMX && fast) return (struct digit_choice){.bf16 = true, .router = true};
    return (struct digit_choice){.count = 2, .routed = fast ? 1 : 2, .delta = fast ? 1 : 2, .router = vnni};
}

/* The workspace, and where pieces are long a second one. */
static lily_status workspaces_new(struct cpu_backend *c, const struct cpu_options *o, struct lily_err *err)
{
    c->place = mem_new(sizeof *c->place * (size_t)o->max_rows);
    LILY_TRY(workspace_new(&c->ws, &c->weights, &c->base.shape, o->max_rows, o->max_logits, err));
    if (o->max_rows <= CPU_SHORT_ROWS) return LILY_OK;
    c->base.limits.short_rows = CPU_SHORT_ROWS;
    c->other.place = mem_new(sizeof *c->place * CPU_SHORT_ROWS);
    return workspace_new(&c->other.ws, &c->weights, &c->base.shape, CPU_SHORT_ROWS, CPU_SHORT_ROWS, err);
}

lily_status cpu_backend_new(const struct cpu_options *o, struct backend **out, struct lily_err *err)
{
    *out = NULL;
    struct cpu_backend *c = mem_new(sizeof *c);
    c->base.ops = &cpu_ops;
    c->base.shape = o->shape;
    c->base.limits = (struct backend_limits){.max_rows = o->max_rows, .max_logits = o->max_logits};
    snprintf(c->base.code, sizeof c->base.code, "cpu %s%s %s", cpu_tier_name(o->tier), o->fast ? " fast" : "", o->kv_f32 ? "f32" : "bf16");
    cpu_kernels_init(&c->kernels, o->tier);
    for (int phase = PHASE_PREFILL; phase <= PHASE_DECODE; phase++)
        for (int place = AT_ENDS; place < DIGIT_PLACES; place++)
            c->digits[phase][place] = digits_of(c->kernels.tier, o->fast && place == BETWEEN, (enum phase)phase);
    rotary_frequencies(o->shape.rope_theta, c->frequency);
    c->attn_fast = o->fast && !o->kv_f32 && c->kernels.attention_fast; /* by phase, tier, mode and type of the cache */
    c->packed = o->packed;
    c->pool = o->pool;
    lily_status st = c->pool ? LILY_OK : pool_create(o->threads, &c->pool, err);
    if (st == LILY_OK) st = state_pool_init(&c->states, &c->base.shape, !o->kv_f32, o->state_bytes, err);
    if (st == LILY_OK) st = workspaces_new(c, o, err);
    if (st != LILY_OK) {
        destroy(&c->base);
        return st;
    }
    *out = &c->base;
    return LILY_OK;
}
