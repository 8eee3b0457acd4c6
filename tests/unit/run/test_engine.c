/* The engine on scripts: rings, order, cancelling, full rings, failures, stopping. */
#include "unit/testing.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "run/engine.h"
#include "run/fake.h"
#include "run/repeat.h"
#include "run/scheduler.h"

static struct bundle texts;
static const int32_t prompt[] = {1, 2, 3, 4, 5};

/* ---- rings ---- */

static void test_ring_keeps_records(void **state)
{
    (void)state;
    struct ring r;
    struct buf out = {0};
    uint32_t kind;
    char data[600];
    ring_init(&r, 4096);
    assert_false(ring_take(&r, &kind, &out));
    for (unsigned round = 0; round < 500; round++) {
        size_t n = round * 7 % sizeof data;
        memset(data, (int)round, n);
        assert_true(ring_put(&r, round, data, n));
        if (round % 2) assert_true(ring_put(&r, 9999, "x", 1));
        assert_true(ring_take(&r, &kind, &out));
        assert_int_equal(kind, round);
        assert_int_equal(out.len, n);
        assert_memory_equal(out.data, data, n);
        if (round % 2) assert_true(ring_take(&r, &kind, &out));
    }
    assert_false(ring_take(&r, &kind, &out));
    ring_free(&r);
    buf_free(&out);
}

static void test_ring_last_record_finds_room(void **state)
{
    (void)state;
    struct ring r;
    struct buf out = {0};
    uint32_t kind;
    char data[1000] = "";
    int n = 0, taken = 0;
    ring_init(&r, 8192);
    while (ring_put(&r, 1, data, sizeof data)) n++;
    assert_true(n >= 4);
    ring_put_last(&r, 2, data, sizeof data);
    while (ring_take(&r, &kind, &out)) taken++;
    assert_int_equal(taken, n + 1);
    assert_int_equal(kind, 2);
    ring_free(&r);
    buf_free(&out);
}

static void *write_many(void *arg)
{
    struct ring *r = arg;
    for (uint32_t i = 0; i < 20000; i++)
        while (!ring_put(r, i, &i, sizeof i)) usleep(1);
    return NULL;
}

static void test_ring_two_threads(void **state)
{
    (void)state;
    struct ring r;
    struct buf out = {0};
    pthread_t t;
    uint32_t kind, value;
    ring_init(&r, 4096);
    assert_int_equal(pthread_create(&t, NULL, write_many, &r), 0);
    for (uint32_t i = 0; i < 20000; i++) {
        while (!ring_take(&r, &kind, &out)) usleep(1);
        memcpy(&value, out.data, sizeof value);
        assert_int_equal(kind, i);
        assert_int_equal(value, i);
    }
    pthread_join(t, NULL);
    ring_free(&r);
    buf_free(&out);
}

static void test_repeat(void **state)
{
    (void)state;
    struct repeat r = {0};
    int n = 0;
    for (int i = 0; i < 1000; i++) assert_false(repeat_add(&r, i, 2));
    while (!repeat_add(&r, n % 10, 4)) n++;
    assert_int_equal(n + 1, REPEAT_MIN_TOKENS); /* four times ten would be 40, but that is too short to tell */
    memset(&r, 0, sizeof r);
    for (n = 0; !repeat_add(&r, n % 50, 4); n++) {}
    assert_int_equal(n + 1, 200);
}

/* ---- engines ---- */

struct rig {
    char path[64];
    struct engine *engine;
    _Atomic int wakes, at_once;
    struct job_spec spec;
};

static void on_wake(void *ctx, double patience_ms)
{
    struct rig *r = ctx;
    atomic_fetch_add(&r->wakes, 1);
    atomic_fetch_add(&r->at_once, patience_ms == 0);
}

