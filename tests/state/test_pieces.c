/*
 * Long pieces: the bits are those of short ones; other work between their layers changes nothing and is not changed; a piece that is
 * given up after any layer leaves a sequence, and saved states, from which everything goes on as if cold.
 */
#include "unit/testing.h"

#include <pthread.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "run/engine.h"
#include "run/reading.h"
#include "run/session.h"
#include "support/golden.h"

static const char dir[] = "tests/data/tiny";
enum { LAYERS = 4, SHORT = 300 /* rows of a short piece that is left, too */ };
#ifdef TEST_EMULATED /* make qemu: pieces just longer than short ones, and fewer cases, or it would take hours */
enum { N = 600, LONG = 576, LONGER = 1300, SHARED = 64, FROM = SHARED, BESIDE = 64, STEP = 2, LEFT = 4, LEAVERS = 1, FIRST_MODE = 1 };
#else
enum { N = 1600, LONG = 2 * CPU_SHORT_ROWS, LONGER = 2400, SHARED = 640, FROM = 0, BESIDE = CPU_SHORT_ROWS, STEP = 1, LEFT = 60, LEAVERS = 12, FIRST_MODE = 0 };
#endif

/* Exact and fast; in the fast mode layers differ in their digits. Under emulation that alone. */
static void in_each_mode(void (*check)(bool fast))
{
    for (int fast = FIRST_MODE; fast < 2; fast++) check(fast);
}

static void fill_ids(int32_t *ids, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 16) % 300;
    }
}

static struct model *open_long(enum cpu_tier tier, bool fast)
{
    struct lily_err err = {0};
    struct model_options o;
    struct model *m;
    model_options_init(&o);
    o.tier = tier;
    o.fast = fast;
    o.threads = 2;
    o.plan.ctx = 4096;
    o.plan.n_seqs = 4;
    o.plan.border_bytes = 64 << 20;
    assert_ok(model_open(dir, &o, &m, &err));
    assert_int_equal(model_rows(m), CPU_MAX_ROWS);
    return m;
}

static float *new_logits(const struct model *m)
{
    float *logits = calloc((size_t)shape_logits_ld(model_shape(m)), sizeof *logits);
    assert_non_null(logits);
    return logits;
}

static size_t logits_bytes(const struct model *m)
{
    return sizeof(float) * (size_t)model_shape(m)->vocab;
}

/* ---- sizes ---- */

static void read_in_pieces(struct model *m, const int32_t *ids, int n, int piece, float *logits)
{
    struct lily_err err = {0};
    struct session *s;
    struct session_options o = {.ctx = 4096, .piece = piece};
    struct sync_request r = {.ids = ids, .n = n};
    struct sync_result result;
    assert_ok(session_new(m, &o, &s, &err));
    assert_ok(session_sync(s, &r, &result, &err));
    memcpy(logits, session_logits(s), logits_bytes(m));
    assert_ok(session_step(s, 7, &err)); /* and what decode makes of the state */
    memcpy(logits + shape_logits_ld(model_shape(m)), session_logits(s), logits_bytes(m));
    session_free(s);
}

static void check_sizes(enum cpu_tier tier, bool fast, const int32_t *ids, int n)
{
    static const int pieces[] = {64, 512, 576, 1024, 2048};
    struct model *m = open_long(tier, fast);
    size_t both = 2 * (size_t)shape_logits_ld(model_shape(m));
    float *first = calloc(both, sizeof *first), *logits = calloc(both, sizeof *logits);
    assert_non_null(first);
    assert_non_null(logits);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i += STEP) {
        read_in_pieces(m, ids, n, pieces[i], i ? logits : first);
        if (i) assert_memory_equal(logits, first, sizeof *first * both);
    }
    free(first);
    free(logits);
    model_close(m);
}

