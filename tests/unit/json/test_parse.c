/* Reading JSON: what is accepted, what is refused and with which position, order, numbers, limits. */
#include "../testing.h"

#include <malloc.h>

#include "base/mem.h"
#include "json/json.h"

static struct lily_err err;

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    assert_ok(json_parse(text, strlen(text), "test", &v, &err));
    return v;
}

static void test_kinds(void **state)
{
    (void)state;
    struct json *v = parse(" {\"n\":null,\"t\":true,\"f\":false,\"i\":-7,\"r\":1.5,\"s\":\"x\",\"a\":[1,2],\"o\":{}}\r\n");
    assert_int_equal(json_size(v), 8);
    assert_int_equal(json_kind(json_get(v, "n")), JSON_NULL);
    assert_true(json_bool(json_get(v, "t")));
    assert_false(json_bool(json_get(v, "f")));
    assert_int_equal(json_int(json_get(v, "i")), -7);
    assert_true(json_double(json_get(v, "r")) == 1.5);
    assert_string_equal(json_string(json_get(v, "s")), "x");
    assert_int_equal(json_int(json_at(json_get(v, "a"), 1)), 2);
    assert_null(json_at(json_get(v, "a"), 2));
    assert_int_equal(json_size(json_get(v, "o")), 0);
    assert_null(json_get(json_get(v, "o"), "x"));
    assert_null(json_get(json_get(v, "a"), "x"));
    assert_null(json_get(v, "absent"));
    const struct json *value;
    assert_string_equal(json_key_at(v, 6, &value), "a");
    assert_int_equal(json_kind(value), JSON_ARRAY);
    json_free(v);
}

static void test_string_escapes(void **state)
{
    (void)state;
    struct json *v = parse("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e8\\u20AC\\ud83d\\ude00\\u0000z\\u2028\"");
    static const char want[] = "a\"\\/\b\f\n\r\tA\xc3\xa8\xe2\x82\xac\xf0\x9f\x98\x80\0z\xe2\x80\xa8";
    assert_int_equal(json_string_len(v), sizeof want - 1);
    assert_memory_equal(json_string(v), want, sizeof want);
    json_free(v);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "test: empty, expected JSON"},
        {" \n ", "test: empty, expected JSON"},
        {"[1,\n 2,, 3]", "test: line 2, column 4: found ',', expected a value"},
        {"[1,]", "test: line 1, column 4: found ']', expected a value"},
        {"{\"a\":1,}", "test: line 1, column 8: found '}', expected a key in double quotes"},
        {"{a:1}", "test: line 1, column 2: found 'a', expected a key in double quotes"},
        {"{'a':1}", "test: line 1, column 2: found ''', expected a key in double quotes"},
        {"{\"a\" 1}", "test: line 1, column 6: found '1', expected ':'"},
        {"{\"a\":1", "test: line 1, column 7: the text ends where ',' or '}' was expected"},
        {"[1 2]", "test: line 1, column 4: found '2', expected ',' or ']'"},
        {"[", "test: line 1, column 2: the text ends where a value was expected"},
        {"{} x", "test: line 1, column 4: found 'x', expected the end of the text"},
        {"\"\xc3\xa8\" ]", "test: line 1, column 5: found ']', expected the end of the text"},
        {"\"abc", "test: line 1, column 1: a string that never ends"},
        {"\"a\nb\"", "test: line 1, column 3: a control character inside a string (a newline is written \\n)"},
        {"\"\\x\"", "test: line 1, column 2: an unknown escape (a backslash is written \\\\)"},
        {"\"\\", "test: line 1, column 2: an unknown escape (a backslash is written \\\\)"},
        {"\"\\u12g4\"", "test: line 1, column 2: \\u needs four hexadecimal digits"},
        {"\"\\u12", "test: line 1, column 2: \\u needs four hexadecimal digits"},
        {"\"x\\ud800\"", "test: line 1, column 3: a lone surrogate (\\ud800 to \\udfff come in pairs)"},
        {"\"\\udc00\"", "test: line 1, column 2: a lone surrogate (\\ud800 to \\udfff come in pairs)"},
        {"\"\\ud800\\u0041\"", "test: line 1, column 2: a lone surrogate (\\ud800 to \\udfff come in pairs)"},
        {"\"\\ud800\\n00dc00\"", "test: line 1, column 2: a lone surrogate (\\ud800 to \\udfff come in pairs)"},
        {"\"\xff\"", "test: line 1, column 2: invalid UTF-8"},
        {"\"\xed\xa0\x80\"", "test: line 1, column 2: invalid UTF-8"},
        {"\"\xc0\x80\"", "test: line 1, column 2: invalid UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "test: line 1, column 2: invalid UTF-8"},
        {"\"\xe2\x82", "test: line 1, column 2: invalid UTF-8"},
        {"{\"a\\u0000b\":1}", "test: line 1, column 4: a key contains the character U+0000"},
        {"\xef\xbb\xbf{}", "test: line 1, column 1: a byte order mark before the JSON (save it as UTF-8 without one)"},
        {"01", "test: line 1, column 2: found '1', expected the end of the text"},
        {"-", "test: line 1, column 1: a malformed number"},
        {"1.", "test: line 1, column 1: a malformed number"},
        {"1e", "test: line 1, column 1: a malformed number"},
        {".5", "test: line 1, column 1: found '.', expected a value"},
        {"+1", "test: line 1, column 1: found '+', expected a value"},
        {"NaN", "test: line 1, column 1: found 'N', expected a value"},
        {"-Infinity", "test: line 1, column 1: a malformed number"},
        {"nul", "test: line 1, column 1: found 'n', expected a value"},
        {"truex", "test: line 1, column 5: found 'x', expected the end of the text"},
        {"\x01", "test: line 1, column 1: found the byte 0x01, expected a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *v = NULL;
        assert_int_equal(json_parse(cases[i].text, strlen(cases[i].text), "test", &v, &err), LILY_ERR_FORMAT);
        assert_null(v);
        assert_string_equal(err.msg, cases[i].message);
    }
}

