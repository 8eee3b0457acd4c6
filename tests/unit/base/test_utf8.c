/* UTF-8: every code point both ways, the limits of what is valid, repair as Python does it. */
#include "../testing.h"

#include "base/utf8.h"

static void test_every_code_point(void **state)
{
    (void)state;
    struct buf text = {0};
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        if (cp == 0xd800) cp = 0xe000;
        size_t used;
        buf_clear(&text);
        utf8_add(&text, cp);
        assert_int_equal(text.len, cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_decode(text.data, text.len, &used), cp);
        assert_int_equal(used, text.len);
        for (size_t n = 1; n < text.len; n++) {
            assert_int_equal(utf8_decode(text.data, n, &used), UTF8_PARTIAL);
            assert_int_equal(used, n);
        }
    }
    buf_free(&text);
}

/* Recorded from Python 3.11: bytes.decode("utf-8", "replace"), with '?' for each U+FFFD. */
static void test_repair(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *want;
    } cases[] = {
        {"", ""}, {"abc", "abc"}, {"\x80", "?"}, {"\xbf\xbf", "??"}, {"a\xff" "b\xfe", "a?b?"}, {"\xc0\x80", "??"}, {"\xc1\xbf", "??"},
        {"\xc3", "?"}, {"\xc3(", "?("}, {"\xe2\x82", "?"}, {"\xe2(\xa1", "?(?"}, {"\xe2\x82(", "?("}, {"\xe0\x80\x80", "???"},
        {"\xed\xa0\x80", "???"}, {"\xed\x9f\xbf", "\xed\x9f\xbf"}, {"\xf0\x9f\x98", "?"}, {"\xf0\x9f\x98(", "?("}, {"\xf0\x80\x80\x80", "????"},
        {"\xf4\x90\x80\x80", "????"}, {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"}, {"\xf5\x80", "??"}, {"\xe2\x82\xe2\x82\xac", "?\xe2\x82\xac"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf out = {0}, want = {0};
        utf8_add_repaired(&out, cases[i].bytes, strlen(cases[i].bytes));
        for (const char *p = cases[i].want; *p; p++) {
            if (*p == '?') buf_addz(&want, "\xef\xbf\xbd");
            else buf_addc(&want, *p);
        }
        assert_string_equal(buf_str(&out), buf_str(&want));
        buf_free(&out);
        buf_free(&want);
    }
}

static void test_check(void **state)
{
    static const struct {
        const char *bytes, *want;
    } bad[] = {
        {"abc\xff" "d", "stdin is no UTF-8 text: the byte 0xff at offset 3"},
        {"\xe9t\xe9", "stdin is no UTF-8 text: the byte 0xe9 at offset 0"},
        {"\xe2\x82\xac and more ASCII than a word \xc3(", "stdin is no UTF-8 text: the byte 0xc3 at offset 31"},
        {"a\xe2\x82", "stdin ends inside a UTF-8 character, which begins at byte offset 1"},
    };
    struct lily_err err = {0};
    (void)state;
    assert_int_equal(utf8_check("stdin", "", 0, &err), LILY_OK);
    assert_int_equal(utf8_check("stdin", "\xe2\x82\xac\0 1", 6, &err), LILY_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(utf8_check("stdin", bad[i].bytes, strlen(bad[i].bytes), &err), LILY_ERR_FORMAT);
        assert_string_equal(err.msg, bad[i].want);
        assert_true(err.hint[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_code_point), cmocka_unit_test(test_repair), cmocka_unit_test(test_check)};
    return RUN_TESTS(tests);
}