static void test_sizes(void **state)
{
    (void)state;
    static int32_t ids[2100];
    fill_ids(ids, 2100, 1);
    for (int t = 0; t < CPU_TIERS; t++)
#if defined(LILY_SAN) || defined(TEST_EMULATED)
        if ((enum cpu_tier)t == cpu_best_tier()) check_sizes((enum cpu_tier)t, true, ids, 700);
#else
        if (cpu_tier_runs((enum cpu_tier)t))
            for (int fast = 0; fast < 2; fast++) check_sizes((enum cpu_tier)t, fast, ids, t == CPU_SCALAR ? 600 : fast ? 1100 : 2100);
#endif
}

/* ---- slices ---- */

static struct seq *new_seq(struct model *m)
{
    struct lily_err err = {0};
    struct seq *s;
    assert_ok(model_backend(m)->ops->seq_new(model_backend(m), &s, &err));
    return s;
}

static void run(struct model *m, enum phase phase, struct seq *s, const int32_t *ids, int n, float *logits)
{
    struct lily_err err = {0};
    struct rows rows = {phase, s, ids, n, logits, NULL};
    assert_ok(model_backend(m)->ops->seq_reserve(model_backend(m), s, n, &err));
    assert_ok(forward_rows(m, &rows, &err));
}

/* Begins a piece whose slices are single layers, and makes n_layers of them. */
static const atomic_bool always = true;
static void begin_slices(struct reading *r, struct model *m, const struct rows *rows, int n_layers)
{
    struct lily_err err = {0};
    const struct reading_pause pause = {.flags = {&always}};
    bool done = false;
    assert_ok(model_backend(m)->ops->seq_reserve(model_backend(m), rows->seq, rows->n, &err));
    reading_begin(r, m, rows);
    for (int i = 0; i < n_layers; i++) {
        assert_ok(reading_go_on(r, &pause, &done, &err));
        assert_int_equal(done, i == LAYERS - 1); /* the head follows the last one */
    }
}

/* Another sequence decodes and a third one's prompt is read between the layers of a piece of n rows. */
static void check_beside(bool fast, int n)
{
    struct model *m = open_long(cpu_best_tier(), fast);
    struct backend *be = model_backend(m);
    static int32_t ids[N], other[N];
    struct seq *a = new_seq(m), *b = new_seq(m), *c = new_seq(m);
    float *want[3], *got[3];
    fill_ids(ids, N, 2);
    fill_ids(other, N, 3);
    assert_int_equal(model_shape(m)->n_layers, LAYERS);
    for (int i = 0; i < 3; i++) want[i] = new_logits(m), got[i] = new_logits(m);
    for (int round = 0; round < 2; round++) { /* alone, then together */
        float **logits = round ? got : want;
        struct reading r;
        const struct rows rows = {PHASE_PREFILL, a, ids, n, logits[0], NULL};
        run(m, PHASE_PREFILL, b, other, 100, logits[1]);
        begin_slices(&r, m, &rows, round ? 1 : LAYERS);
        assert_int_equal(reading_is_short(&r), n <= CPU_SHORT_ROWS);
        for (int i = 0; i < LAYERS; i++) {
            const struct reading_pause pause = {.flags = {&always}};
            struct lily_err err = {0};
            bool done;
            run(m, PHASE_DECODE, b, other + 100 + i, 1, logits[1]);
            run(m, PHASE_PREFILL, c, other + BESIDE * (i % 2), BESIDE, logits[2]);
            if (!round) continue;
            assert_int_equal(model_rows(m), i < LAYERS - 1 ? CPU_SHORT_ROWS : CPU_MAX_ROWS);
            if (i < LAYERS - 1) assert_ok(reading_go_on(&r, &pause, &done, &err));
        }
        assert_int_equal(be->ops->seq_length(a), n);
        be->ops->seq_reset(be, a), be->ops->seq_reset(be, b), be->ops->seq_reset(be, c);
    }
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(want[i], got[i], logits_bytes(m));
        free(want[i]), free(got[i]);
    }
    be->ops->seq_free(be, a), be->ops->seq_free(be, b), be->ops->seq_free(be, c);
    model_close(m);
}

