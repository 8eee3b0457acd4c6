/* Checkpoint folders: the tiny models, shards, names, layouts that are refused, and dequantization. */
#include "../testing.h"

#include <sys/stat.h>
#include <unistd.h>

#include "../../support/minickpt.h"
#include "base/file.h"
#include "base/num.h"
#include "load/checkpoint.h"
#include "load/inventory.h"
#include "load/safetensors.h"

struct loaded {
    struct model_config config;
    struct checkpoint *c;
};

/* config, open, check; err.msg tells the first failure. On failure nothing is left open. */
static lily_status load(const char *dir, struct loaded *l, struct lily_err *err)
{
    *l = (struct loaded){0};
    LILY_TRY(config_load(dir, &l->config, err));
    lily_status st = checkpoint_open(dir, &l->config, &l->c, err);
    if (st == LILY_OK) st = checkpoint_check(l->c, &l->config, err);
    if (st != LILY_OK) {
        checkpoint_close(l->c);
        config_free(&l->config);
    }
    return st;
}

static void unload(struct loaded *l)
{
    checkpoint_close(l->c);
    config_free(&l->config);
}

/* Writes the mini checkpoint and loads it; the folder is gone when this returns, the mapping is not. */
static lily_status load_mini(const struct mini *m, int shards, struct loaded *l, struct lily_err *err)
{
    char *dir = mini_dir();
    mini_write(m, dir, shards);
    lily_status st = load(dir, l, err);
    mini_remove(dir);
    return st;
}

static void tiny_models_load(void **state)
{
    (void)state;
    static const struct {
        const char *dir;
        int n;
        size_t bytes;
    } models[] = {{"tests/data/tiny-mlx", 182, 2730768}, {"tests/data/tiny", 182, 0}};
    for (int i = 0; i < 2; i++) {
        struct lily_err err;
        struct loaded l;
        assert_ok(load(models[i].dir, &l, &err));
        assert_int_equal(checkpoint_n_tensors(l.c), models[i].n);
        if (models[i].bytes) assert_int_equal(checkpoint_text_bytes(l.c), models[i].bytes);
        struct inventory_sum sum = inventory_sum(&l.config);
        assert_int_equal(sum.n_tensors, models[i].n);
        if (models[i].bytes) assert_int_equal(sum.bytes, models[i].bytes);
        struct module_view m;
        struct module_want want = {"model.layers.0.mlp.gate", 0, l.config.shape.n_experts, l.config.shape.hidden};
        assert_ok(checkpoint_module(l.c, &want, &m, &err));
        assert_int_equal(m.bits, 8);
        want = (struct module_want){"model.layers.3.mlp.switch_mlp.down_proj", l.config.shape.n_experts,
                                    l.config.shape.hidden, l.config.shape.expert_dim};
        assert_ok(checkpoint_module(l.c, &want, &m, &err));
        assert_int_equal(m.bits, 4);
        assert_int_equal(m.n_experts, 16);
        unload(&l);
    }
}

/* The rule is applied here once more, word by word: lowest bits first. */
static void elements_follow_the_packing_rule(void **state)
{
    (void)state;
    struct lily_err err;
    struct loaded l;
    struct module_view m;
    float row[128];
    assert_ok(load("tests/data/tiny-mlx", &l, &err));
    const struct module_want wants[] = {{"model.layers.1.mlp.gate", 0, 16, 128},
                                        {"model.layers.2.mlp.switch_mlp.up_proj", 16, 128, 128},
                                        {"lm_head", 0, 512, 128}};
    for (int k = 0; k < 3; k++) {
        assert_ok(checkpoint_module(l.c, &wants[k], &m, &err));
        int per = 32 / m.bits, expert = m.n_experts - 1, r = m.rows - 3;
        size_t line = (size_t)expert * (size_t)m.rows + (size_t)r;
        module_row(&m, expert, r, row);
        for (int i = 0; i < 128; i++) {
            uint32_t word = load_u32(m.weight.data + 4 * (line * (size_t)(128 / per) + (size_t)(i / per)));
            uint32_t q = word >> m.bits * (i % per) & ((1u << m.bits) - 1);
            float s = bf16_to_f32(load_u16(m.scales.data + 2 * (line * 2 + (size_t)(i / 64))));
            float b = bf16_to_f32(load_u16(m.biases.data + 2 * (line * 2 + (size_t)(i / 64))));
            float want = s * (float)q + b;
            assert_memory_equal(&row[i], &want, sizeof want);
            float one = module_element(&m, expert, r, i);
            assert_memory_equal(&one, &want, sizeof want);
        }
    }
    unload(&l);
}

