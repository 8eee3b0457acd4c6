/* The output parser: thinking, content, calls, fences, drift, values; every text at every cut. */
#include "../testing.h"

#include "base/mem.h"
#include "chat/template.h"
#include "outputs.h"

static struct lily_err err;
static struct json *tools;

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"write_file\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"path\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"typed\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},\"n\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},"
    "\"o\":{\"type\":\"object\"},\"a\":{\"type\":\"array\"},\"z\":{\"type\":\"null\"},\"free\":{},"
    "\"sn\":{\"type\":[\"string\",\"null\"]},\"in\":{\"type\":[\"integer\",\"null\"]},"
    "\"is\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]},\"si\":{\"type\":[\"string\",\"integer\"]},"
    "\"sa\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]},\"e\":{\"enum\":[1,2]}}}}},"
    "{\"name\":\"flat\",\"parameters\":{\"properties\":{\"i\":{\"type\":\"integer\"}}}}]";

static int set_up(void **state)
{
    (void)state;
    return json_parse(tools_text, sizeof tools_text - 1, "tools", &tools, &err);
}

static int tear_down(void **state)
{
    (void)state;
    json_free(tools);
    return 0;
}

static void check_answer(const char *text, const char *want)
{
    struct output_options opt = {.tools = tools};
    check_output(&opt, text, strlen(text), want);
}

static void check_thinking(const char *text, const char *want)
{
    struct output_options opt = {.tools = tools, .thinking = true};
    check_output(&opt, text, strlen(text), want);
}

#define CALL(name, parameters) "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"
#define PARAM(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define PARIS CALL("get_weather", PARAM("city", "Paris"))
#define PARIS_LINE " get_weather({\"city\":\"Paris\"})"

/* ---- thinking ---- */

static void test_thinking(void **state)
{
    (void)state;
    check_thinking("I think.\n</think>\n\nHello", "R:I think.C:Hello");
    check_thinking("\n I\n\nthink. \n </think>Hello <b>\n", "R:I\n\nthink.C:Hello <b>\n");
    check_thinking("\n</think>\n\nHello", "C:Hello");
    check_thinking("</think>", "");
    check_thinking("", "");
    check_thinking("<think>\nI think.\n</think>\n\nHello", "R:I think.C:Hello");
    check_answer("<think>\nI think.\n</think>\n\nHello", "R:I think.C:Hello");
    check_answer("  <think>I</think> <think>too</think> A", "R:I tooC:A");
    check_answer("Hello", "C:Hello");
    check_answer("\n Hello \n", "C:\n Hello \n");
    check_answer(" \n", "C: \n");
}

/* Cut by max_tokens inside the thinking: all of it is reasoning. */
static void test_unclosed_thinking(void **state)
{
    (void)state;
    check_thinking("Let me see", "R:Let me see");
    check_thinking("Let me see\n", "R:Let me see\n");
    check_thinking("a < b and </thin", "R:a < b and </thin");
    check_thinking("a `</parameter>` b", "R:a `</parameter>` b");
}

/* Markers that come again in the answer are left out, and nothing else is. */
static void test_stray_markers(void **state)
{
    (void)state;
    check_thinking("a</think>\n\nb\n</think>\n\nc", "R:aC:b\n\n\nc");
    check_thinking("a</think>b</think>", "R:aC:b");
    check_thinking("a</think>b<think>c", "R:aC:bc");
    check_answer("x <tool_call> y </tool_call> z", "C:x  y  z");
    check_answer("x\n<tool_response>\ny\n</tool_response>", "C:x\n\ny");
    check_answer("</tool_call>\nx", "C:x");
    check_answer("if a<b: <br> <thing> </think", "C:if a<b: <br> <thing> </think");
}

/* ---- calls ---- */

