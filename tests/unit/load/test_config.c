/* config.json and generation_config.json: what is read, and what is refused with which words. */
#include "../testing.h"

#include "../../support/minickpt.h"
#include "base/file.h"
#include "load/config.h"

static const char real_config[] = "tests/data/templates/Qwen3.6-35B-A3B.config.json";

static char *read_text(const char *path)
{
    struct lily_err err;
    struct buf text = {0};
    assert_ok(file_read(path, 1 << 20, &text, &err));
    return buf_take(&text);
}

static char *mini_text(void)
{
    struct mini m;
    mini_make(&m, (struct mini_options){0});
    char *text = strdup(m.config);
    mini_free(&m);
    return text;
}

static lily_status parse(const char *text, struct model_config *c, struct lily_err *err)
{
    return config_parse(text, strlen(text), "config.json", c, err);
}

static void reads_the_published_config(void **state)
{
    (void)state;
    struct lily_err err;
    struct model_config c;
    char *text = read_text(real_config);
    assert_ok(parse(text, &c, &err));
    const struct model_shape *s = &c.shape;
    assert_int_equal(s->hidden, 2048);
    assert_int_equal(s->n_layers, 40);
    assert_int_equal(s->vocab, 248320);
    assert_int_equal(s->n_q_heads, 16);
    assert_int_equal(s->n_kv_heads, 2);
    assert_int_equal(s->n_gdn_k_heads, 16);
    assert_int_equal(s->n_gdn_v_heads, 32);
    assert_int_equal(s->n_experts, 256);
    assert_int_equal(s->expert_dim, 512);
    assert_int_equal(s->shared_dim, 512);
    assert_int_equal(s->max_positions, 262144);
    assert_int_equal(s->n_full, 10);
    assert_int_equal(s->n_linear, 30);
    assert_false(s->is_full[2]);
    assert_true(s->is_full[3] && s->is_full[39]);
    assert_true(s->rms_eps == 1e-6f && s->rope_theta == 1e7);
    assert_int_equal(c.n_mtp_layers, 1);
    assert_string_equal(c.model_type, "qwen3_5_moe");
    assert_int_equal(c.quant_default.bits, 0);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 248044);
    char *generation = read_text("tests/data/templates/Qwen3.6-35B-A3B.generation_config.json");
    assert_ok(config_parse_generation(generation, strlen(generation), "g", &c, &err));
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos[0], 248046);
    assert_int_equal(c.eos[1], 248044);
    assert_true(c.temperature == 1.0 && c.top_p == 0.95 && c.top_k == 20);
    config_free(&c);
    free(generation);
    free(text);
}

static void reads_flat_files_and_older_keys(void **state)
{
    (void)state;
    struct lily_err err;
    struct model_config c;
    const char *flat = "{\"model_type\": \"qwen3_5_moe_text\", \"full_attention_interval\": 4, \"hidden_size\": 128,"
                       "\"num_hidden_layers\": 8, \"vocab_size\": 100, \"num_attention_heads\": 4,"
                       "\"num_key_value_heads\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4,"
                       "\"num_experts\": 16, \"moe_intermediate_size\": 64, \"shared_expert_intermediate_size\": 128,"
                       "\"max_position_embeddings\": 4096, \"rope_theta\": 10000, \"rope_scaling\": null,"
                       "\"eos_token_id\": [1, 2, 1]}";
    assert_ok(parse(flat, &c, &err));
    assert_int_equal(c.shape.n_full, 2);
    assert_true(c.shape.is_full[7] && !c.shape.is_full[6]);
    assert_true(c.shape.rope_theta == 10000 && c.shape.rms_eps == 1e-6f);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.n_mtp_layers, 0);
    assert_true(c.temperature == 1.0 && c.top_p == 0.95 && c.top_k == 20);
    config_free(&c);
}

static void reads_quantization_rules(void **state)
{
    (void)state;
    struct lily_err err;
    struct model_config c;
    char *text = mini_text();
    char *more = mini_replace(text, "\"mode\": \"affine\",",
                              "\"model.layers.1.mlp.shared_expert\": true, \"lm_head\": false, \"note\": \"x\","
                              "\"vision_tower.a\": {\"bits\": 3}, ");
    assert_ok(parse(more, &c, &err));
    assert_int_equal(c.n_overrides, 4);
    assert_int_equal(config_quant_rule(&c, "model.layers.1.mlp.gate").bits, 8);
    assert_int_equal(config_quant_rule(&c, "model.layers.1.mlp.shared_expert").bits, 4);
    assert_int_equal(config_quant_rule(&c, "language_model.lm_head").bits, 0);
    assert_int_equal(config_quant_rule(&c, "anything").bits, 4);
    assert_int_equal(config_quant_rule(&c, "anything").group_size, 64);
    assert_int_equal(config_quant_rule(&c, "").bits, 4);
    config_free(&c);
    free(more);
    more = mini_replace(text, "\"quantization\"", "\"quantization_config\"");
    assert_ok(parse(more, &c, &err));
    assert_int_equal(c.quant_default.bits, 4);
    config_free(&c);
    free(more);
    free(text);
}

