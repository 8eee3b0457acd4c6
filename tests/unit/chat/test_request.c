/* Chat-completions bodies: folding of system messages, reminders, options, what is refused. */
#include "../testing.h"

#include "base/file.h"
#include "chat/request.h"

static struct lily_err err;
static struct json *body; /* of the request that is being looked at */

static lily_status read(const char *text, struct chat_request *r)
{
    json_free(body);
    assert_ok(json_parse(text, strlen(text), "body", &body, &err));
    return chat_request_parse(body, r, &err);
}

static void check_messages(const char *messages, const char *want)
{
    struct buf text = {0}, out = {0};
    struct chat_request r;
    buf_printf(&text, "{\"messages\":%s}", messages);
    assert_ok(read(buf_str(&text), &r));
    json_write(r.messages, 0, &out);
    assert_string_equal(buf_str(&out), want);
    chat_request_free(&r);
    buf_free(&text);
    buf_free(&out);
}

#define SYS(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define DEV(text) "{\"role\":\"developer\",\"content\":\"" text "\"}"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define BILLING "x-anthropic-billing-header: cc_version=2.1.100; cc_entrypoint=cli; cch=11111;"

static void test_folding(void **state)
{
    (void)state;
    check_messages("[" SYS("A") "," USER("u") "]", "[" SYS("A") "," USER("u") "]");
    check_messages("[" SYS(" A ") "," DEV("B") "," SYS("  ") "," SYS("C\\n") "," USER("u") "]",
                   "[" SYS("A\\n\\nB\\n\\nC") "," USER("u") "]");
    check_messages("[" DEV("B") "," USER("u") "]", "[" SYS("B") "," USER("u") "]");
    check_messages("[" USER("u") "," SYS("A") "," DEV("B") "," USER("v") "]",
                   "[" USER("u") "," SYS("A") "," SYS("B") "," USER("v") "]");
    check_messages("[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"A\"},{\"type\":\"text\",\"text\":\"B\"}]}," USER("u") "]",
                   "[" SYS("AB") "," USER("u") "]");
    check_messages("[{\"role\":\"system\",\"content\":null},{\"role\":\"system\"}," USER("u") "]", "[" SYS("") "," USER("u") "]");
    check_messages("[" SYS("A") "]", "[" SYS("A") "]");
    check_messages("[]", "[]");
}

static void test_billing_line(void **state)
{
    (void)state;
    check_messages("[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"" BILLING "\"},{\"type\":\"text\",\"text\":\"You "
                   "are\"}]}," USER("u") "]",
                   "[" SYS("You are") "," USER("u") "]");
    check_messages("[" SYS(BILLING "\\nYou are") "," USER("u") "]", "[" SYS("You are") "," USER("u") "]");
    check_messages("[" USER("u") "," SYS(BILLING "\\nLater") "]", "[" USER("u") "," SYS("Later") "]");
    /* In any other place it is text. */
    check_messages("[" SYS("A\\n" BILLING) "," USER(BILLING "\\nx") "]", "[" SYS("A\\n" BILLING) "," USER(BILLING "\\nx") "]");
}

static void test_reasoning_alias(void **state)
{
    (void)state;
    check_messages("[" USER("u") ",{\"role\":\"assistant\",\"reasoning\":\"R\",\"content\":\"a\"}]",
                   "[" USER("u") ",{\"role\":\"assistant\",\"reasoning\":\"R\",\"content\":\"a\",\"reasoning_content\":\"R\"}]");
    check_messages("[" USER("u") ",{\"role\":\"assistant\",\"reasoning\":\"R\",\"content\":\"a\",\"reasoning_content\":null}]",
                   "[" USER("u") ",{\"role\":\"assistant\",\"reasoning\":\"R\",\"content\":\"a\",\"reasoning_content\":\"R\"}]");
    check_messages("[" USER("u") ",{\"role\":\"assistant\",\"reasoning\":\"R\",\"content\":\"a\",\"reasoning_content\":\"S\"}]",
                   "[" USER("u") ",{\"role\":\"assistant\",\"reasoning\":\"R\",\"content\":\"a\",\"reasoning_content\":\"S\"}]");
}

