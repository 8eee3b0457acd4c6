/*
 * Published numeric vectors (tests/data/vectors.json) against the kernels of every tier that runs here: convolution,
 * rotation, gated norm, and the gated delta rule over 130 tokens.
 */
#include "unit/testing.h"

#include <math.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rotary.h"
#include "json/json.h"

static struct json *vectors;
static struct cpu_kernels tables[CPU_TIERS];
static int n_tables;

static const struct json *member(const struct json *v, const char *key)
{
    const struct json *m = json_get(v, key);
    if (!m) fail_msg("vectors.json has no %s", key);
    return m;
}

static double number(const struct json *v, const char *key)
{
    return json_double(member(v, key));
}

static void assert_near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.10g, expected %.10g", what, got, want);
}

static void test_conv(void **state)
{
    (void)state;
    const struct json *v = member(vectors, "conv"), *h = member(v, "history"), *w = member(v, "w");
    for (int k = 0; k < n_tables; k++) {
        float history[3 * 16] = {0}, u[16] = {0}, weight[16 * 4] = {0}, out[16];
        for (int i = 0; i < 3; i++) history[16 * i + 5] = (float)json_double(json_at(h, (size_t)i));
        for (int i = 0; i < 4; i++) weight[5 * 4 + i] = (float)json_double(json_at(w, (size_t)i));
        u[5] = (float)number(v, "current");
        struct conv_job job = {history, u, weight, out, 16, 16, 16, 16, 1};
        tables[k].conv_silu(&job);
        assert_near((double)out[5], number(v, "out"), 1e-6, "convolution");
        assert_near((double)out[4], 0, 0, "a silent channel");
        assert_near((double)history[2 * 16 + 5], number(v, "current"), 0, "history");
        assert_near((double)history[5], -1, 0, "oldest history");
    }
}

static void test_rope(void **state)
{
    (void)state;
    const struct json *v = member(vectors, "rope"), *want = member(v, "out"), *f = member(v, "frequencies");
    double frequency[ROTARY_PAIRS];
    float x[HEAD_DIM], angles[ROTARY_DIM];
    rotary_frequencies(number(v, "theta"), frequency);
    for (size_t j = 0; j < ROTARY_PAIRS; j++) assert_near(frequency[j] / json_double(json_at(f, j)), 1, 1e-12, "frequency");
    for (int i = 0; i < HEAD_DIM; i++) x[i] = 0.01f * (float)(i + 1);
    rotary_angles(frequency, (int)number(v, "pos"), angles);
    rotary_apply(x, angles);
    for (size_t i = 0; i < json_size(want); i++) assert_near((double)x[i], json_double(json_at(want, i)), 2e-7, "rotation");
    assert_near((double)x[64], 0.65, 1e-7, "an unrotated dimension");
}

static void test_gated_norm(void **state)
{
    (void)state;
    const struct json *v = member(vectors, "gated_norm"), *want = member(v, "out");
    for (int k = 0; k < n_tables; k++) {
        float o[GDN_DIM], z[GDN_DIM], w[GDN_DIM];
        double sum = 0;
        for (int i = 0; i < GDN_DIM; i++) {
            o[i] = (float)sin(0.2 * i);
            z[i] = (float)(2 * cos(0.3 * i));
            w[i] = 0.5f + (float)i / 256;
        }
        tables[k].gated_norm(o, o, w, z, 1e-6f);
        for (int i = 0; i < GDN_DIM; i++) sum += (double)o[i];
        for (size_t i = 0; i < json_size(want); i++) assert_near((double)o[i], json_double(json_at(want, i)), 2e-6, "gated norm");
        assert_near(sum, number(v, "sum"), 1e-5, "sum");
    }
}

/* The state after step t as the vectors give it; S[v][k] there, (k, v) here. */
static void check_gdn_step(const struct json *step, const float *S, const float *o)
{
    const struct json *want = member(step, "o");
    for (size_t i = 0; i < json_size(want); i++) assert_near((double)o[i], json_double(json_at(want, i)), 1e-7, "delta rule output");
    int n_cells = 0;
    for (size_t i = 0; i < json_size(step); i++) {
        const struct json *value;
        int row, col;
        if (sscanf(json_key_at(step, i, &value), "S_%d_%d", &row, &col) != 2) continue;
        assert_near((double)S[col * GDN_DIM + row], json_double(value), 1e-6, "state");
        n_cells++;
    }
    assert_int_equal(n_cells, 5);
    double sum = 0, squares = 0;
    for (int i = 0; i < GDN_DIM * GDN_DIM; i++) sum += (double)S[i], squares += (double)S[i] * (double)S[i];
    assert_near(sum, number(step, "S_sum"), 2e-3, "sum of the state");
    assert_near(sqrt(squares), number(step, "S_norm"), 1e-4, "norm of the state");
}

static void test_gdn(void **state)
{
    (void)state;
    const struct json *v = member(vectors, "gdn"), *steps = member(v, "steps");
    double a_log = number(v, "A_log"), dt_bias = number(v, "dt_bias");
    for (int t_index = 0; t_index < n_tables; t_index++) {
        static _Alignas(64) float S[GDN_DIM * GDN_DIM];
        _Alignas(64) float q[GDN_DIM], k[GDN_DIM], x[GDN_DIM], o[GDN_DIM];
        const struct cpu_kernels *kernels = &tables[t_index];
        size_t next = 0;
        memset(S, 0, sizeof S);
        for (int t = 0; t < 130; t++) {
            for (int i = 0; i < GDN_DIM; i++) {
                q[i] = (float)sin(0.37 * (t + 1) + 0.11 * (i + 1));
                k[i] = (float)cos(0.23 * (t + 1) - 0.07 * (i + 1));
                x[i] = (float)sin(0.05 * (t + 1) * (i % 7 + 1));
            }
            kernels->l2_norm(q, q, (float)(1 / sqrt(128)));
            kernels->l2_norm(k, k, 1);
            double u = 0.5 * sin(0.3 * (t + 1)) + dt_bias;
            float g = (float)exp(-exp(a_log) * (fmax(u, 0) + log1p(exp(-fabs(u)))));
            float beta = (float)(1 / (1 + exp(-1.5 * cos(0.2 * (t + 1)))));
            struct gdn_job job = {.state = S, .v_hi = GDN_DIM, .q = q, .k = k, .v = x, .ldqk = GDN_DIM, .ldv = GDN_DIM,
                                  .g = &g, .beta = &beta, .ldg = 1, .n = 1, .o = o, .ldo = GDN_DIM};
            kernels->gdn(&job);
            if (next < json_size(steps) && number(json_at(steps, next), "t") == t) check_gdn_step(json_at(steps, next++), S, o);
        }
        assert_int_equal(next, json_size(steps));
    }
}

int main(void)
{
    struct lily_err err = {0};
    if (json_parse_file("tests/data/vectors.json", 1 << 20, &vectors, &err) != LILY_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    for (int t = 0; t < CPU_TIERS; t++)
        if (cpu_tier_runs((enum cpu_tier)t)) cpu_kernels_init(&tables[n_tables++], (enum cpu_tier)t);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv), cmocka_unit_test(test_rope),
                                       cmocka_unit_test(test_gated_norm), cmocka_unit_test(test_gdn)};
    int failed = RUN_TESTS(tests);
    json_free(vectors);
    return failed;
}