static void rig_open(struct rig *r, const char *script, int slots, int queue)
{
    struct lily_err err = {0};
    struct runner *runner;
    memset(r, 0, sizeof *r);
    snprintf(r->path, sizeof r->path, "/tmp/lily-engine-XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0 && write(fd, script, strlen(script)) == (ssize_t)strlen(script));
    close(fd);
    assert_ok(fake_open(r->path, &texts, slots, 1024, &runner, &err));
    struct engine_options o = {queue, on_wake, r};
    assert_ok(engine_start(runner, &o, &r->engine, &err));
    while (engine_state(r->engine) == ENGINE_LOADING) usleep(100);
    r->spec = (struct job_spec){.ids = prompt, .n_ids = 5, .text = "", .max_tokens = 100000, .thinking_budget = -1, .n_logprobs = -1, .raw = true};
    sampler_params_init(&r->spec.sampling);
}

static void rig_close(struct rig *r)
{
    engine_free(r->engine);
    unlink(r->path);
}

static struct job *submit(struct rig *r)
{
    struct lily_err err = {0};
    struct job *j = job_new(&r->spec, 1);
    assert_ok(engine_submit(r->engine, &j, 1, &err));
    return j;
}

/* Reads a job to its end; its text is appended to out (may be NULL). */
static struct job_result finish(struct rig *r, struct job *j, struct buf *out)
{
    struct buf record = {0};
    struct job_result result;
    uint32_t kind;
    double limit = clock_ms() + 20e3;
    for (;;) {
        assert_true(clock_ms() < limit);
        if (!ring_take(&j->ring, &kind, &record)) {
            if (atomic_load(&j->blocked)) engine_kick(r->engine);
            usleep(100);
            continue;
        }
        if (kind == JOB_END) break;
        if (kind == JOB_CONTENT && out) buf_add(out, record.data, record.len);
    }
    memcpy(&result, record.data, sizeof result);
    buf_free(&record);
    job_free(j);
    return result;
}

static void test_jobs_end(void **state)
{
    (void)state;
    struct rig r;
    struct buf text = {0};
    rig_open(&r, "{\"replies\": [{\"tokens\": [\"a\", \"b\", \"c\"]}]}", 2, 8);
    struct job *jobs[5];
    for (int i = 0; i < 5; i++) jobs[i] = submit(&r);
    for (int i = 0; i < 5; i++) {
        struct job_result result = finish(&r, jobs[i], &text);
        assert_int_equal(result.status, LILY_OK);
        assert_int_equal(result.finish, FINISH_STOP);
        assert_int_equal(result.completion_tokens, 3);
        assert_int_equal(result.reused + result.computed, 5);
    }
    assert_string_equal(buf_str(&text), "abcabcabcabcabc");
    assert_true(atomic_load(&r.wakes) > 0);
    const struct engine_counters *k = engine_counters(r.engine);
    assert_int_equal(atomic_load(&k->jobs_done), 5);
    assert_int_equal(atomic_load(&k->active), 0);
    rig_close(&r);
    buf_free(&text);
}

/* A scheduler whose steps the test makes. */
struct steps {
    struct rig rig;
    struct engine_counters counters;
    struct runner *runner;
    struct scheduler *scheduler;
};

static void steps_open(struct steps *t, const char *script, int slots)
{
    struct lily_err err = {0};
    rig_open(&t->rig, script, 1, 1);
    memset(&t->counters, 0, sizeof t->counters);
    assert_ok(fake_open(t->rig.path, &texts, slots, 1024, &t->runner, &err));
    assert_ok(t->runner->ops->load(t->runner, &err));
    t->scheduler = scheduler_new(t->runner, &t->counters);
}

static void steps_close(struct steps *t)
{
    scheduler_free(t->scheduler);
    t->runner->ops->free(t->runner);
    rig_close(&t->rig);
}

static struct job *steps_admit(struct steps *t, const struct job_spec *spec)
{
    struct job *j = job_new(spec, 1);
    atomic_store(&j->state, JOB_QUEUED);
    scheduler_admit(t->scheduler, j);
    return j;
}

static void steps_make(struct steps *t)
{
    struct lily_err err = {0};
    struct step_outcome out;
    assert_ok(scheduler_tell(t->scheduler, &out, &err));
    assert_ok(scheduler_compute(t->scheduler, &out, &err));
}

/* A piece under way goes on before another prompt is begun, and whoever decodes gets a token between two slices. */
static void test_slices(void **state)
{
    (void)state;
    struct steps t;
    static const int32_t others[] = {9, 8, 7};
    steps_open(&t, "{\"slices\": 3, \"replies\": [{\"tokens\": [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]}]}", 2);
    struct job_spec second = t.rig.spec;
    second.ids = others, second.n_ids = 3;
    struct job *a = steps_admit(&t, &t.rig.spec), *b = steps_admit(&t, &second);
    for (int step = 1; step <= 6; step++) {
        steps_make(&t);
        assert_int_equal(atomic_load(&a->state), step < 3 ? JOB_PREFILL : JOB_DECODE);
        assert_int_equal(atomic_load(&b->state), step < 6 ? JOB_PREFILL : JOB_DECODE);
        assert_int_equal(atomic_load(&b->done), step < 6 ? 0 : 3);
        assert_int_equal(atomic_load(&t.counters.generated_tokens), step <= 3 ? 0 : step - 3);
    }
    scheduler_end_all(t.scheduler, NULL);
    job_free(a);
    job_free(b);
    steps_close(&t);
}

/* A prompt of several pieces gets on among short ones that never cease and are read in slices, too. */
static void test_slices_in_turns(void **state)
{
    (void)state;
    enum { SHORT_ONES = 40 };
    struct steps t;
    struct job *jobs[SHORT_ONES + 1];
    int n = 0;
    steps_open(&t, "{\"slices\": 2, \"piece\": 2}", 3);
    struct job_spec brief = t.rig.spec;
    brief.n_ids = 2;
    for (int step = 0; n <= SHORT_ONES; step++) {
        for (; scheduler_n_free(t.scheduler) && n <= SHORT_ONES; n++) jobs[n] = steps_admit(&t, n ? &brief : &t.rig.spec);
        steps_make(&t);
        if (step == 9) assert_true(atomic_load(&jobs[0]->state) >= JOB_DECODE); /* its three pieces, and one of another before each but the first */
    }
    scheduler_end_all(t.scheduler, NULL);
    for (int i = 0; i < n; i++) job_free(jobs[i]);
    steps_close(&t);
}

/* Readers are hurried when the engine is loaded, and by the first and the last records of an answer. */
static void test_wakes_at_once(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, "{\"replies\": [{\"tokens\": [{\"text\": \"a\", \"repeat\": 200}]}]}", 2, 8);
    assert_int_equal(finish(&r, submit(&r), NULL).completion_tokens, 200);
    for (double limit = clock_ms() + 20e3; atomic_load(&r.at_once) < 3;) { /* the last comes behind its records */
        assert_true(clock_ms() < limit);
        usleep(100);
    }
    engine_stop(r.engine);
    assert_int_equal(atomic_load(&r.at_once), 4); /* the end of the engine is the fourth */
    assert_true(atomic_load(&r.wakes) > 20);
    rig_close(&r);
}

