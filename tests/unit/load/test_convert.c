/* Conversion to the MLX layout: names, halves of fused experts, norms, types, files, and what is refused. */
#include "unit/testing.h"

#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "json/json.h"
#include "load/checkpoint.h"
#include "load/convert.h"
#include "load/safetensors.h"
#include "spec/family.h"
#include "support/minickpt.h"

static struct lily_err err;

static void make_plain(struct mini *m)
{
    mini_make(m, (struct mini_options){.plain = true});
    mini_config(m, "\"quantization\":", "\"unused\":");
}

static void rename_tensor(struct mini_tensor *t, const char *from, const char *to)
{
    char *name = mini_replace(t->name, from, to);
    snprintf(t->name, sizeof t->name, "%s", name);
    free(name);
}

/* Expert by expert: the rows of gate, then those of up. */
static void fuse_experts(struct mini *m, int layer)
{
    char name[96];
    snprintf(name, sizeof name, "layers.%d.mlp.switch_mlp.gate_proj.weight", layer);
    int64_t dim[3];
    memcpy(dim, mini_find(m, name)->dim, sizeof dim);
    dim[1] *= 2;
    snprintf(name, sizeof name, "model.language_model.layers.%d.mlp.experts.gate_up_proj", layer);
    mini_add(m, name, DTYPE_BF16, dim, 3);
    for (int half = 0; half < 2; half++) {
        struct mini_tensor *fused = mini_find(m, name);
        char part[96];
        snprintf(part, sizeof part, "layers.%d.mlp.switch_mlp.%s.weight", layer, half ? "up_proj" : "gate_proj");
        struct mini_tensor *t = mini_find(m, part);
        size_t bytes = t->bytes / (size_t)t->dim[0];
        for (int64_t e = 0; e < t->dim[0]; e++)
            memcpy(fused->data + (size_t)(2 * e + half) * bytes, t->data + (size_t)e * bytes, bytes);
        mini_drop(m, part);
    }
}

/* The same numbers as make_plain's in Hugging Face form, where norms then mean w+1. */
static void make_hf(struct mini *m)
{
    make_plain(m);
    for (int layer = 0; layer < 2; layer++) fuse_experts(m, layer);
    for (int i = 0; i < m->n_tensors; i++) {
        struct mini_tensor *t = &m->tensors[i];
        if (strstr(t->name, "language_model.model.")) rename_tensor(t, "language_model.model.", "model.language_model.");
        else if (strstr(t->name, "language_model.lm_head")) rename_tensor(t, "language_model.lm_head", "lm_head");
        if (strstr(t->name, "switch_mlp.down_proj")) rename_tensor(t, "switch_mlp.down_proj.weight", "experts.down_proj");
        if (strstr(t->name, "conv1d")) t->dim[1] = 1, t->dim[2] = 4;
    }
    mini_add(m, "model.visual.blocks.0.norm1.weight", DTYPE_BF16, (int64_t[]){8}, 1);
}

struct converted {
    char *src, *dst; /* owned */
    struct model_config config;
    struct checkpoint *c;
    struct convert_result result;
};

static lily_status convert(struct converted *k, const struct mini *m, int n_shards, enum quant_rounding rounding)
{
    struct convert_options o = {.rounding = rounding, .threads = 3};
    k->src = mini_dir();
    k->dst = mini_dir();
    mini_write(m, k->src, n_shards);
    return convert_checkpoint(k->src, k->dst, &o, &k->result, &err);
}

static void open_converted(struct converted *k)
{
    assert_ok(config_load(k->dst, &k->config, &err));
    assert_ok(checkpoint_open(k->dst, &k->config, &k->c, &err));
    assert_ok(checkpoint_check(k->c, &k->config, &err));
}

static void drop(struct converted *k)
{
    checkpoint_close(k->c);
    config_free(&k->config);
    mini_remove(k->src);
    mini_remove(k->dst);
    memset(k, 0, sizeof *k);
}

static struct tensor_view get(const struct converted *k, const char *name)
{
    struct tensor_view t;
    assert_ok(checkpoint_tensor(k->c, name, &t, &err));
    return t;
}