static struct template_options options_of(const char *fields)
{
    struct buf text = {0};
    struct chat_request r;
    buf_printf(&text, "{\"messages\":[" USER("u") "]%s}", fields);
    assert_ok(read(buf_str(&text), &r));
    struct template_options opt = r.options;
    chat_request_free(&r);
    buf_free(&text);
    return opt;
}

static void test_options(void **state)
{
    (void)state;
    struct template_options o = options_of("");
    assert_false(o.no_thinking || o.preserve_thinking || o.add_vision_id || o.no_generation_prompt);
    assert_true(o.system_reminders);
    assert_true(options_of(",\"enable_thinking\":false").no_thinking);
    assert_true(options_of(",\"chat_template_kwargs\":{\"enable_thinking\":false}").no_thinking);
    assert_true(options_of(",\"enable_thinking\":true,\"chat_template_kwargs\":{\"enable_thinking\":false}").no_thinking);
    assert_true(options_of(",\"enable_thinking\":false,\"chat_template_kwargs\":{\"enable_thinking\":true}").no_thinking);
    assert_false(options_of(",\"enable_thinking\":null,\"chat_template_kwargs\":null").no_thinking);
    assert_true(options_of(",\"chat_template_kwargs\":{\"preserve_thinking\":true}").preserve_thinking);
    assert_true(options_of(",\"preserve_thinking\":true").preserve_thinking);
    assert_true(options_of(",\"chat_template_kwargs\":{\"add_vision_id\":true,\"other\":[]}").add_vision_id);
    assert_true(options_of(",\"add_generation_prompt\":false").no_generation_prompt);
    assert_false(options_of(",\"unknown\":{\"a\":1},\"model\":\"x\",\"temperature\":\"hot\"").no_thinking);
}

static void test_tools_and_media(void **state)
{
    (void)state;
    struct chat_request r;
    assert_ok(read("{\"messages\":[" USER("u") "],\"tools\":[{\"type\":\"function\"}]}", &r));
    assert_int_equal(json_size(r.tools), 1);
    assert_string_equal(r.media, "");
    chat_request_free(&r);
    assert_ok(read("{\"messages\":[" USER("u") "],\"tools\":null}", &r));
    assert_null(r.tools);
    chat_request_free(&r);
    assert_ok(read("{\"messages\":[" USER("u") ",{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":"
                   "\"image_url\",\"image_url\":{\"url\":\"data:\"}},{\"type\":\"video\"}]}]}", &r));
    assert_string_equal(r.media, "messages[1].content[1]");
    chat_request_free(&r);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[]", "the body is of kind array, expected an object with messages"},
        {"{}", "messages is missing, expected an array"},
        {"{\"messages\":\"x\"}", "messages is of kind string, expected an array"},
        {"{\"messages\":[5]}", "messages[0] is of kind integer, expected an object"},
        {"{\"messages\":[{}]}", "messages[0].role is missing, expected a string"},
        {"{\"messages\":[{\"role\":null}]}", "messages[0].role is null, expected a string"},
        {"{\"messages\":[" USER("u") ",{\"role\":\"function\"}]}",
         "messages[1].role is \"function\", expected system, developer, user, assistant or tool"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}",
         "messages[0].content is of kind integer, expected a string, null or an array of parts"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}", "messages[0].content[0] is of kind string, expected an object"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":5}]}]}",
         "messages[0].content[0].text is integer, expected a string"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
         "messages[0].content[0].text is missing, expected a string"},
        {"{\"messages\":[" USER("u") ",{\"role\":\"assistant\",\"tool_calls\":{}}]}",
         "messages[1].tool_calls is of kind object, expected an array or null"},
        {"{\"messages\":[" USER("u") ",{\"role\":\"assistant\",\"reasoning_content\":[]}]}",
         "messages[1].reasoning_content is of kind array, expected a string or null"},
        {"{\"messages\":[" USER("u") "],\"tools\":{}}", "tools is of kind object, expected an array or null"},
        {"{\"messages\":[" USER("u") "],\"tools\":[{},1]}", "tools[1] is of kind integer, expected an object"},
        {"{\"messages\":[" USER("u") "],\"enable_thinking\":\"no\"}",
         "request body: \"enable_thinking\" is \"no\", expected true or false"},
        {"{\"messages\":[" USER("u") "],\"chat_template_kwargs\":{\"preserve_thinking\":1}}",
         "chat_template_kwargs: \"preserve_thinking\" is 1, expected true or false"},
        {"{\"messages\":[" USER("u") "],\"chat_template_kwargs\":true}",
         "chat_template_kwargs is of kind boolean, expected an object"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"image\"}]}," USER("u") "]}",
         "System message cannot contain images."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chat_request r;
        assert_int_equal(read(cases[i].text, &r), LILY_ERR_FORMAT);
        assert_string_equal(err.msg, cases[i].message);
        assert_null(r.messages);
    }
    struct chat_request r;
    assert_int_equal(read("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{}}]}]}", &r),
                     LILY_ERR_UNSUPPORTED);
    assert_string_equal(err.msg, "messages[0].content[0] is a part of type \"input_audio\", expected \"text\"");
}