/* Takes what is in the ring. True: the end was among it. */
static bool drain(struct rig *r, struct job *j, size_t *n_text)
{
    struct buf record = {0};
    uint32_t kind = JOB_CONTENT;
    while (kind != JOB_END && ring_take(&j->ring, &kind, &record))
        if (kind == JOB_CONTENT) *n_text += record.len;
    if (kind != JOB_END && atomic_load(&j->blocked)) engine_kick(r->engine);
    buf_free(&record);
    return kind == JOB_END;
}

/* Who wants a whole answer is woken for its end alone, unless the ring fills; a reader that reads when woken gets everything. */
static void test_wakes_for_a_whole(void **state)
{
    (void)state;
    struct rig r;
    size_t n_text = 0;
    rig_open(&r, "{\"replies\": [{\"times\": 1, \"tokens\": [{\"text\": \"a\", \"repeat\": 200}]}, "
                 "{\"tokens\": [{\"text\": \"0123456789012345678901234567890123456789012345678901234567890123\", \"repeat\": 4000}]}]}",
             1, 8);
    r.spec.whole = true;
    assert_int_equal(finish(&r, submit(&r), NULL).completion_tokens, 200);
    assert_true(atomic_load(&r.wakes) <= 2); /* loaded, and the end */
    struct job *j = submit(&r);
    double limit = clock_ms() + 20e3;
    for (int seen = 0; !drain(&r, j, &n_text);) {
        while (atomic_load(&r.wakes) == seen) {
            assert_true(clock_ms() < limit);
            usleep(100);
        }
        seen = atomic_load(&r.wakes);
    }
    assert_int_equal(n_text, 4000 * 64);
    job_free(j);
    engine_stop(r.engine);
    assert_int_equal(atomic_load(&r.at_once), 4); /* loaded, two ends, the end of the engine */
    rig_close(&r);
}

