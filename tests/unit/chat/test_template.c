/* The chat template against recorded Jinja2 renderings; marks, segments, detection, hostile input. */
#include "../testing.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "chat/template.h"

static struct lily_err err;

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    assert_ok(json_parse(text, strlen(text), "test", &v, &err));
    return v;
}

/* Options as apply_chat_template's variables set them: only an exact true or false counts. */
static bool is_bool(const struct json *object, const char *key, bool want)
{
    const struct json *v = json_get(object, key);
    return v && json_kind(v) == JSON_BOOL && json_bool(v) == want;
}

static struct template_options options_of(const struct json *body, enum template_version version)
{
    const struct json *kwargs = json_get(body, "chat_template_kwargs");
    return (struct template_options){
        .version = version,
        .no_generation_prompt = is_bool(body, "add_generation_prompt", false),
        .no_thinking = is_bool(kwargs, "enable_thinking", false),
        .preserve_thinking = is_bool(kwargs, "preserve_thinking", true),
        .add_vision_id = is_bool(kwargs, "add_vision_id", true),
    };
}

static lily_status render_body(const struct json *body, enum template_version version, struct rendering *out)
{
    struct template_options opt = options_of(body, version);
    return template_render(json_get(body, "messages"), json_get(body, "tools"), &opt, out, &err);
}

/* What every rendering satisfies, whatever its text. */
static void check_structure(const struct rendering *r)
{
    size_t at = 0;
    for (int i = 0; i < r->n_spans; i++) {
        assert_true(r->spans[i].end >= at);
        assert_true(i == 0 || r->spans[i].is_user != r->spans[i - 1].is_user);
        at = r->spans[i].end;
    }
    assert_int_equal(at, r->text.len);
    at = 0;
    for (int i = 0; i < r->n_marks; i++) {
        size_t m = r->marks[i].at;
        assert_true(m >= at && m <= r->text.len);
        const char *end = r->text.data + m;
        bool after_turn = m >= 11 && memcmp(end - 11, "<|im_end|>\n", 11) == 0;
        bool after_response = m >= 16 && memcmp(end - 16, "</tool_response>", 16) == 0;
        assert_true(after_turn || after_response);
        at = m;
    }
}

/* ---- the recorded renderings ---- */

static void check_case(const struct json *c)
{
    const char *name = json_string(json_get(c, "name"));
    bool new_version = strcmp(json_string(json_get(c, "template")), "3.6") == 0;
    const struct json *text = json_get(c, "text"), *error = json_get(c, "error");
    struct rendering r;
    lily_status st = render_body(json_get(c, "body"), new_version ? TEMPLATE_QWEN36 : TEMPLATE_QWEN35, &r);
    if (error && strcmp(name, "error-arguments-string") != 0) {
        assert_int_equal(st, LILY_ERR_FORMAT);
        assert_string_equal(err.msg, json_string(error));
        assert_int_equal(r.text.len, 0);
        return;
    }
    if (st != LILY_OK) fail_msg("%s: %s", name, err.msg);
    check_structure(&r);
    if (error) { /* string arguments, which the template alone refuses */
        assert_non_null(strstr(buf_str(&r.text), "<parameter=x>\n1\n</parameter>"));
    } else if (r.text.len != json_string_len(text) || memcmp(buf_str(&r.text), json_string(text), r.text.len) != 0) {
        fail_msg("%s:\n%s\nwanted:\n%s", name, buf_str(&r.text), json_string(text));
    }
    rendering_free(&r);
}

static void test_recorded(void **state)
{
    (void)state;
    struct buf file = {0};
    int n = 0;
    assert_ok(file_read("tests/data/templates/cases.jsonl", 16 << 20, &file, &err));
    for (char *line = file.data, *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        struct json *c = NULL;
        assert_ok(json_parse(line, (size_t)(end - line), "case", &c, &err));
        check_case(c);
        json_free(c);
    }
    assert_true(n >= 320);
    buf_free(&file);
}