static void test_calls(void **state)
{
    (void)state;
    check_answer(PARIS, PARIS_LINE);
    check_answer("Let me check.\n\n" PARIS, "C:Let me check." PARIS_LINE);
    check_answer("\n\n" PARIS "\n", PARIS_LINE);
    check_answer(PARIS "\n" CALL("get_weather", PARAM("city", "Oslo") PARAM("days", "2")),
                 PARIS_LINE " get_weather({\"city\":\"Oslo\",\"days\":2})");
    check_answer(PARIS PARIS, PARIS_LINE PARIS_LINE);
    check_answer(CALL("get_weather", ""), " get_weather({})");
    check_answer(CALL("unknown", PARAM("a", "1") PARAM("b", "")), " unknown({\"a\":\"1\",\"b\":\"\"})");
    check_answer("A\n\n" PARIS "\nB", "C:A\n\n\nB" PARIS_LINE);
    check_answer("A\n\n" PARIS "\n\nB\n" PARIS "\n", "C:A\n\n\n\nB" PARIS_LINE PARIS_LINE);
    check_answer("A " PARIS " \n B", "C:A  \n B" PARIS_LINE);
    check_thinking("T\n</think>\n\n" PARIS, "R:T" PARIS_LINE);
    check_thinking("T\n</think>\n\nLook:\n" PARIS, "R:TC:Look:" PARIS_LINE);
}

static void test_values(void **state)
{
    (void)state;
    static const char *const values[] = {
        "", " ", "\n", "\n\n", " a ", "a\n", "\na", "line\n\n  next\n", "a & b < c > d \"q\" 'r' \\ /", "null", "true", "12",
        "return \"</parameter>\"\n", "return \"</tool_call>\"\n", "return \"</function>\"\n", "x </tool_call> y", "x</function>", "</parameter>", "a\n</parameter>\nb", "\n</parameter>",
        "</parameter>\n", "a\n</function>\nb", "a\n</tool_call>\nb", "a\n</parameter>\n</function>\nb",
        "a\n</parameter>\n</function>\n</tool_call>\nb", "a\n</parameter>\n</function>\n</tool_call>\n", "<tool_call>", "<function=f>",
        "<parameter=x>", "a\n<parameter=other>\nb", "a\n<parameter=content>\nb", "a\n<parameter=path>\nb",
        "<parameter=path>\nb\n</parameter>\nc",
        "</think>", "<think>", "```\n" PARIS "\n```\nand\n" PARIS "\n", PARIS, PARIS "\n" PARIS, "\xc3\xa8\xe2\x82\xac\xf0\x9f\x98\x80",
        "<", "<<<<", "</", "\n<", "\n</", "a\r\nb\r\n", "{\"a\": 1}", "\n\n</function>\n\n</parameter>\n\nx",
        "<item>\n<function name=\"a\">\n<parameter name=\"b\">\n1\n</parameter>\n</function>\n</item>\n", "\t\x01\x7f\xe2\x80\xa8",
        "a\n</parameter>\n</function>", "a\n</function>", "</tool_call></function><tool_call>", "</tool_call>\n" PARIS "\nb",
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct buf text = {0}, want = {0};
        buf_printf(&text, "<tool_call>\n<function=write_file>\n<parameter=content>\n%s\n</parameter>\n", values[i]);
        buf_addz(&text, PARAM("path", "/a") "</function>\n</tool_call>");
        buf_addz(&want, " write_file({\"content\":\"");
        json_write_escaped(values[i], strlen(values[i]), &want);
        buf_addz(&want, "\",\"path\":\"/a\"})");
        check_answer(buf_str(&text), buf_str(&want));
        buf_clear(&text);
        buf_clear(&want);
        buf_printf(&text, "<tool_call>\n<function=write_file>\n" PARAM("path", "/a") "<parameter=content>\n%s\n</parameter>\n", values[i]);
        buf_addz(&text, "</function>\n</tool_call>");
        buf_addz(&want, " write_file({\"path\":\"/a\",\"content\":\"");
        json_write_escaped(values[i], strlen(values[i]), &want);
        buf_addz(&want, "\"})");
        check_answer(buf_str(&text), buf_str(&want));
        buf_addz(&text, "\n" PARIS);
        buf_addz(&want, PARIS_LINE);
        check_answer(buf_str(&text), buf_str(&want));
        buf_free(&text);
        buf_free(&want);
    }
}

