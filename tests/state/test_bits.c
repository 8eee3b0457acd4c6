/*
 * The rule of ARCHITECTURE.md, State: bits depend on the tokens before a row and on nothing else. Prefill schedules on the
 * grid, numbers of threads, neighbours in a batch, saved borders: all give the same bits as one cold run.
 */
#include "unit/testing.h"

#include "run/session.h"
#include "support/golden.h"

static const char dir[] = "tests/data/tiny";
#ifdef TEST_EMULATED /* make qemu: the shorter ones, and one tier, or it would take a quarter of an hour */
enum { LENGTH = 200, LONGEST_TURN = 450, N_SEQS = 4 };
#else
enum { LENGTH = 333, LONGEST_TURN = 700, N_SEQS = 4 };
#endif

static void fill_ids(int32_t *ids, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 16) % 300;
    }
}

static void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    if (memcmp(a, b, n * sizeof *a) == 0) return;
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0) fail_msg("%s: first difference at float %zu: %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}

static void assert_same_trace(const struct model *m, const struct trace *a, const struct trace *b, const char *what)
{
    const struct model_shape *s = model_shape(m);
    assert_int_equal(a->n, b->n);
    assert_same_bits(a->hidden, b->hidden, (size_t)(s->n_layers + 1) * (size_t)a->n * (size_t)s->hidden, what);
    for (int i = 0; i < a->n; i++) assert_same_bits(trace_logits(a, m, i), trace_logits(b, m, i), (size_t)s->vocab, what);
}

static enum cpu_tier tiers[CPU_TIERS];
static int n_tiers;

static void test_prefill_schedules(void **state)
{
    (void)state;
    int32_t ids[LENGTH];
    fill_ids(ids, LENGTH, 1);
    for (int k = 0; k < n_tiers; k++)
        for (int f32 = 0; f32 < 2; f32++) {
            struct model *m = open_model(dir, tiers[k], 2, f32);
            struct trace whole, t;
            trace_model(m, ids, LENGTH, (struct traced_run){512, PHASE_PREFILL}, &whole);
            const int pieces[] = {64, 128, 320};
            for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
                trace_model(m, ids, LENGTH, (struct traced_run){pieces[i], PHASE_PREFILL}, &t);
                assert_same_trace(m, &whole, &t, cpu_tier_name(tiers[k]));
                trace_free(&t);
            }
            trace_free(&whole);
            model_close(m);
        }
}

static void test_threads(void **state)
{
    (void)state;
    int32_t ids[LENGTH];
    fill_ids(ids, LENGTH, 2);
    for (int k = 0; k < n_tiers; k++) {
        struct trace one[2], t;
        const struct traced_run runs[2] = {{512, PHASE_PREFILL}, {1, PHASE_DECODE}};
        for (int threads = 1; threads <= 3; threads++) {
            struct model *m = open_model(dir, tiers[k], threads, false);
            for (int i = 0; i < 2; i++) {
                trace_model(m, ids, i ? 70 : LENGTH, runs[i], threads == 1 ? &one[i] : &t);
                if (threads == 1) continue;
                assert_same_trace(m, &one[i], &t, "number of threads");
                trace_free(&t);
            }
            model_close(m);
        }
        trace_free(&one[0]);
        trace_free(&one[1]);
    }
}

/* Rows of one sequence that decode together are what they are one by one. */
static void test_decode_rows(void **state)
{
    (void)state;
    enum { N = 90 };
    int32_t ids[N];
    fill_ids(ids, N, 4);
    for (int k = 0; k < n_tiers; k++)
        for (int f32 = 0; f32 < 2; f32++) {
            struct model *m = open_model(dir, tiers[k], 2, f32);
            struct trace one, seven;
            trace_model(m, ids, N, (struct traced_run){1, PHASE_DECODE}, &one);
            trace_model(m, ids, N, (struct traced_run){7, PHASE_DECODE}, &seven);
            assert_same_trace(m, &one, &seven, "rows of decode");
            trace_free(&one);
            trace_free(&seven);
            model_close(m);
        }
}