#define WEATHER_TOOLS                                                                                                  \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Return the current "    \
    "weather for a city.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},"        \
    "\"days\":{\"type\":\"integer\"}},\"required\":[\"city\"]}}}]"
#define Q1_A1 "{\"role\":\"user\",\"content\":\"Q1\"},{\"role\":\"assistant\",\"reasoning_content\":\"R1\",\"content\":\"A1\"}"
#define CALL(name, arguments) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}"
#define KWARG(key, value) "\"chat_template_kwargs\":{\"" key "\":" value "}"

/* The worked examples of the model's description, by the SHA-256 of their renderings. */
static void test_examples(void **state)
{
    (void)state;
    static const struct {
        const char *body, *sha256;
    } cases[] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
         "7562ba8388193b82d95953831c2d4d61f85796a9ea065d8d3e3db7b30d9a9447"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]," KWARG("enable_thinking", "false") "}",
         "87b9f5b6243d88239331c78a91695eae31fdc67fcadd1bc07508791d9b1a03be"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"  You are terse. \"},{\"role\":\"user\",\"content\":\"Hi\"}]}",
         "ab634727cdc5ad176c7b44cf496e39f8d6eea3c812d2c3a07c8766554c70770c"},
        {"{\"messages\":[" Q1_A1 ",{\"role\":\"user\",\"content\":\"Q2\"}]}",
         "be3172c95b5f543c77d602dbfe5badc7b6c0623d5a7266805ec6388b56b9c804"},
        {"{\"messages\":[" Q1_A1 ",{\"role\":\"user\",\"content\":\"Q2\"}]," KWARG("preserve_thinking", "true") "}",
         "8a56b2823ee84185791cf496c399214225ae5880718398203eaf9ed0aa427e21"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"Q1\"},{\"role\":\"assistant\",\"content\":\"A1\"}],"
         "\"add_generation_prompt\":false}",
         "1275dfb18725317bdb4580054a047f203fc7599ff86e85ea4321f05d875f757e"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"Weather in Rome and Oslo?\"},{\"role\":\"assistant\",\"content\":"
         "\"Let me check.\",\"reasoning_content\":\"Need two calls.\",\"tool_calls\":["
         CALL("get_weather", "{\"city\":\"Rome\",\"days\":2}") ","
         CALL("get_weather", "{\"city\":\"Oslo\",\"flag\":true,\"opts\":{\"a\":[1,2]}}")
         "]},{\"role\":\"tool\",\"content\":\"{\\\"t\\\":28}\"},{\"role\":\"tool\",\"content\":\"{\\\"t\\\":9}\"},"
         "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"One more.\",\"tool_calls\":["
         CALL("get_weather", "{\"city\":\"Paris\"}") "]},{\"role\":\"tool\",\"content\":\"{\\\"t\\\":20}\"}]," WEATHER_TOOLS "}",
         "04db45f402bcbea81f9e86b1bcb74a184b0d48d375f5a84dac3c464b72d825ae"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi\"}],"
         WEATHER_TOOLS "," KWARG("enable_thinking", "false") "}",
         "79747035951fb4316795ac9172f6ac07311e273919e9b73ecd9737a619f40add"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"Q1\"},{\"role\":\"assistant\",\"content\":\"\","
         "\"reasoning_content\":\"R\",\"tool_calls\":[" CALL("f", "{\"x\":1}") "]},{\"role\":\"tool\",\"content\":\"ok\"},"
         "{\"role\":\"assistant\",\"content\":\"Done\",\"reasoning_content\":\"R2\"},{\"role\":\"user\",\"content\":\"Q2\"}]}",
         "ce4221b6112c7a9c57319daa589f4174065391451e8278d2f08140c741d8ae96"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *body = parse(cases[i].body);
        struct rendering r;
        char hex[65];
        assert_ok(render_body(body, TEMPLATE_QWEN36, &r));
        sha256_of(buf_str(&r.text), r.text.len, hex);
        assert_string_equal(hex, cases[i].sha256);
        rendering_free(&r);
        json_free(body);
    }
}