static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *want;
    } cases[] = {
        {"i", "2026", "2026"}, {"i", "-5", "-5"}, {"i", " 7 ", "7"}, {"i", "2026-01-15", "\"2026-01-15\""}, {"i", "007", "\"007\""},
        {"i", "1e3", "\"1e3\""}, {"i", "1.0", "\"1.0\""}, {"i", "true", "\"true\""}, {"i", "None", "\"None\""}, {"i", "null", "\"null\""},
        {"i", "\"\"", "\"\\\"\\\"\""}, {"i", "", "\"\""}, {"i", "12345678901234567890", "12345678901234567890"},
        {"i", "-99999999999999999999999999999999", "-99999999999999999999999999999999"},
        {"n", "1e3", "1e3"}, {"n", "0.10", "0.10"}, {"n", "5", "5"}, {"n", "NaN", "\"NaN\""}, {"n", ".5", "\".5\""},
        {"n", "3.14159265358979323846", "3.14159265358979323846"},
        {"b", "true", "true"}, {"b", "False", "false"}, {"b", "1", "\"1\""}, {"b", "yes", "\"yes\""},
        {"s", "null", "\"null\""}, {"s", "5", "\"5\""}, {"s", "[1]", "\"[1]\""}, {"s", " x ", "\" x \""},
        {"o", "{\"a\": [1, 2.50]}", "{\"a\": [1, 2.50]}"}, {"o", "\n{}\n", "{}"}, {"o", "[1]", "\"[1]\""}, {"o", "{a:1}", "\"{a:1}\""},
        {"o", "{'a': 1}", "\"{'a': 1}\""}, {"o", "{}{}", "\"{}{}\""}, {"o", "{},{}", "\"{},{}\""},
        {"a", "[12345678901234567890, {\"x\": null}]", "[12345678901234567890, {\"x\": null}]"}, {"a", "{}", "\"{}\""},
        {"a", "[1", "\"[1\""}, {"a", "1],[2", "\"1],[2\""}, {"z", "null", "null"}, {"z", "x", "\"x\""}, {"free", "5", "\"5\""}, {"free", "null", "\"null\""},
        {"unknown", "5", "\"5\""}, {"sn", "null", "null"}, {"sn", "x", "\"x\""}, {"sn", "5", "\"5\""}, {"in", "null", "null"}, {"in", "None", "null"},
        {"in", "5", "5"}, {"in", "x", "\"x\""}, {"is", "5", "5"}, {"is", "x", "\"x\""}, {"si", "5", "\"5\""}, {"sa", "[\"x\"]", "[\"x\"]"},
        {"sa", "x", "\"x\""}, {"e", "1", "1"}, {"e", "x", "\"x\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf text = {0}, want = {0};
        buf_printf(&text, "<tool_call>\n<function=typed>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>", cases[i].key,
                   cases[i].value);
        buf_printf(&want, " typed({\"%s\":%s})", cases[i].key, cases[i].want);
        check_answer(buf_str(&text), buf_str(&want));
        buf_free(&text);
        buf_free(&want);
    }
    check_answer(CALL("flat", PARAM("i", "5")), " flat({\"i\":5})");
}

/* ---- calls that are text ---- */

static void test_fences(void **state)
{
    (void)state;
    check_answer("Like this:\n```\n" PARIS "\n```\nok", "C:Like this:\n```\n" PARIS "\n```\nok");
    check_answer("~~~~xml\n```\n" PARIS "\n~~~\n~~~~\n\n" PARIS, "C:~~~~xml\n```\n" PARIS "\n~~~\n~~~~" PARIS_LINE);
    check_answer("  ```xml\n" PARIS "\n  ```", "C:  ```xml\n" PARIS "\n  ```");
    check_answer("```\ncode\n```\n" PARIS, "C:```\ncode\n```" PARIS_LINE);
    check_answer("```\ncode\n``` " PARIS, "C:```\ncode\n```" PARIS_LINE);
    check_answer("not ``` a fence\n" PARIS, "C:not ``` a fence" PARIS_LINE);
    check_answer("```inline```\n" PARIS, "C:```inline```" PARIS_LINE);
    check_answer("```\nnever closed\n" PARIS, "C:```\nnever closed\n" PARIS);
    check_thinking("```\nx</think>\n" PARIS, "R:```\nx" PARIS_LINE);
}

