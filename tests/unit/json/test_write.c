/* Writing JSON: compact, indented, as Python's json.dumps and str() write it; building, copying, views. */
#include "../testing.h"

#include <math.h>

#include "json/json.h"

static struct lily_err err;

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    assert_ok(json_parse(text, strlen(text), "test", &v, &err));
    return v;
}

enum form { COMPACT, INDENTED, PYTHON, PYTHON_STR };

static void check(const struct json *v, enum form form, const char *want)
{
    struct buf out = {0};
    if (form == COMPACT) json_write(v, 0, &out);
    if (form == INDENTED) json_write(v, 2, &out);
    if (form == PYTHON) json_write_python(v, &out);
    if (form == PYTHON_STR) json_write_python_str(v, &out);
    assert_string_equal(buf_str(&out), want);
    buf_free(&out);
}

static void check_text(const char *text, enum form form, const char *want)
{
    struct json *v = parse(text);
    check(v, form, want);
    json_free(v);
}

static void test_forms(void **state)
{
    (void)state;
    static const char text[] = "{ \"a\":[1,-2.50,true,null],\"b\":{},\"c\":[],\"d\":{\"e\":\"x\"}}";
    check_text(text, COMPACT, "{\"a\":[1,-2.5,true,null],\"b\":{},\"c\":[],\"d\":{\"e\":\"x\"}}");
    check_text(text, PYTHON, "{\"a\": [1, -2.5, true, null], \"b\": {}, \"c\": [], \"d\": {\"e\": \"x\"}}");
    check_text(text, PYTHON_STR, "{'a': [1, -2.5, True, None], 'b': {}, 'c': [], 'd': {'e': 'x'}}");
    check_text(text, INDENTED,
               "{\n  \"a\": [\n    1,\n    -2.5,\n    true,\n    null\n  ],\n  \"b\": {},\n  \"c\": [],\n"
               "  \"d\": {\n    \"e\": \"x\"\n  }\n}");
}

/* Recorded from Python 3.11: repr(float.fromhex(...)). */
static void test_doubles(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *repr;
    } cases[] = {
        {0x0.0p+0, "0.0"},
        {-0x0.0p+0, "-0.0"},
        {0x1.999999999999ap-4, "0.1"},
        {0x1.0000000000000p+0, "1.0"},
        {-0x1.8000000000000p+0, "-1.5"},
        {0x1.4f8b588e368f1p-17, "1e-05"},
        {0x1.a36e2eb1c432dp-14, "0.0001"},
        {0x1.02e4b6ce5dc68p-13, "0.00012345"},
        {0x1.1c37937e08000p+53, "1e+16"},
        {0x1.c6bf526340000p+49, "1000000000000000.0"},
        {0x1.b69b4ba630f35p+56, "1.2345678901234568e+17"},
        {0x1.1c37937e07fffp+53, "9999999999999998.0"},
        {0x1.0f0cf064dd592p+73, "1e+22"},
        {0x1.52d02c7e14af6p+76, "1e+23"},
        {0x0.0000000000001p-1022, "5e-324"},
        {0x1.0000000000000p-1022, "2.2250738585072014e-308"},
        {0x0.fffffffffffffp-1022, "2.225073858507201e-308"},
        {0x1.fffffffffffffp+1023, "1.7976931348623157e+308"},
        {0x1.0000000000000p-44, "5.684341886080802e-14"},
        {0x0.0000000000001p-1022, "5e-324"},
        {0x1.0000000000000p+63, "9.223372036854776e+18"},
        {0x1.0000000000000p+53, "9007199254740992.0"},
        {0x1.3333333333333p-2, "0.3"},
        {0x1.5555555555555p-1, "0.6666666666666666"},
        {0x1.5555555555555p-2, "0.3333333333333333"},
        {0x1.9000000000000p+6, "100.0"},
        {0x1.34a456d5cfaadp+10, "1234.5678"},
        {0x1.249ad2594c37dp+332, "1e+100"},
        {0x1.921fb54442d18p+1, "3.141592653589793"},
        {0x1.fe185ca57c517p+78, "6.02214076e+23"},
        {0x1.a36e2eb1c432dp-15, "5e-05"},
        {0x1.0624dd2f1a9fcp-10, "0.001"},
        {0x1.78c29dccccccdp+23, "12345678.9"},
        {0x1.0000000000000p+53, "9007199254740992.0"},
        {0x1.1666666666666p+2, "4.35"},
        {0x1.3333333333334p-2, "0.30000000000000004"},
        {0x1.0000000000000p-1022, "2.2250738585072014e-308"},
        {0x1.0000000000000p+1023, "8.98846567431158e+307"},
        {0x1.0000000000000p-24, "5.960464477539063e-08"},
        {0x1.c7e83209e90b2p+72, "8.41e+21"},
        {0x1.0000000000000p+89, "6.189700196426902e+26"},
        {0x1.fe07017c01026p-21, "9.5e-07"},
        {0x1.1eb2d66005835p+997, "1.5e+300"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *v = json_new_double(cases[i].v);
        check(v, PYTHON, cases[i].repr);
        check(v, COMPACT, cases[i].repr);
        json_free(v);
    }
}

