/* Stop strings: every cut of the text gives the same answer, and nothing that belongs to a match is ever shown. */
#include "../testing.h"

#include "run/stops.h"

struct example {
    const char *text;
    const char *stop[4];
    const char *shown; /* before the stop */
    bool stopped;
};

static const struct example examples[] = {
    {"alpha END.OF beta", {"END.OF"}, "alpha ", true},
    {"alpha END.O", {"END.OF"}, "alpha END.O", false}, /* never completed: shown at the end */
    {"aaab", {"aab"}, "a", true},
    {"abababac", {"ababac"}, "ab", true},
    {"abcd", {"bcd", "c"}, "ab", true},   /* the match that is complete first */
    {"abcd", {"c", "bcd"}, "ab", true},
    {"xabc", {"abc", "bc"}, "x", true},   /* both end here: the longest */
    {"xabc", {"bc", "abc"}, "x", true},
    {"a\xC3\xA7\xC3\xA3o!", {"\xC3\xA7\xC3\xA3o"}, "a", true},
    {"a\xC3\xA7\xC3\xA1o", {"\xC3\xA7\xC3\xA3o"}, "a\xC3\xA7\xC3\xA1o", false},
    {"\n\n\nUser: x", {"\nUser:", "\n\n\n\n"}, "\n\n", true},
    {"stop", {"stop"}, "", true},
    {"nothing here", {"zzz", "q"}, "nothing here", false},
    {"no strings at all", {NULL}, "no strings at all", false},
    {"aXaXaXb", {"aXaXb"}, "aX", true},
};

static int count(const struct example *e)
{
    int n = 0;
    while (n < 4 && e->stop[n]) n++;
    return n;
}

/* Feeds the text in pieces that end at the byte positions of cut (a mask), and checks what is shown at every point. */
static void run(const struct example *e, unsigned cut)
{
    struct stops *s;
    struct lily_err err = {0};
    struct buf out = {0};
    size_t n = strlen(e->text), from = 0;
    bool stopped = false;
    assert_ok(stops_new(e->stop, count(e), &s, &err));
    for (size_t i = 1; i <= n && !stopped; i++) {
        if (i < n && !(cut >> (i - 1) & 1)) continue;
        stopped = stops_push(s, e->text + from, i - from, &out);
        from = i;
        assert_true(out.len <= strlen(e->shown)); /* no letter of a match, not even for a moment */
    }
    if (!stopped) stops_flush(s, &out);
    assert_int_equal(stopped, e->stopped);
    assert_string_equal(buf_str(&out), e->shown);
    buf_free(&out);
    stops_free(s);
}

static void test_every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        size_t n = strlen(examples[i].text);
        for (unsigned cut = 0; cut < 1u << (n - 1) && cut < 1u << 12; cut++) run(&examples[i], cut);
        run(&examples[i], ~0u);
    }
}

static void test_text_passes_at_once(void **state)
{
    (void)state;
    struct stops *s;
    struct lily_err err = {0};
    struct buf out = {0};
    assert_ok(stops_new((const char *const[]){"END"}, 1, &s, &err));
    assert_false(stops_push(s, "hello E", 7, &out));
    assert_string_equal(buf_str(&out), "hello ");
    assert_false(stops_push(s, "x", 1, &out));
    assert_string_equal(buf_str(&out), "hello Ex");
    buf_free(&out);
    stops_free(s);
}

static void test_bad_strings(void **state)
{
    (void)state;
    struct stops *s;
    struct lily_err err = {0};
    static char long_string[MAX_STOP_BYTES + 2];
    memset(long_string, 'a', MAX_STOP_BYTES + 1);
    assert_int_equal(stops_new((const char *const[]){"ok", ""}, 2, &s, &err), LILY_ERR_USAGE);
    assert_non_null(strstr(err.msg, "stop string 2 is empty"));
    assert_int_equal(stops_new((const char *const[]){long_string}, 1, &s, &err), LILY_ERR_USAGE);
    assert_int_equal(stops_new((const char *const[]){"\xA9x"}, 1, &s, &err), LILY_ERR_USAGE);
    const char *many[MAX_STOP_STRINGS + 1];
    for (int i = 0; i <= MAX_STOP_STRINGS; i++) many[i] = "x";
    assert_int_equal(stops_new(many, MAX_STOP_STRINGS + 1, &s, &err), LILY_ERR_USAGE);
    long_string[MAX_STOP_BYTES] = 0;
    assert_ok(stops_new((const char *const[]){long_string}, 1, &s, &err));
    stops_free(s);
}

/* Periodic text and strings: the time must not grow with the square of their length. */
static void test_periodic_text(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    struct stops *s;
    struct lily_err err = {0};
    struct buf out = {0};
    static char stop[MAX_STOP_BYTES + 1], text[N];
    memset(stop, 'a', MAX_STOP_BYTES);
    stop[MAX_STOP_BYTES - 1] = 'b';
    memset(text, 'a', N);
    assert_ok(stops_new((const char *const[]){stop}, 1, &s, &err));
    for (int i = 0; i < N; i += 64) assert_false(stops_push(s, text + i, 64, &out));
    assert_int_equal(out.len, N - (MAX_STOP_BYTES - 1));
    assert_true(stops_push(s, "b", 1, &out));
    assert_int_equal(out.len, N - (MAX_STOP_BYTES - 1));
    buf_free(&out);
    stops_free(s);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_text_passes_at_once),
        cmocka_unit_test(test_bad_strings),
        cmocka_unit_test(test_periodic_text),
    };
    return RUN_TESTS(tests);
}