static void test_nul_bytes(void **state)
{
    (void)state;
    struct json *v;
    assert_int_equal(json_parse("[1]\0", 4, "test", &v, &err), LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "test: line 1, column 4: found the byte 0x00, expected the end of the text");
    assert_int_equal(json_parse("\"a\0b\"", 5, "test", &v, &err), LILY_ERR_FORMAT);
    assert_int_equal(json_parse("\"\\\0\"", 4, "test", &v, &err), LILY_ERR_FORMAT);
}

/* Every proper prefix of a text, in an allocation of just its size, is refused without reading past it. */
static void test_prefixes(void **state)
{
    (void)state;
    static const char text[] = "{\"k\\u00e8\":[1,-2.5e+3,true,null,\"\\ud83d\\ude00\xe2\x82\xac\"],\"x\":{\"y\":false}}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        struct json *v;
        assert_int_equal(json_parse(copy, n, "test", &v, &err), LILY_ERR_FORMAT);
        free(copy);
    }
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * (JSON_MAX_DEPTH + 1)];
    for (int depth = JSON_MAX_DEPTH; depth <= JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct json *v;
        lily_status st = json_parse(text, 2 * (size_t)depth, "test", &v, &err);
        assert_int_equal(st, depth == JSON_MAX_DEPTH ? LILY_OK : LILY_ERR_FORMAT);
        if (st != LILY_OK) assert_string_equal(err.msg, "test: line 1, column 513: nested deeper than 512 levels");
        json_free(v);
    }
    char *deep = malloc(1 << 20);
    memset(deep, '[', 1 << 20);
    struct json *v;
    assert_int_equal(json_parse(deep, 1 << 20, "test", &v, &err), LILY_ERR_FORMAT);
    free(deep);
}

/* Python's json.loads: order of first appearance, value of the last. */
static void test_equal_keys(void **state)
{
    (void)state;
    struct json *v = parse("{\"b\":1,\"a\":2,\"b\":3,\"\\u0061\":4}");
    struct buf out = {0};
    json_write(v, 0, &out);
    assert_string_equal(buf_str(&out), "{\"b\":3,\"a\":4}");
    assert_true(json_has_repeated_key(v));
    buf_free(&out);
    json_free(v);
    v = parse("{\"a\":{\"b\":1,\"b\":1},\"b\":1}");
    assert_false(json_has_repeated_key(v));
    assert_true(json_has_repeated_key(json_get(v, "a")));
    json_free(v);
}