static void test_non_finite(void **state)
{
    (void)state;
    struct json *v = json_new_double(-INFINITY);
    check(v, COMPACT, "null");
    check(v, PYTHON, "-Infinity");
    json_free(v);
    v = json_new_double(NAN);
    check(v, COMPACT, "null");
    check(v, PYTHON, "NaN");
    json_free(v);
}

/* Random bit patterns: the text reads back as the same double, and no shorter decimal does. */
static void test_doubles_shortest(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        double d;
        memcpy(&d, &x, sizeof d);
        if (!isfinite(d)) continue;
        struct json *v = json_new_double(d);
        struct buf out = {0};
        json_write(v, 0, &out);
        assert_true(strtod(buf_str(&out), NULL) == d);
        int digits = 0, seen = 0; /* from the first to the last that is not zero */
        for (const char *p = buf_str(&out); *p && *p != 'e'; p++) {
            if (*p >= (seen ? '0' : '1') && *p <= '9') seen++;
            if (*p >= '1' && *p <= '9') digits = seen;
        }
        char shorter[64];
        assert_true(digits <= 17);
        if (digits >= 16) {
            snprintf(shorter, sizeof shorter, "%.*e", digits - 2, d);
            assert_true(strtod(shorter, NULL) != d);
        }
        json_free(v);
        buf_free(&out);
    }
}

static void test_escapes(void **state)
{
    (void)state;
    static const char text[] = "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\\\"\\\\/<>&'\x7f\xc3\xa8\xe2\x80\xa8\xf0\x9f\x98\x80\"";
    static const char want[] =
        "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\\\"\\\\/<>&'\x7f\xc3\xa8\xe2\x80\xa8\xf0\x9f\x98\x80\"";
    check_text(text, COMPACT, want);
    check_text(text, PYTHON, want);
}

/* Recorded from Python 3.11: str([...]). */
static void test_python_str(void **state)
{
    (void)state;
    check_text("[\"it's\"]", PYTHON_STR, "[\"it's\"]");
    check_text("[\"it's \\\"x\\\"\"]", PYTHON_STR, "['it\\'s \"x\"']");
    check_text("[\"a\\\\b\\n\\r\\t\\u0000\\u001b\\u007f\"]", PYTHON_STR, "['a\\\\b\\n\\r\\t\\x00\\x1b\\x7f']");
    check_text("[\"\\u00e8\\u00a0\\u00ad\\u2028\\u200b\\u3000\\ufeff\\ue000\\ud83d\\ude00\\udb40\\udc01\"]", PYTHON_STR,
               "['\xc3\xa8\\xa0\\xad\\u2028\\u200b\\u3000\\ufeff\\ue000\xf0\x9f\x98\x80\\U000e0001']");
    check_text("\"it's\\n\"", PYTHON_STR, "it's\n");
    check_text("true", PYTHON_STR, "True");
    check_text("null", PYTHON_STR, "None");
    check_text("1e-05", PYTHON_STR, "1e-05");
    check_text("123456789012345678901234567890", PYTHON_STR, "123456789012345678901234567890");
}

static void test_building(void **state)
{
    (void)state;
    struct json *o = json_new_object(), *a = json_new_array();
    json_put(o, "list", a);
    for (int i = 0; i < 20; i++) json_add(a, json_new_int(i)); /* a stays good after it was moved */
    json_put(o, "text", json_new_text("a\xff" "b\0c", 5));
    json_put(o, "big", json_new_number_text("123456789012345678901234567890", 30));
    json_put(o, "exact", json_new_number_text("0.10", 4));
    json_put(o, "gone", json_new_string("x"));
    json_put(o, "gone", json_new_null());
    json_put(o, "yes", json_new_bool(true));
    static const char want[] = "{\"list\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19],\"text\":\"a\xef\xbf\xbd"
                               "b\\u0000c\",\"big\":123456789012345678901234567890,\"exact\":0.10,\"gone\":null,"
                               "\"yes\":true}";
    check(o, COMPACT, want);
    struct json *copy = json_copy(o);
    json_free(o);
    check(copy, COMPACT, want);
    json_free(copy);
}

static void test_many_members(void **state)
{
    (void)state;
    struct json *o = json_new_object();
    char key[16];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3000; i++) {
            snprintf(key, sizeof key, "k%d", i);
            json_put(o, key, json_new_int(i + round));
        }
    }
    assert_int_equal(json_size(o), 3000);
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_string_equal(json_key_at(o, (size_t)i, NULL), key);
        assert_int_equal(json_int(json_get(o, key)), i + 1);
    }
    json_free(o);
}

static void test_change_parsed(void **state)
{
    (void)state;
    struct json *v = parse("{\"a\":1,\"b\":[1,2],\"c\":\"x\"}");
    json_put(v, "b", json_new_string("new"));
    json_put(v, "d", json_new_array());
    check(v, COMPACT, "{\"a\":1,\"b\":\"new\",\"c\":\"x\",\"d\":[]}");
    struct json *list = parse("[1,[2]]");
    json_add(list, v);
    json_add(list, json_new_int(3));
    check(list, COMPACT, "[1,[2],{\"a\":1,\"b\":\"new\",\"c\":\"x\",\"d\":[]},3]");
    json_free(list);
}