static void dequantizes_the_published_vector(void **state)
{
    (void)state;
    static const uint32_t words[] = {0xe81a4c6f, 0x5d7193c5, 0xa4d6092b, 0x1a3c6e82,
                                     0x7093b5d7, 0xc6e82a4d, 0x3b5e71a3, 0x82b4d709};
    uint8_t weight[33], scale[2] = {0x8a, 0xbd}, bias[2] = {0x2c, 0x3f};
    for (int i = 0; i < 32; i++) weight[1 + i] = (uint8_t)(words[i / 4] >> 8 * (i % 4));
    struct module_view m = {.n_experts = 1, .rows = 1, .cols = 64, .bits = 4};
    m.weight = (struct tensor_view){.dtype = DTYPE_U32, .data = weight + 1, .bytes = 32};
    m.scales = (struct tensor_view){.dtype = DTYPE_BF16, .data = scale, .bytes = 2};
    m.biases = (struct tensor_view){.dtype = DTYPE_BF16, .data = bias, .bytes = 2};
    float row[64];
    module_row(&m, 0, 0, row);
    static const float first[] = {-0.3388671875f, 0.267578125f, -0.13671875f, 0.40234375f};
    for (int i = 0; i < 4; i++) assert_true(row[i] == first[i] && module_element(&m, 0, 0, i) == first[i]);
    for (int i = 0; i < 64; i++) {
        float w = (float)((37 * i) % 64 - 20) / 64.0f;
        float off = row[i] - w;
        assert_true(off < 0.036f && off > -0.036f); /* half a step, and the rounding of scale and bias */
    }
}

static void shards_prefixes_and_types(void **state)
{
    (void)state;
    static const struct {
        struct mini_options o;
        int shards;
    } forms[] = {
        {{.prefix = ""}, 1}, {{.prefix = "language_model."}, 2}, {{.prefix = ""}, 7},
        {{.plain = true}, 1}, {{.f32_a_log = true}, 3},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct lily_err err;
        struct mini m;
        struct loaded l;
        mini_make(&m, forms[i].o);
        int n = m.n_tensors;
        mini_add(&m, "vision_tower.patch_embed.proj.weight", DTYPE_BF16, (const int64_t[]){2, 1, 2, 2, 3}, 5);
        mini_add(&m, "model.visual.pos_embed.weight", DTYPE_BF16, (const int64_t[]){2, 2}, 2);
        mini_add(&m, "mtp.fc.weight", DTYPE_U8, (const int64_t[]){3}, 1); /* moves what follows to an odd address */
        struct mini_tensor last = m.tensors[m.n_tensors - 1];
        memmove(m.tensors + 1, m.tensors, (size_t)(m.n_tensors - 1) * sizeof *m.tensors);
        m.tensors[0] = last;
        assert_ok(load_mini(&m, forms[i].shards, &l, &err));
        assert_int_equal(checkpoint_n_tensors(l.c), n);
        size_t bytes = 0;
        for (int k = 0; k < n; k++) {
            const char *name;
            struct tensor_view t = checkpoint_tensor_at(l.c, k, &name), same;
            assert_ok(checkpoint_tensor(l.c, name, &same, &err));
            assert_memory_equal(&t, &same, sizeof t);
            const struct mini_tensor *want = mini_find(&m, name);
            assert_int_equal(t.bytes, want->bytes);
            assert_memory_equal(t.data, want->data, t.bytes);
            bytes += t.bytes;
        }
        assert_int_equal(checkpoint_text_bytes(l.c), bytes);
        struct module_view v;
        assert_ok(checkpoint_module(l.c, &(struct module_want){"lm_head", 0, 64, 64}, &v, &err));
        assert_int_equal(v.bits, forms[i].o.plain ? 0 : 4);
        checkpoint_drop(l.c, &v); /* only a hint: the bytes read the same */
        assert_memory_equal(v.weight.data, mini_find(&m, "lm_head.weight")->data, v.weight.bytes);
        float a_log[1], conv[384 * 4];
        assert_ok(checkpoint_vector(l.c, "model.layers.0.linear_attn.A_log", 1, a_log, &err));
        const struct mini_tensor *a = mini_find(&m, "A_log");
        assert_true(a_log[0] == (a->dtype == DTYPE_F32 ? f32_from_bits(load_u32(a->data)) : bf16_to_f32(load_u16(a->data))));
        assert_ok(checkpoint_vector(l.c, "model.layers.0.linear_attn.conv1d.weight", 384 * 4, conv, &err));
        assert_true(conv[5] == bf16_to_f32(load_u16(mini_find(&m, "conv1d.weight")->data + 10)));
        unload(&l);
        mini_free(&m);
    }
}