static void test_simple(void **state)
{
    (void)state;
    struct template_options opt = {0};
    struct rendering r;
    assert_ok(template_render_simple("", "Hi", &opt, &r, &err));
    assert_string_equal(buf_str(&r.text), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
    rendering_free(&r);
    opt.no_thinking = true;
    assert_ok(template_render_simple(" Be brief. ", "a\xff", &opt, &r, &err));
    assert_string_equal(buf_str(&r.text), "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\xef\xbf\xbd<|im_end|>\n"
                                          "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    rendering_free(&r);
}

/* ---- string arguments, reminders ---- */

static lily_status render_messages(const char *messages, const struct template_options *opt, struct rendering *r)
{
    struct json *m = parse(messages);
    lily_status st = template_render(m, NULL, opt, r, &err);
    json_free(m);
    return st;
}

static void test_string_arguments(void **state)
{
    (void)state;
#define WITH_ARGUMENTS(text)                                                                                           \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL("f", "{}") "," \
        CALL("f", text) "]}]"
    struct template_options opt = {0};
    struct rendering as_text, as_object;
    assert_ok(render_messages(WITH_ARGUMENTS("\"{\\\"n\\\": 12345678901234567890, \\\"s\\\": \\\"a\\\\nb\\\"}\""), &opt, &as_text));
    assert_ok(render_messages(WITH_ARGUMENTS("{\"n\": 12345678901234567890, \"s\": \"a\\nb\"}"), &opt, &as_object));
    assert_string_equal(buf_str(&as_text.text), buf_str(&as_object.text));
    rendering_free(&as_text);
    rendering_free(&as_object);
    assert_ok(render_messages(WITH_ARGUMENTS("\"\""), &opt, &as_text));
    assert_ok(render_messages(WITH_ARGUMENTS("{}"), &opt, &as_object));
    assert_string_equal(buf_str(&as_text.text), buf_str(&as_object.text));
    rendering_free(&as_text);
    rendering_free(&as_object);
    assert_int_equal(render_messages(WITH_ARGUMENTS("\"{\\\"n\\\": }\""), &opt, &as_text), LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "messages[1].tool_calls[1].function.arguments: line 1, column 7: found '}', expected a value");
    assert_int_equal(render_messages(WITH_ARGUMENTS("\"[1]\""), &opt, &as_text), LILY_ERR_FORMAT);
    assert_string_equal(err.msg,
                        "messages[1].tool_calls[1].function.arguments: the text is JSON of kind array, expected an object");
}

static void test_reminders(void **state)
{
    (void)state;
    struct template_options opt = {.system_reminders = true};
    struct rendering before, after;
#define LOOP                                                                                                           \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"reasoning_content\":\"R\",\"content\":\"\"," \
    "\"tool_calls\":[" CALL("f", "{}") "]},{\"role\":\"tool\",\"content\":\"1\"}"
    assert_ok(render_messages(LOOP "]", &opt, &before));
    assert_ok(render_messages(LOOP ",{\"role\":\"system\",\"content\":\" \"},{\"role\":\"system\",\"content\":\" mind <x> \"}]",
                              &opt, &after));
    check_structure(&after);
    size_t prompt = strlen("<|im_start|>assistant\n<think>\n"), kept = before.text.len - prompt;
    assert_memory_equal(before.text.data, after.text.data, kept);
    assert_string_equal(after.text.data + kept, "<|im_start|>user\n<system-reminder>\nmind <x>\n</system-reminder><|im_end|>\n"
                                                "<|im_start|>assistant\n<think>\n");
    rendering_free(&before);
    rendering_free(&after);
    assert_int_equal(render_messages("[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"b\"}]", &opt,
                                     &after),
                     LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "No user query found in messages.");
}

/* ---- marks ---- */

static void test_marks(void **state)
{
    (void)state;
    struct json *body = parse("{\"messages\":[{\"role\":\"system\",\"content\":\"S\"}," Q1_A1
                              ",{\"role\":\"user\",\"content\":\"Q2\"},{\"role\":\"assistant\",\"tool_calls\":[" CALL("f", "{}")
                              "]},{\"role\":\"tool\",\"content\":\"1\"},{\"role\":\"tool\",\"content\":\"2\"},"
                              "{\"role\":\"user\",\"content\":\"<tool_response>x</tool_response>\"}]}");
    static const struct {
        enum mark_kind kind;
        const char *before;
    } want[] = {
        {MARK_SYSTEM_END, "S<|im_end|>\n"},
        {MARK_MESSAGE_END, "Q1<|im_end|>\n"},
        {MARK_MESSAGE_END, "A1<|im_end|>\n"},
        {MARK_MESSAGE_END, "Q2<|im_end|>\n"},
        {MARK_LAST_USER_END, "Q2<|im_end|>\n"},
        {MARK_MESSAGE_END, "</tool_call><|im_end|>\n"},
        {MARK_MESSAGE_END, "1\n</tool_response>"},
        {MARK_MESSAGE_END, "2\n</tool_response><|im_end|>\n"},
        {MARK_MESSAGE_END, "x</tool_response><|im_end|>\n"},
    };
    struct rendering r;
    assert_ok(render_body(body, TEMPLATE_QWEN36, &r));
    check_structure(&r);
    assert_int_equal(r.n_marks, sizeof want / sizeof want[0]);
    for (int i = 0; i < r.n_marks; i++) {
        size_t n = strlen(want[i].before);
        assert_int_equal(r.marks[i].kind, want[i].kind);
        assert_memory_equal(r.text.data + r.marks[i].at - n, want[i].before, n);
    }
    rendering_free(&r);
    json_free(body);
}

/* What a later request keeps: the text up to the marks of the first one is a prefix of every longer conversation. */
static void test_marks_are_prefixes(void **state)
{
    (void)state;
    struct json *all = parse(
        "[{\"role\":\"system\",\"content\":\"S\"}," Q1_A1 ",{\"role\":\"user\",\"content\":\"Q2\"},{\"role\":\"assistant\","
        "\"reasoning_content\":\"R2\",\"content\":\"\",\"tool_calls\":[" CALL("f", "{\"a\":1}") "]},"
        "{\"role\":\"tool\",\"content\":\"1\"},{\"role\":\"tool\",\"content\":\"2\"},{\"role\":\"assistant\","
        "\"reasoning_content\":\"R3\",\"content\":\"A3\"},{\"role\":\"user\",\"content\":\"Q3\"}]");
    for (int preserve = 0; preserve < 2; preserve++) {
        struct template_options opt = {.preserve_thinking = preserve};
        for (size_t n = 2; n < json_size(all); n++) {
            struct json *some = json_new_array();
            for (size_t i = 0; i < n; i++) json_add(some, json_copy(json_at(all, i)));
            struct rendering part, whole;
            assert_ok(template_render(some, NULL, &opt, &part, &err));
            assert_ok(template_render(all, NULL, &opt, &whole, &err));
            for (int i = 0; i < part.n_marks; i++) {
                /* Without preserve_thinking Q3 drops the thinking behind Q2; a last tool message can be followed by another. */
                bool stable = preserve || part.marks[i].kind != MARK_MESSAGE_END;
                if (n == 6 && i == part.n_marks - 1) stable = false;
                if (stable) assert_memory_equal(part.text.data, whole.text.data, part.marks[i].at);
            }
            rendering_free(&part);
            rendering_free(&whole);
            json_free(some);
        }
    }
    json_free(all);
}

/* ---- segments ---- */

/* Everything from outside, and nothing else, lies in user segments. */
static void test_segments(void **state)
{
    (void)state;
    static const char user[] = "~~~"; /* stands in every place that comes from outside, and nowhere in the template */
    struct json *body = parse("{\"messages\":[{\"role\":\"system\",\"content\":\"~~~\"},{\"role\":\"user\",\"content\":["
                              "{\"type\":\"text\",\"text\":\"~~~\"},{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"~~~\"}]},"
                              "{\"role\":\"assistant\",\"reasoning_content\":\"~~~\",\"content\":\"~~~\",\"tool_calls\":[{"
                              "\"name\":\"~~~\",\"arguments\":{\"~~~\":\"~~~\"}}]},{\"role\":\"tool\",\"content\":\"~~~\"},"
                              "{\"role\":\"assistant\",\"content\":\"<think>~~~</think>~~~\"}],"
                              "\"tools\":[\"~~~\"]," KWARG("add_vision_id", "true") "}");
    struct rendering r;
    assert_ok(render_body(body, TEMPLATE_QWEN36, &r));
    check_structure(&r);
    size_t at = 0;
    int n = 0;
    for (int i = 0; i < r.n_spans; i++) {
        if (r.spans[i].is_user) {
            bool tool = r.text.data[at] == '"'; /* the schema is the JSON of the text */
            assert_int_equal(r.spans[i].end - at, tool ? 5 : 3);
            assert_memory_equal(r.text.data + at + tool, user, 3);
            n++;
        } else {
            assert_null(memchr(r.text.data + at, '~', r.spans[i].end - at));
        }
        at = r.spans[i].end;
    }
    assert_int_equal(n, 12);
    assert_non_null(strstr(buf_str(&r.text), "~~~Picture 1: <|vision_start|><|image_pad|><|vision_end|>~~~"));
    rendering_free(&r);
    json_free(body);
}

/* ---- hostile input ---- */

static void test_odd_kinds(void **state)
{
    (void)state;
    struct template_options opt = {0};
    struct rendering r;
    static const char *const bad[] = {
        "null", "{}", "5", "\"text\"", "[null]", "[[]]", "[\"a\"]", "[{}]", "[{\"role\":5}]",
        "[{\"role\":\"user\",\"content\":{\"text\":\"x\"}}]", "[{\"role\":\"user\",\"content\":[[]]}]",
        "[{\"role\":\"user\\u0000\",\"content\":\"x\"}]",
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[null]}]",
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"name\":5}]}]",
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"function\":null,\"name\":\"f\"}]}]",
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":[]}]}]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(render_messages(bad[i], &opt, &r), LILY_ERR_FORMAT);
        assert_true(strlen(err.msg) > 0);
        assert_null(r.text.data);
    }
    assert_int_equal(template_render(NULL, NULL, &opt, &r, &err), LILY_ERR_FORMAT);
}