/* Several sequences of different lengths in one batch, prefill and then decode, against each alone. */
static void run_together(struct model *m, int32_t ids[N_SEQS][LENGTH], const int *n, int decode, float *logits)
{
    struct lily_err err = {0};
    struct backend *be = model_backend(m);
    size_t ld = (size_t)shape_logits_ld(model_shape(m));
    struct batch_seq bs[N_SEQS];
    int32_t all[N_SEQS * LENGTH], last[N_SEQS];
    int rows = 0;
    for (int i = 0; i < N_SEQS; i++) {
        assert_ok(be->ops->seq_new(be, &bs[i].seq, &err));
        assert_ok(be->ops->seq_reserve(be, bs[i].seq, n[i], &err));
        bs[i].n = n[i];
        memcpy(all + rows, ids[i], sizeof(int32_t) * (size_t)n[i]);
        rows += n[i];
        last[i] = rows - 1;
    }
    struct batch b = {.phase = PHASE_PREFILL, .n_seqs = N_SEQS, .seqs = bs, .n_rows = rows, .ids = all,
                      .n_logits = N_SEQS, .logit_rows = last, .logits = logits};
    assert_ok(model_forward(m, &b, NULL, &err));
    for (int step = 0; step < decode; step++) {
        for (int i = 0; i < N_SEQS; i++) {
            assert_ok(be->ops->seq_reserve(be, bs[i].seq, 1, &err));
            bs[i].n = 1;
            all[i] = ids[i][(step * 7 + i) % 100];
            last[i] = i;
        }
        b.phase = PHASE_DECODE;
        b.n_rows = N_SEQS;
        b.logits = logits + (size_t)(step + 1) * N_SEQS * ld;
        assert_ok(model_forward(m, &b, NULL, &err));
    }
    for (int i = 0; i < N_SEQS; i++) be->ops->seq_free(be, bs[i].seq);
}

/* The fast mode keeps the rule, too: its prefill in pieces of any size, on any number of threads. */
static void test_fast_mode(void **state)
{
    (void)state;
    int32_t ids[LENGTH];
    fill_ids(ids, LENGTH, 3);
    const struct traced_run runs[] = {{512, PHASE_PREFILL}, {64, PHASE_PREFILL}, {192, PHASE_PREFILL}, {320, PHASE_PREFILL}};
    struct trace first, t;
    for (int i = 0; i < 4; i++) {
        struct lily_err err = {0};
        struct model_options o;
        struct model *m;
        model_options_init(&o);
        o.fast = true, o.threads = i + 1, o.plan.ctx = 1024;
        assert_ok(model_open(dir, &o, &m, &err));
        trace_model(m, ids, LENGTH, runs[i], i ? &t : &first);
        if (i) {
            assert_same_trace(m, &first, &t, "fast mode");
            trace_free(&t);
        }
        model_close(m);
    }
    trace_free(&first);
}

static void test_batch_neighbours(void **state)
{
    (void)state;
    enum { DECODE = 6 };
    static int32_t ids[N_SEQS][LENGTH];
    const int n[N_SEQS] = {100, 64, 1, 130};
    for (int i = 0; i < N_SEQS; i++) fill_ids(ids[i], LENGTH, (uint32_t)(10 + i));
    for (int k = 0; k < n_tiers; k++) {
        struct model *m = open_model(dir, tiers[k], 2, false);
        size_t vocab = (size_t)model_shape(m)->vocab, ld = (size_t)shape_logits_ld(model_shape(m));
        float *logits = malloc(sizeof *logits * (DECODE + 1) * N_SEQS * ld);
        assert_non_null(logits);
        run_together(m, ids, n, DECODE, logits);
        for (int i = 0; i < N_SEQS; i++) {
            struct lily_err err = {0};
            struct session *alone;
            struct session_options o = {.ctx = 512};
            struct sync_request r = {.ids = ids[i], .n = n[i]};
            struct sync_result result;
            assert_ok(session_new(m, &o, &alone, &err));
            assert_ok(session_sync(alone, &r, &result, &err));
            for (int step = 0;; step++) {
                assert_same_bits(session_logits(alone), logits + ((size_t)step * N_SEQS + (size_t)i) * ld, vocab, "batch slot");
                if (step == DECODE) break;
                assert_ok(session_step(alone, ids[i][(step * 7 + i) % 100], &err));
            }
            session_free(alone);
        }
        free(logits);
        model_close(m);
    }
}

static void sync_ok(struct session *s, const int32_t *ids, int n, const int *marks, int n_marks, struct sync_result *out)
{
    struct lily_err err = {0};
    struct sync_request r = {.ids = ids, .n = n, .marks = marks, .n_marks = n_marks};
    assert_ok(session_sync(s, &r, out, &err));
}

