/* The public interface, used as another program would: only lily/lily.h, on the tiny checkpoint. */
#include "../testing.h"

#include <pthread.h>

#include "lily/lily.h"

static const char dir[] = "tests/data/tiny";
static lily_model *model;

static int load(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct lily_options o;
    lily_options_init(&o);
    o.ctx = 1024;
    o.sessions = 2;
    o.threads = 1;
    if (lily_open(dir, &o, &model, &err) == LILY_OK) return 0;
    print_error("%s\n", err.msg);
    return -1;
}

static int unload(void **state)
{
    (void)state;
    lily_close(model);
    return 0;
}

struct seen {
    char text[65536];
    size_t n;
    int pieces, stop_at, progress;
    lily_session *cancel;
};

static int on_text(void *ctx, enum lily_part part, const char *text, size_t n)
{
    struct seen *s = ctx;
    (void)part;
    assert_true(s->n + n < sizeof s->text);
    memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n] = 0;
    s->pieces++;
    if (s->cancel && s->pieces == s->stop_at) lily_cancel(s->cancel);
    return !s->cancel && s->stop_at && s->pieces == s->stop_at;
}

static void on_progress(void *ctx, int done, int total)
{
    struct seen *s = ctx;
    assert_true(done <= total);
    s->progress = total;
}

static lily_prompt *ask(const char *question)
{
    lily_prompt *p;
    struct lily_err err = {0};
    assert_ok(lily_prompt_ask(model, "Be brief.", question, 0, &p, &err));
    return p;
}

static lily_session *new_session(void)
{
    lily_session *s;
    struct lily_err err = {0};
    assert_ok(lily_session_new(model, &s, &err));
    return s;
}

static struct lily_result answer(lily_session *s, const lily_prompt *p, struct seen *seen, int max_tokens)
{
    struct lily_request r;
    struct lily_result result;
    struct lily_err err = {0};
    lily_request_init(&r, model, p);
    assert_true(r.sampling.top_k == 20 && r.sampling.temperature == 1.0);
    r.sampling.temperature = 0;
    r.max_tokens = max_tokens;
    r.on_text = on_text;
    r.on_progress = on_progress;
    r.ctx = seen;
    assert_ok(lily_generate(s, &r, &result, &err));
    return result;
}

static void test_plan(void **state)
{
    (void)state;
    struct lily_plan a, b;
    struct lily_err err = {0};
    struct lily_options o;
    lily_options_init(&o);
    o.ctx = 1024;
    o.sessions = 2;
    assert_ok(lily_plan_memory(dir, &o, &a, &err));
    lily_model_plan(model, &b);
    assert_int_equal(a.total, a.weights + a.kv + a.borders + a.scratch);
    assert_true(a.total == b.total && a.ctx == 1024);
    o.memory_limit = 1000;
    assert_int_equal(lily_plan_memory(dir, &o, &a, &err), LILY_ERR_MEMORY);
    assert_true(a.limit == 1000 && a.total > 1000);
    o.sessions = 0;
    assert_int_equal(lily_plan_memory(dir, &o, &a, &err), LILY_ERR_USAGE);
    assert_int_equal(lily_plan_memory("/nowhere", NULL, &a, &err), LILY_ERR_IO);
}

static void test_text(void **state)
{
    (void)state;
    const char *text = "H\xc3\xa9llo <|im_end|>";
    int32_t *ids;
    char *back;
    size_t n, len, n_special;
    struct lily_err err = {0};
    assert_ok(lily_tokenize(model, text, strlen(text), 0, &ids, &n, &err));
    assert_ok(lily_detokenize(model, ids, n, 0, &back, &len, &err));
    assert_string_equal(back, text);
    assert_int_equal(len, strlen(text));
    lily_free(back);
    lily_free(ids);
    assert_ok(lily_tokenize(model, text, strlen(text), 1, &ids, &n_special, &err));
    assert_true(n_special < n);
    lily_free(ids);
    assert_ok(lily_tokenize(model, "", 0, 0, &ids, &n, &err));
    assert_true(n == 0 && ids);
    assert_ok(lily_detokenize(model, ids, 0, 0, &back, &len, &err));
    assert_true(len == 0 && back[0] == 0);
    lily_free(ids);
    lily_free(back);
    const int32_t bad = lily_model_tokens(model);
    assert_int_equal(lily_detokenize(model, &bad, 1, 0, &back, &len, &err), LILY_ERR_USAGE);
    assert_string_equal(lily_version(), LILY_VERSION);
}