static void unquantized_types_are_widened(void **state)
{
    (void)state;
    struct lily_err err;
    struct mini m;
    struct loaded l;
    mini_make(&m, (struct mini_options){.plain = true});
    struct mini_tensor *t = mini_find(&m, "lm_head.weight");
    t->dtype = DTYPE_F16;
    t->data[2 * 65] = 0x00, t->data[2 * 65 + 1] = 0xc1; /* -2.5 at (1, 1) */
    t = mini_find(&m, "layers.0.mlp.gate.weight");
    t->dtype = DTYPE_F32;
    t->data = realloc(t->data, t->bytes *= 2);
    memset(t->data, 0, t->bytes);
    t->data[4 * 66 + 2] = 0x80, t->data[4 * 66 + 3] = 0x3f; /* 1 at (1, 2) */
    assert_ok(load_mini(&m, 1, &l, &err));
    struct module_view v;
    float row[64];
    assert_ok(checkpoint_module(l.c, &(struct module_want){"lm_head", 0, 64, 64}, &v, &err));
    module_row(&v, 0, 1, row);
    assert_true(row[1] == -2.5f && module_element(&v, 0, 1, 1) == -2.5f);
    assert_ok(checkpoint_module(l.c, &(struct module_want){"model.layers.0.mlp.gate", 0, 8, 64}, &v, &err));
    assert_true(v.bits == 0 && module_element(&v, 0, 1, 2) == 1.0f && module_element(&v, 0, 1, 1) == 0.0f);
    module_row(&v, 0, 1, row);
    assert_true(row[2] == 1.0f);
    unload(&l);
    mini_free(&m);
}

static void expect_refusal(struct mini *m, lily_status status, const char *w1, const char *w2, const char *w3)
{
    struct lily_err err = {0};
    struct loaded l;
    lily_status st = load_mini(m, 1, &l, &err);
    if (st != status) fail_msg("%s, but found %s: %s", lily_status_name(status), lily_status_name(st), err.msg);
    const char *words[] = {w1, w2, w3};
    for (int i = 0; i < 3; i++)
        if (!strstr(err.msg, words[i])) fail_msg("no \"%s\" in: %s", words[i], err.msg);
    mini_free(m);
}