static void check_others(bool fast)
{
    check_beside(fast, N);
    check_beside(fast, SHORT);
}

static void test_others_between_layers(void **state)
{
    (void)state;
    in_each_mode(check_others);
}

/* Several sequences in a batch longer than a mixer takes at once, some from places off the grid: each as alone. */
static void check_batch(bool fast)
{
    enum { SEQS = 4 };
    static const int from[SEQS] = {0, 10, 64, 1}, n[SEQS] = {500, 90, 430, 1}; /* row 512 is in the second one, whose grid begins in the first */
    struct model *m = open_long(cpu_best_tier(), fast);
    struct backend *be = model_backend(m);
    size_t ld = (size_t)shape_logits_ld(model_shape(m));
    struct lily_err err = {0};
    struct batch_seq bs[SEQS];
    int32_t ids[SEQS][500 + 64], all[1024], last[SEQS];
    float *want = calloc(SEQS, sizeof *want * ld), *got = calloc(SEQS, sizeof *got * ld);
    struct batch b = {.phase = PHASE_PREFILL, .n_seqs = SEQS, .seqs = bs, .ids = all, .n_logits = SEQS, .logit_rows = last, .logits = got};
    assert_non_null(want);
    assert_non_null(got);
    for (int i = 0; i < SEQS; i++) {
        fill_ids(ids[i], 500 + 64, (uint32_t)(30 + i));
        bs[i] = (struct batch_seq){new_seq(m), n[i]};
        if (from[i]) run(m, PHASE_PREFILL, bs[i].seq, ids[i], from[i], NULL);
        run(m, PHASE_PREFILL, bs[i].seq, ids[i] + from[i], n[i], want + (size_t)i * ld);
        be->ops->seq_reset(be, bs[i].seq);
        if (from[i]) run(m, PHASE_PREFILL, bs[i].seq, ids[i], from[i], NULL);
        assert_ok(be->ops->seq_reserve(be, bs[i].seq, n[i], &err));
        memcpy(all + b.n_rows, ids[i] + from[i], sizeof *all * (size_t)n[i]);
        b.n_rows += n[i];
        last[i] = b.n_rows - 1;
    }
    assert_true(b.n_rows > CPU_MIXER_ROWS);
    assert_ok(model_forward(m, &b, NULL, &err));
    for (int i = 0; i < SEQS; i++) {
        assert_memory_equal(got + (size_t)i * ld, want + (size_t)i * ld, logits_bytes(m));
        be->ops->seq_free(be, bs[i].seq);
    }
    free(want), free(got);
    model_close(m);
}

static void test_batches(void **state)
{
    (void)state;
    in_each_mode(check_batch);
}

/* Given up after any layer: the sequence is what it was before the piece, or empty. */
static void check_rest(bool fast, int rest)
{
    struct model *m = open_long(cpu_best_tier(), fast);
    struct backend *be = model_backend(m);
    static int32_t ids[N];
    struct seq *a = new_seq(m);
    float *want = new_logits(m), *got = new_logits(m);
    fill_ids(ids, N, 4);
    for (int from = FROM; from <= SHARED; from += SHARED) {
        const int n = rest < N - from ? rest : N - from;
        run(m, PHASE_PREFILL, a, ids, from + n, want);
        be->ops->seq_reset(be, a);
        for (int layers = 0; layers < LAYERS; layers += STEP) {
            struct lily_err err = {0};
            struct reading r;
            const struct rows rows = {PHASE_PREFILL, a, ids + from, n, got, NULL};
            if (from) run(m, PHASE_PREFILL, a, ids, from, NULL);
            assert_ok(be->ops->seq_keep(be, a, from + 128, &err));
            begin_slices(&r, m, &rows, layers);
            assert_int_equal(reading_give_up(&r), from);
            struct border *kept;
            assert_ok(be->ops->border_kept(be, a, from + 128, &kept, &err));
            assert_null(kept);
            run(m, PHASE_PREFILL, a, ids + from, n, got);
            assert_memory_equal(want, got, logits_bytes(m));
            be->ops->seq_reset(be, a);
        }
    }
    be->ops->seq_free(be, a);
    free(want);
    free(got);
    model_close(m);
}