/* A module's three tensors against the quantizer's own word on the plain numbers. */
static void check_module(const struct converted *k, struct mini *plain, const char *path, int bits)
{
    char name[128];
    snprintf(name, sizeof name, "%s.weight", path);
    const struct mini_tensor *t = mini_find(plain, name);
    size_t n = t->bytes / 2 / QUANT_GROUP, code_bytes = n * QUANT_GROUP * (size_t)bits / 8;
    struct quant_form form = {DTYPE_BF16, bits, ROUNDING_GPU};
    struct quant_groups g = {t->data, n, malloc(code_bytes), malloc(2 * n), malloc(2 * n)};
    assert_true(quantize_groups(&form, &g));
    struct tensor_view weight = get(k, name);
    assert_int_equal(weight.bytes, code_bytes);
    assert_memory_equal(weight.data, g.codes, code_bytes);
    snprintf(name, sizeof name, "%s.scales", path);
    assert_memory_equal(get(k, name).data, g.scales, 2 * n);
    snprintf(name, sizeof name, "%s.biases", path);
    assert_memory_equal(get(k, name).data, g.biases, 2 * n);
    free(g.codes);
    free(g.scales);
    free(g.biases);
}

static void check_vector(const struct converted *k, struct mini *plain, const char *name, float add)
{
    const struct mini_tensor *t = mini_find(plain, name);
    struct tensor_view v = get(k, name);
    assert_int_equal(v.bytes, t->bytes);
    for (size_t i = 0; i < t->bytes / 2; i++)
        assert_int_equal(load_u16(v.data + 2 * i), bf16_from_f32(bf16_to_f32(load_u16(t->data + 2 * i)) + add));
}

static void test_hugging_face_form(void **state)
{
    (void)state;
    struct mini plain, hf;
    struct converted k = {0};
    make_plain(&plain);
    make_hf(&hf);
    assert_ok(convert(&k, &hf, 3, ROUNDING_GPU));
    open_converted(&k);
    static const char *const four[] = {"model.embed_tokens", "lm_head", "model.layers.0.linear_attn.in_proj_qkv",
                                       "model.layers.0.linear_attn.in_proj_a", "model.layers.1.self_attn.q_proj",
                                       "model.layers.0.mlp.switch_mlp.gate_proj", "model.layers.1.mlp.switch_mlp.up_proj",
                                       "model.layers.1.mlp.switch_mlp.down_proj", "model.layers.1.mlp.shared_expert.up_proj"};
    for (size_t i = 0; i < sizeof four / sizeof four[0]; i++) {
        check_module(&k, &plain, four[i], 4);
        assert_int_equal(config_quant_rule(&k.config, four[i]).bits, 4);
    }
    static const char *const eight[] = {"model.layers.0.mlp.gate", "model.layers.1.mlp.shared_expert_gate"};
    for (size_t i = 0; i < 2; i++) {
        check_module(&k, &plain, eight[i], 8);
        assert_int_equal(config_quant_rule(&k.config, eight[i]).bits, 8);
    }
    static const char *const shifted[] = {"model.norm.weight", "model.layers.0.input_layernorm.weight",
                                          "model.layers.1.post_attention_layernorm.weight", "model.layers.1.self_attn.q_norm.weight",
                                          "model.layers.1.self_attn.k_norm.weight"};
    for (size_t i = 0; i < 5; i++) check_vector(&k, &plain, shifted[i], 1.0f);
    static const char *const kept[] = {"model.layers.0.linear_attn.norm.weight", "model.layers.0.linear_attn.conv1d.weight",
                                       "model.layers.0.linear_attn.A_log", "model.layers.0.linear_attn.dt_bias"};
    for (size_t i = 0; i < 4; i++) check_vector(&k, &plain, kept[i], 0.0f);
    assert_int_equal(get(&k, kept[1]).dim[1], 4);
    assert_int_equal(get(&k, kept[1]).dim[2], 1);
    assert_int_equal(k.result.n_tensors, checkpoint_n_tensors(k.c));
    assert_int_equal(k.result.bytes_out, checkpoint_text_bytes(k.c));
    drop(&k);
    mini_free(&plain);
    mini_free(&hf);
}

