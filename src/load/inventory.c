/* The list of the text model's tensors. */
#include "load/inventory.h"

#include <stdio.h>

struct walk {
    const struct model_shape *shape;
    inventory_fn fn;
    void *arg;
    struct lily_err *err;
    char prefix[48]; /* "model.layers.3." or empty */
};

enum kind { MODULE, VECTOR };

struct sizes {
    int experts, rows, cols;
};

static lily_status give(const struct walk *w, enum kind kind, const char *name, struct sizes z)
{
    struct inventory_item item = {.is_module = kind == MODULE, .experts = z.experts, .rows = z.rows, .cols = z.cols};
    snprintf(item.path, sizeof item.path, "%s%s", w->prefix, name);
    return w->fn(w->arg, &item, w->err);
}

static lily_status walk_linear(const struct walk *w)
{
    const struct model_shape *s = w->shape;
    int conv = shape_conv_dim(s), value = shape_gdn_value_dim(s), heads = s->n_gdn_v_heads;
    LILY_TRY(give(w, VECTOR, "linear_attn.conv1d.weight", (struct sizes){0, conv, CONV_WIDTH}));
    LILY_TRY(give(w, MODULE, "linear_attn.in_proj_qkv", (struct sizes){0, conv, s->hidden}));
    LILY_TRY(give(w, MODULE, "linear_attn.in_proj_z", (struct sizes){0, value, s->hidden}));
    LILY_TRY(give(w, MODULE, "linear_attn.in_proj_b", (struct sizes){0, heads, s->hidden}));
    LILY_TRY(give(w, MODULE, "linear_attn.in_proj_a", (struct sizes){0, heads, s->hidden}));
    LILY_TRY(give(w, VECTOR, "linear_attn.dt_bias", (struct sizes){0, heads, 1}));
    LILY_TRY(give(w, VECTOR, "linear_attn.A_log", (struct sizes){0, heads, 1}));
    LILY_TRY(give(w, VECTOR, "linear_attn.norm.weight", (struct sizes){0, GDN_DIM, 1}));
    return give(w, MODULE, "linear_attn.out_proj", (struct sizes){0, s->hidden, value});
}

static lily_status walk_full(const struct walk *w)
{
    const struct model_shape *s = w->shape;
    int q = s->n_q_heads * HEAD_DIM, kv = s->n_kv_heads * HEAD_DIM;
    LILY_TRY(give(w, MODULE, "self_attn.q_proj", (struct sizes){0, 2 * q, s->hidden})); /* queries and gates */
    LILY_TRY(give(w, MODULE, "self_attn.k_proj", (struct sizes){0, kv, s->hidden}));
    LILY_TRY(give(w, MODULE, "self_attn.v_proj", (struct sizes){0, kv, s->hidden}));
    LILY_TRY(give(w, MODULE, "self_attn.o_proj", (struct sizes){0, s->hidden, q}));
    LILY_TRY(give(w, VECTOR, "self_attn.q_norm.weight", (struct sizes){0, HEAD_DIM, 1}));
    return give(w, VECTOR, "self_attn.k_norm.weight", (struct sizes){0, HEAD_DIM, 1});
}

static lily_status walk_experts(const struct walk *w)
{
    const struct model_shape *s = w->shape;
    int e = s->n_experts, wide = s->expert_dim, shared = s->shared_dim;
    LILY_TRY(give(w, MODULE, "mlp.gate", (struct sizes){0, e, s->hidden}));
    LILY_TRY(give(w, MODULE, "mlp.switch_mlp.gate_proj", (struct sizes){e, wide, s->hidden}));
    LILY_TRY(give(w, MODULE, "mlp.switch_mlp.up_proj", (struct sizes){e, wide, s->hidden}));
    LILY_TRY(give(w, MODULE, "mlp.switch_mlp.down_proj", (struct sizes){e, s->hidden, wide}));
    LILY_TRY(give(w, MODULE, "mlp.shared_expert.gate_proj", (struct sizes){0, shared, s->hidden}));
    LILY_TRY(give(w, MODULE, "mlp.shared_expert.down_proj", (struct sizes){0, s->hidden, shared}));
    LILY_TRY(give(w, MODULE, "mlp.shared_expert.up_proj", (struct sizes){0, shared, s->hidden}));
    return give(w, MODULE, "mlp.shared_expert_gate", (struct sizes){0, 1, s->hidden});
}

static lily_status walk_layer(const struct walk *w, bool is_full)
{
    const struct model_shape *s = w->shape;
    LILY_TRY(is_full ? walk_full(w) : walk_linear(w));
    LILY_TRY(give(w, VECTOR, "input_layernorm.weight", (struct sizes){0, s->hidden, 1}));
    LILY_TRY(give(w, VECTOR, "post_attention_layernorm.weight", (struct sizes){0, s->hidden, 1}));
    return walk_experts(w);
}

lily_status inventory_walk(const struct model_shape *s, inventory_fn fn, void *arg, struct lily_err *err)
{
    struct walk w = {.shape = s, .fn = fn, .arg = arg, .err = err};
    LILY_TRY(give(&w, MODULE, "model.embed_tokens", (struct sizes){0, s->vocab, s->hidden}));
    for (int i = 0; i < s->n_layers; i++) {
        snprintf(w.prefix, sizeof w.prefix, "model.layers.%d.", i);
        LILY_TRY(walk_layer(&w, s->is_full[i]));
    }
    w.prefix[0] = 0;
    LILY_TRY(give(&w, VECTOR, "model.norm.weight", (struct sizes){0, s->hidden, 1}));
    return give(&w, MODULE, "lm_head", (struct sizes){0, s->vocab, s->hidden});
}

lily_status inventory_walk_mtp(const struct model_shape *s, int n_layers, inventory_fn fn, void *arg, struct lily_err *err)
{
    struct walk w = {.shape = s, .fn = fn, .arg = arg, .err = err, .prefix = "mtp."};
    LILY_TRY(give(&w, MODULE, "fc", (struct sizes){0, s->hidden, 2 * s->hidden}));
    LILY_TRY(give(&w, VECTOR, "pre_fc_norm_embedding.weight", (struct sizes){0, s->hidden, 1}));
    LILY_TRY(give(&w, VECTOR, "pre_fc_norm_hidden.weight", (struct sizes){0, s->hidden, 1}));
    LILY_TRY(give(&w, VECTOR, "norm.weight", (struct sizes){0, s->hidden, 1}));
    for (int i = 0; i < n_layers; i++) {
        snprintf(w.prefix, sizeof w.prefix, "mtp.layers.%d.", i);
        LILY_TRY(walk_layer(&w, true));
    }
    return LILY_OK;
}

struct adding {
    const struct model_config *config;
    struct inventory_sum sum;
};

static lily_status add_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct adding *a = arg;
    (void)err;
    int64_t elements = (int64_t)(item->experts ? item->experts : 1) * item->rows * item->cols;
    int bits = item->is_module ? config_quant_rule(a->config, item->path).bits : 0;
    a->sum.n_tensors += bits ? 3 : 1;
    a->sum.bytes += bits ? elements * bits / 8 + 2 * 2 * (elements / QUANT_GROUP) : 2 * elements;
    return LILY_OK;
}

struct inventory_sum inventory_sum(const struct model_config *config)
{
    struct adding a = {.config = config};
    inventory_walk(&config->shape, add_item, &a, NULL);
    return a.sum;
}
