/* Token ids of renderings: added tokens only from the template, the ids of the joined text, token positions of marks. */
#include "../testing.h"

#include "../text/texts.h"
#include "chat/template.h"

static struct lily_err err;

static struct rendering render(const char *messages, const char *tools)
{
    struct json *m, *t = NULL;
    struct template_options opt = {.system_reminders = true, .preserve_thinking = true};
    struct rendering r;
    assert_ok(json_parse(messages, strlen(messages), "messages", &m, &err));
    if (tools) assert_ok(json_parse(tools, strlen(tools), "tools", &t, &err));
    assert_ok(template_render(m, t, &opt, &r, &err));
    json_free(m);
    json_free(t);
    return r;
}

static void check_equal(const struct ids *a, const struct ids *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->data, b->data, a->n * sizeof *a->data);
}

/* The user text of r spells no added token: the ids are those of the whole text, and marks cut them. */
static void check_joined(const struct tokenizer *t, const struct rendering *r)
{
    struct ids whole = {0}, ids = {0}, part = {0};
    struct mark *marks = calloc((size_t)r->n_marks + 1, sizeof *marks);
    tokenizer_encode_special(t, buf_str(&r->text), r->text.len, &whole, NULL);
    rendering_encode(r, t, &ids, marks, NULL);
    check_equal(&ids, &whole);
    for (int i = 0; i < r->n_marks; i++) {
        ids_clear(&part);
        tokenizer_encode_special(t, buf_str(&r->text), r->marks[i].at, &part, NULL);
        assert_int_equal(marks[i].kind, r->marks[i].kind);
        assert_int_equal(marks[i].at, part.n);
        assert_memory_equal(part.data, ids.data, part.n * sizeof *part.data);
    }
    free(marks);
    ids_free(&whole);
    ids_free(&ids);
    ids_free(&part);
}

static const char conversation[] =
    "[{\"role\":\"system\",\"content\":\"Caff\\u00e8 e\\u0301 <b>x</b> <|im_en\"},{\"role\":\"user\",\"content\":\"I'm 1234, "
    "we're <coding>.\"},{\"role\":\"assistant\",\"reasoning_content\":\"  r \",\"content\":\"'s mark:\",\"tool_calls\":["
    "{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Rome\",\"days\":2,\"opts\":{\"a\":[1,2]},\"\\u0301x\":\"\\u0301\"}},"
    "{\"name\":\"g\",\"arguments\":{\"s\":\"line\\n\\n  next \\n\"}}]},{\"role\":\"tool\",\"content\":\"{\\\"t\\\":28}\"},"
    "{\"role\":\"tool\",\"content\":\"\\u4e2d\\u6587 ok\"},{\"role\":\"system\",\"content\":\"remember\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_\"},{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"end|>\"}]}]";
static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"a > b\"}}]";

static void test_joined_tiny(void **state)
{
    (void)state;
    struct tokenizer *t = load_from("tests/data/tiny");
    struct rendering r = render(conversation, tools);
    check_joined(t, &r);
    rendering_free(&r);
    tokenizer_free(t);
}

static void test_joined_real(void **state)
{
    (void)state;
    struct rendering r = render(conversation, tools);
    check_joined(real_tokenizer(), &r);
    rendering_free(&r);
}

/* Pieces go over the border of template and user text: "<parameter=" and "name" give the token "=name". */
static void test_border(void **state)
{
    (void)state;
    const struct tokenizer *t = real_tokenizer();
    struct rendering r = render("[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\","
                                "\"arguments\":{\"name\":\"<|im_end|>\"}}]}]", NULL);
    struct ids ids = {0}, token = {0};
    tokenizer_encode(t, "=name", 5, &token, NULL);
    assert_int_equal(token.n, 1);
    rendering_encode(&r, t, &ids, NULL, NULL);
    size_t n = 0;
    for (size_t i = 0; i < ids.n; i++) n += ids.data[i] == token.data[0];
    assert_int_equal(n, 1);
    ids_free(&ids);
    ids_free(&token);
    rendering_free(&r);
}

static size_t count(const struct ids *ids, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) n += ids->data[i] == id;
    return n;
}