static void test_calls_in_thinking(void **state)
{
    (void)state;
    /* Never closed: a call. */
    check_thinking("I will call it. " PARIS, "R:I will call it." PARIS_LINE);
    check_thinking("<think>I will call it. " PARIS, "R:I will call it." PARIS_LINE);
    check_thinking(PARIS, PARIS_LINE);
    check_thinking("A\n" PARIS "\n" PARIS "\n", "R:A" PARIS_LINE PARIS_LINE);
    check_thinking("A\n" PARIS "\nB", "R:A\n\nB" PARIS_LINE);
    /* Closed later: an example. */
    check_thinking("One writes " PARIS " so.\n</think>\n\nDone", "R:One writes " PARIS " so.C:Done");
    check_thinking(PARIS "\n</think>\n\n" CALL("get_weather", PARAM("city", "Oslo")), "R:" PARIS " get_weather({\"city\":\"Oslo\"})");
    check_thinking("<tool_call>\n<function=f>\n<parameter=a>\n</think>x", "R:<tool_call>\n<function=f>\n<parameter=a>C:x");
    /* In a fence, or no call at all: text either way. */
    check_thinking("```\n" PARIS "\n```", "R:```\n" PARIS "\n```");
    check_thinking("use <tool_call> here", "R:use <tool_call> here");
}

static void test_no_calls(void **state)
{
    (void)state;
    struct output_options opt = {.tools = tools, .no_calls = true};
    check_output(&opt, PARIS, strlen(PARIS), "C:<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>");
}

/* ---- drift ---- */

static void test_drift(void **state)
{
    (void)state;
#define BODY "<function=get_weather>\n<parameter=city>\nParis"
    /* a parameter that is not closed */
    check_answer("<tool_call>\n" BODY "\n</function>\n</tool_call>", PARIS_LINE);
    check_answer("<tool_call>\n" BODY "\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
                 " get_weather({\"city\":\"Paris\",\"days\":2})");
    check_answer("<tool_call>\n" BODY "\n<parameter=days>\n2\n</function>\n</tool_call>", " get_weather({\"city\":\"Paris\",\"days\":2})");
    check_answer("<tool_call>\n" BODY "\n</tool_call>", PARIS_LINE);
    check_answer("<tool_call>\n" BODY "\n</tool_call>\n" PARIS, PARIS_LINE PARIS_LINE);
    /* the envelope is missing */
    check_answer("Sure.\n" BODY "\n</parameter>\n</function>", "C:Sure." PARIS_LINE);
    check_answer(BODY "\n</parameter>\n</function>\n</tool_call>", PARIS_LINE);
    check_answer("Sure. " BODY, "C:Sure. " BODY);
    check_answer("<function=unknown>\n<parameter=a>\n1\n</parameter>\n</function>",
                 "C:<function=unknown>\n<parameter=a>\n1\n</parameter>\n</function>");
    check_answer("<tool_call>\n" BODY "\n</parameter>\n</function>\n" BODY "\n</parameter>\n</function>\n</tool_call>",
                 PARIS_LINE PARIS_LINE);
    /* another envelope */
    check_answer("<function_invocation>\n" BODY "\n</parameter>\n</function>\n</function_invocation>", PARIS_LINE);
    check_answer("a <function_invocation> b", "C:a <function_invocation> b");
    /* tags twice, tags on one line, quotes */
    check_answer("<tool_call>\n" BODY "\n</parameter>\n</function>\n</function>\n</tool_call>", PARIS_LINE);
    check_answer("<tool_call>\n" BODY "\n</parameter>\n</function>\n</tool_call>\n</tool_call>", PARIS_LINE);
    check_answer("<tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>", PARIS_LINE);
    check_answer("<tool_call>\n<function=\"get_weather\">\n<parameter= city >\nParis\n</parameter>\n</function>\n</tool_call>", PARIS_LINE);
    check_answer("<tool_call>\n" BODY "\n</parameter>\n</function>\nDone.", "C:Done." PARIS_LINE);
    /* JSON inside the envelope */
    check_answer("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>", PARIS_LINE);
    check_answer("A\n<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"n\\\": 12345678901234567890}\"}\n</tool_call>\n" PARIS,
                 "C:A f({\"n\":12345678901234567890})" PARIS_LINE);
    check_answer("<tool_call>\n{\"name\": \"f\"", "C:{\"name\": \"f\"");
    check_answer("<tool_call>\n{\"x\": 1}\n</tool_call>", "C:{\"x\": 1}");
    /* no call at all */
    check_answer("<tool_call>\n<function=get_weather>\nParis\n</function>\n</tool_call>", "C:<function=get_weather>\nParis\n</function>");
    check_answer("<tool_call>get_weather(Paris)</tool_call>", "C:get_weather(Paris)");
}