static void check_given_up(bool fast)
{
    check_rest(fast, N);
    check_rest(fast, SHORT);
}

static void test_given_up(void **state)
{
    (void)state;
    in_each_mode(check_given_up);
}

/* A session whose reading is stopped goes on from where the piece began. */
struct stopper {
    atomic_bool stop;
    int calls, at; /* the call that stops; 0: none */
    int last, total;
};

static void stop_at(void *ctx, int done, int total)
{
    struct stopper *s = ctx;
    assert_true(done >= s->last && done <= total);
    s->last = done;
    if (++s->calls == s->at) atomic_store(&s->stop, true);
}

static void test_stopped_session(void **state)
{
    (void)state;
    struct model *m = open_long(cpu_best_tier(), false);
    static int32_t ids[N];
    struct session *s;
    struct session_options o = {.ctx = 4096, .max_borders = 4, .piece = 576};
    float *want = calloc(2, sizeof(float) * (size_t)shape_logits_ld(model_shape(m)));
    struct lily_err err = {0};
    assert_non_null(want);
    fill_ids(ids, N, 5);
    read_in_pieces(m, ids, N, 64, want);
    assert_ok(session_new(m, &o, &s, &err));
    for (int at = 1; at < 12 / STEP; at += STEP) {
        struct stopper stop = {.at = at};
        struct sync_request r = {.ids = ids, .n = N, .cancel = &stop.stop, .progress = stop_at, .progress_ctx = &stop};
        struct sync_result result;
        session_clear(s);
        assert_int_equal(session_sync(s, &r, &result, &err), LILY_ERR_CANCELLED);
        assert_int_equal(session_length(s) % 576, 0);
        int length = session_length(s);
        r.cancel = NULL, stop.at = stop.last = 0;
        assert_ok(session_sync(s, &r, &result, &err));
        assert_int_equal(result.reused, length);
        assert_memory_equal(session_logits(s), want, logits_bytes(m));
    }
    session_free(s);
    free(want);
    model_close(m);
}

/* With takes_up a piece that is stopped again and again is read once, and other tokens, or fewer of them, find nothing of it. */
static void test_taken_up(void **state)
{
    (void)state;
    struct model *m = open_long(cpu_best_tier(), false);
    static int32_t ids[N], others[N];
    struct session *s;
    struct session_options o = {.ctx = 4096, .max_borders = 4, .takes_up = true};
    float *want = calloc(2, sizeof(float) * (size_t)shape_logits_ld(model_shape(m)));
    struct lily_err err = {0};
    struct sync_result result;
    assert_non_null(want);
    fill_ids(ids, N, 5);
    fill_ids(others, N, 8);
    assert_ok(session_new(m, &o, &s, &err));
    for (int round = 0; round < 3; round++) {
        struct stopper stop = {.at = 2};
        struct sync_request r = {.ids = ids, .n = N, .cancel = &stop.stop, .progress = stop_at, .progress_ctx = &stop};
        const struct sync_request next[] = {r, {.ids = others, .n = N}, {.ids = ids, .n = N - 100}};
        read_in_pieces(m, next[round].ids, next[round].n, 64, want);
        session_clear(s);
        int stops = 0, before = 0;
        while (session_sync(s, &r, &result, &err) == LILY_ERR_CANCELLED) {
            assert_int_equal(result.reused, before); /* what is told stays */
            assert_true(result.computed > 0 && result.reused + result.computed < N);
            before = result.reused + result.computed;
            stops++;
            atomic_store(&stop.stop, false);
            stop.calls = stop.last = 0;
            if (round && stops == 2) break;
            assert_true(stops < 100);
        }
        if (!round) assert_int_equal(stops, LAYERS - 1);
        if (!round) assert_true(result.reused == before && result.reused + result.computed == N);
        if (round) assert_ok(session_sync(s, &next[round], &result, &err));
        assert_memory_equal(session_logits(s), want, logits_bytes(m));
    }
    session_free(s);
    free(want);
    model_close(m);
}

