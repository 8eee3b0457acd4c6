/* config.json and generation_config.json: checked against the family, turned into plain values. */
#include "load/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "json/json.h"
#include "load/quant.h"

/* Where fields are looked up: the text part (text_config, or the root of a flat file), and the root itself. */
struct source {
    const struct json *root, *text;
    const char *what;  /* the file, for messages about the root */
    char in_text[512]; /* the file and the part, for messages about the text part */
};

static bool is_null(const struct json *v)
{
    return !v || json_kind(v) == JSON_NULL;
}

static const char *text_or_kind(const struct json *v)
{
    return !v ? "missing" : json_kind(v) == JSON_STRING ? json_string(v) : json_kind_name(v);
}

static struct json_field text_field(const struct source *s, const char *key)
{
    return (struct json_field){s->text, s->in_text, key};
}

/* The model type decides first, so that another architecture is named as such and not by a key that it lacks. */
static lily_status read_model_type(struct source *s, struct model_config *out, struct lily_err *err)
{
    const struct json *type = json_get(s->root, "model_type"), *text = json_get(s->root, "text_config");
    const char *name = text_or_kind(type);
    if (strcmp(name, "qwen3_5_moe") != 0 && strcmp(name, "qwen3_5_moe_text") != 0) {
        err_set(err, LILY_ERR_UNSUPPORTED, "%s: model_type is \"%.60s\", expected \"qwen3_5_moe\"", s->what, name);
        err_hint(err, "lily runs Qwen3.6-35B-A3B and models of its shape, such as Qwen3.5-35B-A3B, and no others; lily pull fetches it");
        return LILY_ERR_UNSUPPORTED;
    }
    snprintf(out->model_type, sizeof out->model_type, "%s", name);
    if (!is_null(text) && json_kind(text) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: text_config is %s, expected an object", s->what, json_kind_name(text));
    s->text = is_null(text) ? s->root : text;
    snprintf(s->in_text, sizeof s->in_text, "%.480s%s", s->what, s->text == s->root ? "" : ": text_config");
    const struct json *inner = json_get(s->text, "model_type");
    if (inner && strcmp(text_or_kind(inner), "qwen3_5_moe_text") != 0 && strcmp(text_or_kind(inner), "qwen3_5_moe") != 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: model_type is \"%.60s\", expected \"qwen3_5_moe_text\"", s->in_text,
                  text_or_kind(inner));
    return LILY_OK;
}

/* Outer sizes: each must be there, in range, and a multiple of `step`. */
static const struct size_key {
    const char *key;
    int lo, hi, step;
    size_t offset; /* of an int in struct model_shape */
} size_keys[] = {
    {"hidden_size", 64, 16384, 64, offsetof(struct model_shape, hidden)},
    {"num_hidden_layers", 1, MAX_LAYERS, 1, offsetof(struct model_shape, n_layers)},
    {"vocab_size", 2, 1 << 20, 1, offsetof(struct model_shape, vocab)},
    {"num_attention_heads", 1, 256, 1, offsetof(struct model_shape, n_q_heads)},
    {"num_key_value_heads", 1, 256, 1, offsetof(struct model_shape, n_kv_heads)},
    {"linear_num_key_heads", 1, 256, 1, offsetof(struct model_shape, n_gdn_k_heads)},
    {"linear_num_value_heads", 1, 256, 1, offsetof(struct model_shape, n_gdn_v_heads)},
    {"num_experts", EXPERTS_PER_TOKEN, MAX_EXPERTS, 1, offsetof(struct model_shape, n_experts)},
    {"moe_intermediate_size", 64, 16384, 64, offsetof(struct model_shape, expert_dim)},
    {"shared_expert_intermediate_size", 64, 16384, 64, offsetof(struct model_shape, shared_dim)},
    {"max_position_embeddings", GRID, 1 << 24, 1, offsetof(struct model_shape, max_positions)},
};

static lily_status read_sizes(const struct source *s, struct model_shape *shape, struct lily_err *err)
{
    for (size_t i = 0; i < sizeof size_keys / sizeof size_keys[0]; i++) {
        const struct size_key *k = &size_keys[i];
        int64_t v = -1;
        LILY_TRY(json_get_int(text_field(s, k->key), k->lo, k->hi, &v, err));
        if (v < 0)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %s is missing, expected %d to %d", s->in_text, k->key, k->lo, k->hi);
        if (v % k->step)
            LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s is %" PRId64 ", expected a multiple of %d", s->in_text, k->key, v,
                      k->step);
        memcpy((char *)shape + k->offset, &(int){(int)v}, sizeof(int));
    }
    if (shape->n_q_heads % shape->n_kv_heads)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: num_attention_heads is %d, expected a multiple of num_key_value_heads %d",
                  s->in_text, shape->n_q_heads, shape->n_kv_heads);
    if (shape->n_gdn_v_heads % shape->n_gdn_k_heads)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: linear_num_value_heads is %d, expected a multiple of linear_num_key_heads %d",
                  s->in_text, shape->n_gdn_v_heads, shape->n_gdn_k_heads);
    return LILY_OK;
}