static void test_views(void **state)
{
    (void)state;
    struct json *v = parse("{\"s\":\"text\",\"a\":[1,{\"k\":[]}],\"n\":123456789012345678901}");
    struct json *o = json_new_object();
    json_put(o, "s", json_new_view(json_get(v, "s")));
    json_put(o, "a", json_new_view(json_get(v, "a")));
    json_put(o, "n", json_new_view(json_get(v, "n")));
    json_put(o, "o", json_new_view(v));
    check(o, COMPACT,
          "{\"s\":\"text\",\"a\":[1,{\"k\":[]}],\"n\":123456789012345678901,\"o\":{\"s\":\"text\",\"a\":[1,{\"k\":[]}],"
          "\"n\":123456789012345678901}}");
    json_free(o);
    check(v, COMPACT, "{\"s\":\"text\",\"a\":[1,{\"k\":[]}],\"n\":123456789012345678901}");
    json_free(v);
}

static void test_number_valid(void **state)
{
    (void)state;
    static const char *const good[] = {"0", "-1", "1.5", "1e3", "123456789012345678901234567890", "-0.0E-5", "1e999"};
    static const char *const bad[] = {"", "-", "01", "1.", ".5", "+1", "0x10", "1e", "NaN", " 1", "1 ", "1_000"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_true(json_number_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(json_number_valid(bad[i], strlen(bad[i])));
}

static void test_fields(void **state)
{
    (void)state;
    struct json *v = parse("{\"i\":7,\"big\":12345678901234567890,\"r\":0.5,\"s\":\"te\\nxt\",\"b\":false,\"n\":null,\"a\":[]}");
    int64_t i = -1;
    double d = -1;
    bool b = true;
    const char *s = "default";
    assert_ok(json_get_int((struct json_field){v, "cfg", "i"}, 0, 10, &i, &err));
    assert_int_equal(i, 7);
    assert_ok(json_get_double((struct json_field){v, "cfg", "i"}, 0, 10, &d, &err));
    assert_true(d == 7);
    assert_ok(json_get_double((struct json_field){v, "cfg", "r"}, 0, 10, &d, &err));
    assert_true(d == 0.5);
    assert_ok(json_get_bool((struct json_field){v, "cfg", "b"}, &b, &err));
    assert_false(b);
    assert_ok(json_get_string((struct json_field){v, "cfg", "n"}, &s, &err));
    assert_ok(json_get_string((struct json_field){v, "cfg", "absent"}, &s, &err));
    assert_string_equal(s, "default");
    assert_ok(json_get_string((struct json_field){v, "cfg", "s"}, &s, &err));
    assert_string_equal(s, "te\nxt");
    assert_int_equal(json_get_int((struct json_field){v, "cfg", "i"}, 0, 5, &i, &err), LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "cfg: \"i\" is 7, expected an integer from 0 to 5");
    assert_int_equal(json_get_int((struct json_field){v, "cfg", "big"}, 0, 5, &i, &err), LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "cfg: \"big\" is 12345678901234567890, expected an integer from 0 to 5");
    assert_int_equal(json_get_int((struct json_field){v, "cfg", "r"}, 0, 5, &i, &err), LILY_ERR_FORMAT);
    assert_int_equal(json_get_double((struct json_field){v, "cfg", "s"}, 0, 2, &d, &err), LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "cfg: \"s\" is \"te\\nxt\", expected a number from 0 to 2");
    assert_int_equal(json_get_bool((struct json_field){v, "cfg", "a"}, &b, &err), LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "cfg: \"a\" is an array, expected true or false");
    assert_int_equal(json_get_string((struct json_field){v, "cfg", "b"}, &s, &err), LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "cfg: \"b\" is false, expected a string");
    json_free(v);
}

static void test_field_long_value(void **state)
{
    (void)state;
    struct json *o = json_new_object();
    struct buf text = {0};
    for (int i = 0; i < 100; i++) buf_addz(&text, "\xe2\x82\xac");
    json_put(o, "k", json_new_string(buf_str(&text)));
    bool b;
    assert_int_equal(json_get_bool((struct json_field){o, "cfg", "k"}, &b, &err), LILY_ERR_FORMAT);
    struct json *repaired = json_new_string(err.msg);
    assert_string_equal(json_string(repaired), err.msg); /* cut between characters */
    assert_non_null(strstr(err.msg, "..., expected true or false"));
    json_free(repaired);
    json_free(o);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),          cmocka_unit_test(test_doubles),       cmocka_unit_test(test_non_finite),
        cmocka_unit_test(test_doubles_shortest), cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_python_str),     cmocka_unit_test(test_building),      cmocka_unit_test(test_many_members),
        cmocka_unit_test(test_change_parsed),  cmocka_unit_test(test_views),         cmocka_unit_test(test_number_valid),
        cmocka_unit_test(test_fields),         cmocka_unit_test(test_field_long_value),
    };
    return RUN_TESTS(tests);
}