static void test_max_tokens(void **state)
{
    (void)state;
    struct rig r;
    struct buf text = {0};
    rig_open(&r, "{\"replies\": [{\"tokens\": [{\"text\": \"x\", \"repeat\": 50}]}]}", 1, 8);
    r.spec.max_tokens = 7;
    struct job_result result = finish(&r, submit(&r), &text);
    assert_int_equal(result.finish, FINISH_LENGTH);
    assert_string_equal(buf_str(&text), "xxxxxxx");
    rig_close(&r);
    buf_free(&text);
}

/* A reader that takes its time gets everything; meanwhile others are served. */
static void test_full_ring(void **state)
{
    (void)state;
    struct rig r;
    struct buf text = {0};
    rig_open(&r,
             "{\"replies\": [{\"times\": 1, \"tokens\": [{\"text\": \"0123456789012345678901234567890123456789012345678901234567890123\","
             "\"repeat\": 4000}]}, {\"tokens\": [\"quick\"]}]}",
             2, 8);
    struct job *slow = submit(&r);
    while (!atomic_load(&slow->blocked)) usleep(100);
    assert_int_equal(finish(&r, submit(&r), &text).status, LILY_OK);
    assert_string_equal(buf_str(&text), "quick");
    buf_clear(&text);
    assert_int_equal(finish(&r, slow, &text).completion_tokens, 4000);
    assert_int_equal(text.len, 4000 * 64);
    rig_close(&r);
    buf_free(&text);
}

static void test_cancel_everywhere(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, "{\"replies\": [{\"tokens\": [{\"text\": \"x\", \"delay_ms\": 50, \"repeat\": 1000}]}]}", 1, 8);
    struct job *running = submit(&r), *queued = submit(&r);
    while (atomic_load(&running->state) != JOB_DECODE) usleep(100);
    assert_int_equal(atomic_load(&queued->state), JOB_QUEUED);
    double start = clock_ms();
    atomic_store(&queued->cancel, true);
    engine_kick(r.engine);
    assert_int_equal(finish(&r, queued, NULL).finish, FINISH_CANCELLED);
    atomic_store(&running->cancel, true);
    engine_kick(r.engine);
    struct job_result result = finish(&r, running, NULL);
    assert_int_equal(result.finish, FINISH_CANCELLED);
    assert_int_equal(result.status, LILY_OK);
    assert_true(clock_ms() - start < 2000);
    assert_int_equal(atomic_load(&engine_counters(r.engine)->jobs_cancelled), 2);
    rig_close(&r);
}

static void test_queue_is_limited(void **state)
{
    (void)state;
    struct rig r;
    struct lily_err err = {0};
    struct job *jobs[3];
    rig_open(&r, "{\"replies\": [{\"tokens\": [{\"text\": \"x\", \"delay_ms\": 20, \"repeat\": 10}]}]}", 1, 1);
    jobs[0] = submit(&r);
    while (atomic_load(&jobs[0]->state) == JOB_QUEUED) usleep(100);
    jobs[1] = submit(&r);
    jobs[2] = job_new(&r.spec, 1);
    assert_int_equal(engine_submit(r.engine, &jobs[2], 1, &err), LILY_ERR_LIMIT);
    job_free(jobs[2]);
    for (int i = 0; i < 2; i++) assert_int_equal(finish(&r, jobs[i], NULL).completion_tokens, 10);
    rig_close(&r);
}

