/* Plans of synthetic checkpoints: presets, config.json, tensors and shards, bulk values. */
#include "load/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "json/json.h"
#include "load/inventory.h"
#include "load/safetensors.h"

struct preset {
    const char *name;
    int hidden, layers, q_heads, kv_heads, gdn_k_heads, gdn_v_heads, experts, expert_dim, shared_dim, vocab, positions;
    int first_added;
    int64_t vision_bytes; /* what the published file has in its first shard before the text model */
};

static const struct preset presets[SYNTH_PRESETS] = {
    {"35b", 2048, 40, 16, 2, 16, 32, 256, 512, 512, 248320, 262144, 248044, INT64_C(893142496)},
    {"demo", 256, 8, 8, 1, 2, 4, 32, 64, 64, 8192, 65536, 8136, 0},
    {"tiny", 128, 4, 8, 1, 2, 4, 16, 64, 128, 320, 32768, 284, 0},
};

static const int64_t max_shard = INT64_C(5) << 30; /* as converters cut */

const char *synth_preset_name(enum synth_preset p)
{
    return presets[p].name;
}

bool synth_preset_parse(const char *name, enum synth_preset *out)
{
    for (int i = 0; i < SYNTH_PRESETS; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        *out = (enum synth_preset)i;
        return true;
    }
    return false;
}

/* ---- config.json ---- */

static void add_text_config(const struct preset *p, struct buf *out)
{
    buf_addz(out, "    \"text_config\": {\n        \"attention_bias\": false,\n        \"attn_output_gate\": true,\n"
                  "        \"full_attention_interval\": 4,\n        \"hidden_act\": \"silu\",\n        \"layer_types\": [");
    for (int i = 0; i < p->layers; i++) buf_printf(out, "%s\"%s_attention\"", i ? ", " : "", i % 4 == 3 ? "full" : "linear");
    buf_addz(out, "],\n");
    const struct {
        const char *key;
        int value;
    } ints[] = {
        {"bos_token_id", p->first_added},
        {"eos_token_id", p->first_added},
        {"head_dim", HEAD_DIM},
        {"hidden_size", p->hidden},
        {"linear_conv_kernel_dim", CONV_WIDTH},
        {"linear_key_head_dim", GDN_DIM},
        {"linear_num_key_heads", p->gdn_k_heads},
        {"linear_num_value_heads", p->gdn_v_heads},
        {"linear_value_head_dim", GDN_DIM},
        {"max_position_embeddings", p->positions},
        {"moe_intermediate_size", p->expert_dim},
        {"num_attention_heads", p->q_heads},
        {"num_experts", p->experts},
        {"num_experts_per_tok", EXPERTS_PER_TOKEN},
        {"num_hidden_layers", p->layers},
        {"num_key_value_heads", p->kv_heads},
        {"shared_expert_intermediate_size", p->shared_dim},
        {"vocab_size", p->vocab},
    };
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) buf_printf(out, "        \"%s\": %d,\n", ints[i].key, ints[i].value);
    buf_addz(out, "        \"dtype\": \"bfloat16\",\n        \"mamba_ssm_dtype\": \"float32\",\n"
                  "        \"model_type\": \"qwen3_5_moe_text\",\n        \"partial_rotary_factor\": 0.25,\n"
                  "        \"rms_norm_eps\": 1e-06,\n        \"rope_parameters\": {\"mrope_interleaved\": true, "
                  "\"mrope_section\": [11, 11, 10], \"partial_rotary_factor\": 0.25, \"rope_theta\": 10000000, "
                  "\"rope_type\": \"default\"},\n        \"tie_word_embeddings\": false\n    },\n");
}

static void add_quantization(const struct preset *p, const char *key, struct buf *out)
{
    buf_printf(out, "    \"%s\": {\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\"", key);
    for (int i = 0; i < p->layers; i++)
        for (int k = 0; k < 2; k++)
            buf_printf(out, ",\n        \"language_model.model.layers.%d.mlp.%s\": {\"group_size\": 64, \"bits\": 8}", i,
                       k ? "shared_expert_gate" : "gate");
    buf_addz(out, "}");
}

static void write_config(const struct preset *p, struct synth_plan *out)
{
    struct buf *c = &out->config_text;
    buf_addz(c, "{\n    \"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"],\n    \"model_type\": \"qwen3_5_moe\",\n");
    add_text_config(p, c);
    add_quantization(p, "quantization", c);
    buf_addz(c, ",\n");
    add_quantization(p, "quantization_config", c);
    buf_addz(c, ",\n    \"tie_word_embeddings\": false\n}\n");
    buf_printf(&out->generation_text,
               "{\n    \"bos_token_id\": %d,\n    \"do_sample\": true,\n    \"eos_token_id\": [%d, %d],\n    \"pad_token_id\": %d,\n"
               "    \"temperature\": 1.0,\n    \"top_k\": 20,\n    \"top_p\": 0.95\n}\n",
               p->first_added, p->first_added + 2, p->first_added, p->first_added);
}

/* ---- tensors ---- */

struct listing {
    struct synth_plan *plan;
    int cap;
    int64_t in_shard; /* bytes of the shard being filled */
};

/* What a tensor's module is, for its rule. */
struct module_form {
    int fan_in, bits; /* bits 0: not of a quantized module */
};