static void names_what_does_not_fit(void **state)
{
    (void)state;
    struct mini m;
    mini_make(&m, (struct mini_options){0});
    mini_drop(&m, "layers.1.self_attn.k_proj.weight");
    mini_drop(&m, "layers.1.self_attn.q_norm.weight");
    mini_drop(&m, "lm_head.biases");
    expect_refusal(&m, LILY_ERR_FORMAT, "3 of 92 tensors are missing", "first is model.layers.1.self_attn.k_proj.weight", "/tmp");

    mini_make(&m, (struct mini_options){0});
    mini_find(&m, "in_proj_qkv.weight")->dim[0] /= 2;
    mini_find(&m, "in_proj_qkv.weight")->dim[1] *= 2;
    expect_refusal(&m, LILY_ERR_FORMAT, "linear_attn.in_proj_qkv.weight", "[192, 16]", "[384, 8]");

    mini_make(&m, (struct mini_options){0});
    mini_find(&m, "switch_mlp.up_proj.scales")->dtype = DTYPE_F16;
    expect_refusal(&m, LILY_ERR_UNSUPPORTED, "switch_mlp.up_proj.scales", "dtype F16", "expected BF16");

    mini_make(&m, (struct mini_options){0});
    mini_find(&m, "o_proj.weight")->dtype = DTYPE_I32;
    expect_refusal(&m, LILY_ERR_UNSUPPORTED, "o_proj.weight", "dtype I32", "expected U32");

    mini_make(&m, (struct mini_options){.plain = true});
    mini_find(&m, "o_proj.weight")->dtype = DTYPE_U32;
    mini_find(&m, "o_proj.weight")->dim[1] /= 2;
    expect_refusal(&m, LILY_ERR_FORMAT, "2 of", "self_attn.o_proj.scales", "missing");

    mini_make(&m, (struct mini_options){0});
    mini_find(&m, "dt_bias")->dtype = DTYPE_U8;
    mini_find(&m, "dt_bias")->dim[0] = 2;
    expect_refusal(&m, LILY_ERR_UNSUPPORTED, "dt_bias", "dtype U8", "BF16, F16 or F32");

    mini_make(&m, (struct mini_options){0});
    mini_find(&m, "layers.1.input_layernorm.weight")->dtype = DTYPE_F32;
    mini_find(&m, "layers.1.input_layernorm.weight")->dim[0] = 32;
    expect_refusal(&m, LILY_ERR_FORMAT, "layers.1.input_layernorm.weight", "[32]", "64 elements");
}

static void names_what_does_not_fit_in_part(void **state)
{
    (void)state;
    struct mini m;
    mini_make(&m, (struct mini_options){0});
    mini_drop(&m, "layers.1.input_layernorm.weight");
    mini_add(&m, "language_model.model.layers.1.input_layernorm.weight", DTYPE_BF16, (const int64_t[]){65}, 1);
    expect_refusal(&m, LILY_ERR_FORMAT, "layers.1.input_layernorm.weight", "[65]", "64 elements");

    mini_make(&m, (struct mini_options){0});
    mini_find(&m, "lm_head.scales")->dim[0] = 1;
    mini_find(&m, "lm_head.scales")->dim[1] = 64;
    expect_refusal(&m, LILY_ERR_FORMAT, "lm_head.scales", "[1, 64]", "[64, 1]");

    mini_make(&m, (struct mini_options){0});
    mini_find(&m, "lm_head.biases")->n_dims = 1;
    expect_refusal(&m, LILY_ERR_FORMAT, "lm_head.biases", "shape [64],", "[64, 1]");

    mini_make(&m, (struct mini_options){0});
    mini_find(&m, "lm_head.biases")->dtype = DTYPE_F16;
    expect_refusal(&m, LILY_ERR_UNSUPPORTED, "lm_head.biases", "dtype F16", "expected BF16");

    mini_make(&m, (struct mini_options){0});
    mini_add(&m, "language_model.model.layers.1.self_attn.q_proj.bias", DTYPE_BF16, (const int64_t[]){512}, 1);
    expect_refusal(&m, LILY_ERR_UNSUPPORTED, "q_proj.bias", "no part of this model", "1 such");

    mini_make(&m, (struct mini_options){0});
    mini_add(&m, "lm_head.weight", DTYPE_U32, (const int64_t[]){64, 8}, 2);
    expect_refusal(&m, LILY_ERR_FORMAT, "lm_head.weight", "twice", "language_model.lm_head.weight");
}