static void test_large_content(void **state)
{
    (void)state;
    struct template_options opt = {0};
    struct rendering r;
    struct buf user = {0};
    for (int i = 0; i < 1 << 20; i++) buf_addc(&user, i % 3 ? ' ' : '<');
    assert_ok(template_render_simple(NULL, buf_str(&user), &opt, &r, &err));
    assert_true(r.text.len > user.len);
    rendering_free(&r);
    buf_clear(&user); /* only whitespace: nothing is left */
    for (int i = 0; i < 1 << 18; i++) buf_addz(&user, "\xe3\x80\x80\xe2\x80\xa8\xc2\xa0\x1f");
    assert_ok(template_render_simple(NULL, buf_str(&user), &opt, &r, &err));
    assert_string_equal(buf_str(&r.text), "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<think>\n");
    rendering_free(&r);
    buf_free(&user);
}

static void test_many_messages(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_addz(&text, "[{\"role\":\"user\",\"content\":\"q\"}");
    for (int i = 0; i < 20000; i++)
        buf_addz(&text, ",{\"role\":\"user\",\"content\":\"<tool_response></tool_response>\"},{\"role\":\"assistant\"}");
    buf_addc(&text, ']');
    struct template_options opt = {0};
    struct rendering r;
    assert_ok(render_messages(buf_str(&text), &opt, &r));
    check_structure(&r);
    assert_int_equal(r.n_marks, 40002);
    rendering_free(&r);
    buf_free(&text);
}

