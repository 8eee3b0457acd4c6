/* The memory plan. */
#include "model/plan.h"

#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/size.h"

/* Packed bytes of one module: tiles of 16 x 64, columns padded to 128. */
static size_t matrix_bytes(const struct model_config *c, const char *path, int experts, int rows, int cols)
{
    int bits = config_quant_rule(c, path).bits;
    size_t tile = bits == 4 ? Q4_TILE_BYTES : bits == 8 ? Q8_TILE_BYTES : F32_TILE_BYTES;
    return (size_t)(experts ? experts : 1) * (size_t)(round_up(rows, BLOCK_ROWS) / BLOCK_ROWS) *
           (size_t)(round_up(cols, 128) / QUANT_GROUP) * tile;
}

static size_t layer_bytes(const struct model_config *c, int layer)
{
    const struct model_shape *s = &c->shape;
    int q = s->n_q_heads * HEAD_DIM, kv = s->n_kv_heads * HEAD_DIM, h = s->hidden, e = s->n_experts;
    int conv = shape_conv_dim(s), value = shape_gdn_value_dim(s);
    const struct {
        const char *name;
        int kind; /* 0: linear layers, 1: full layers, 2: both */
        int experts, rows, cols;
    } modules[] = {
        {"linear_attn.in_proj_qkv", 0, 0, conv, h},
        {"linear_attn.in_proj_z", 0, 0, value, h},
        {"linear_attn.in_proj_b", 0, 0, s->n_gdn_v_heads, h},
        {"linear_attn.in_proj_a", 0, 0, s->n_gdn_v_heads, h},
        {"linear_attn.out_proj", 0, 0, h, value},
        {"self_attn.q_proj", 1, 0, 2 * q, h},
        {"self_attn.k_proj", 1, 0, kv, h},
        {"self_attn.v_proj", 1, 0, kv, h},
        {"self_attn.o_proj", 1, 0, h, q},
        {"mlp.gate", 2, 0, e, h},
        {"mlp.switch_mlp.gate_proj", 2, e, s->expert_dim, h},
        {"mlp.switch_mlp.up_proj", 2, e, s->expert_dim, h},
        {"mlp.switch_mlp.down_proj", 2, e, h, s->expert_dim},
        {"mlp.shared_expert.gate_proj", 2, 0, s->shared_dim, h},
        {"mlp.shared_expert.up_proj", 2, 0, s->shared_dim, h},
        {"mlp.shared_expert.down_proj", 2, 0, h, s->shared_dim},
        {"mlp.shared_expert_gate", 2, 0, 1, h},
    };
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (modules[i].kind != 2 && modules[i].kind != (int)s->is_full[layer]) continue;
        char path[128];
        snprintf(path, sizeof path, "model.layers.%d.%s", layer, modules[i].name);
        bytes += matrix_bytes(c, path, modules[i].experts, modules[i].rows, modules[i].cols);
    }
    /* Vectors in fp32: norms, convolution, gates; bounded by the widest of them. */
    return bytes + sizeof(float) * (size_t)(2 * h + CONV_WIDTH * conv + 2 * HEAD_DIM);
}

static size_t weight_bytes(const struct model_config *c)
{
    const struct model_shape *s = &c->shape;
    size_t bytes = matrix_bytes(c, "model.embed_tokens", 0, s->vocab, s->hidden) +
                   matrix_bytes(c, "lm_head", 0, s->vocab, s->hidden);
    for (int i = 0; i < s->n_layers; i++) bytes += layer_bytes(c, i);
    return bytes;
}

static size_t read_number(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    char line[256];
    unsigned long long v = 0;
    size_t n_key = strlen(key);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, n_key) == 0 && sscanf(line + n_key, "%llu", &v) == 1) break;
    fclose(f);
    return (size_t)v;
}

size_t plan_available_memory(void)
{
    size_t available = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    size_t limit = read_number("/sys/fs/cgroup/memory.max", ""), used = read_number("/sys/fs/cgroup/memory.current", "");
    if (limit && limit > used && limit - used < available) available = limit - used;
    return available;
}