/* A state kept inside a pass is the one that a pass ending there leaves, bit for bit. */
static void check_kept_inside(bool fast)
{
    struct model *m = open_long(cpu_best_tier(), fast);
    struct backend *be = model_backend(m);
    static int32_t ids[N];
    struct seq *a = new_seq(m);
    struct lily_err err = {0};
    size_t n = be->ops->border_bytes(be);
    uint8_t *one = malloc(n), *two = malloc(n);
    assert_non_null(one);
    assert_non_null(two);
    fill_ids(ids, N, 6);
    for (int from = FROM; from <= 64; from += 64)
        for (int length = 128; length < N; length += N / 2 / GRID * GRID) {
            struct border *kept, *saved;
            if (from) run(m, PHASE_PREFILL, a, ids, from, NULL);
            assert_ok(be->ops->seq_keep(be, a, length, &err));
            run(m, PHASE_PREFILL, a, ids + from, N - from, NULL);
            assert_ok(be->ops->border_kept(be, a, length, &kept, &err));
            assert_non_null(kept);
            be->ops->seq_reset(be, a);
            run(m, PHASE_PREFILL, a, ids, length, NULL);
            assert_ok(be->ops->border_save(be, a, &saved, &err));
            assert_ok(be->ops->border_export(be, kept, BORDER_FIXED, 0, n, one, &err));
            assert_ok(be->ops->border_export(be, saved, BORDER_FIXED, 0, n, two, &err));
            assert_memory_equal(one, two, n);
            size_t page = be->ops->page_bytes(be);
            uint8_t *p = malloc(page), *q = malloc(page);
            assert_non_null(p);
            assert_non_null(q);
            for (int k = 0; k < length / GRID; k++) {
                assert_ok(be->ops->border_export(be, kept, k, 0, page, p, &err));
                assert_ok(be->ops->border_export(be, saved, k, 0, page, q, &err));
                assert_memory_equal(p, q, page);
            }
            free(p), free(q);
            be->ops->border_free(be, kept);
            be->ops->border_free(be, saved);
            be->ops->seq_reset(be, a);
        }
    assert_int_equal(be->ops->seq_keep(be, a, 100, &err), LILY_ERR_USAGE);
    assert_int_equal(be->ops->seq_keep(be, a, 0, &err), LILY_ERR_USAGE);
    be->ops->seq_free(be, a);
    free(one), free(two);
    model_close(m);
}

static void test_kept_inside(void **state)
{
    (void)state;
    in_each_mode(check_kept_inside);
}

/* ---- the runner, and the engine ---- */

struct side {
    struct bundle bundle;
    struct runner *runner; /* owned, or the engine's */
};

static void open_side(struct side *s, bool fast, int slots, size_t cache_bytes)
{
    struct lily_err err = {0};
    assert_ok(bundle_open(dir, &s->bundle, &err));
    struct runner_model_options o = {.n_slots = slots, .cache_bytes = cache_bytes};
    model_options_init(&o.model);
    o.model.fast = fast;
    o.model.threads = 2;
    o.model.max_rows = LONG; /* so that pieces begin where no state is saved */
    o.model.plan.ctx = 4096;
    o.model.plan.n_seqs = slots;
    o.model.plan.border_bytes = cache_bytes;
    s->runner = runner_model_new(&s->bundle, &o);
}

