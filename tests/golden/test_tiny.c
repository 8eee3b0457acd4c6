/*
 * The forward pass of every CPU tier, and the slow reference, against what transformers computed in fp32 for the tiny
 * checkpoint: logits and the hidden state after every layer to 1e-4 of the row's rms (2e-3 where prefill multiplies whole
 * numbers), in prefill pieces of 7, 64 and 512 rows and token by token through prefill and decode.
 */
#include "unit/testing.h"

#include "load/checkpoint.h"
#include "model/reference.h"
#include "support/golden.h"

#ifdef TEST_QUICK /* tests/neon.sh: what is new on another processor; the rest is left to make qemu */
static const int lengths[] = {1, 5, 65};
#else
static const int lengths[] = {1, 5, 63, 64, 65, 200, 700};
#endif
#ifdef TEST_EMULATED /* make qemu: without the longest, which take longer than all others */
enum { MOST = 65, MOST_REFERENCE = 65 };
#else
enum { MOST = 700, MOST_REFERENCE = 200 };
#endif
static const double fp32_tolerance = 1e-4, whole_tolerance = 2e-3;

struct recorded {
    int32_t *ids, *pos;
    float *hidden, *logits;
    int n, n_pos, hidden_dim, vocab;
};

static bool load_recorded(const struct golden *g, int length, const struct model_shape *s, struct recorded *r)
{
    char name[32];
    int n;
    memset(r, 0, sizeof *r);
    snprintf(name, sizeof name, "p%d.ids", length);
    r->ids = golden_ints(g, name, &r->n);
    if (!r->ids) return false;
    snprintf(name, sizeof name, "p%d.pos", length);
    r->pos = golden_ints(g, name, &r->n_pos);
    snprintf(name, sizeof name, "p%d.hidden", length);
    r->hidden = golden_floats(g, name, &n);
    assert_int_equal(n, (s->n_layers + 1) * r->n_pos * s->hidden);
    snprintf(name, sizeof name, "p%d.logits", length);
    r->logits = golden_floats(g, name, &n);
    assert_int_equal(n, r->n_pos * s->vocab);
    assert_int_equal(r->n, length);
    return true;
}

static void free_recorded(struct recorded *r)
{
    free(r->ids);
    free(r->pos);
    free(r->hidden);
    free(r->logits);
}

static void compare(const struct model *m, const struct recorded *r, const struct trace *t, double tolerance, const char *what)
{
    const struct model_shape *s = model_shape(m);
    for (int i = 0; i < r->n_pos; i++) {
        for (int l = 0; l <= s->n_layers; l++) {
            const float *want = r->hidden + ((size_t)l * (size_t)r->n_pos + (size_t)i) * (size_t)s->hidden;
            double e = relative_error(trace_hidden(t, m, l, r->pos[i]), want, s->hidden);
            if (!(e < tolerance)) fail_msg("%s: prompt of %d, position %d, layer %d: off by %.2e of the row's rms", what, r->n, r->pos[i], l - 1, e);
        }
        double e = relative_error(trace_logits(t, m, r->pos[i]), r->logits + (size_t)i * (size_t)s->vocab, s->vocab);
        if (!(e < tolerance)) fail_msg("%s: prompt of %d, position %d: logits off by %.2e of the row's rms", what, r->n, r->pos[i], e);
    }
}

static void check_tier(enum cpu_tier tier)
{
    static const struct traced_run runs[] = {{512, PHASE_PREFILL}, {64, PHASE_PREFILL}, {7, PHASE_PREFILL},
                                             {1, PHASE_PREFILL},   {1, PHASE_DECODE}};
    if (!cpu_tier_runs(tier) && tier == CPU_AVX512) TEST_ELSEWHERE("tests/avx512.sh plays the tier that this processor lacks");
    if (!cpu_tier_runs(tier)) TEST_SKIP("this processor does not run the tier %s (tests/avx512.sh plays it)", cpu_tier_name(tier));
    struct golden g;
    golden_open(&g, "tests/data/tiny/golden.safetensors");
    struct model *m = open_model("tests/data/tiny", tier, 1, true);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0] && lengths[i] <= MOST; i++) {
        struct recorded r;
        assert_true(load_recorded(&g, lengths[i], model_shape(m), &r));
        for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
#ifdef TEST_QUICK
            if (runs[k].piece != 512 && runs[k].phase == PHASE_PREFILL) continue;
#endif
            if (tier == CPU_SCALAR && r.n > 200 && runs[k].piece == 7) continue; /* the slowest, and shown at 200 */
            struct trace t;
            char what[64];
            snprintf(what, sizeof what, "%s, %s in pieces of %d", cpu_tier_name(tier),
                     runs[k].phase == PHASE_DECODE ? "decode" : "prefill", runs[k].piece);
            trace_model(m, r.ids, r.n, runs[k], &t);
            compare(m, &r, &t, runs[k].phase == PHASE_PREFILL && tier != CPU_SCALAR ? whole_tolerance : fp32_tolerance, what);
            trace_free(&t);
        }
        free_recorded(&r);
    }
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

#ifndef TEST_QUICK
/* The reference in double is the same function that transformers computes, so it must agree as well. */
static void test_reference(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct model_config config;
    struct checkpoint *ck;
    struct golden g;
    golden_open(&g, "tests/data/tiny/golden.safetensors");
    assert_ok(config_load("tests/data/tiny", &config, &err));
    assert_ok(checkpoint_open("tests/data/tiny", &config, &ck, &err));
    const struct model_shape *s = &config.shape;
    for (size_t i = 0; lengths[i] <= MOST_REFERENCE; i++) {
        struct recorded r;
        assert_true(load_recorded(&g, lengths[i], s, &r));
        struct reference_out out = {.hidden = calloc((size_t)(s->n_layers + 1) * (size_t)r.n * (size_t)s->hidden, sizeof(double)),
                                    .logits = calloc((size_t)r.n * (size_t)s->vocab, sizeof(double))};
        assert_ok(reference_forward(&config, ck, r.ids, r.n, &out, &err));
        float *row = malloc(sizeof *row * (size_t)(s->vocab > s->hidden ? s->vocab : s->hidden));
        for (int p = 0; p < r.n_pos; p++) {
            for (int l = 0; l <= s->n_layers; l++) {
                for (int c = 0; c < s->hidden; c++) row[c] = (float)out.hidden[((size_t)l * (size_t)r.n + (size_t)r.pos[p]) * (size_t)s->hidden + (size_t)c];
                assert_true(relative_error(row, r.hidden + ((size_t)l * (size_t)r.n_pos + (size_t)p) * (size_t)s->hidden, s->hidden) < fp32_tolerance);
            }
            for (int c = 0; c < s->vocab; c++) row[c] = (float)out.logits[(size_t)r.pos[p] * (size_t)s->vocab + (size_t)c];
            assert_true(relative_error(row, r.logits + (size_t)p * (size_t)s->vocab, s->vocab) < fp32_tolerance);
        }
        free(row);
        free(out.hidden);
        free(out.logits);
        free_recorded(&r);
    }
    checkpoint_close(ck);
    config_free(&config);
    golden_close(&g);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifndef TEST_QUICK
        cmocka_unit_test(test_reference),
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