/* MLX names without quantization: norms are what they are used as. */
static void test_mlx_form(void **state)
{
    (void)state;
    struct mini plain;
    struct converted k = {0};
    make_plain(&plain);
    assert_ok(convert(&k, &plain, 1, ROUNDING_CPU));
    open_converted(&k);
    check_vector(&k, &plain, "model.norm.weight", 0.0f);
    drop(&k);
    mini_free(&plain);
}

/* F32 sources are cast first; A_log keeps its type. */
static void test_f32(void **state)
{
    (void)state;
    struct mini plain, wide;
    struct converted k = {0};
    make_plain(&plain);
    make_hf(&wide);
    for (int i = 0; i < wide.n_tensors; i++) {
        struct mini_tensor *t = &wide.tensors[i];
        uint8_t *data = malloc(2 * t->bytes);
        for (size_t j = 0; j < t->bytes / 2; j++) {
            memset(data + 4 * j, 0, 2);
            memcpy(data + 4 * j + 2, t->data + 2 * j, 2);
        }
        free(t->data);
        t->data = data;
        t->bytes *= 2;
        t->dtype = DTYPE_F32;
    }
    assert_ok(convert(&k, &wide, 1, ROUNDING_GPU));
    open_converted(&k);
    check_module(&k, &plain, "model.layers.0.mlp.switch_mlp.up_proj", 4);
    check_vector(&k, &plain, "model.norm.weight", 1.0f);
    assert_int_equal(get(&k, "model.layers.0.linear_attn.A_log").dtype, DTYPE_F32);
    drop(&k);
    mini_free(&plain);
    mini_free(&wide);
}