static struct job_spec spec_of(const int32_t *ids, int n)
{
    static const int marks[] = {SHARED + 10};
    struct job_spec spec = {.ids = ids, .n_ids = n, .marks = marks, .n_marks = 1, .n_logprobs = -1, .max_tokens = 4, .text = "",
                            .thinking_budget = -1, .raw = true};
    sampler_params_init(&spec.sampling);
    return spec;
}

/* Reads n_slices of a prompt, or all of it (negative), and ends; returns the tokens that were there. */
static int read_slices(struct side *s, int slot, const struct job_spec *spec, int n_slices, float *logits)
{
    struct lily_err err = {0};
    const struct runner_ops *ops = s->runner->ops;
    struct job_result result = {0};
    struct job *job = job_new(spec, 1);
    int read = 0;
    assert_ok(ops->begin(s->runner, slot, job, &result, &err));
    for (int i = 0; read < spec->n_ids && i != n_slices; i++) {
        bool goes_on;
        assert_ok(ops->prefill(s->runner, slot, &read, &goes_on, &err));
        assert_true(atomic_load(&job->done) <= spec->n_ids);
    }
    if (logits && read == spec->n_ids) memcpy(logits, runner_model_logits(s->runner, slot), logits_bytes(s->bundle.model));
    ops->end(s->runner, slot);
    job_free(job);
    return result.reused;
}

/* Prompts with a common beginning, left after any number of layers: nothing of what was left is found later, and all equals cold. */
static void check_left_prompts(bool fast)
{
    struct lily_err err = {0};
    struct side warm, cold;
    static int32_t ids[3][LONGER];
    float *want[3], *got;
    open_side(&warm, fast, 2, 64 << 20);
    open_side(&cold, fast, 1, 0);
    assert_ok(warm.runner->ops->load(warm.runner, &err));
    assert_ok(cold.runner->ops->load(cold.runner, &err));
    got = new_logits(warm.bundle.model);
    for (int i = 0; i < 3; i++) {
        fill_ids(ids[i], LONGER, 7);
        fill_ids(ids[i] + SHARED + 20, LONGER - SHARED - 20, (uint32_t)(8 + i));
        const struct job_spec spec = spec_of(ids[i], LONGER);
        want[i] = new_logits(warm.bundle.model);
        read_slices(&cold, 0, &spec, -1, want[i]);
    }
    atomic_store(&warm.runner->hurry, true); /* slices of one layer */
    for (int round = 0; round < LEFT; round++) {
        const struct job_spec spec = spec_of(ids[round % 3], LONGER);
        int before = borders_count(runner_model_borders(warm.runner)), slices = round * 7 % 10;
        if (round % 20 == 0) borders_clear(runner_model_borders(warm.runner)), before = 0;
        int reused = read_slices(&warm, round % 2, &spec, slices, NULL);
        /* At most what a piece ended with was saved. */
        if (slices < LAYERS) assert_true(borders_count(runner_model_borders(warm.runner)) <= before + (reused > 0));
        if (round % 3) continue;
        read_slices(&warm, 0, &spec, -1, got);
        assert_memory_equal(got, want[round % 3], logits_bytes(warm.bundle.model));
        assert_true(read_slices(&warm, 1, &spec, -1, got) >= LONGER / GRID * GRID - GRID);
        assert_memory_equal(got, want[round % 3], logits_bytes(warm.bundle.model));
    }
    for (int i = 0; i < 3; i++) free(want[i]);
    free(got);
    warm.runner->ops->free(warm.runner);
    cold.runner->ops->free(cold.runner);
    bundle_close(&warm.bundle);
    bundle_close(&cold.bundle);
}

static void test_left_prompts(void **state)
{
    (void)state;
    in_each_mode(check_left_prompts);
}

static void on_wake(void *ctx, double patience_ms)
{
    (void)ctx;
    (void)patience_ms;
}