/* One change to the mini config, and words that the message must have. */
static const struct refusal {
    const char *from, *to;
    lily_status status;
    const char *words[3];
} refusals[] = {
    {"\"qwen3_5_moe\"", "\"llama\"", LILY_ERR_UNSUPPORTED, {"model_type", "\"llama\"", "\"qwen3_5_moe\""}},
    {"\"model_type\": \"qwen3_5_moe\",", "", LILY_ERR_UNSUPPORTED, {"model_type", "missing", "qwen3_5_moe"}},
    {"\"model_type\": \"qwen3_5_moe\"", "\"model_type\": 7", LILY_ERR_UNSUPPORTED, {"model_type", "integer", "qwen3_5_moe"}},
    {"\"qwen3_5_moe_text\"", "\"qwen3_next\"", LILY_ERR_UNSUPPORTED, {"model_type", "qwen3_next", "qwen3_5_moe_text"}},
    {"\"text_config\": {", "\"text_config\": 3, \"x\": {", LILY_ERR_FORMAT, {"text_config", "integer", "object"}},
    {"\"head_dim\": 256", "\"head_dim\": 128", LILY_ERR_UNSUPPORTED, {"head_dim", "128", "256"}},
    {"\"linear_key_head_dim\": 128", "\"linear_key_head_dim\": 64", LILY_ERR_UNSUPPORTED, {"linear_key_head_dim", "64", "128"}},
    {"\"linear_value_head_dim\": 128", "\"linear_value_head_dim\": 256", LILY_ERR_UNSUPPORTED,
     {"linear_value_head_dim", "256", "128"}},
    {"\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3", LILY_ERR_UNSUPPORTED, {"linear_conv_kernel_dim", "3", "4"}},
    {"\"num_experts_per_tok\": 8", "\"num_experts_per_tok\": 10", LILY_ERR_UNSUPPORTED, {"num_experts_per_tok", "10", "8"}},
    {"\"silu\"", "\"gelu\"", LILY_ERR_UNSUPPORTED, {"hidden_act", "gelu", "silu"}},
    {"\"attn_output_gate\": true", "\"attn_output_gate\": false", LILY_ERR_UNSUPPORTED, {"attn_output_gate", "is false", "true"}},
    {"\"attention_bias\": false", "\"attention_bias\": true", LILY_ERR_UNSUPPORTED, {"attention_bias", "is true", "false"}},
    {"\"tie_word_embeddings\": false, \"vocab", "\"tie_word_embeddings\": true, \"vocab", LILY_ERR_UNSUPPORTED,
     {"tie_word_embeddings", "is true", "false"}},
    {"\"tie_word_embeddings\": false}\n", "\"tie_word_embeddings\": true}\n", LILY_ERR_UNSUPPORTED,
     {"tie_word_embeddings", "is true", "false"}},
    {"\"vocab_size\": 64}", "\"norm_topk_prob\": false, \"vocab_size\": 64}", LILY_ERR_UNSUPPORTED, {"norm_topk_prob", "false", "true"}},
    {"\"vocab_size\": 64}", "\"mlp_only_layers\": [0], \"vocab_size\": 64}", LILY_ERR_UNSUPPORTED, {"mlp_only_layers", "[]", "expected"}},
    {"\"partial_rotary_factor\": 0.25, \"rms", "\"partial_rotary_factor\": 0.5, \"rms", LILY_ERR_UNSUPPORTED,
     {"partial_rotary_factor", "0.5", "0.25"}},
    {"\"partial_rotary_factor\": 0.25, \"rope", "\"partial_rotary_factor\": 1.0, \"rope", LILY_ERR_UNSUPPORTED,
     {"partial_rotary_factor", "is 1", "0.25"}},
    {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"factor\": 4.0", LILY_ERR_UNSUPPORTED, {"rope_type", "yarn", "default"}},
    {"\"rope_type\": \"default\"", "\"type\": \"yarn\"", LILY_ERR_UNSUPPORTED, {"type", "yarn", "default"}},
    {"\"rope_theta\": 10000000, ", "", LILY_ERR_FORMAT, {"rope_theta", "missing", "text_config"}},
    {"\"rope_theta\": 10000000", "\"rope_theta\": 0.5", LILY_ERR_FORMAT, {"rope_theta", "0.5", "expected"}},
    {"\"hidden_size\": 64", "\"hidden_size\": 65", LILY_ERR_UNSUPPORTED, {"hidden_size", "65", "multiple of 64"}},
    {"\"hidden_size\": 64", "\"hidden_size\": 0", LILY_ERR_FORMAT, {"hidden_size", "0", "expected"}},
    {"\"hidden_size\": 64", "\"hidden_size\": \"64\"", LILY_ERR_FORMAT, {"hidden_size", "\"64\"", "expected"}},
    {"\"hidden_size\": 64", "\"hidden_size\": 64000000000000", LILY_ERR_FORMAT, {"hidden_size", "64000000000000", "16384"}},
    {"\"hidden_size\": 64,", "", LILY_ERR_FORMAT, {"hidden_size", "missing", "text_config"}},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", LILY_ERR_FORMAT, {"layer_types", "2 entries", "3"}},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 129", LILY_ERR_FORMAT, {"num_hidden_layers", "129", "128"}},
    {"\"num_attention_heads\": 1", "\"num_attention_heads\": -1", LILY_ERR_FORMAT, {"num_attention_heads", "-1", "expected"}},
    {"\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2", LILY_ERR_FORMAT, {"num_attention_heads", "1", "multiple"}},
    {"\"linear_num_key_heads\": 1", "\"linear_num_key_heads\": 2", LILY_ERR_FORMAT, {"linear_num_value_heads", "1", "multiple"}},
    {"\"num_experts\": 8", "\"num_experts\": 7", LILY_ERR_FORMAT, {"num_experts", "7", "8"}},
    {"\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 96", LILY_ERR_UNSUPPORTED, {"moe_intermediate_size", "96", "64"}},
    {"[\"linear_attention\", \"full_attention\"]", "[\"full_attention\", \"linear_attention\"]", LILY_ERR_FORMAT,
     {"layer_types[0]", "full_attention_interval", "2"}},
    {"[\"linear_attention\", \"full_attention\"]", "[\"linear_attention\", \"sliding\"]", LILY_ERR_UNSUPPORTED,
     {"layer_types[1]", "sliding", "full_attention"}},
    {"\"full_attention_interval\": 2", "\"full_attention_interval\": 3", LILY_ERR_FORMAT, {"layer_types[1]", "contradicts", "3"}},
    {"\"full_attention_interval\": 2,", "\"full_attention_interval\": 0,", LILY_ERR_FORMAT, {"full_attention_interval", "0", "expected"}},
    {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", LILY_ERR_FORMAT, {"rms_norm_eps", "0", "expected"}},
    {"\"eos_token_id\": 60", "\"eos_token_id\": 64", LILY_ERR_FORMAT, {"eos_token_id", "vocab_size", "64"}},
    {"\"eos_token_id\": 60", "\"eos_token_id\": [1, -1]", LILY_ERR_FORMAT, {"eos_token_id", "vocab_size", "64"}},
    {"\"eos_token_id\": 60", "\"eos_token_id\": [1,2,3,4,5,6,7,8,9]", LILY_ERR_UNSUPPORTED, {"eos_token_id", "8", "different"}},
    {"\"bits\": 4", "\"bits\": 3", LILY_ERR_UNSUPPORTED, {"quantization.bits", "3", "4 or 8"}},
    {"\"bits\": 4, ", "\"bits\": 4, \"bits\": 8, ", LILY_ERR_FORMAT, {"quantization", "two rules", "one key"}},
    {"\"bits\": 4, ", "", LILY_ERR_FORMAT, {"quantization.bits", "missing", "config.json"}},
    {"\"group_size\": 64, \"bits\": 4", "\"group_size\": 32, \"bits\": 4", LILY_ERR_UNSUPPORTED, {"group_size", "32", "64"}},
    {"\"affine\"", "\"mxfp4\"", LILY_ERR_UNSUPPORTED, {"mode", "mxfp4", "affine"}},
    {"\"mode\": \"affine\"", "\"quant_method\": \"awq\"", LILY_ERR_UNSUPPORTED, {"quant_method", "awq", "MLX"}},
    {"{\"group_size\": 64, \"bits\": 8}", "{\"group_size\": 64, \"bits\": 6}", LILY_ERR_UNSUPPORTED, {"layers.0.mlp.gate.bits", "6", "4 or 8"}},
    {"\"mode\": \"affine\",", "\"model.layers.0.mlp.gate\": false,", LILY_ERR_FORMAT, {"two rules", "layers.0.mlp.gate", "quantization"}},
    {"\"quantization\": {", "\"quantization\": [], \"x\": {", LILY_ERR_FORMAT, {"quantization", "array", "object"}},
};