/* One that was cancelled keeps nobody out, also while the engine has not seen it yet. */
static void test_cancelled_in_the_queue(void **state)
{
    (void)state;
    struct rig r;
    struct lily_err err = {0};
    rig_open(&r, "{\"replies\": [{\"tokens\": [{\"text\": \"x\", \"delay_ms\": 200, \"repeat\": 2}]}]}", 1, 1);
    struct job *running = submit(&r), *queued, *next = job_new(&r.spec, 1);
    while (atomic_load(&running->state) == JOB_QUEUED) usleep(100);
    queued = submit(&r);
    atomic_store(&queued->cancel, true);
    assert_int_equal(engine_submit(r.engine, &next, 1, &err), LILY_OK);
    assert_int_equal(finish(&r, queued, NULL).finish, FINISH_CANCELLED);
    assert_int_equal(finish(&r, running, NULL).completion_tokens, 2);
    assert_int_equal(finish(&r, next, NULL).completion_tokens, 2);
    rig_close(&r);
}

static void test_errors(void **state)
{
    (void)state;
    struct rig r;
    struct lily_err err = {0};
    rig_open(&r,
             "{\"replies\": [{\"times\": 1, \"tokens\": [\"a\", {\"error\": \"bad token\"}]}, {\"times\": 1, \"prefill_error\": \"bad prompt\"},"
             "{\"times\": 1, \"tokens\": [\"fine\"]}, {\"tokens\": [\"a\", {\"crash\": true}]}]}",
             2, 8);
    struct job_result result = finish(&r, submit(&r), NULL);
    assert_int_equal(result.status, LILY_ERR_INTERNAL);
    assert_string_equal(result.err.msg, "bad token");
    assert_string_equal(finish(&r, submit(&r), NULL).err.msg, "bad prompt");
    assert_int_equal(finish(&r, submit(&r), NULL).status, LILY_OK);
    assert_int_equal(finish(&r, submit(&r), NULL).status, LILY_ERR_DEVICE);
    while (engine_state(r.engine) != ENGINE_FAILED) usleep(100);
    struct job *late = job_new(&r.spec, 1);
    assert_int_equal(engine_submit(r.engine, &late, 1, &err), LILY_ERR_DEVICE);
    job_free(late);
    rig_close(&r);
}

static void test_stop_ends_jobs(void **state)
{
    (void)state;
    struct rig r;
    struct job *jobs[3];
    rig_open(&r, "{\"replies\": [{\"tokens\": [{\"text\": \"x\", \"delay_ms\": 1000, \"repeat\": 10}]}]}", 2, 8);
    for (int i = 0; i < 3; i++) jobs[i] = submit(&r);
    engine_stop(r.engine);
    for (int i = 0; i < 3; i++) assert_int_equal(finish(&r, jobs[i], NULL).finish, FINISH_CANCELLED);
    rig_close(&r);
}

int main(void)
{
    struct lily_err err = {0};
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_keeps_records), cmocka_unit_test(test_ring_last_record_finds_room),
        cmocka_unit_test(test_ring_two_threads),   cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_jobs_end),           cmocka_unit_test(test_slices),
        cmocka_unit_test(test_slices_in_turns),
        cmocka_unit_test(test_wakes_at_once),
        cmocka_unit_test(test_wakes_for_a_whole),  cmocka_unit_test(test_max_tokens),
        cmocka_unit_test(test_full_ring),          cmocka_unit_test(test_cancel_everywhere),
        cmocka_unit_test(test_queue_is_limited),   cmocka_unit_test(test_cancelled_in_the_queue),
        cmocka_unit_test(test_errors),             cmocka_unit_test(test_stop_ends_jobs),
    };
    if (bundle_open("models/demo", &texts, &err) != LILY_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    int rc = RUN_TESTS(tests);
    bundle_close(&texts);
    return rc;
}