/* A conversation whose turns branch, are edited and repeated: every cached answer equals a cold one, bit for bit. */
static void test_borders_equal_cold(void **state)
{
    (void)state;
    enum { N = 700 };
    struct lily_err err = {0};
    int32_t base[N], edited[N];
    fill_ids(base, N, 5);
    memcpy(edited, base, sizeof base);
    edited[300] = (base[300] + 1) % 300;
    const struct {
        const int32_t *ids;
        int n, least_reused;
    } turns[] = {{base, 200, 0},     {base, 200, 192}, {base, 450, 192}, {edited, 450, 192}, {base, 450, 448},
                 {edited, 640, 448}, {base, 65, 64},   {base, 64, 0},    {base, 700, 448},   {base, 699, 640}};
    for (int k = 0; k < n_tiers; k++) {
        struct model *m = open_model(dir, tiers[k], 2, false);
        size_t vocab = (size_t)model_shape(m)->vocab;
        struct session *warm, *cold;
        struct session_options o = {.ctx = 1024, .max_borders = 16, .piece = 128};
        assert_ok(session_new(m, &o, &warm, &err));
        o.max_borders = 0;
        assert_ok(session_new(m, &o, &cold, &err));
        for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
            struct sync_result a, b;
            if (turns[i].n > LONGEST_TURN) continue;
            const int marks[] = {70, turns[i].n - 3 > 70 ? turns[i].n - 3 : 71};
            sync_ok(warm, turns[i].ids, turns[i].n, marks, 2, &a);
            session_clear(cold);
            sync_ok(cold, turns[i].ids, turns[i].n, NULL, 0, &b);
            assert_int_equal(b.reused, 0);
            assert_int_equal(a.reused + a.computed, turns[i].n);
            assert_true(a.reused >= turns[i].least_reused);
            assert_same_bits(session_logits(warm), session_logits(cold), vocab, "a border");
            for (int step = 0; step < 3; step++) { /* the live state is now a decode state and must not be reused */
                assert_ok(session_step(warm, base[step], &err));
                assert_ok(session_step(cold, base[step], &err));
                assert_same_bits(session_logits(warm), session_logits(cold), vocab, "decode after a border");
            }
        }
        session_free(warm);
        session_free(cold);
        model_close(m);
    }
}

static void test_checkpoint_rules(void **state)
{
    (void)state;
    struct lily_err err = {0};
    int32_t ids[200];
    fill_ids(ids, 200, 9);
    struct model *m = open_model(dir, CPU_SCALAR, 1, false);
    struct session *s;
    struct session_options o = {.ctx = 200, .max_borders = 4};
    struct sync_result r;
    assert_ok(session_new(m, &o, &s, &err));
    sync_ok(s, ids, 100, NULL, 0, &r);
    assert_int_equal(session_checkpoint(s, &err), LILY_ERR_USAGE); /* off the grid */
    sync_ok(s, ids, 128, NULL, 0, &r);
    assert_ok(session_checkpoint(s, &err));
    for (int i = 0; i < 64; i++) assert_ok(session_step(s, ids[i], &err));
    assert_int_equal(session_length(s), 192);
    assert_int_equal(session_checkpoint(s, &err), LILY_ERR_USAGE); /* after decode steps */
    for (int i = 0; i < 8; i++) assert_ok(session_step(s, ids[i], &err));
    assert_int_equal(session_step(s, 0, &err), LILY_ERR_LIMIT); /* the context is full */
    int32_t bad[] = {1, 320};
    struct sync_request request = {.ids = bad, .n = 2};
    assert_int_equal(session_sync(s, &request, &r, &err), LILY_ERR_USAGE); /* an id that is no row */
    request.n = 0;
    assert_int_equal(session_sync(s, &request, &r, &err), LILY_ERR_USAGE);
    session_free(s);
    model_close(m);
}

int main(void)
{
    for (int t = 0; t < CPU_TIERS; t++)
#if defined(LILY_SAN) || defined(TEST_EMULATED) /* threads are the same in every tier */
        if ((enum cpu_tier)t == cpu_best_tier()) tiers[n_tiers++] = (enum cpu_tier)t;
#else
        if (cpu_tier_runs((enum cpu_tier)t)) tiers[n_tiers++] = (enum cpu_tier)t;
#endif
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prefill_schedules), cmocka_unit_test(test_threads), cmocka_unit_test(test_decode_rows),
                                       cmocka_unit_test(test_fast_mode), cmocka_unit_test(test_batch_neighbours),
                                       cmocka_unit_test(test_borders_equal_cold), cmocka_unit_test(test_checkpoint_rules)};
    return RUN_TESTS(tests);
}
