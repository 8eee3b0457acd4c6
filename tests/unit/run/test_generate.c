/*
 * The generation loop over a scripted session: this program brings its own session_pick and session_feed, whose logits
 * always point at the next token of a script. The tokenizer is the tiny checkpoint's.
 */
#include "../testing.h"

#include <math.h>

#include "run/generate.h"

enum { MAX_IDS = 512, CTX = 400 };

struct session {
    struct ids script;
    size_t at;      /* picks so far are followed by at-1 steps */
    int fed[MAX_IDS];
    int n_fed, ctx;
    bool broken;    /* logits without a number */
    bool fails;     /* the device fails at the third step */
    bool last_fed;  /* nothing was to be fed behind the last token */
    struct sampler *sampler;
    float *logits;
    int n_tokens;
};

static float *logits_of(struct session *s)
{
    for (int i = 0; i < s->n_tokens; i++) s->logits[i] = s->broken ? NAN : 0;
    if (!s->broken && s->at < s->script.n) s->logits[s->script.data[s->at]] = 9;
    return s->logits;
}

void session_answer(struct session *s, struct sampler *sampler, const int32_t *eos, int n_eos)
{
    (void)eos;
    (void)n_eos;
    s->sampler = sampler;
}

lily_status session_pick(struct session *s, int32_t *id, struct lily_err *err)
{
    return sampler_pick_sound(s->sampler, logits_of(s), s->n_fed, id, err);
}

lily_status session_feed(struct session *s, int32_t id, bool goes_on, struct lily_err *err)
{
    if (s->last_fed) fail_msg("a token was fed behind one that was said to be the last");
    if (s->n_fed >= s->ctx) LILY_FAIL(err, LILY_ERR_LIMIT, "full");
    if (s->fails && s->n_fed == 2) LILY_FAIL(err, LILY_ERR_DEVICE, "the device burns");
    s->fed[s->n_fed++] = id;
    s->last_fed = !goes_on;
    s->at++;
    return LILY_OK;
}

static struct tokenizer *tokenizer;
static int32_t im_end;

static int load(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct tokenizer_options opt = {NULL};
    if (tokenizer_load("tests/data/tiny", &opt, &tokenizer, &err) != LILY_OK) {
        print_error("%s\n", err.msg);
        return -1;
    }
    im_end = tokenizer_added(tokenizer, "<|im_end|>");
    return 0;
}

static int unload(void **state)
{
    (void)state;
    tokenizer_free(tokenizer);
    return 0;
}

/* What the callback saw. */
struct seen {
    struct buf text;
    struct ids ids;
    int pieces, late; /* callbacks; those with id -1 */
    size_t stop_after;
    atomic_bool *cancel;
};

static bool on_text(void *ctx, int32_t id, const char *text, size_t n)
{
    struct seen *seen = ctx;
    buf_add(&seen->text, text, n);
    if (id >= 0) ids_add(&seen->ids, id);
    else seen->late++;
    seen->pieces++;
    for (size_t i = 0; i < n; i++) /* whole characters only */
        if (i == 0) assert_true((text[i] & 0xc0) != 0x80);
    if (seen->cancel && seen->ids.n == seen->stop_after) atomic_store(seen->cancel, true);
    return seen->cancel || !seen->stop_after || seen->ids.n < seen->stop_after;
}

struct run {
    struct session session;
    struct seen seen;
    struct generate_request r;
    struct generate_result out;
    struct lily_err err;
};

static void run_init(struct run *run, const char *text)
{
    memset(run, 0, sizeof *run);
    tokenizer_encode_special(tokenizer, text, strlen(text), &run->session.script, NULL);
    run->session.n_tokens = tokenizer_size(tokenizer);
    run->session.logits = calloc((size_t)run->session.n_tokens, sizeof(float));
    run->session.ctx = CTX;
    run->r = (struct generate_request){.tokenizer = tokenizer,
                                       .eos = &im_end,
                                       .n_eos = 1,
                                       .max_tokens = 300,
                                       .on_text = on_text,
                                       .ctx = &run->seen};
}