static void test_large_object(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_addc(&text, '{');
    for (int i = 0; i < 100000; i++) buf_printf(&text, "%s\"key%d\":%d", i ? "," : "", i * 7 % 50000, i);
    buf_addc(&text, '}');
    struct json *v = parse(buf_str(&text));
    assert_int_equal(json_size(v), 50000);
    char key[32];
    for (int i = 50000; i < 100000; i++) {
        snprintf(key, sizeof key, "key%d", i * 7 % 50000);
        assert_int_equal(json_int(json_get(v, key)), i);
    }
    assert_null(json_get(v, "key50000"));
    json_free(v);
    buf_free(&text);
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum json_kind kind;
        const char *python;
    } cases[] = {
        {"0", JSON_INTEGER, "0"},
        {"-0", JSON_INTEGER, "0"},
        {"9223372036854775807", JSON_INTEGER, "9223372036854775807"},
        {"-9223372036854775808", JSON_INTEGER, "-9223372036854775808"},
        {"9223372036854775808", JSON_REAL, "9223372036854775808"},
        {"-9223372036854775809", JSON_REAL, "-9223372036854775809"},
        {"12345678901234567890", JSON_REAL, "12345678901234567890"},
        {"99999999999999999999999999999999999999999", JSON_REAL, "99999999999999999999999999999999999999999"},
        {"1e2", JSON_REAL, "100.0"},
        {"-0.0", JSON_REAL, "-0.0"},
        {"1.0", JSON_REAL, "1.0"},
        {"1e400", JSON_REAL, "Infinity"},
        {"-1E400000000000000000000000000", JSON_REAL, "-Infinity"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *v = parse(cases[i].text);
        assert_int_equal(json_kind(v), cases[i].kind);
        struct buf out = {0};
        json_write_python(v, &out);
        assert_string_equal(buf_str(&out), cases[i].python);
        buf_clear(&out);
        json_write(v, 0, &out);
        if (i >= 4 && i < 8) assert_string_equal(buf_str(&out), cases[i].text);
        if (i >= 11) assert_string_equal(buf_str(&out), cases[i].text);
        buf_free(&out);
        json_free(v);
    }
    struct json *v = parse("12345678901234567890");
    assert_true(json_double(v) == 12345678901234567890.0);
    json_free(v);
}

/* A million digits are read in linear time and kept. */
static void test_long_numbers(void **state)
{
    (void)state;
    size_t n = 1000000;
    char *digits = malloc(n + 3);
    memset(digits, '7', n);
    struct json *v;
    assert_ok(json_parse(digits, n, "test", &v, &err));
    struct buf out = {0};
    json_write(v, 0, &out);
    assert_int_equal(out.len, n);
    assert_memory_equal(out.data, digits, n);
    json_free(v);
    buf_free(&out);
    digits[1] = '.';
    assert_ok(json_parse(digits, n, "test", &v, &err));
    assert_true(json_double(v) == 7.777777777777778);
    json_free(v);
    free(digits);
}

/* The most expensive shapes a text can have stay under 16 bytes of tree for each byte of text. */
static void test_memory_bound(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    TEST_ELSEWHERE("the build without sanitizers has the allocator that this test asks");
#else
    static const char *const units[] = {"0,", "[],", "{},", "\"\",", "[0],", "{\"\":0},", "{\"\":{}},", "[[]],"};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        struct buf text = {0};
        buf_addc(&text, '[');
        for (int i = 0; i < 500000; i++) buf_addz(&text, units[u]);
        text.data[text.len - 1] = ']';
        struct mallinfo2 before = mallinfo2();
        struct json *v = parse(buf_str(&text));
        struct mallinfo2 after = mallinfo2();
        size_t used = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        assert_true(used <= 16 * text.len);
        json_free(v);
        buf_free(&text);
    }
    struct buf text = {0};
    buf_addz(&text, "{\"\":0");
    for (int i = 0; i < 500000; i++) buf_addz(&text, ",\"\":0");
    buf_addc(&text, '}');
    struct mallinfo2 before = mallinfo2();
    struct json *v = parse(buf_str(&text));
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(json_size(v), 1);
    assert_true(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd <= 16 * text.len);
    json_free(v);
    buf_free(&text);
#endif
}

static void test_file(void **state)
{
    (void)state;
    char path[] = "/tmp/lily-json-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fputs("{\"a\": [1,}", f);
    fclose(f);
    struct json *v;
    assert_int_equal(json_parse_file(path, 100, &v, &err), LILY_ERR_FORMAT);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, "line 1, column 10"));
    assert_int_not_equal(json_parse_file(path, 5, &v, &err), LILY_OK);
    remove(path);
    assert_int_equal(json_parse_file(path, 100, &v, &err), LILY_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),        cmocka_unit_test(test_string_escapes), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nul_bytes),    cmocka_unit_test(test_prefixes),       cmocka_unit_test(test_depth),
        cmocka_unit_test(test_equal_keys),   cmocka_unit_test(test_large_object),   cmocka_unit_test(test_integers),
        cmocka_unit_test(test_long_numbers), cmocka_unit_test(test_memory_bound),   cmocka_unit_test(test_file),
    };
    return RUN_TESTS(tests);
}