/* User text that spells an added token, in every place it can stand in, is text: only the template's tokens are there. */
static void test_spelled_tokens(void **state)
{
    (void)state;
    static const char *const spelled[] = {"<|im_end|>", "<|im_start|>", "<tool_call>", "</think>", "<|endoftext|>", "<|image_pad|>"};
    struct tokenizer *t = load_from("tests/data/tiny");
    for (size_t k = 0; k < sizeof spelled / sizeof spelled[0]; k++) {
        struct buf text = {0};
        const char *s = spelled[k];
        buf_printf(&text, "[{\"role\":\"system\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"x%s%s\"},", s, s, s);
        buf_printf(&text, "{\"role\":\"assistant\",\"reasoning_content\":\"%s\",\"content\":\"x%sx\",", s, s);
        buf_printf(&text, "\"tool_calls\":[{\"name\":\"%s\",\"arguments\":{\"%s\":\"%s\"}}]},", s, s, s);
        buf_printf(&text, "{\"role\":\"tool\",\"content\":\"%s\"}]", s);
        struct buf schema = {0};
        buf_printf(&schema, "[{\"name\":\"%s\"}]", s);
        struct rendering r = render(buf_str(&text), buf_str(&schema)), bare;
        struct ids ids = {0}, want = {0};
        rendering_encode(&r, t, &ids, NULL, NULL);
        /* The same conversation with the spelling left out has the same added tokens. */
        for (char *p; (p = strstr(buf_str(&text), s));) memset(p, '~', strlen(s));
        for (char *p; (p = strstr(buf_str(&schema), s));) memset(p, '~', strlen(s));
        bare = render(buf_str(&text), buf_str(&schema));
        tokenizer_encode_special(t, buf_str(&bare.text), bare.text.len, &want, NULL);
        for (int32_t id = 0; id < tokenizer_size(t); id++)
            if (tokenizer_is_added(t, id)) assert_int_equal(count(&ids, id), count(&want, id));
        /* And nothing of the text is lost. */
        struct buf back = {0};
        tokenizer_decode(t, ids.data, ids.n, true, &back);
        assert_string_equal(buf_str(&back), buf_str(&r.text));
        buf_free(&back);
        buf_free(&text);
        buf_free(&schema);
        ids_free(&ids);
        ids_free(&want);
        rendering_free(&r);
        rendering_free(&bare);
    }
    tokenizer_free(t);
}

/* Appending leaves what stood before, and positions count from the first id of the rendering. */
static void test_appends(void **state)
{
    (void)state;
    struct tokenizer *t = load_from("tests/data/tiny");
    struct rendering r = render("[{\"role\":\"user\",\"content\":\"Hi\"}]", NULL);
    struct ids once = {0}, twice = {0};
    struct mark marks[2];
    assert_int_equal(r.n_marks, 2);
    rendering_encode(&r, t, &once, NULL, NULL);
    rendering_encode(&r, t, &twice, NULL, NULL);
    rendering_encode(&r, t, &twice, marks, NULL);
    assert_int_equal(twice.n, 2 * once.n);
    assert_memory_equal(twice.data + once.n, once.data, once.n * sizeof *once.data);
    assert_true(marks[0].at > 0 && marks[0].at < once.n);
    assert_int_equal(marks[1].at, marks[0].at);
    assert_int_equal(once.data[marks[0].at], tokenizer_added(t, "<|im_start|>"));
    ids_free(&once);
    ids_free(&twice);
    rendering_free(&r);
    tokenizer_free(t);
}

/* A megabyte of '<' and of spelled tokens is encoded in time that grows with its length. */
static void test_long_text(void **state)
{
    (void)state;
    struct tokenizer *t = load_from("tests/data/tiny");
    struct template_options opt = {0};
    struct buf user = {0};
    for (int i = 0; i < 1 << 16; i++) buf_addz(&user, i % 2 ? "<|im_end|>" : "<<<<<<");
    struct rendering r;
    assert_ok(template_render_simple(NULL, buf_str(&user), &opt, &r, &err));
    struct ids ids = {0};
    rendering_encode(&r, t, &ids, NULL, NULL);
    assert_int_equal(count(&ids, tokenizer_added(t, "<|im_end|>")), 1);
    ids_free(&ids);
    buf_free(&user);
    rendering_free(&r);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined_tiny), cmocka_unit_test(test_joined_real), cmocka_unit_test(test_border),
        cmocka_unit_test(test_spelled_tokens), cmocka_unit_test(test_appends), cmocka_unit_test(test_long_text),
    };
    return RUN_TESTS(tests);
}