static lily_status run_go(struct run *run)
{
    struct sampler_params p;
    struct sampler *sampler;
    sampler_params_init(&p);
    assert_int_equal(sampler_new(&p, run->session.n_tokens, &sampler, NULL), LILY_OK);
    lily_status st = generate(&run->session, sampler, &run->r, &run->out, &run->err);
    sampler_free(sampler);
    assert_true(run->out.decode_ms >= 0);
    return st;
}

static void run_free(struct run *run)
{
    ids_free(&run->session.script);
    free(run->session.logits);
    buf_free(&run->seen.text);
    ids_free(&run->seen.ids);
    ids_free(&run->out.ids);
}

static void test_eos_ends_and_is_not_shown(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "Hello there<|im_end|>and more");
    assert_int_equal(run_go(&run), LILY_OK);
    assert_string_equal(buf_str(&run.seen.text), "Hello there");
    assert_int_equal(run.out.finish, FINISH_STOP);
    assert_string_equal(finish_reason_name(run.out.finish), "stop");
    assert_int_equal(run.out.ids.n, run.seen.ids.n);
    assert_int_equal(run.session.n_fed, (int)run.out.ids.n); /* all that was generated was fed, the eos was not */
    assert_int_equal(run.out.steps, run.session.n_fed);
    assert_memory_equal(run.out.ids.data, run.session.script.data, run.out.ids.n * sizeof(int32_t));
    run_free(&run);
}

static void test_empty_answer(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "<|im_end|>");
    assert_int_equal(run_go(&run), LILY_OK);
    assert_int_equal(run.out.ids.n, 0);
    assert_int_equal(run.seen.pieces, 0);
    assert_int_equal(run.out.steps, 0);
    run_free(&run);
}

static void test_length(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "abcdefghijklmnop");
    run.r.max_tokens = 3;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_int_equal(run.out.finish, FINISH_LENGTH);
    assert_int_equal(run.out.ids.n, 3);
    assert_int_equal(run.session.n_fed, 2); /* the last token is not fed: nobody needs its logits */
    run_free(&run);
    run_init(&run, "abcdefghijklmnop");
    run.session.ctx = 4; /* a full context ends it, too */
    assert_int_equal(run_go(&run), LILY_OK);
    assert_int_equal(run.out.finish, FINISH_LENGTH);
    assert_int_equal(run.out.ids.n, 5);
    run_free(&run);
    run_init(&run, "abc");
    run.r.max_tokens = 0;
    assert_int_equal(run_go(&run), LILY_ERR_USAGE);
    run_free(&run);
}

static void test_stop_string_over_tokens(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "alpha END.OF beta");
    run.r.stop = (const char *const[]){"END.OF"};
    run.r.n_stop = 1;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_string_equal(buf_str(&run.seen.text), "alpha ");
    assert_int_equal(run.out.finish, FINISH_STOP_STRING);
    assert_string_equal(finish_reason_name(run.out.finish), "stop");
    assert_int_equal(run.seen.late, 0);
    run_free(&run);
}

static void test_held_back_text_comes_at_the_end(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "alpha END.O<|im_end|>");
    run.r.stop = (const char *const[]){"END.OF"};
    run.r.n_stop = 1;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_string_equal(buf_str(&run.seen.text), "alpha END.O");
    assert_int_equal(run.out.finish, FINISH_STOP);
    assert_int_equal(run.seen.late, 1);
    run_free(&run);
}

static void test_stop_waits_for_the_end_of_thinking(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "so X is it\n</think>\n\nyes X no<|im_end|>");
    run.r.stop = (const char *const[]){"X"};
    run.r.n_stop = 1;
    run.r.thinking_open = true;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_string_equal(buf_str(&run.seen.text), "so X is it\n</think>\n\nyes ");
    assert_int_equal(run.out.finish, FINISH_STOP_STRING);
    run_free(&run);
    run_init(&run, "so X is it");
    run.r.stop = (const char *const[]){"X"};
    run.r.n_stop = 1;
    assert_int_equal(run_go(&run), LILY_OK); /* not thinking: at once */
    assert_string_equal(buf_str(&run.seen.text), "so ");
    run_free(&run);
    run_init(&run, "abc</think>def<|im_end|>"); /* no match begins in the thinking or in its closing tag */
    run.r.stop = (const char *const[]){"</think>", "c</think>d", "ink>def"};
    run.r.n_stop = 3;
    run.r.thinking_open = true;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_string_equal(buf_str(&run.seen.text), "abc</think>def");
    assert_int_equal(run.out.finish, FINISH_STOP);
    run_free(&run);
}