static void add_tensor(struct listing *l, const char *path, const char *suffix, struct tensor_decl d, struct module_form m)
{
    struct synth_plan *p = l->plan;
    if (p->n_tensors == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        p->tensors = mem_resize(p->tensors, sizeof *p->tensors * (size_t)l->cap);
    }
    struct synth_tensor *t = &p->tensors[p->n_tensors++];
    int64_t bytes = tensor_decl_bytes(&d);
    if (l->in_shard + bytes > max_shard) {
        p->n_shards++;
        l->in_shard = 0;
    }
    l->in_shard += bytes;
    p->bytes += bytes;
    snprintf(t->name, sizeof t->name, "language_model.%.60s%s", path, suffix);
    t->decl = d; /* its name is set when the table stands still */
    t->shard = p->n_shards - 1;
    t->rule = synth_rule_of(p->seed, t->name, m.fan_in, m.bits);
}

static lily_status add_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct listing *l = arg;
    struct tensor_decl d = {.dtype = DTYPE_BF16};
    (void)err;
    if (item->experts) d.dim[d.n_dims++] = item->experts;
    d.dim[d.n_dims++] = item->rows;
    if (item->is_module || item->cols > 1) d.dim[d.n_dims++] = item->cols;
    if (!item->is_module) {
        if (d.n_dims == 2) d.dim[d.n_dims++] = 1; /* the convolution: (channels, width, 1) */
        add_tensor(l, item->path, "", d, (struct module_form){0, 0});
        return LILY_OK;
    }
    struct module_form m = {item->cols, config_quant_rule(&l->plan->config, item->path).bits};
    d.dtype = DTYPE_U32;
    d.dim[d.n_dims - 1] = item->cols * m.bits / 32;
    add_tensor(l, item->path, ".weight", d, m);
    d.dtype = DTYPE_BF16;
    d.dim[d.n_dims - 1] = item->cols / QUANT_GROUP;
    add_tensor(l, item->path, ".scales", d, m);
    add_tensor(l, item->path, ".biases", d, m);
    return LILY_OK;
}

lily_status synth_plan_make(enum synth_preset preset, uint64_t seed, struct synth_plan *out, struct lily_err *err)
{
    const struct preset *p = &presets[preset];
    memset(out, 0, sizeof *out);
    out->preset = preset;
    out->seed = seed;
    out->first_added = p->first_added;
    out->n_shards = 1;
    write_config(p, out);
    lily_status st = config_parse(out->config_text.data, out->config_text.len, "config.json", &out->config, err);
    if (st == LILY_OK)
        st = config_parse_generation(out->generation_text.data, out->generation_text.len, "generation_config.json", &out->config, err);
    if (st != LILY_OK) {
        synth_plan_free(out);
        return st;
    }
    struct listing l = {.plan = out, .in_shard = p->vision_bytes};
    inventory_walk(&out->config.shape, add_item, &l, NULL);
    for (int i = 0; i < out->n_tensors; i++) out->tensors[i].decl.name = out->tensors[i].name;
    return LILY_OK;
}

void synth_plan_free(struct synth_plan *p)
{
    config_free(&p->config);
    buf_free(&p->config_text);
    buf_free(&p->generation_text);
    free(p->tensors);
    memset(p, 0, sizeof *p);
}

/* ---- files ---- */

void synth_shard_name(const struct synth_plan *p, int shard, char out[48])
{
    if (p->n_shards == 1) snprintf(out, 48, "model.safetensors");
    else snprintf(out, 48, "model-%05d-of-%05d.safetensors", shard + 1, p->n_shards);
}

struct place {
    const char *name;
    int shard;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->name, ((const struct place *)b)->name);
}

void synth_index(const struct synth_plan *p, const char *const *more, int n_more, int64_t more_bytes, struct buf *out)
{
    int n = p->n_tensors + n_more;
    struct place *places = mem_new(sizeof *places * (size_t)n);
    for (int i = 0; i < p->n_tensors; i++) places[i] = (struct place){p->tensors[i].name, p->tensors[i].shard};
    for (int i = 0; i < n_more; i++) places[p->n_tensors + i] = (struct place){more[i], 0};
    qsort(places, (size_t)n, sizeof *places, by_name);
    struct json *top = json_new_object(), *meta = json_new_object(), *map = json_new_object();
    json_put(meta, "total_size", json_new_int(p->bytes + more_bytes));
    for (int i = 0; i < n; i++) {
        char file[48];
        synth_shard_name(p, places[i].shard, file);
        json_put(map, places[i].name, json_new_string(file));
    }
    json_put(top, "metadata", meta);
    json_put(top, "weight_map", map);
    json_write(top, 4, out);
    json_free(top);
    free(places);
}

/* Kinds apart, so that the compiler makes vector code of each loop. */
void synth_fill(const struct synth_rule *rule, uint32_t first, uint32_t *out, size_t n)
{
    struct synth_rule r = *rule;
    if (r.kind == SYNTH_CODES)
        for (size_t i = 0; i < n; i++) out[i] = synth_hash(&r, first + (uint32_t)i);
    else
        for (size_t i = 0; i < n; i++) out[i] = synth_word(&r, first + (uint32_t)i);
}