/* The text ends inside a call: what was there is the value, and the call is marked. */
static void test_cut_calls(void **state)
{
    (void)state;
    check_answer("<tool_call>\n" BODY, PARIS_LINE "...");
    check_answer("<tool_call>\n" BODY "\n", PARIS_LINE "...");
    check_answer("<tool_call>\n" BODY "\n</param", PARIS_LINE "...");
    check_answer("<tool_call>\n" BODY "\n</parameter>", PARIS_LINE "...");
    check_answer("<tool_call>\n" BODY "\n</parameter>\n</funct", PARIS_LINE "...");
    check_answer("<tool_call>\n" BODY "\n</parameter>\n</function>", PARIS_LINE);
    check_answer("<tool_call>\n" BODY "\n</parameter>\n</function>\n</tool_", PARIS_LINE);
    check_answer("<tool_call>\n" BODY "\n</parameter>\n<parameter=da", PARIS_LINE "...");
    check_answer("<tool_call>\n" BODY "\n</parameter>\n<parameter=days>", " get_weather({\"city\":\"Paris\",\"days\":\"\"})...");
    check_answer("<tool_call>\n" BODY "\n</parameter>\n<parameter=days>\n1", " get_weather({\"city\":\"Paris\",\"days\":1})...");
    check_answer("<tool_call>\n<function=get_weather>", " get_weather({})...");
    check_answer("A <tool_call>\n<function=get_we", "C:A");
    check_answer("A <tool_call>\n", "C:A");
    check_answer("A <tool_call", "C:A <tool_call");
}

/* ---- places, bytes, sizes ---- */

static void test_places(void **state)
{
    (void)state;
    struct output_options opt = {.thinking = true};
    struct collected c = {0};
    struct output_parser *p = output_new(&opt, collect, &c);
    assert_int_equal(output_place(p), OUTPUT_IN_REASONING);
    output_push(p, "x <tool_call>", 13);
    assert_int_equal(output_place(p), OUTPUT_IN_REASONING);
    output_push(p, "\n<function=f>\n</function>", 25);
    assert_int_equal(output_place(p), OUTPUT_IN_HELD_CALL);
    output_push(p, "</think>y", 9);
    assert_int_equal(output_place(p), OUTPUT_IN_CONTENT);
    output_push(p, "<tool_call><function=f><parameter=a>", 36);
    assert_int_equal(output_place(p), OUTPUT_IN_CALL);
    output_push(p, "\nx", 2);
    assert_int_equal(output_place(p), OUTPUT_IN_CALL);
    output_finish(p);
    assert_string_equal(buf_str(&c.content), "y");
    output_free(p);
    collected_free(&c);
    output_free(NULL);
}