enum { DEFAULT_CTX = 32768, FIXED_SCRATCH = 48 << 20 /* tokenizer, buffers, program */ };

static void sum_up(const struct model_config *c, const struct plan_want *want, struct memory_plan *p)
{
    const struct model_shape *s = &c->shape;
    size_t fixed = (shape_recurrent_floats(s) + shape_conv_floats(s)) * sizeof(float);
    size_t page = shape_kv_bytes(s, want->kv_f32 ? 4 : 2) * GRID, pages = (size_t)(p->ctx + GRID - 1) / GRID;
    size_t n_seqs = want->n_seqs > 0 ? (size_t)want->n_seqs : 1;
    p->kv = n_seqs * (fixed + pages * page);
    p->borders = want->border_bytes;
    p->behind = p->rows > CPU_SHORT_ROWS ? fixed : 0;
    p->scratch = cpu_workspace_bytes(s, p->rows) + p->behind + n_seqs * (size_t)shape_logits_ld(s) * sizeof(float) + FIXED_SCRATCH;
    p->total = p->weights + p->kv + p->borders + p->scratch;
}

/* The longest pieces that fit: they read the weights less often. A context has no use for longer ones than itself. */
static void choose_rows(const struct model_config *c, const struct plan_want *want, struct memory_plan *p)
{
    for (int rows = 2 * CPU_SHORT_ROWS; rows <= CPU_MAX_ROWS && rows / 2 < p->ctx; rows *= 2) {
        struct memory_plan longer = *p;
        longer.rows = rows;
        sum_up(c, want, &longer);
        if (longer.total > longer.limit) return;
        *p = longer;
    }
}

/* What the model needs with one short context and nothing saved. */
static size_t least_total(const struct model_config *c, const struct plan_want *want, const struct memory_plan *p)
{
    struct plan_want few = *want;
    struct memory_plan least = *p;
    few.n_seqs = 1, few.border_bytes = 0;
    least.ctx = 1024, least.rows = CPU_SHORT_ROWS;
    sum_up(c, &few, &least);
    return least.total;
}

lily_status plan_make(const struct model_config *config, const struct plan_want *want, struct memory_plan *out,
                      struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    out->weights = weight_bytes(config);
    out->limit = want->limit ? want->limit : plan_available_memory();
    if (want->ctx > config->shape.max_positions) {
        err_set(err, LILY_ERR_USAGE, "a context of %d tokens: the model's limit is %d", want->ctx, config->shape.max_positions);
        err_hint(err, "give --ctx %d or less", config->shape.max_positions);
        return LILY_ERR_USAGE;
    }
    out->ctx = want->ctx;
    out->rows = want->max_rows ? want->max_rows : CPU_SHORT_ROWS;
    if (!out->ctx) {
        out->ctx = config->shape.max_positions < DEFAULT_CTX ? config->shape.max_positions : DEFAULT_CTX;
        for (sum_up(config, want, out); out->total > out->limit && out->ctx > 1024; sum_up(config, want, out))
            out->ctx /= 2;
    }
    sum_up(config, want, out);
    if (!want->max_rows) choose_rows(config, want, out);
    if (out->total <= out->limit) return LILY_OK;
    bool many = want->n_seqs > 1;
    char times[16] = "";
    if (many) snprintf(times, sizeof times, "%d x ", want->n_seqs);
    err_set(err, LILY_ERR_MEMORY,
            "the model does not fit: %s needed (weights %s, kv of %s%d tokens %s, saved states %s, scratch %s), %s available",
            SIZE_TEXT(out->total), SIZE_TEXT(out->weights), times, out->ctx, SIZE_TEXT(out->kv), SIZE_TEXT(out->borders),
            SIZE_TEXT(out->scratch), SIZE_TEXT(out->limit));
    const size_t least = least_total(config, want, out);
    if (least > out->limit)
        err_hint(err, "free memory, or raise --memory-limit: this model needs %s at least", SIZE_TEXT(least));
    else
        err_hint(err, "lower %s, free memory, or raise --memory-limit",
                 out->borders > out->kv ? "--cache-ram" : many ? "--ctx or --parallel" : "--ctx");
    return LILY_ERR_MEMORY;
}
