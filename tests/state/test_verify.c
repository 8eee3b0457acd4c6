/* --verify-cache finds a planted difference, and none where there is none; what is read ahead gives way to a job at once. */
#include "unit/testing.h"

#include "backend/cpu/state.h"
#include "base/log.h"
#include "run/forward.h"
#include "run/runner.h"
#include "support/golden.h"

enum { N = 300 };

struct side {
    struct bundle bundle;
    struct runner *runner; /* owned */
};

static void open_side(struct side *s, double verify)
{
    struct lily_err err = {0};
    assert_ok(bundle_open("tests/data/tiny", &s->bundle, &err));
    struct runner_model_options o = {.n_slots = 1, .cache_bytes = 64 << 20, .verify = verify};
    model_options_init(&o.model);
    o.model.threads = 2;
    o.model.plan.ctx = 1024;
    o.model.plan.n_seqs = 2;
    o.model.plan.border_bytes = 64 << 20;
    s->runner = runner_model_new(&s->bundle, &o);
    assert_ok(s->runner->ops->load(s->runner, &err));
}

static void close_side(struct side *s)
{
    s->runner->ops->free(s->runner);
    bundle_close(&s->bundle);
}

static void fill_ids(int32_t *ids, uint32_t seed)
{
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 16) % 300;
    }
}

/* Reads a prompt and ends; returns the tokens that were there. */
static int read_prompt(struct side *s, const int32_t *ids)
{
    struct lily_err err = {0};
    const struct runner_ops *ops = s->runner->ops;
    struct job_spec spec = {.ids = ids, .n_ids = N, .n_logprobs = -1, .max_tokens = 1, .text = ""};
    struct job_result result = {0};
    sampler_params_init(&spec.sampling);
    struct job *job = job_new(&spec, 1);
    assert_ok(ops->begin(s->runner, 0, job, &result, &err));
    bool goes_on;
    for (int at = 0; at < N;) assert_ok(ops->prefill(s->runner, 0, &at, &goes_on, &err));
    ops->end(s->runner, 0);
    job_free(job);
    return result.reused;
}

static void tend(struct side *s)
{
    struct lily_err err = {0};
    bool more = true;
    for (int i = 0; more && i < 100; i++) assert_ok(s->runner->ops->tend(s->runner, true, &more, &err));
    assert_false(more);
}

static void test_planted_difference(void **state)
{
    (void)state;
    struct side s;
    int32_t a[N], b[N];
    open_side(&s, 1);
    const struct cache_counters *k = s.runner->cache;
    fill_ids(a, 1);
    fill_ids(b, 2);
    assert_int_equal(read_prompt(&s, a), 0);
    assert_int_equal(read_prompt(&s, b), 0);
    tend(&s);
    assert_int_equal(k->verified, 0); /* nothing came from saved state */
    assert_int_equal(read_prompt(&s, a), 256);
    assert_int_equal(read_prompt(&s, b), 256);
    tend(&s);
    assert_int_equal(k->verified, 2);
    assert_int_equal(k->differing, 0);
    const struct border *border;
    int length;
    assert_int_equal(borders_along(runner_model_borders(s.runner), a, N, &border, &length, 1), 1);
    border->recurrent[7] += 0.25f;
    log_quiet(true);
    assert_int_equal(read_prompt(&s, a), 256);
    assert_int_equal(read_prompt(&s, b), 256);
    tend(&s);
    assert_int_equal(k->verified, 4);
    assert_int_equal(k->differing, 1);
    close_side(&s);
}

static void test_share(void **state)
{
    (void)state;
    struct side s;
    int32_t a[N];
    open_side(&s, 0.25);
    fill_ids(a, 3);
    for (int i = 0; i < 9; i++) {
        read_prompt(&s, a);
        tend(&s);
    }
    assert_int_equal(s.runner->cache->verified, 2); /* of eight */
    close_side(&s);
}

/* Reading ahead stops when a job comes, and what it has read is there for it. */
static void test_read_ahead(void **state)
{
    (void)state;
    struct side s;
    int32_t a[N];
    bool more;
    struct lily_err err = {0};
    open_side(&s, 0);
    fill_ids(a, 4);
    for (int round = 0; round < 2; round++) { /* the second time nothing more is begun once a job is there */
        struct read_ahead *r = calloc(1, sizeof *r);
        assert_non_null(r);
        a[0] = round;
        for (int i = 0; i < 256; i++) ids_add(&r->ids, a[i]);
        s.runner->ops->read_ahead(s.runner, r);
        assert_ok(s.runner->ops->tend(s.runner, true, &more, &err));
        assert_true(more);
        atomic_store(&s.runner->hurry, round == 1);
        if (round == 1) assert_ok(s.runner->ops->tend(s.runner, true, &more, &err));
        atomic_store(&s.runner->hurry, false);
        assert_int_equal(read_prompt(&s, a), 128);
        tend(&s);
        assert_int_equal(read_prompt(&s, a), 256);
    }
    struct read_ahead *r = calloc(1, sizeof *r);
    assert_non_null(r);
    a[0] = 2;
    for (int i = 0; i < 256; i++) ids_add(&r->ids, a[i]);
    s.runner->ops->read_ahead(s.runner, r);
    tend(&s);
    assert_int_equal(read_prompt(&s, a), 256);
    assert_true(s.runner->cache->idle_tokens >= 256);
    close_side(&s);
}

/* A pass that is stopped after a layer, and a sequence that is whole again once it is reset. */
static void test_stopped_pass(void **state)
{
    (void)state;
    struct lily_err err = {0};
    int32_t ids[N];
    fill_ids(ids, 5);
    struct model *m = open_model("tests/data/tiny", cpu_best_tier(), 1, false);
    struct backend *be = model_backend(m);
    size_t n = sizeof(float) * (size_t)model_shape(m)->vocab;
    float *logits[2];
    atomic_bool stop = true;
    struct seq *seq;
    assert_ok(be->ops->seq_new(be, &seq, &err));
    for (int i = 0; i < 2; i++) {
        logits[i] = calloc(1, sizeof(float) * (size_t)shape_logits_ld(model_shape(m)));
        assert_non_null(logits[i]);
        struct rows rows = {PHASE_PREFILL, seq, ids, N, logits[i], i ? &stop : NULL};
        assert_ok(be->ops->seq_reserve(be, seq, N, &err));
        if (i) {
            assert_int_equal(forward_rows(m, &rows, &err), LILY_ERR_CANCELLED);
            be->ops->seq_reset(be, seq);
            atomic_store(&stop, false);
            assert_ok(be->ops->seq_reserve(be, seq, N, &err));
        }
        assert_ok(forward_rows(m, &rows, &err));
        be->ops->seq_reset(be, seq);
    }
    assert_memory_equal(logits[0], logits[1], n);
    be->ops->seq_free(be, seq);
    free(logits[0]);
    free(logits[1]);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted_difference), cmocka_unit_test(test_share),
                                       cmocka_unit_test(test_read_ahead), cmocka_unit_test(test_stopped_pass)};
    return RUN_TESTS(tests);
}