static void refuses_what_is_outside_the_family(void **state)
{
    (void)state;
    char *text = mini_text();
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *r = &refusals[i];
        struct lily_err err = {0};
        struct model_config c;
        char *bent = mini_replace(text, r->from, r->to);
        lily_status st = parse(bent, &c, &err);
        if (st != r->status) fail_msg("%s: status %s, message %s", r->to, lily_status_name(st), err.msg);
        for (int k = 0; k < 3; k++)
            if (!strstr(err.msg, r->words[k])) fail_msg("%s: no \"%s\" in: %s", r->to, r->words[k], err.msg);
        if (!strstr(err.msg, "config.json")) fail_msg("%s: no file in: %s", r->to, err.msg);
        assert_null(strchr(err.msg, '\n'));
        free(bent);
    }
    free(text);
}

static void other_numbers_of_a_range_are_fine(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"\"full_attention_interval\": 2, ", ""},
        {"\"layer_types\": [\"linear_attention\", \"full_attention\"],", ""},
        {"\"head_dim\": 256, ", ""},
        {"\"rope_type\": \"default\"", "\"type\": \"default\""},
        {"\"partial_rotary_factor\": 0.25, \"rms", "\"rms"},
        {"\"num_experts\": 8", "\"num_experts\": 1024"},
        {"\"vocab_size\": 64", "\"vocab_size\": 1048576"},
        {"\"eos_token_id\": 60", "\"eos_token_id\": null"},
    };
    char *text = mini_text();
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct lily_err err;
        struct model_config c;
        char *bent = mini_replace(text, changes[i][0], changes[i][1]);
        assert_ok(parse(bent, &c, &err));
        config_free(&c);
        free(bent);
    }
    free(text);
}

