/*
 * The demo model, teacher-forced over 2,000 tokens, against transformers in fp32 on the dequantized weights and against
 * mlx-lm with fp32 activations: the same most likely token on at least 99.5% of positions, perplexity within 0.04%. The
 * fast mode against the exact one, on every tier of this processor: KL at most 0.002, the same most likely token on at least 98.5%.
 */
#include "unit/testing.h"

#include <math.h>

#include "base/hash.h"
#include "sample/sampler.h"
#include "support/golden.h"

static const char model_dir[] = "models/demo", golden_path[] = "tests/data/demo/golden.safetensors";
#ifdef TEST_EMULATED /* make qemu: their beginning, which takes a minute there and not ten */
enum { N_IDS = 256 };
#else
enum { N_IDS = 2000 };
#endif
static struct golden golden;
static struct trace trace;
static struct model *model;
static int32_t *ids;
static int n_ids;

static int setup(void **state)
{
    (void)state;
    golden_open(&golden, golden_path);
    ids = golden_ints(&golden, "ids", &n_ids);
    assert_non_null(ids);
    assert_int_equal(n_ids, 2000);
    n_ids = N_IDS;
    model = open_model(model_dir, cpu_best_tier(), 2, true);
    trace_model(model, ids, n_ids, (struct traced_run){512, PHASE_PREFILL}, &trace);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    trace_free(&trace);
    model_close(model);
    golden_close(&golden);
    free(ids);
    return 0;
}

/* The goldens were recorded from the very model file that lies here. */
static void test_same_model(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct file_map map;
    char hex[65], path[64];
    snprintf(path, sizeof path, "%s/model.safetensors", model_dir);
    assert_ok(file_map_open(path, &map, &err));
    sha256_of(map.data, map.size, hex);
    file_map_close(&map);
    assert_true(golden.map.size > 8);
    char *header = malloc(golden.map.size < 4096 ? golden.map.size : 4096);
    assert_non_null(header);
    size_t n = golden.map.size - 8 < 4000 ? golden.map.size - 8 : 4000;
    memcpy(header, golden.map.data + 8, n);
    header[n] = 0;
    if (!strstr(header, hex)) fail_msg("%s is of another model file than %s (%s): record it again with tools/golden/record.sh", golden_path, path, hex);
    free(header);
}

static void compare(const char *reference)
{
    const struct model_shape *s = model_shape(model);
    char name[32];
    int n, same = 0;
    double ours = 0, theirs = 0;
    snprintf(name, sizeof name, "%s.argmax", reference);
    int32_t *argmax = golden_ints(&golden, name, &n);
    assert_true(n >= n_ids);
    snprintf(name, sizeof name, "%s.logprob", reference);
    float *logprob = golden_floats(&golden, name, &n);
    assert_true(n >= n_ids - 1);
    for (int i = 0; i < n_ids; i++) {
        struct token_logprob top;
        float lp;
        logits_logprobs(trace_logits(&trace, model, i), s->vocab, i + 1 < n_ids ? ids[i + 1] : 0, &lp, &top, 1);
        same += top.id == argmax[i];
        if (i + 1 == n_ids) break;
        ours += (double)lp;
        theirs += (double)logprob[i];
    }
    double ppl = exp(-ours / (n_ids - 1)), want = exp(-theirs / (n_ids - 1));
    printf("%s: same top token on %d of %d, perplexity %.6f, theirs %.6f (%+.5f%%)\n", reference, same, n_ids, ppl, want,
           100 * (ppl / want - 1));
    assert_true(same >= n_ids * 0.995);
    assert_true(fabs(ppl / want - 1) <= 0.0004);
    free(argmax);
    free(logprob);
}

static void test_transformers(void **state)
{
    (void)state;
    compare("hf");
}

static void test_mlx(void **state)
{
    (void)state;
    compare("mlx");
}

/* KL(exact || fast) of one position, and whether the most likely token is the same. */
static double divergence(const float *exact, const float *fast, int n, bool *same)
{
    int top[2] = {0, 0};
    double sum[2] = {0, 0}, kl = 0;
    for (int i = 0; i < n; i++) {
        if (exact[i] > exact[top[0]]) top[0] = i;
        if (fast[i] > fast[top[1]]) top[1] = i;
    }
    for (int i = 0; i < n; i++) {
        sum[0] += exp((double)exact[i] - (double)exact[top[0]]);
        sum[1] += exp((double)fast[i] - (double)fast[top[1]]);
    }
    double z[2] = {(double)exact[top[0]] + log(sum[0]), (double)fast[top[1]] + log(sum[1])};
    for (int i = 0; i < n; i++) kl += exp((double)exact[i] - z[0]) * ((double)exact[i] - z[0] - (double)fast[i] + z[1]);
    *same = top[0] == top[1];
    return kl;
}

static double negative_logprob(const struct trace *t, const struct model *m)
{
    double sum = 0;
    for (int i = 0; i + 1 < n_ids; i++) {
        struct token_logprob top;
        float lp;
        logits_logprobs(trace_logits(t, m, i), model_shape(m)->vocab, ids[i + 1], &lp, &top, 1);
        sum -= (double)lp;
    }
    return sum / (n_ids - 1);
}

static struct model *open_mode(enum cpu_tier tier, bool fast, bool kv_f32, struct trace *t)
{
    struct lily_err err = {0};
    struct model_options o;
    struct model *m;
    model_options_init(&o);
    o.threads = 2, o.tier = tier, o.fast = fast, o.plan.kv_f32 = kv_f32, o.plan.ctx = 4096;
    assert_ok(model_open(model_dir, &o, &m, &err));
    trace_model(m, ids, n_ids, (struct traced_run){512, PHASE_PREFILL}, t);
    return m;
}

/* The fast mode against the exact one, each with the same type of keys and values. */
static void compare_fast(enum cpu_tier tier, bool kv_f32)
{
    struct trace exact, t;
    struct model *e = open_mode(tier, false, kv_f32, &exact), *m = open_mode(tier, true, kv_f32, &t);
    double kl = 0;
    int same = 0;
    for (int i = 0; i < n_ids; i++) {
        bool top;
        kl += divergence(trace_logits(&exact, e, i), trace_logits(&t, m, i), model_shape(m)->vocab, &top);
        same += top;
    }
    double nats = negative_logprob(&exact, e), fast_nats = negative_logprob(&t, m);
    printf("%s, fast against exact, %s cache: KL %.6f, same top token on %d of %d, perplexity %.4f and %.4f (%+.3f%%)\n", cpu_tier_name(tier),
           kv_f32 ? "f32" : "bf16", kl / n_ids, same, n_ids, exp(nats), exp(fast_nats), 100 * (exp(fast_nats - nats) - 1));
    assert_true(kl / n_ids <= 0.002);
    assert_true(same >= 0.985 * n_ids);
    trace_free(&exact);
    trace_free(&t);
    model_close(e);
    model_close(m);
}

/* On every tier that this processor has but plain C, where both modes are the same. */
static void compare_tiers(bool kv_f32)
{
    for (enum cpu_tier tier = CPU_SCALAR + 1; tier < CPU_TIERS; tier++)
        if (cpu_tier_runs(tier)) compare_fast(tier, kv_f32);
}

static void test_fast(void **state)
{
    (void)state;
    compare_tiers(true);
}

static void test_fast_bf16(void **state)
{
    (void)state;
    compare_tiers(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_model), cmocka_unit_test(test_transformers),
                                       cmocka_unit_test(test_mlx), cmocka_unit_test(test_fast), cmocka_unit_test(test_fast_bf16)};
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    return tests_finish(5, failed);
}
