/*
 * A checkpoint that mlx-lm itself wrote: loads unchanged; logits of both prompts to 1e-3 of the row's rms, and the greedy
 * continuation equal, through a session.
 */
#include "unit/testing.h"

#include "run/session.h"
#include "support/golden.h"

static const double tolerance = 1e-3;

static int32_t argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void check_sequence(struct model *m, const struct golden *g, int index)
{
    const struct model_shape *s = model_shape(m);
    struct lily_err err = {0};
    char name[32];
    int n, n_greedy, k;
    snprintf(name, sizeof name, "seq%d.ids", index);
    int32_t *ids = golden_ints(g, name, &n);
    snprintf(name, sizeof name, "seq%d.greedy", index);
    int32_t *greedy = golden_ints(g, name, &n_greedy);
    snprintf(name, sizeof name, "seq%d.logits", index);
    float *logits = golden_floats(g, name, &k);
    assert_int_equal(k, n * s->vocab);
    struct trace t;
    trace_model(m, ids, n, (struct traced_run){512, PHASE_PREFILL}, &t);
    for (int p = 0; p < n; p++) {
        double e = relative_error(trace_logits(&t, m, p), logits + (size_t)p * (size_t)s->vocab, s->vocab);
        if (!(e < tolerance)) fail_msg("sequence %d, position %d: logits off by %.2e of the row's rms", index, p, e);
    }
    trace_free(&t);

    struct session *session;
    struct session_options o = {.ctx = 128};
    struct sync_request r = {.ids = ids, .n = n};
    struct sync_result result;
    assert_ok(session_new(m, &o, &session, &err));
    assert_ok(session_sync(session, &r, &result, &err));
    for (int i = 0; i < n_greedy; i++) {
        assert_int_equal(argmax(session_logits(session), s->vocab), greedy[i]);
        assert_ok(session_step(session, greedy[i], &err));
    }
    session_free(session);
    free(ids);
    free(greedy);
    free(logits);
}

static void check_tier(enum cpu_tier tier)
{
    if (!cpu_tier_runs(tier) && tier == CPU_AVX512) TEST_ELSEWHERE("tests/avx512.sh plays the tier that this processor lacks");
    if (!cpu_tier_runs(tier)) TEST_SKIP("this processor does not run the tier %s (tests/avx512.sh plays it)", cpu_tier_name(tier));
    struct golden g;
    golden_open(&g, "tests/data/tiny-mlx/golden.safetensors");
    struct model *m = open_model("tests/data/tiny-mlx", tier, 1, true);
    check_sequence(m, &g, 0);
#ifndef TEST_QUICK
    check_sequence(m, &g, 1);
#endif
    model_close(m);
    golden_close(&g);
}

#ifndef TEST_QUICK
static void test_scalar(void **state)
{
    (void)state;
    check_tier(CPU_SCALAR);
}
#endif

#if defined(__aarch64__)
static void test_neon(void **state)
{
    (void)state;
    check_tier(CPU_NEON);
}
#else
static void test_avx2(void **state)
{
    (void)state;
    check_tier(CPU_AVX2);
}

static void test_avx512(void **state)
{
    (void)state;
    check_tier(CPU_AVX512);
}

static void test_amx(void **state)
{
    (void)state;
    check_tier(CPU_AMX);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifndef TEST_QUICK
        cmocka_unit_test(test_scalar),
#endif
#if defined(__aarch64__)
        cmocka_unit_test(test_neon),
#else
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_amx),
#endif
    };
    return RUN_TESTS(tests);
}