/* A string value is passed on while it comes. */
static void test_streams(void **state)
{
    (void)state;
    struct output_options opt = {.tools = tools};
    struct collected c = {0};
    struct output_parser *p = output_new(&opt, collect, &c);
    const char *start = "<tool_call>\n<function=write_file>\n<parameter=content>\nline one\nline two";
    output_push(p, start, strlen(start));
    assert_string_equal(buf_str(&c.arguments), "{\"content\":\"line one\\nline two");
    output_push(p, " <b", 3);
    assert_string_equal(buf_str(&c.arguments), "{\"content\":\"line one\\nline two <b");
    output_push(p, "\n</para", 7);
    assert_string_equal(buf_str(&c.arguments), "{\"content\":\"line one\\nline two <b");
    output_push(p, "graph>", 6);
    assert_string_equal(buf_str(&c.arguments), "{\"content\":\"line one\\nline two <b\\n</paragraph>");
    output_finish(p);
    output_free(p);
    collected_free(&c);
}

static void test_bytes(void **state)
{
    (void)state;
    static const char content[] = "a\xe2(b\0c\xe2\x80\xa8\"\\\xf0\x9f\x98";
    struct output_options opt = {.tools = tools};
    struct collected c = {0};
    struct buf line = {0};
    for (size_t cut = 0; cut < sizeof content; cut++) {
        struct output_parser *p = output_new(&opt, collect, &c);
        collected_clear(&c);
        output_push(p, content, cut);
        output_push(p, content + cut, sizeof content - 1 - cut);
        output_finish(p);
        static const char want[] = "a\xef\xbf\xbd(b\0c\xe2\x80\xa8\"\\\xef\xbf\xbd";
        assert_int_equal(c.content.len, sizeof want - 1);
        assert_memory_equal(c.content.data, want, sizeof want - 1);
        assert_null(c.broken);
        output_free(p);
    }
    check_answer("<tool_call>\n<function=f>\n<parameter=a\xff>\n\xe2(\x01\n</parameter>\n</function>\n</tool_call>",
                 " f({\"a\xef\xbf\xbd\":\"\xef\xbf\xbd(\\u0001\"})");
    buf_free(&line);
    collected_free(&c);
}