/* Reads a job to its end and frees it; the text goes behind what is in out. */
static struct job_result finish(struct engine *e, struct job *j, struct buf *out)
{
    struct buf record = {0};
    struct job_result result;
    uint32_t kind;
    for (;;) {
        if (!ring_take(&j->ring, &kind, &record)) {
            if (atomic_load(&j->blocked)) engine_kick(e);
            usleep(100);
            continue;
        }
        if (kind == JOB_END) break;
        if (kind == JOB_CONTENT) buf_add(out, record.data, record.len);
    }
    memcpy(&result, record.data, sizeof result);
    buf_free(&record);
    job_free(j);
    return result;
}

static struct job *submit(struct engine *e, const struct job_spec *spec)
{
    struct lily_err err = {0};
    struct job *j = job_new(spec, 1);
    assert_ok(engine_submit(e, &j, 1, &err));
    return j;
}

static void *cancel_later(void *arg)
{
    struct job *j = arg;
    while (atomic_load(&j->done) == 0 && atomic_load(&j->state) < JOB_DECODE) usleep(50);
    atomic_store(&j->cancel, true);
    return NULL;
}

/* Clients leave in the middle of a prompt while others ask: whoever stays gets the answer that he gets alone. */
static void check_leaving_clients(bool fast)
{
    struct lily_err err = {0};
    struct side side;
    struct engine *e;
    static int32_t ids[2][LONGER];
    struct buf want = {0}, got = {0};
    open_side(&side, fast, 3, 64 << 20);
    struct engine_options o = {8, on_wake, NULL};
    for (int i = 0; i < 2; i++) {
        fill_ids(ids[i], LONGER, 20);
        fill_ids(ids[i] + SHARED + 20, LONGER - SHARED - 20, (uint32_t)(21 + i));
    }
    const struct job_spec leaves = spec_of(ids[0], LONGER), stays = spec_of(ids[1], LONGER), brief = spec_of(ids[1] + 5, 90);
    assert_ok(engine_start(side.runner, &o, &e, &err));
    while (engine_state(e) == ENGINE_LOADING) usleep(100);
    assert_int_equal(finish(e, submit(e, &stays), &want).status, LILY_OK);
    assert_int_equal(atomic_load(&engine_counters(e)->prefill_pieces), 3); /* two long ones and a rest: states worth saving cut none */
    for (int round = 0; round < LEAVERS; round++) {
        pthread_t t;
        struct buf ignored = {0};
        struct job *a = submit(e, &leaves), *b, *c;
        assert_int_equal(pthread_create(&t, NULL, cancel_later, a), 0);
        b = submit(e, &brief);
        c = submit(e, &stays);
        pthread_join(t, NULL);
        engine_kick(e);
        assert_int_equal(finish(e, a, &ignored).status, LILY_OK);
        assert_int_equal(finish(e, b, &ignored).status, LILY_OK);
        buf_clear(&got);
        assert_int_equal(finish(e, c, &got).status, LILY_OK);
        assert_string_equal(buf_str(&got), buf_str(&want));
        buf_free(&ignored);
    }
    struct job *last = submit(e, &leaves); /* stopping does not wait for it */
    while (atomic_load(&last->state) == JOB_QUEUED) usleep(50);
    engine_stop(e);
    finish(e, last, &got);
    engine_free(e);
    bundle_close(&side.bundle);
    buf_free(&want);
    buf_free(&got);
}

static void test_leaving_clients(void **state)
{
    (void)state;
    in_each_mode(check_leaving_clients);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes),           cmocka_unit_test(test_others_between_layers),
                                       cmocka_unit_test(test_batches),         cmocka_unit_test(test_given_up),
                                       cmocka_unit_test(test_stopped_session), cmocka_unit_test(test_taken_up),
                                       cmocka_unit_test(test_kept_inside),     cmocka_unit_test(test_left_prompts),
                                       cmocka_unit_test(test_leaving_clients)};
    return RUN_TESTS(tests);
}