static void test_prompts(void **state)
{
    (void)state;
    lily_prompt *p = ask("Hi"), *q;
    struct lily_err err = {0};
    size_t n, n_ids, m;
    const char *text = lily_prompt_text(p, &n);
    assert_string_equal(text, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                              "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    const int32_t *ids = lily_prompt_ids(p, &n_ids);
    assert_ok(lily_prompt_raw(model, text, n, &q, &err));
    assert_string_equal(lily_prompt_text(q, NULL), text);
    const int32_t *raw = lily_prompt_ids(q, &m);
    assert_int_equal(n_ids, m);
    assert_memory_equal(ids, raw, m * sizeof *raw);
    lily_prompt_free(q);
    lily_prompt_free(p);
    assert_int_equal(lily_prompt_raw(model, "", 0, &q, &err), LILY_ERR_USAGE);
    assert_null(q);
    const char *bodies[] = {"{\"messages\":[]}", "{\"messages\":[{\"role\":\"king\",\"content\":\"\"}]}", "{", "[]",
                            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        assert_int_not_equal(lily_prompt_chat(model, bodies[i], strlen(bodies[i]), &q, &err), LILY_OK);
        assert_null(q);
        assert_true(err.msg[0]);
    }
    lily_prompt_free(NULL);
}

static void test_generate_is_repeatable(void **state)
{
    (void)state;
    static struct seen a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    lily_prompt *p = ask("Tell me a story about a fox, a lamp, and the long way home over the hills in the rain.");
    lily_session *s = new_session();
    struct lily_result first = answer(s, p, &a, 20), second = answer(s, p, &b, 20);
    assert_true(first.completion_tokens > 0 && first.completion_tokens <= 20);
    assert_int_equal(first.cached_tokens, 0);
    assert_int_equal(a.progress, first.prompt_tokens);
    assert_true(second.cached_tokens >= 64); /* and all the same: cached equals cold */
    assert_int_equal(second.prompt_tokens, first.prompt_tokens);
    assert_string_equal(a.text, b.text);
    lily_session_free(s);
    lily_prompt_free(p);
}

static void test_stopping(void **state)
{
    (void)state;
    static struct seen seen;
    memset(&seen, 0, sizeof seen);
    lily_prompt *p = ask("Hi");
    lily_session *s = new_session();
    seen.stop_at = 3;
    struct lily_result r = answer(s, p, &seen, 30);
    assert_int_equal(r.finish, LILY_FINISH_CANCELLED);
    assert_int_equal(seen.pieces, 3);
    memset(&seen, 0, sizeof seen);
    seen.stop_at = 2;
    seen.cancel = s;
    r = answer(s, p, &seen, 30);
    assert_int_equal(r.finish, LILY_FINISH_CANCELLED);
    assert_int_equal(seen.pieces, 2);
    memset(&seen, 0, sizeof seen);
    r = answer(s, p, &seen, 5); /* the cancel is over */
    assert_int_equal(r.completion_tokens, 5);
    assert_int_equal(r.finish, LILY_FINISH_LENGTH);
    lily_session_free(s);
    lily_prompt_free(p);
}

static void test_refusals(void **state)
{
    (void)state;
    lily_session *a = new_session(), *b = new_session(), *c;
    lily_model *m;
    struct lily_request r;
    struct lily_err err = {0};
    assert_int_equal(lily_session_new(model, &c, &err), LILY_ERR_LIMIT);
    assert_null(c);
    lily_session_free(b);
    b = new_session();
    lily_prompt *p = ask("Hi");
    lily_request_init(&r, model, p);
    r.sampling.top_p = 2;
    assert_int_equal(lily_generate(a, &r, NULL, &err), LILY_ERR_USAGE);
    assert_non_null(strstr(err.msg, "top_p"));
    lily_request_init(&r, model, p);
    r.max_tokens = -1;
    assert_int_equal(lily_generate(a, &r, NULL, &err), LILY_ERR_USAGE);
    lily_prompt_free(p);
    static char long_text[4096];
    memset(long_text, 'x', sizeof long_text - 1);
    p = ask(long_text);
    lily_request_init(&r, model, p);
    assert_int_equal(lily_generate(a, &r, NULL, &err), LILY_ERR_LIMIT);
    lily_prompt_free(p);
    lily_session_free(a);
    lily_session_free(b);
    lily_session_free(NULL);
    lily_close(NULL);
    struct lily_options o;
    lily_options_init(&o);
    o.cpu_tier = "mmx";
    assert_int_equal(lily_open(dir, &o, &m, &err), LILY_ERR_USAGE);
    assert_null(m);
    assert_int_equal(lily_open("/nowhere", NULL, &m, &err), LILY_ERR_IO);
    assert_null(m);
}

struct job {
    lily_session *session;
    const lily_prompt *prompt;
    struct seen seen;
};

static void *work(void *arg)
{
    struct job *j = arg;
    answer(j->session, j->prompt, &j->seen, 12);
    return NULL;
}

/* Two threads, each with its session: they wait for each other, and each gets what it would get alone. */
static void test_threads(void **state)
{
    (void)state;
    static struct job jobs[2];
    static struct seen alone[2];
    pthread_t threads[2];
    memset(jobs, 0, sizeof jobs);
    memset(alone, 0, sizeof alone);
    lily_prompt *prompts[2] = {ask("One"), ask("Two")};
    for (int i = 0; i < 2; i++) {
        lily_session *s = new_session();
        answer(s, prompts[i], &alone[i], 12);
        lily_session_free(s);
    }
    for (int i = 0; i < 2; i++) {
        jobs[i].session = new_session();
        jobs[i].prompt = prompts[i];
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(jobs[i].seen.text, alone[i].text);
        lily_session_free(jobs[i].session);
        lily_prompt_free(prompts[i]);
    }
}

/* What a callback does with the library, once. */
struct meddler {
    lily_session *own, *other; /* freed and set to NULL */
    const lily_prompt *prompt;
    lily_status generate, full, again;
    int calls;
};

static int meddle(void *ctx, enum lily_part part, const char *text, size_t n)
{
    struct meddler *m = ctx;
    struct lily_request r;
    struct lily_err err;
    lily_session *more;
    (void)part, (void)text, (void)n;
    if (m->calls++) return 0;
    lily_request_init(&r, model, m->prompt);
    m->generate = lily_generate(m->other, &r, NULL, &err);
    m->full = lily_session_new(model, &more, &err);
    lily_session_free(m->other);
    m->again = lily_session_new(model, &m->other, &err);
    lily_session_free(m->own);
    return 0;
}

/* Callbacks may use the library: nothing waits for itself, and nothing is freed under a running answer. */
static void test_callbacks_that_call_back(void **state)
{
    (void)state;
    struct lily_request r;
    struct lily_result result;
    struct lily_err err = {0};
    lily_prompt *p = ask("Hi");
    struct meddler m = {.own = new_session(), .other = new_session(), .prompt = p};
    lily_request_init(&r, model, p);
    r.max_tokens = 20;
    r.on_text = meddle;
    r.ctx = &m;
    assert_int_equal(lily_generate(m.own, &r, &result, &err), LILY_OK);
    assert_int_equal(result.finish, LILY_FINISH_CANCELLED);
    assert_int_equal(m.generate, LILY_ERR_USAGE);
    assert_int_equal(m.full, LILY_ERR_LIMIT);
    assert_int_equal(m.again, LILY_OK);
    lily_session *s = new_session(); /* in the place of the freed one */
    r.on_text = NULL;
    r.n_stop = -1;
    assert_int_equal(lily_generate(s, &r, NULL, &err), LILY_ERR_USAGE);
    r.n_stop = 0;
    r.prompt = NULL;
    assert_int_equal(lily_generate(s, &r, NULL, &err), LILY_ERR_USAGE);
    r.prompt = p;
    r.max_tokens = 2;
    assert_int_equal(lily_generate(m.other, &r, NULL, &err), LILY_OK);
    lily_session_free(s);
    lily_session_free(m.other);
    lily_prompt_free(p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),     cmocka_unit_test(test_text),
        cmocka_unit_test(test_prompts),  cmocka_unit_test(test_generate_is_repeatable),
        cmocka_unit_test(test_stopping), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_threads),  cmocka_unit_test(test_callbacks_that_call_back),
    };
    int n = (int)(sizeof tests / sizeof tests[0]);
    return tests_finish(n, cmocka_run_group_tests(tests, load, unload));
}
