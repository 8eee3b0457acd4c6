/*
 * The words of synthetic tensors, held against a second implementation (Python integers, written from the header's text),
 * and what the header promises of them: middle codes are zero, both signs, sizes, no two tensors alike.
 */
#include "../testing.h"

#include <math.h>

#include "base/num.h"
#include "spec/synth.h"

static const struct {
    uint64_t seed;
    const char *name;
    int fan_in, bits;
    uint32_t words[3]; /* 0, 1, 77777777 */
} known[] = {
    {1u, "language_model.lm_head.weight", 2048, 4, {0xc6a40269u, 0x1f4dfc7du, 0xcb5a5f46u}},
    {1u, "language_model.lm_head.scales", 2048, 4, {0x3c28bc72u, 0xbc3bbc7eu, 0x3c103c11u}},
    {1u, "language_model.lm_head.biases", 2048, 4, {0xbda83df2u, 0x3dbb3dfeu, 0xbd90bd91u}},
    {7u, "language_model.model.layers.3.mlp.gate.scales", 2048, 8, {0xb9ff39f3u, 0xb980b9a8u, 0xb98339d2u}},
    {7u, "language_model.model.layers.3.mlp.gate.biases", 2048, 8, {0x3d7fbd73u, 0x3d003d28u, 0x3d03bd52u}},
    {1u, "language_model.model.embed_tokens.scales", 2048, 4, {0x3e12be49u, 0x3e5abe72u, 0x3e0cbe25u}},
    {1u, "language_model.model.layers.0.linear_attn.out_proj.scales", 4096, 4, {0xbad13addu, 0x3ab43abbu, 0xbaac3af0u}},
    {1u, "language_model.model.layers.0.linear_attn.conv1d.weight", 0, 0, {0xbeebbe81u, 0x3eb63ef8u, 0x3eb93e88u}},
    {1u, "language_model.model.layers.0.linear_attn.A_log", 0, 0, {0x3f60be80u, 0xbf90bf10u, 0xbfd03fd8u}},
    {1u, "language_model.model.layers.0.linear_attn.dt_bias", 0, 0, {0xc086c0aeu, 0xc0bec088u, 0xbfe8c0b4u}},
    {9223372036854775808u, "language_model.model.layers.0.input_layernorm.weight", 0, 0, {0x3f8d3f4bu, 0x3f403f47u, 0x3f8a3f4du}},
};

static void words_never_change(void **state)
{
    static const uint32_t at[] = {0, 1, 77777777};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct synth_rule r = synth_rule_of(known[i].seed, known[i].name, known[i].fan_in, known[i].bits);
        for (int j = 0; j < 3; j++)
            if (synth_word(&r, at[j]) != known[i].words[j])
                fail_msg("%s word %u: 0x%08x, expected 0x%08x", known[i].name, at[j], synth_word(&r, at[j]), known[i].words[j]);
    }
}

static float bf16_at(const struct synth_rule *r, uint32_t i)
{
    return bf16_to_f32((uint16_t)synth_bf16(r, i));
}

/* bias = -2^(bits-1) * scale exactly, so that code 8 or 128 is zero. */
static void the_middle_code_is_zero(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        struct synth_rule s = synth_rule_of(3, "language_model.model.layers.5.mlp.gate.scales", 2048, bits);
        struct synth_rule b = synth_rule_of(3, "language_model.model.layers.5.mlp.gate.biases", 2048, bits);
        int negative = 0;
        for (uint32_t i = 0; i < 4096; i++) {
            assert_true(bf16_at(&s, i) * (float)(1 << (bits - 1)) + bf16_at(&b, i) == 0);
            negative += bf16_at(&s, i) < 0;
        }
        assert_in_range(negative, 1900, 2200);
    }
}

/* A row of weights against an input of size 1 gives an output of the module's size. */
static double output_size(const char *module, int fan_in, int bits)
{
    char weight[128], scales[128];
    snprintf(weight, sizeof weight, "%s.weight", module);
    snprintf(scales, sizeof scales, "%s.scales", module);
    struct synth_rule w = synth_rule_of(1, weight, fan_in, bits), s = synth_rule_of(1, scales, fan_in, bits);
    double sum = 0;
    for (uint32_t i = 0; i < (uint32_t)fan_in; i++) {
        uint32_t per = 32 / (uint32_t)bits, q = synth_word(&w, i / per) >> (uint32_t)bits * (i % per) & ((1u << bits) - 1);
        double v = ((double)q - (1 << (bits - 1))) * (double)bf16_at(&s, i / 64);
        sum += v * v;
    }
    return sqrt(sum);
}

static void outputs_have_sane_sizes(void **state)
{
    static const struct {
        const char *module;
        int fan_in, bits;
        double lo, hi;
    } m[] = {
        {"language_model.model.layers.0.linear_attn.in_proj_qkv", 2048, 4, 0.7, 2},
        {"language_model.model.layers.0.linear_attn.out_proj", 4096, 4, 0.4, 1.2},
        {"language_model.model.layers.0.mlp.switch_mlp.down_proj", 512, 4, 0.3, 1.2},
        {"language_model.model.layers.0.mlp.gate", 2048, 8, 0.7, 2},
        {"language_model.lm_head", 2048, 4, 1.5, 4},
        {"language_model.lm_head", 256, 4, 1.5, 6},
    };
    (void)state;
    for (size_t i = 0; i < sizeof m / sizeof m[0]; i++) {
        double v = output_size(m[i].module, m[i].fan_in, m[i].bits);
        if (v < m[i].lo || v > m[i].hi) fail_msg("%s from %d: %g", m[i].module, m[i].fan_in, v);
    }
}

static void seeds_and_names_differ(void **state)
{
    (void)state;
    struct synth_rule a = synth_rule_of(1, "a.weight", 64, 4), b = synth_rule_of(2, "a.weight", 64, 4),
                      c = synth_rule_of(1, "b.weight", 64, 4);
    int same = 0;
    for (uint32_t i = 0; i < 1000; i++)
        same += synth_word(&a, i) == synth_word(&b, i) || synth_word(&a, i) == synth_word(&c, i);
    assert_int_equal(same, 0);
}

static void small_vectors_stay_in_range(void **state)
{
    static const struct {
        const char *name;
        float lo, hi;
    } v[] = {{"x.norm.weight", 0.75f, 1.25f}, {"x.linear_attn.A_log", -2, 2}, {"x.linear_attn.dt_bias", -6, -1}};
    (void)state;
    for (size_t k = 0; k < sizeof v / sizeof v[0]; k++) {
        struct synth_rule r = synth_rule_of(1, v[k].name, 0, 0);
        float least = INFINITY, most = -INFINITY;
        for (uint32_t i = 0; i < 4096; i++) least = fminf(least, bf16_at(&r, i)), most = fmaxf(most, bf16_at(&r, i));
        assert_true(least >= v[k].lo && most <= v[k].hi);
        assert_true(least < v[k].lo + 0.1f && most > v[k].hi - 0.1f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_never_change),      cmocka_unit_test(the_middle_code_is_zero),
        cmocka_unit_test(outputs_have_sane_sizes), cmocka_unit_test(seeds_and_names_differ),
        cmocka_unit_test(small_vectors_stay_in_range),
    };
    return RUN_TESTS(tests);
}