/* ---- detection ---- */

static void write_file(const char *dir, const char *name, const void *data, size_t n)
{
    struct buf path = {0};
    file_join(&path, dir, name);
    assert_ok(file_write_atomic(buf_str(&path), data, n, &err));
    buf_free(&path);
}

static void remove_file(const char *dir, const char *name)
{
    struct buf path = {0};
    file_join(&path, dir, name);
    remove(buf_str(&path));
    buf_free(&path);
}

static void check_detect(const char *dir, enum template_version version, bool known)
{
    enum template_version v = TEMPLATE_QWEN35;
    bool k = !known;
    assert_ok(template_detect(dir, &v, &k, &err));
    assert_int_equal(v, version);
    assert_int_equal(k, known);
}

static void test_detect(void **state)
{
    (void)state;
    char dir[] = "/tmp/lily-template-XXXXXX";
    assert_non_null(mkdtemp(dir));
    check_detect(dir, TEMPLATE_QWEN36, false);
    struct buf text = {0}, config = {0};
    assert_ok(file_read("tests/data/templates/Qwen3.5-official.chat_template.jinja", 1 << 20, &text, &err));
    struct json *c = json_new_object();
    json_put(c, "chat_template", json_new_text(buf_str(&text), text.len));
    json_write(c, 2, &config);
    write_file(dir, "tokenizer_config.json", buf_str(&config), config.len);
    check_detect(dir, TEMPLATE_QWEN35, true);
    struct json *named = json_new_object(), *list = json_new_array();
    json_put(named, "name", json_new_string("default"));
    json_put(named, "template", json_new_text(buf_str(&text), text.len));
    json_add(list, named);
    json_put(c, "chat_template", list);
    buf_clear(&config);
    json_write(c, 0, &config);
    write_file(dir, "tokenizer_config.json", buf_str(&config), config.len);
    check_detect(dir, TEMPLATE_QWEN35, true);
    buf_clear(&text);
    assert_ok(file_read("tests/data/templates/Qwen3.6-35B-A3B.chat_template.jinja", 1 << 20, &text, &err));
    buf_addc(&text, '\n');
    write_file(dir, "chat_template.jinja", buf_str(&text), text.len); /* wins over the configuration */
    check_detect(dir, TEMPLATE_QWEN36, true);
    text.data[10]++;
    write_file(dir, "chat_template.jinja", buf_str(&text), text.len);
    check_detect(dir, TEMPLATE_QWEN36, false);
    remove_file(dir, "chat_template.jinja");
    write_file(dir, "tokenizer_config.json", "{", 1);
    enum template_version v;
    bool known;
    assert_int_equal(template_detect(dir, &v, &known, &err), LILY_ERR_FORMAT);
    remove_file(dir, "tokenizer_config.json");
    rmdir(dir);
    json_free(c);
    buf_free(&text);
    buf_free(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_simple),          cmocka_unit_test(test_string_arguments),
        cmocka_unit_test(test_reminders),       cmocka_unit_test(test_marks),
        cmocka_unit_test(test_marks_are_prefixes), cmocka_unit_test(test_segments),
        cmocka_unit_test(test_odd_kinds),       cmocka_unit_test(test_large_content),
        cmocka_unit_test(test_many_messages),   cmocka_unit_test(test_detect),
    };
    return RUN_TESTS(tests);
}