static void add_mtp(struct mini *m)
{
    static const struct {
        const char *name;
        int n_dims;
        int64_t dim[3];
    } tensors[] = {
        {"mtp.fc.weight", 2, {64, 128}},
        {"mtp.pre_fc_norm_embedding.weight", 1, {64}},
        {"mtp.pre_fc_norm_hidden.weight", 1, {64}},
        {"mtp.norm.weight", 1, {64}},
        {"mtp.layers.0.input_layernorm.weight", 1, {64}},
        {"mtp.layers.0.post_attention_layernorm.weight", 1, {64}},
        {"mtp.layers.0.self_attn.q_proj.weight", 2, {512, 64}},
        {"mtp.layers.0.self_attn.k_proj.weight", 2, {256, 64}},
        {"mtp.layers.0.self_attn.v_proj.weight", 2, {256, 64}},
        {"mtp.layers.0.self_attn.o_proj.weight", 2, {64, 256}},
        {"mtp.layers.0.self_attn.q_norm.weight", 1, {256}},
        {"mtp.layers.0.self_attn.k_norm.weight", 1, {256}},
        {"mtp.layers.0.mlp.gate.weight", 2, {8, 64}},
        {"mtp.layers.0.mlp.experts.gate_up_proj", 3, {8, 128, 64}},
        {"mtp.layers.0.mlp.experts.down_proj", 3, {8, 64, 64}},
        {"mtp.layers.0.mlp.shared_expert.gate_proj.weight", 2, {64, 64}},
        {"mtp.layers.0.mlp.shared_expert.up_proj.weight", 2, {64, 64}},
        {"mtp.layers.0.mlp.shared_expert.down_proj.weight", 2, {64, 64}},
        {"mtp.layers.0.mlp.shared_expert_gate.weight", 2, {1, 64}},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        mini_add(m, tensors[i].name, DTYPE_BF16, tensors[i].dim, tensors[i].n_dims);
}

static void test_mtp(void **state)
{
    (void)state;
    struct mini hf;
    struct converted k = {0};
    struct file_map map;
    struct safetensors side;
    make_hf(&hf);
    add_mtp(&hf);
    assert_ok(convert(&k, &hf, 2, ROUNDING_GPU));
    open_converted(&k);
    assert_int_equal(k.result.n_mtp, 46);
    char path[256];
    snprintf(path, sizeof path, "%s/mtp.safetensors", k.dst);
    assert_ok(file_map_open(path, &map, &err));
    assert_ok(safetensors_parse_header(map.data, map.size, path, &side, &err));
    assert_int_equal(side.n_tensors, k.result.n_mtp);
    const struct tensor_view *up = safetensors_find(&side, "mtp.layers.0.mlp.switch_mlp.up_proj.weight");
    const struct tensor_view *router = safetensors_find(&side, "mtp.layers.0.mlp.gate.weight");
    const struct tensor_view *norm = safetensors_find(&side, "mtp.norm.weight");
    assert_non_null(up);
    assert_non_null(router);
    assert_non_null(norm);
    assert_int_equal(up->dim[1], 64);
    assert_int_equal(router->dim[1], 8); /* 4 bits */
    const struct mini_tensor *t = mini_find(&hf, "mtp.norm.weight");
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(load_u16(norm->data + 2 * i), bf16_from_f32(bf16_to_f32(load_u16(t->data + 2 * i)) + 1.0f));
    safetensors_free(&side);
    file_map_close(&map);
    drop(&k);
    mini_free(&hf);
}

static void refused(struct mini *m, const char *why)
{
    struct converted k = {0};
    assert_int_not_equal(convert(&k, m, 1, ROUNDING_GPU), LILY_OK);
    if (!strstr(err.msg, why)) fail_msg("\"%s\" does not have \"%s\"", err.msg, why);
    char path[256];
    static const char *const names[] = {"config.json", "model.safetensors", "model.safetensors.index.json", "mtp.safetensors"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", k.dst, names[i]);
        assert_false(file_exists(path));
    }
    drop(&k);
    mini_free(m);
}

static void test_refused(void **state)
{
    (void)state;
    struct mini m;
    mini_make(&m, (struct mini_options){0});
    refused(&m, "quantized already");
    make_hf(&m);
    mini_drop(&m, "layers.1.self_attn.o_proj.weight");
    refused(&m, "self_attn.o_proj.weight is missing");
    make_hf(&m);
    mini_find(&m, "layers.1.mlp.experts.gate_up_proj")->dim[1] /= 2;
    mini_find(&m, "layers.1.mlp.experts.gate_up_proj")->bytes /= 2;
    refused(&m, "shape [8, 64, 64], expected [8, 128, 64]");
    make_hf(&m);
    mini_add(&m, "model.language_model.layers.0.mlp.extra.weight", DTYPE_BF16, (int64_t[]){64}, 1);
    refused(&m, "mlp.extra.weight is no part");
    make_hf(&m);
    memcpy(mini_find(&m, "layers.1.mlp.experts.down_proj")->data + 4000, "\x80\x7f", 2);
    refused(&m, "experts.down_proj has a weight that is infinite");
    make_hf(&m);
    add_mtp(&m);
    mini_drop(&m, "mtp.fc.weight");
    refused(&m, "mtp.fc.weight is missing");
}

/* Nothing is written over. */
static void test_taken(void **state)
{
    (void)state;
    struct mini m;
    struct converted k = {0};
    struct convert_options o = {.threads = 1};
    make_hf(&m);
    assert_ok(convert(&k, &m, 1, ROUNDING_GPU));
    assert_int_equal(convert_checkpoint(k.src, k.dst, &o, &k.result, &err), LILY_ERR_USAGE);
    open_converted(&k);
    drop(&k);
    mini_free(&m);
}

/* A cancelled conversion leaves nothing. */
static void test_cancelled(void **state)
{
    (void)state;
    struct mini m;
    atomic_bool cancel = true;
    struct converted k = {.src = mini_dir(), .dst = mini_dir()};
    struct convert_options o = {.threads = 1, .cancel = &cancel};
    make_hf(&m);
    mini_write(&m, k.src, 1);
    assert_int_equal(convert_checkpoint(k.src, k.dst, &o, &k.result, &err), LILY_ERR_CANCELLED);
    assert_int_equal(rmdir(k.dst), 0);
    free(k.dst);
    k.dst = mini_dir();
    drop(&k);
    mini_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hugging_face_form), cmocka_unit_test(test_mlx_form),
                                       cmocka_unit_test(test_f32), cmocka_unit_test(test_mtp), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_taken), cmocka_unit_test(test_cancelled)};
    return RUN_TESTS(tests);
}