static void rules_are_held_against_shapes(void **state)
{
    (void)state;
    struct mini m;
    mini_make(&m, (struct mini_options){0});
    mini_config(&m, "\"language_model.model.layers.0.mlp.gate\": {\"group_size\": 64, \"bits\": 8},", "");
    expect_refusal(&m, LILY_ERR_FORMAT, "layers.0.mlp.gate.weight", "[8, 16]", "[8, 8]");
    mini_make(&m, (struct mini_options){0});
    mini_config(&m, "\"mode\": \"affine\",", "\"language_model.lm_head\": false,");
    expect_refusal(&m, LILY_ERR_FORMAT, "lm_head.scales", "config.json", "not quantized");
    mini_make(&m, (struct mini_options){0});
    mini_config(&m, "\"quantization\"", "\"ignored\"");
    expect_refusal(&m, LILY_ERR_FORMAT, "scales", "config.json", "not quantized");
}

static void hugging_face_form_is_refused(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct loaded l;
    struct mini m;
    mini_make(&m, (struct mini_options){.plain = true});
    struct mini_tensor *conv = mini_find(&m, "conv1d.weight");
    conv->dim[1] = 1, conv->dim[2] = 4;
    assert_int_equal(load_mini(&m, 1, &l, &err), LILY_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "Hugging Face"));
    assert_non_null(strstr(err.hint, "lily quantize"));
    mini_free(&m);
    mini_make(&m, (struct mini_options){.plain = true});
    struct mini_tensor *t = mini_find(&m, "layers.0.input_layernorm.weight");
    snprintf(t->name, sizeof t->name, "model.language_model.layers.0.input_layernorm.weight");
    expect_refusal(&m, LILY_ERR_UNSUPPORTED, "Hugging Face form", "MLX layout", "/tmp");
    mini_make(&m, (struct mini_options){.plain = true});
    t = mini_find(&m, "layers.0.mlp.switch_mlp.down_proj.weight");
    snprintf(t->name, sizeof t->name, "model.language_model.layers.0.mlp.experts.down_proj");
    char *dir = mini_dir();
    mini_write(&m, dir, 1);
    assert_int_equal(load(dir, &l, &err), LILY_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "Hugging Face"));
    /* Its tensors can still be read, for a converter. */
    struct tensor_view v;
    assert_ok(config_load(dir, &l.config, &err));
    assert_ok(checkpoint_open(dir, &l.config, &l.c, &err));
    assert_true(checkpoint_is_hf_form(l.c));
    assert_ok(checkpoint_tensor(l.c, "model.layers.0.mlp.experts.down_proj", &v, &err));
    unload(&l);
    mini_remove(dir);
    mini_free(&m);
}

