/* The benchmark's costs against the figures worked out for the published model, its verdicts, and a run on a tiny model. */
#include "../testing.h"

#include <math.h>

#include "base/busy.h"
#include "load/synth.h"
#include "model/cost.h"
#include "run/bench.h"

static void near(double found, double expected, double share)
{
    if (fabs(found - expected) > share * expected) fail_msg("%g, expected %g", found, expected);
}

static void costs_of_the_published_model(void **state)
{
    (void)state;
    struct lily_err err;
    struct synth_plan p;
    assert_ok(synth_plan_make(SYNTH_35B, 1, &p, &err));
    near(cost_decode(&p.config, 0, 2).bytes, 1798e6, 0.002); /* 1,667 MB of weights, 131 MB of state and small parts */
    near(cost_decode(&p.config, 4096, 2).bytes, 1882e6, 0.002);
    near(cost_decode(&p.config, 32768, 2).bytes, 2469e6, 0.002);
    near(cost_decode(&p.config, 32768, 4).bytes - cost_decode(&p.config, 32768, 2).bytes, 32769.0 * 20480, 1e-6);
    near(cost_prefill(&p.config, 512, 2).ops / 512, 4.87e9 + 0.11e9 + 0.04e9, 0.02); /* products, delta rule, attention */
    near(cost_prefill(&p.config, 100000, 2).bytes - 100000.0 * (20480 + 1152), 19.22e9, 0.02); /* everything but the embedding */
    synth_plan_free(&p);
}

static struct bench_row judged(int n, const double *samples, double others, double read_gb_s)
{
    struct bench_row r = {.phase = PHASE_DECODE, .n_rounds = n, .others = others};
    struct device_limits l = {.read_gb_s = read_gb_s, .slow_below_gb_s = 25};
    memcpy(r.samples, samples, sizeof *samples * (size_t)n);
    bench_judge(&r, &l);
    return r;
}

static void verdicts_give_their_reason(void **state)
{
    (void)state;
    static const double three[] = {10.2, 10.0, 10.1}, apart[] = {10, 10.5};
    struct bench_row r = judged(3, three, 0, 30);
    assert_true(r.final && r.tok_s == 10.1 && r.note[0] == 0);
    near(r.spread, 0.2 / 10.1, 1e-9);
    r = judged(2, apart, 0, 30);
    assert_true(!r.final && r.tok_s == 10.25);
    assert_non_null(strstr(r.note, "differ by 4.9%"));
    r = judged(3, three, 0.2, 30);
    assert_true(!r.final);
    assert_non_null(strstr(r.note, "busy"));
    r = judged(3, three, 0, 20);
    assert_true(!r.final);
    assert_non_null(strstr(r.note, "host slow"));
    r = judged(1, three, 0, 30);
    assert_true(!r.final);
    r = (struct bench_row){.n_rounds = 3, .filled = true, .samples = {10, 10, 10}};
    bench_judge(&r, &(struct device_limits){0});
    assert_true(r.final);
    assert_non_null(strstr(r.note, "seed"));
}

static void count(void *ctx, int done, int total)
{
    int *n = ctx;
    assert_true(done <= total);
    (*n)++;
}

/* Contexts below and above the border of filled caches; lengths off the grid and across pieces. */
static void a_tiny_model_is_measured(void **state)
{
    (void)state;
    struct lily_err err;
    struct synth_plan p;
    struct model *m;
    struct model_options mo;
    struct bench_result result;
    int calls = 0;
    struct bench_options o = {.lengths = {5, 130, 256}, .n_lengths = 3, .prefill = true, .decode = true, .rounds = 2, .steps = 3,
                              .fill_from = 200, .warm_up = true, .seed = 1, .progress = count, .progress_ctx = &calls};
    model_options_init(&mo);
    mo.max_rows = 64;
    mo.plan.ctx = (bench_context(&o) + 63) / 64 * 64;
    assert_ok(synth_plan_make(SYNTH_TINY, 1, &p, &err));
    assert_ok(model_open_synth(&p, &mo, &m, &err));
    assert_ok(bench_run(m, &o, &result, &err));
    assert_int_equal(result.n_rows, 5);
    assert_int_equal(calls, 3 * 3 + 1);
    static const int contexts[] = {5, 5, 130, 130, 256};
    for (int i = 0; i < 5; i++) {
        const struct bench_row *r = &result.rows[i];
        assert_int_equal(r->context, contexts[i]);
        assert_int_equal(r->phase, i % 2 == 0 && i < 4 ? PHASE_PREFILL : PHASE_DECODE);
        assert_int_equal(r->filled, i == 4);
        assert_int_equal(r->n_rounds, 2);
        assert_true(r->tok_s > 0 && r->gb_s > 0 && r->floor_tok_s > 0 && r->share > 0);
        double steps = 0, token = 1e3 / r->samples[1]; /* of the last round */
        for (int k = 0; k < STEP_KINDS; k++) steps += r->step_ms[k];
        assert_true(r->step_ms[STEP_EXPERTS] > 0 && r->step_ms[STEP_HEAD] > 0 && steps <= token);
    }
    assert_true(result.limits.read_gb_s > 0 && result.limits.matmul_gop_s > 0);
    atomic_bool stop = true;
    o.cancel = &stop;
    assert_int_equal(bench_run(m, &o, &result, &err), LILY_ERR_CANCELLED);
    model_close(m);
    synth_plan_free(&p);
}

static void others_are_a_share(void **state)
{
    (void)state;
    struct busy_mark a = {100, 10, 1}, b = {110, 18, 4};
    near(busy_others(&a, &b), 0.5, 1e-9);
    b.own_s = 40;
    assert_true(busy_others(&a, &b) == 0);
    assert_true(busy_others(&a, &a) == 0);
    struct busy_mark now = busy_now();
    assert_true(now.own_s >= 0 && now.busy_s <= now.all_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_of_the_published_model), cmocka_unit_test(verdicts_give_their_reason),
        cmocka_unit_test(a_tiny_model_is_measured),     cmocka_unit_test(others_are_a_share),
    };
    return RUN_TESTS(tests);
}