static void generation_defaults_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"[]", "array"},          {"{\"temperature\": -1}", "temperature"}, {"{\"top_p\": 2}", "top_p"},
        {"{\"top_k\": 1.5}", "top_k"}, {"{\"eos_token_id\": [64]}", "eos_token_id"}, {"{\"do_sample\": 1}", "do_sample"},
    };
    struct lily_err err;
    struct model_config c;
    char *text = mini_text();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_ok(parse(text, &c, &err));
        assert_int_equal(config_parse_generation(bad[i].text, strlen(bad[i].text), "g.json", &c, &err), LILY_ERR_FORMAT);
        assert_non_null(strstr(err.msg, bad[i].word));
        assert_non_null(strstr(err.msg, "g.json"));
        config_free(&c);
    }
    assert_ok(parse(text, &c, &err));
    assert_int_equal(c.eos[0], 60);
    const char *greedy = "{\"do_sample\": false, \"temperature\": 0.7, \"top_k\": null, \"eos_token_id\": 3}";
    assert_ok(config_parse_generation(greedy, strlen(greedy), "g.json", &c, &err));
    assert_true(c.temperature == 0 && c.top_k == 20 && c.n_eos == 1 && c.eos[0] == 3);
    config_free(&c);
    free(text);
}

static void folder_without_generation_file_or_config(void **state)
{
    (void)state;
    struct lily_err err;
    struct model_config c;
    char *dir = mini_dir(), *text = mini_text();
    assert_int_equal(config_load(dir, &c, &err), LILY_ERR_IO);
    assert_non_null(strstr(err.msg, "config.json"));
    assert_true(err.hint[0] != 0);
    mini_put(dir, "config.json", text, strlen(text));
    assert_ok(config_load(dir, &c, &err));
    assert_true(c.top_k == 20 && c.n_eos == 1 && c.max_new_tokens == 0);
    config_free(&c);
    mini_put(dir, "generation_config.json", "{\"top_k\": 5}", 12);
    assert_ok(config_load(dir, &c, &err));
    assert_true(c.top_k == 5 && c.max_new_tokens == 0);
    config_free(&c);
    mini_put(dir, "generation_config.json", "{\"max_new_tokens\": 77}", 22);
    assert_ok(config_load(dir, &c, &err));
    assert_int_equal(c.max_new_tokens, 77);
    config_free(&c);
    mini_put(dir, "generation_config.json", "{\"max_new_tokens\": -1}", 22);
    assert_int_equal(config_load(dir, &c, &err), LILY_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "max_new_tokens"));
    mini_put(dir, "generation_config.json", "{\"top_k\": 5", 11);
    assert_int_equal(config_load(dir, &c, &err), LILY_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "generation_config.json"));
    mini_remove(dir);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_published_config),
        cmocka_unit_test(reads_flat_files_and_older_keys),
        cmocka_unit_test(reads_quantization_rules),
        cmocka_unit_test(refuses_what_is_outside_the_family),
        cmocka_unit_test(other_numbers_of_a_range_are_fine),
        cmocka_unit_test(generation_defaults_are_checked),
        cmocka_unit_test(folder_without_generation_file_or_config),
    };
    return RUN_TESTS(tests);
}
