/* Error records: formatting, truncation, hints, prefixes, hostile bytes. */
#include "../testing.h"

#include "base/err.h"

static void set_fills_status_message_and_clears_hint(void **state)
{
    (void)state;
    struct lily_err err;
    memset(&err, 'x', sizeof err);
    assert_int_equal(err_set(&err, LILY_ERR_IO, "%s: %d", "file", 7), LILY_ERR_IO);
    assert_int_equal(err.status, LILY_ERR_IO);
    assert_string_equal(err.msg, "file: 7");
    assert_string_equal(err.hint, "");
    err_hint(&err, "try %s", "again");
    assert_string_equal(err.hint, "try again");
    err_clear(&err);
    assert_int_equal(err.status, LILY_OK);
    assert_string_equal(err.msg, "");
    assert_string_equal(err.hint, "");
}

static void null_record_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, LILY_ERR_LIMIT, "%s", "x"), LILY_ERR_LIMIT);
    err_hint(NULL, "x");
    err_prefix(NULL, "x");
    err_clear(NULL);
}

static void prefix_goes_in_front(void **state)
{
    (void)state;
    struct lily_err err;
    err_set(&err, LILY_ERR_FORMAT, "bad header");
    err_prefix(&err, "shard %d", 2);
    assert_string_equal(err.msg, "shard 2: bad header");
    assert_int_equal(err.status, LILY_ERR_FORMAT);
}

static void long_texts_are_cut_and_terminated(void **state)
{
    (void)state;
    struct lily_err err;
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    err_set(&err, LILY_ERR_IO, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    err_hint(&err, "%s", text);
    assert_int_equal(strlen(err.hint), sizeof err.hint - 1);
    err_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    err_set(&err, LILY_ERR_IO, "%s", text);
    err_prefix(&err, "p");
    assert_memory_equal(err.msg, "p: aaa", 6);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

static void hostile_bytes_become_question_marks(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"a\nb\r\tc", "a?b??c"},
        {"\x1b[31mred\x7f", "?[31mred?"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"}, /* valid text stays */
        {"\xc2\x9b" "31m", "??31m"},               /* C1: a terminal takes U+009B for ESC [ */
        {"\xff\xfe", "??"},
        {"\xc0\xaf", "??"},                       /* overlong */
        {"\xe0\x80\x80", "???"},                  /* overlong */
        {"\xed\xa0\x80", "???"},                  /* surrogate */
        {"\xf4\x90\x80\x80", "????"},             /* past U+10FFFF */
        {"x\xe2\x82", "x??"},                     /* cut */
        {"\xf0\x9f", "??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lily_err err;
        err_set(&err, LILY_ERR_FORMAT, "%s", cases[i].in);
        assert_string_equal(err.msg, cases[i].out);
        err_hint(&err, "%s", cases[i].in);
        assert_string_equal(err.hint, cases[i].out);
        err_prefix(&err, "%s", cases[i].in);
        assert_memory_equal(err.msg, cases[i].out, strlen(cases[i].out));
    }
}

static void what_stands_around_a_long_name_stays(void **state)
{
    (void)state;
    struct lily_err err;
    char name[20000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    err_set(&err, LILY_ERR_IO, "the name %s is not here", name);
    assert_memory_equal(err.msg, "the name nnn", 12);
    assert_non_null(strstr(err.msg, "nnn...nnn"));
    assert_non_null(strstr(err.msg, "nnn is not here"));
    err_prefix(&err, "in %s of %s", "front", name);
    assert_memory_equal(err.msg, "in front of nnn", 15);
    assert_non_null(strstr(err.msg, "nnn is not here"));
    err_hint(&err, "leave %s out", name);
    assert_memory_equal(err.hint, "leave nnn", 9);
    assert_non_null(strstr(err.hint, "nnn out"));
}

static void characters_cut_by_the_gap_are_replaced(void **state)
{
    (void)state;
    struct lily_err err;
    char text[3 * sizeof err.msg + 1] = "";
    for (size_t i = 0; i + 1 < sizeof text; i += 3) memcpy(text + i, "\xe2\x82\xac", 4);
    err_set(&err, LILY_ERR_IO, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    assert_non_null(strstr(err.msg, "\xac?...??\xe2"));
}

static lily_status fails(struct lily_err *err)
{
    LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "no");
}

static lily_status forwards(struct lily_err *err, int *reached)
{
    LILY_TRY(LILY_OK);
    *reached = 1;
    LILY_TRY(fails(err));
    *reached = 2;
    return LILY_OK;
}

static lily_status cleans_up(struct lily_err *err, int *cleaned)
{
    lily_status st;
    LILY_TRY_GOTO(LILY_OK, out);
    LILY_TRY_GOTO(fails(err), out);
    *cleaned = -1;
out:
    *cleaned += 1;
    return st;
}

static void macros_forward_the_first_failure(void **state)
{
    (void)state;
    struct lily_err err = {0};
    int n = 0;
    assert_int_equal(forwards(&err, &n), LILY_ERR_UNSUPPORTED);
    assert_int_equal(n, 1);
    assert_string_equal(err.msg, "no");
    n = 0;
    assert_int_equal(cleans_up(&err, &n), LILY_ERR_UNSUPPORTED);
    assert_int_equal(n, 1);
}

static void every_status_has_its_own_name(void **state)
{
    (void)state;
    for (int i = 0; i <= LILY_ERR_INTERNAL; i++) {
        const char *name = lily_status_name((lily_status)i);
        assert_true(strlen(name) > 0 && strcmp(name, "unknown") != 0);
        for (int j = 0; j < i; j++) assert_string_not_equal(name, lily_status_name((lily_status)j));
    }
    assert_string_equal(lily_status_name(LILY_ERR_INTERNAL), "internal");
    assert_string_equal(lily_status_name((lily_status)1000), "unknown");
    assert_string_equal(lily_status_name((lily_status)-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_fills_status_message_and_clears_hint),
        cmocka_unit_test(null_record_is_allowed),
        cmocka_unit_test(prefix_goes_in_front),
        cmocka_unit_test(long_texts_are_cut_and_terminated),
        cmocka_unit_test(hostile_bytes_become_question_marks),
        cmocka_unit_test(what_stands_around_a_long_name_stays),
        cmocka_unit_test(characters_cut_by_the_gap_are_replaced),
        cmocka_unit_test(macros_forward_the_first_failure),
        cmocka_unit_test(every_status_has_its_own_name),
    };
    return RUN_TESTS(tests);
}