static void test_cancel(void **state)
{
    (void)state;
    struct run run;
    atomic_bool cancel = true;
    run_init(&run, "abcdefgh");
    run.r.cancel = &cancel;
    assert_int_equal(run_go(&run), LILY_OK); /* before the first token */
    assert_int_equal(run.out.finish, FINISH_CANCELLED);
    assert_int_equal(run.out.ids.n, 0);
    run_free(&run);
    run_init(&run, "abcdefgh");
    atomic_store(&cancel, false);
    run.r.cancel = &cancel;
    run.seen.cancel = &cancel;
    run.seen.stop_after = 4;
    run.r.stop = (const char *const[]){"dZ"};
    run.r.n_stop = 1;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_int_equal(run.out.finish, FINISH_CANCELLED);
    assert_int_equal(run.out.ids.n, 4);
    assert_string_equal(buf_str(&run.seen.text), "abcd"); /* the held d was shown, too */
    run_free(&run);
}

static void test_callback_refuses(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "abcdefgh");
    run.seen.stop_after = 2;
    run.r.stop = (const char *const[]){"bZ"};
    run.r.n_stop = 1;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_int_equal(run.out.finish, FINISH_CANCELLED);
    assert_int_equal(run.seen.pieces, 2); /* and is not called again with the held b */
    assert_string_equal(buf_str(&run.seen.text), "a");
    run_free(&run);
}

static void test_characters_are_whole(void **state)
{
    (void)state;
    struct run run;
    const char *text = "\xf0\x9f\x8c\xb7 \xe4\xb8\xad!";
    run_init(&run, text);
    run.r.max_tokens = (int)run.session.script.n;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_string_equal(buf_str(&run.seen.text), text);
    size_t all = run.session.script.n;
    run_free(&run);
    run_init(&run, text);
    assert_true(all > 4); /* the tulip takes several tokens */
    run.r.max_tokens = 2;
    assert_int_equal(run_go(&run), LILY_OK);
    assert_string_equal(buf_str(&run.seen.text), ""); /* cut in two: dropped */
    run_free(&run);
}

static void test_special_tokens(void **state)
{
    (void)state;
    struct run run;
    for (int raw = 0; raw < 2; raw++) {
        run_init(&run, "a<|im_start|>b<|im_end|>");
        run.r.show_special = raw;
        assert_int_equal(run_go(&run), LILY_OK);
        assert_string_equal(buf_str(&run.seen.text), raw ? "a<|im_start|>b" : "ab");
        run_free(&run);
    }
}

static void test_failures(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "abcdefgh");
    run.session.broken = true;
    assert_int_equal(run_go(&run), LILY_ERR_DEVICE);
    assert_non_null(strstr(run.err.msg, "output"));
    run_free(&run);
    run_init(&run, "abcdefgh");
    run.session.fails = true;
    assert_int_equal(run_go(&run), LILY_ERR_DEVICE);
    assert_string_equal(run.err.msg, "the device burns");
    assert_int_equal(run.out.ids.n, 3); /* what was generated stays */
    assert_string_equal(buf_str(&run.seen.text), "abc");
    run_free(&run);
    run_init(&run, "abc");
    run.r.stop = (const char *const[]){""};
    run.r.n_stop = 1;
    assert_int_equal(run_go(&run), LILY_ERR_USAGE);
    run_free(&run);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eos_ends_and_is_not_shown),
        cmocka_unit_test(test_empty_answer),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_stop_string_over_tokens),
        cmocka_unit_test(test_held_back_text_comes_at_the_end),
        cmocka_unit_test(test_stop_waits_for_the_end_of_thinking),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_callback_refuses),
        cmocka_unit_test(test_characters_are_whole),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_failures),
    };
    int n = (int)(sizeof tests / sizeof tests[0]);
    return tests_finish(n, cmocka_run_group_tests(tests, load, unload));
}