/* Constants of the family: may be absent, but never other than these. */
static lily_status check_constants(const struct source *s, struct lily_err *err)
{
    static const struct {
        const char *key;
        int value;
    } ints[] = {
        {"head_dim", HEAD_DIM},
        {"linear_key_head_dim", GDN_DIM},
        {"linear_value_head_dim", GDN_DIM},
        {"linear_conv_kernel_dim", CONV_WIDTH},
        {"num_experts_per_tok", EXPERTS_PER_TOKEN},
        {"decoder_sparse_step", 1},
    };
    static const struct {
        const char *key;
        bool value;
    } bools[] = {
        {"attn_output_gate", true},     {"attention_bias", false},     {"tie_word_embeddings", false},
        {"norm_topk_prob", true},       {"use_sliding_window", false},
    };
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        int64_t v = ints[i].value;
        LILY_TRY(json_get_int(text_field(s, ints[i].key), INT64_MIN, INT64_MAX, &v, err));
        if (v != ints[i].value)
            LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s is %" PRId64 ", expected %d", s->in_text, ints[i].key, v,
                      ints[i].value);
    }
    for (size_t i = 0; i < sizeof bools / sizeof bools[0]; i++) {
        bool v = bools[i].value;
        LILY_TRY(json_get_bool(text_field(s, bools[i].key), &v, err));
        /* The wrapper may say it, too (tie_word_embeddings does). */
        if (v == bools[i].value) LILY_TRY(json_get_bool((struct json_field){s->root, s->what, bools[i].key}, &v, err));
        if (v != bools[i].value)
            LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s is %s, expected %s", s->in_text, bools[i].key, v ? "true" : "false",
                      v ? "false" : "true");
    }
    const char *act = "silu";
    LILY_TRY(json_get_string(text_field(s, "hidden_act"), &act, err));
    if (strcmp(act, "silu") != 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: hidden_act is \"%.60s\", expected \"silu\"", s->in_text, act);
    const struct json *dense = json_get(s->text, "mlp_only_layers");
    if (!is_null(dense) && (json_kind(dense) != JSON_ARRAY || json_size(dense) != 0))
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: mlp_only_layers is not empty, expected [] (every layer has experts)",
                  s->in_text);
    return LILY_OK;
}

static lily_status check_rotary_share(struct json_field f, struct lily_err *err)
{
    const double want = (double)ROTARY_DIM / HEAD_DIM;
    double v = want;
    LILY_TRY(json_get_double(f, -HUGE_VAL, HUGE_VAL, &v, err));
    if (v != want)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s is %g, expected %g", f.what, f.key, v, want);
    return LILY_OK;
}