/* Texts that make look-ahead and holding back expensive, a byte at a time. */
static void test_long_texts(void **state)
{
    (void)state;
    static const struct {
        const char *start, *unit;
        bool thinking;
    } cases[] = {
        {"", "<", false}, {"", "\n", false}, {"", "<function=", false}, {"", "<tool_call>", false}, {"", "```\n", false},
        {"<tool_call><function=f><parameter=a>", "\n</function>", false}, {"<tool_call><function=f><parameter=a>\n", "\n", false},
        {"<tool_call><function=f><parameter=a>\n", "\n</parameter>\n</function>", false},
        {"<tool_call><function=f><parameter=a>\n", "<tool_call><function=f><parameter=a>", false},
        {"<tool_call><function=f>", "<parameter=a>\n1\n</parameter>", false}, {"<tool_call>{", "\"<\"", false},
        {"<tool_call><function=f><parameter=a>\n", "\n</function>\n</tool_call>\n<tool_call><function=f><parameter=a>\n", false},
        {"<tool_call><function=f><parameter=a>\n", "\n</parameter>\n</function>\nx\n<tool_call><function=f><parameter=a>\n", false},
        {"<tool_call><function=f></function>", "<think>x", true}, {"", "a </think>", true}, {"", "\xe2\x82\xac", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf text = {0};
        buf_addz(&text, cases[i].start);
        while (text.len < 100000) buf_addz(&text, cases[i].unit);
        struct output_options opt = {.thinking = cases[i].thinking};
        struct collected c = {0};
        struct output_parser *p = output_new(&opt, collect, &c);
        for (size_t at = 0; at < text.len; at++) output_push(p, text.data + at, 1);
        output_finish(p);
        output_free(p);
        collected_free(&c);
        buf_free(&text);
    }
}

/* Parameters that are never closed, each with a new key. */
static void test_many_unclosed(void **state)
{
    (void)state;
    struct buf text = {0};
    struct output_options opt = {0};
    struct collected c = {0};
    buf_addz(&text, "<tool_call><function=f>");
    for (int i = 0; i < 20000; i++) buf_printf(&text, "<parameter=k%d>\n%d\n", i, i);
    struct output_parser *p = output_new(&opt, collect, &c);
    output_push(p, buf_str(&text), text.len);
    output_finish(p);
    output_free(p);
    assert_null(c.broken);
    assert_true(c.calls.len > 20000 * 8);
    collected_free(&c);
    buf_free(&text);
}

/* What the template renders of a call is what the parser reads: random values of every type. */
static uint64_t random_bits(uint64_t *x)
{
    return *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", " ", "\\n", "<", ">", "</parameter>", "</function>", "</tool_call>", "\\\"", "\\u00e8", "```",
                                         "<parameter=s>", "null", "7", "</think>", "\\\\", "\\r", "\\t", "<tool_call>"};
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 300; round++) {
        struct buf messages = {0}, arguments = {0}, want = {0};
        buf_addz(&arguments, "{\"s\":\"");
        for (uint64_t k = random_bits(&x) % 12; k > 0; k--)
            buf_addz(&arguments, pieces[random_bits(&x) % (sizeof pieces / sizeof pieces[0])]);
        buf_printf(&arguments, "\",\"i\":%d,\"n\":%d.5,\"b\":%s,\"a\":[1,{\"x\":null}]}", (int)(random_bits(&x) % 1000) - 500,
                   (int)(random_bits(&x) % 10), random_bits(&x) % 2 ? "true" : "false");
        buf_printf(&messages, "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"typed\","
                              "\"arguments\":%s}]}]", buf_str(&arguments));
        struct json *m = NULL, *v = NULL;
        assert_ok(json_parse(buf_str(&messages), messages.len, "messages", &m, &err));
        struct template_options opt = {.no_generation_prompt = true};
        struct rendering r;
        assert_ok(template_render(m, NULL, &opt, &r, &err));
        const char *call = strstr(buf_str(&r.text), "<tool_call>\n<function=typed>");
        size_t n = r.text.len - (size_t)(call - r.text.data) - strlen("<|im_end|>\n");
        assert_ok(json_parse(buf_str(&arguments), arguments.len, "arguments", &v, &err));
        struct output_options o = {.tools = tools};
        struct collected c = {0};
        struct output_parser *p = output_new(&o, collect, &c);
        output_push(p, call, n);
        output_finish(p);
        output_free(p);
        assert_null(c.broken);
        struct buf again = {0};
        json_write(v, 0, &want);
        struct json *got = NULL; /* the object inside " typed(...)" */
        assert_int_equal(c.n_calls, 1);
        assert_ok(json_parse(c.calls.data + 7, c.calls.len - 8, "got", &got, &err));
        json_write(got, 0, &again);
        assert_string_equal(buf_str(&again), buf_str(&want));
        collected_free(&c);
        rendering_free(&r);
        json_free(m);
        json_free(v);
        json_free(got);
        buf_free(&messages);
        buf_free(&arguments);
        buf_free(&want);
        buf_free(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thinking),  cmocka_unit_test(test_unclosed_thinking), cmocka_unit_test(test_stray_markers),
        cmocka_unit_test(test_calls),     cmocka_unit_test(test_values),            cmocka_unit_test(test_types),
        cmocka_unit_test(test_fences),    cmocka_unit_test(test_calls_in_thinking), cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_drift),     cmocka_unit_test(test_cut_calls),         cmocka_unit_test(test_places),
        cmocka_unit_test(test_streams),   cmocka_unit_test(test_bytes),             cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_many_unclosed), cmocka_unit_test(test_round_trip),
    };
    return tests_finish((int)(sizeof tests / sizeof tests[0]), cmocka_run_group_tests(tests, set_up, tear_down));
}
