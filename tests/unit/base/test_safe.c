/* Text for a terminal: no control character gets through. */
#include "../testing.h"

#include "base/safe.h"

static void check(const char *text, size_t n, bool lines, const char *want)
{
    struct buf out = {0};
    safe_text(&out, text, n, lines);
    assert_string_equal(buf_str(&out), want);
    buf_free(&out);
}

static void test_controls(void **state)
{
    (void)state;
    check("a\033[31mb", 7, true, "a^[[31mb");
    check("\0\a\b\r\x7f", 5, true, "^@^G^H^M^?");
    check("a\tb\nc", 5, true, "a\tb\nc");
    check("a\nb", 3, false, "a b");
    check("\xc2\x9b" "31m", 5, true, "<U+009B>31m");
}

static void test_text_stays(void **state)
{
    (void)state;
    const char *text = "caff\xc3\xa8 \xe4\xb8\xad \xf0\x9f\x8c\xb7 ~ \xc2\xa0";
    check(text, strlen(text), true, text);
}

static void test_invalid_bytes(void **state)
{
    (void)state;
    check("\xff\xc3(\x80", 4, true, "<FF><C3>(<80>");
    check("\xe2\x82", 2, true, "<E2><82>");         /* cut */
    check("\xc0\x9b", 2, true, "<C0><9B>");         /* ESC in too long a form */
    check("\xed\xa0\x80", 3, true, "<ED><A0><80>"); /* a surrogate */
    check("\xf4\x90\x80\x80", 4, true, "<F4><90><80><80>");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controls),
        cmocka_unit_test(test_text_stays),
        cmocka_unit_test(test_invalid_bytes),
    };
    return RUN_TESTS(tests);
}