/* rope_parameters (or rope_scaling of older files) wins over flat keys. */
static lily_status read_rope(const struct source *s, struct model_shape *shape, struct lily_err *err)
{
    const char *key = "rope_parameters";
    const struct json *rope = json_get(s->text, key);
    if (is_null(rope)) {
        key = "rope_scaling";
        rope = json_get(s->text, key);
    }
    shape->rope_theta = 0;
    LILY_TRY(json_get_double(text_field(s, "rope_theta"), 1, 1e15, &shape->rope_theta, err));
    LILY_TRY(check_rotary_share(text_field(s, "partial_rotary_factor"), err));
    if (!is_null(rope)) {
        char what[560];
        snprintf(what, sizeof what, "%s.%s", s->in_text, key);
        if (json_kind(rope) != JSON_OBJECT)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s is %s, expected an object", what, json_kind_name(rope));
        static const char *const type_keys[] = {"rope_type", "type"};
        for (int i = 0; i < 2; i++) {
            const char *type = "default";
            LILY_TRY(json_get_string((struct json_field){rope, what, type_keys[i]}, &type, err));
            if (strcmp(type, "default") == 0) continue;
            err_set(err, LILY_ERR_UNSUPPORTED, "%s: %s is \"%.40s\", expected \"default\"", what, type_keys[i], type);
            err_hint(err, "context extension (YaRN and others) is not supported; with \"default\" the model runs its "
                          "native %d positions", shape->max_positions);
            return LILY_ERR_UNSUPPORTED;
        }
        LILY_TRY(json_get_double((struct json_field){rope, what, "rope_theta"}, 1, 1e15, &shape->rope_theta, err));
        LILY_TRY(check_rotary_share((struct json_field){rope, what, "partial_rotary_factor"}, err));
    }
    if (shape->rope_theta == 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: rope_parameters.rope_theta is missing", s->in_text);
    return LILY_OK;
}

static lily_status read_layer_types(const struct source *s, const struct json *types, struct model_shape *shape,
                                    struct lily_err *err)
{
    if (json_kind(types) != JSON_ARRAY || json_size(types) != (size_t)shape->n_layers)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: layer_types has %zu entries, expected an array of num_hidden_layers %d",
                  s->in_text, json_kind(types) == JSON_ARRAY ? json_size(types) : 0, shape->n_layers);
    for (int i = 0; i < shape->n_layers; i++) {
        const char *type = text_or_kind(json_at(types, (size_t)i));
        shape->is_full[i] = strcmp(type, "full_attention") == 0;
        if (!shape->is_full[i] && strcmp(type, "linear_attention") != 0)
            LILY_FAIL(err, LILY_ERR_UNSUPPORTED,
                      "%s: layer_types[%d] is \"%.40s\", expected \"linear_attention\" or \"full_attention\"", s->in_text, i,
                      type);
    }
    return LILY_OK;
}

static lily_status read_layers(const struct source *s, struct model_shape *shape, struct lily_err *err)
{
    const struct json *types = json_get(s->text, "layer_types");
    int64_t interval = 0;
    LILY_TRY(json_get_int(text_field(s, "full_attention_interval"), 1, MAX_LAYERS, &interval, err));
    if (is_null(types) && interval == 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: layer_types and full_attention_interval are missing, expected one of them",
                  s->in_text);
    if (!is_null(types)) LILY_TRY(read_layer_types(s, types, shape, err));
    for (int i = 0; i < shape->n_layers; i++) {
        bool full = interval ? (i + 1) % interval == 0 : shape->is_full[i];
        if (is_null(types)) shape->is_full[i] = full;
        /* Other engines read one or the other: a file in which they differ has no single meaning. */
        if (shape->is_full[i] != full)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: layer_types[%d] contradicts full_attention_interval %" PRId64, s->in_text, i,
                      interval);
        shape->n_full += full;
    }
    shape->n_linear = shape->n_layers - shape->n_full;
    if (shape->n_full == 0 || shape->n_linear == 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %d full and %d linear attention layers, expected at least one of each",
                  s->in_text, shape->n_full, shape->n_linear);
    return LILY_OK;
}

/* eos_token_id: a number or an array of numbers; absent or null leaves what is there. */
static lily_status read_eos(struct json_field f, struct model_config *c, struct lily_err *err)
{
    const struct json *v = json_get(f.object, f.key);
    if (is_null(v)) return LILY_OK;
    size_t n = json_kind(v) == JSON_ARRAY ? json_size(v) : 1;
    c->n_eos = 0;
    for (size_t i = 0; i < n; i++) {
        const struct json *id = json_kind(v) == JSON_ARRAY ? json_at(v, i) : v;
        if (json_kind(id) != JSON_INTEGER || json_int(id) < 0 || json_int(id) >= c->shape.vocab)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %s is no token id, expected an integer (or a list of them) below vocab_size %d",
                      f.what, f.key, c->shape.vocab);
        bool known = false;
        for (int k = 0; k < c->n_eos; k++) known |= c->eos[k] == json_int(id);
        if (known) continue;
        if (c->n_eos == MAX_EOS)
            LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s has more than %d different ids", f.what, f.key, MAX_EOS);
        c->eos[c->n_eos++] = (int32_t)json_int(id);
    }
    return LILY_OK;
}