static void broken_folders_are_named(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct loaded l;
    struct mini m;
    char *dir = mini_dir();
    struct buf path = {0};
    mini_make(&m, (struct mini_options){0});
    mini_write(&m, dir, 2);
    file_join(&path, dir, "model-00002-of-00002.safetensors");
    assert_int_equal(unlink(path.data), 0);
    assert_int_equal(load(dir, &l, &err), LILY_ERR_IO);
    assert_non_null(strstr(err.msg, "model-00002-of-00002.safetensors: missing"));
    assert_non_null(strstr(err.msg, "model.safetensors.index.json"));
    mini_write(&m, dir, 2);
    size_t n;
    char *index = (char *)mini_read(dir, "model.safetensors.index.json", &n);
    static const struct {
        const char *from, *to, *word;
    } bends[] = {
        {"model-00001-of-00002", "../../etc/model", "plain NAME.safetensors"},
        {"model-00001-of-00002.safetensors", "/etc/passwd", "plain NAME.safetensors"},
        {"model-00001-of-00002.safetensors", "..", "plain NAME.safetensors"},
        {"model-00001-of-00002.safetensors", ".x.safetensors", "plain NAME.safetensors"},
        {"model-00001-of-00002.safetensors", "sub\\\\x.safetensors", "plain NAME.safetensors"},
        {"model-00001-of-00002.safetensors", "model-00001-of-00002.safetensors\\u0000/x", "plain NAME.safetensors"},
        {"\"model-00001-of-00002.safetensors\"", "7", "integer"},
        {"layers.0.linear_attn.A_log\"", "layers.0.linear_attn.B_log\"", "B_log"},
        {"\"weight_map\": {", "\"weight_map\": [], \"x\": {", "weight_map is array"},
        {"\"weight_map\"", "\"weight_maps\"", "weight_map is missing"},
        {"{\"metadata\"", "[{\"metadata\"", "index.json"},
        {"\"weight_map\": {", "\"weight_map\": {\"language_model.lm_head.weight\": \"x.safetensors\",", "names a tensor twice"},
    };
    for (size_t i = 0; i < sizeof bends / sizeof bends[0]; i++) {
        char *bent = mini_replace(index, bends[i].from, bends[i].to);
        mini_put(dir, "model.safetensors.index.json", bent, strlen(bent));
        lily_status st = load(dir, &l, &err);
        if (st == LILY_OK || !strstr(err.msg, bends[i].word)) fail_msg("%s: %s", bends[i].to, err.msg);
        assert_non_null(strstr(err.msg, "model.safetensors.index.json"));
        free(bent);
    }
    file_join(&path, dir, "model.safetensors.index.json");
    assert_int_equal(unlink(path.data), 0);
    assert_int_equal(load(dir, &l, &err), LILY_ERR_IO);
    assert_non_null(strstr(err.msg, "neither model.safetensors nor"));
    assert_int_equal(load("/tmp/no such folder", &l, &err), LILY_ERR_IO);
    free(index);
    buf_free(&path);
    mini_remove(dir);
    mini_free(&m);
}

static void vision_shards_are_not_needed(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct loaded l;
    struct mini m;
    char *dir = mini_dir();
    mini_make(&m, (struct mini_options){0});
    mini_write(&m, dir, 2);
    size_t n;
    char *index = (char *)mini_read(dir, "model.safetensors.index.json", &n);
    char *more = mini_replace(index, "\"weight_map\": {", "\"weight_map\": {\"vision_tower.x\": \"not-there.safetensors\",");
    mini_put(dir, "model.safetensors.index.json", more, strlen(more));
    assert_ok(load(dir, &l, &err));
    unload(&l);
    free(more);
    free(index);
    mini_remove(dir);
    mini_free(&m);
}

static void missing_names_are_errors(void **state)
{
    (void)state;
    struct lily_err err;
    struct loaded l;
    struct tensor_view t;
    struct module_view v;
    float x[1];
    assert_ok(load("tests/data/tiny", &l, &err));
    assert_int_equal(checkpoint_tensor(l.c, "nothing", &t, &err), LILY_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "tests/data/tiny: tensor nothing is missing"));
    assert_int_equal(checkpoint_vector(l.c, "nothing", 1, x, &err), LILY_ERR_FORMAT);
    assert_int_equal(checkpoint_module(l.c, &(struct module_want){"nothing", 0, 1, 64}, &v, &err), LILY_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "nothing.weight"));
    assert_int_equal(checkpoint_module(l.c, &(struct module_want){"lm_head", 2, 1, 64}, &v, &err), LILY_ERR_FORMAT);
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_models_load),
        cmocka_unit_test(elements_follow_the_packing_rule),
        cmocka_unit_test(dequantizes_the_published_vector),
        cmocka_unit_test(shards_prefixes_and_types),
        cmocka_unit_test(unquantized_types_are_widened),
        cmocka_unit_test(names_what_does_not_fit),
        cmocka_unit_test(names_what_does_not_fit_in_part),
        cmocka_unit_test(rules_are_held_against_shapes),
        cmocka_unit_test(hugging_face_form_is_refused),
        cmocka_unit_test(broken_folders_are_named),
        cmocka_unit_test(vision_shards_are_not_needed),
        cmocka_unit_test(missing_names_are_errors),
    };
    return RUN_TESTS(tests);
}