/* The whole way: no system text is lost, and the order stays. */
static void test_rendered(void **state)
{
    (void)state;
    struct chat_request r;
    struct rendering out;
    assert_ok(read("{\"messages\":[" SYS("A") "," DEV("B") "," USER("u") ",{\"role\":\"assistant\",\"content\":\"x\"}," DEV("C") ","
                   USER("v") "],\"enable_thinking\":false}", &r));
    assert_ok(template_render(r.messages, r.tools, &r.options, &out, &err));
    assert_string_equal(buf_str(&out.text),
                        "<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\nx<|im_end|>\n"
                        "<|im_start|>user\n<system-reminder>\nC\n</system-reminder><|im_end|>\n<|im_start|>user\nv<|im_end|>\n"
                        "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    rendering_free(&out);
    chat_request_free(&r);
    assert_ok(read("{\"messages\":[" SYS("A") "]}", &r));
    assert_int_equal(template_render(r.messages, r.tools, &r.options, &out, &err), LILY_ERR_FORMAT);
    assert_string_equal(err.msg, "No user query found in messages.");
    chat_request_free(&r);
    json_free(body);
    body = NULL;
}

/*
 * The recorded conversations come out the same after the checks, but for what lily takes another way on purpose: system
 * messages in later places, developer messages and string arguments are rendered; fields of a wrong type are refused.
 */
static void check_recorded(const struct json *c, int *n_same)
{
    static const char *const refused[] = {"reasoning-number", "reasoning-object-and-tags", "tools-object", "tools-scalars",
                                          "calls-object",     "think-zero",                "history-keep-one"};
    static const char *const accepted[] = {"error-system-second", "error-system-twice", "error-system-last",
                                           "error-role-developer", "error-arguments-string"};
    const char *name = json_string(json_get(c, "name"));
    const struct json *text = json_get(c, "text");
    bool want = text != NULL, same = want;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (strcmp(name, refused[i]) == 0) want = same = false;
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++)
        if (strcmp(name, accepted[i]) == 0) want = true;
    struct chat_request r;
    struct rendering out = {0};
    lily_status st = chat_request_parse(json_get(c, "body"), &r, &err);
    if (strcmp(json_string(json_get(c, "template")), "3.5") == 0) r.options.version = TEMPLATE_QWEN35;
    if (st == LILY_OK) st = template_render(r.messages, r.tools, &r.options, &out, &err);
    if ((st == LILY_OK) != want) fail_msg("%s: %s", name, st == LILY_OK ? "rendered" : err.msg);
    if (same) {
        assert_string_equal(buf_str(&out.text), json_string(text));
        assert_int_equal(out.text.len, json_string_len(text));
        ++*n_same;
    }
    rendering_free(&out);
    chat_request_free(&r);
}

static void test_recorded(void **state)
{
    (void)state;
    struct buf file = {0};
    int n_same = 0;
    assert_ok(file_read("tests/data/templates/cases.jsonl", 16 << 20, &file, &err));
    for (char *line = file.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json *c = NULL;
        assert_ok(json_parse(line, (size_t)(end - line), "case", &c, &err));
        check_recorded(c, &n_same);
        json_free(c);
    }
    assert_true(n_same > 240);
    buf_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folding), cmocka_unit_test(test_billing_line),    cmocka_unit_test(test_reasoning_alias),
        cmocka_unit_test(test_options), cmocka_unit_test(test_tools_and_media), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_rendered), cmocka_unit_test(test_recorded),
    };
    return RUN_TESTS(tests);
}