static lily_status read_all(const struct json *root, const char *what, struct model_config *out, struct lily_err *err)
{
    struct source s = {.root = root, .what = what};
    if (json_kind(root) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: the file holds %s, expected an object", what, json_kind_name(root));
    LILY_TRY(read_model_type(&s, out, err));
    LILY_TRY(read_sizes(&s, &out->shape, err));
    LILY_TRY(check_constants(&s, err));
    LILY_TRY(read_rope(&s, &out->shape, err));
    LILY_TRY(read_layers(&s, &out->shape, err));
    double eps = 1e-6;
    LILY_TRY(json_get_double(text_field(&s, "rms_norm_eps"), 1e-12, 1e-2, &eps, err));
    out->shape.rms_eps = (float)eps;
    int64_t mtp = 0;
    LILY_TRY(json_get_int(text_field(&s, "mtp_num_hidden_layers"), 0, 16, &mtp, err));
    out->n_mtp_layers = (int)mtp;
    LILY_TRY(read_eos(text_field(&s, "eos_token_id"), out, err));
    LILY_TRY(read_eos((struct json_field){root, what, "eos_token_id"}, out, err));
    return quant_parse(root, what, out, err);
}

lily_status config_parse(const char *text, size_t n, const char *what, struct model_config *out, struct lily_err *err)
{
    *out = (struct model_config){.temperature = 1.0, .top_p = 0.95, .top_k = 20};
    struct json *root = NULL;
    LILY_TRY(json_parse_read(text, n, what, &root, err));
    lily_status st = read_all(root, what, out, err);
    json_free(root);
    if (st != LILY_OK) config_free(out);
    return st;
}

static lily_status read_generation(const struct json *root, const char *what, struct model_config *c,
                                   struct lily_err *err)
{
    if (json_kind(root) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: the file holds %s, expected an object", what, json_kind_name(root));
    LILY_TRY(read_eos((struct json_field){root, what, "eos_token_id"}, c, err));
    LILY_TRY(json_get_double((struct json_field){root, what, "temperature"}, 0, 100, &c->temperature, err));
    LILY_TRY(json_get_double((struct json_field){root, what, "top_p"}, 0, 1, &c->top_p, err));
    int64_t top_k = c->top_k;
    LILY_TRY(json_get_int((struct json_field){root, what, "top_k"}, 0, INT32_MAX, &top_k, err));
    c->top_k = (int)top_k;
    int64_t most = 0;
    LILY_TRY(json_get_int((struct json_field){root, what, "max_new_tokens"}, 0, INT32_MAX, &most, err));
    c->max_new_tokens = (int)most;
    bool sample = true;
    LILY_TRY(json_get_bool((struct json_field){root, what, "do_sample"}, &sample, err));
    if (!sample) c->temperature = 0;
    return LILY_OK;
}

lily_status config_parse_generation(const char *text, size_t n, const char *what, struct model_config *c,
                                    struct lily_err *err)
{
    struct json *root = NULL;
    LILY_TRY(json_parse_read(text, n, what, &root, err));
    lily_status st = read_generation(root, what, c, err);
    json_free(root);
    return st;
}

lily_status config_load(const char *dir, struct model_config *out, struct lily_err *err)
{
    struct buf path = {0}, text = {0};
    *out = (struct model_config){0};
    file_join(&path, dir, "config.json");
    lily_status st = file_read(path.data, MAX_CONFIG_BYTES, &text, err);
    if (st != LILY_OK && !file_is_dir(dir))
        st = err_set(err, st, file_exists(dir) ? "%s: is a file, expected a model folder" : "%s: there is no such folder", dir);
    if (st != LILY_OK && !file_exists(path.data))
        err_hint(err, "a model folder holds config.json, tokenizer.json and *.safetensors; lily pull fetches one by its name");
    if (st == LILY_OK) st = config_parse(buf_str(&text), text.len, path.data, out, err);
    file_join(&path, dir, "generation_config.json");
    if (st == LILY_OK && file_exists(path.data)) {
        buf_clear(&text);
        st = file_read(path.data, MAX_CONFIG_BYTES, &text, err);
        if (st == LILY_OK) st = config_parse_generation(buf_str(&text), text.len, path.data, out, err);
    }
    if (st != LILY_OK) config_free(out);
    buf_free(&path);
    buf_free(&text);
    return st;
}

void config_free(struct model_config *c)
{
    for (int i = 0; i < c->n_overrides; i++) free(c->overrides[i].path);
    free(c->overrides);
    *c = (struct model_config){0};
}
