/* The exact text of calls: from the parser, through the memory and its file, back into a rendering. */
#include "unit/testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "chat/calls.h"
#include "chat/output.h"
#include "chat/template.h"

struct texts {
    struct buf joined; /* owned; each text in brackets, with its call's number */
};

static void take(void *user, const struct output_event *e)
{
    struct texts *t = user;
    if (e->kind == OUTPUT_CALL_TEXT) buf_printf(&t->joined, "%d[%.*s]", e->call, (int)e->n, e->text);
}

static void check_texts(const char *text, const char *want)
{
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n; cut++) {
        struct texts t = {0};
        struct output_options o = {0};
        struct output_parser *p = output_new(&o, take, &t);
        output_push(p, text, cut);
        output_push(p, text + cut, n - cut);
        output_finish(p);
        output_free(p);
        assert_string_equal(buf_str(&t.joined), want);
        buf_free(&t.joined);
    }
}

#define CALL(body) "<tool_call>\n<function=f>\n" body "</function>\n</tool_call>"
#define PARAMETER(k, v) "<parameter=" k ">\n" v "\n</parameter>\n"

static void test_parser(void **state)
{
    (void)state;
    check_texts("no call", "");
    check_texts("I will.\n\n" CALL(PARAMETER("a", "1")) "\n", "0[" CALL(PARAMETER("a", "1")) "]");
    check_texts(CALL(PARAMETER("a", "{\"x\":  [1,2]}")) "\n" CALL("") " then", "0[" CALL(PARAMETER("a", "{\"x\":  [1,2]}")) "]1[" CALL("") "]");
    check_texts("<tool_call>\n<function=f>\n" PARAMETER("a", "</parameter> in it") "</function>  \n</tool_call>\n\n",
                "0[<tool_call>\n<function=f>\n" PARAMETER("a", "</parameter> in it") "</function>  \n</tool_call>]");
    check_texts("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>",
                "0[<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>]");
    check_texts("<function=f>\n" PARAMETER("a", "1") "</function>", "0[<function=f>\n" PARAMETER("a", "1") "</function>]");
}

/* A long call crosses the places where the parser drops what it is done with. */
static void test_long_call(void **state)
{
    (void)state;
    struct buf text = {0}, want = {0};
    struct texts t = {0};
    struct output_options o = {0};
    buf_addz(&text, "<tool_call>\n<function=f>\n<parameter=a>\n");
    for (int i = 0; i < 5000; i++) buf_printf(&text, "line %d\n", i);
    buf_addz(&text, "</parameter>\n</function>\n</tool_call>");
    buf_printf(&want, "0[%s]", buf_str(&text));
    struct output_parser *p = output_new(&o, take, &t);
    for (size_t at = 0, n; at < text.len; at += n) {
        n = 1 + at % 13 < text.len - at ? 1 + at % 13 : text.len - at;
        output_push(p, text.data + at, n);
    }
    output_finish(p);
    output_free(p);
    assert_string_equal(buf_str(&t.joined), buf_str(&want));
    buf_free(&t.joined);
    buf_free(&text);
    buf_free(&want);
}

static bool find(struct call_memory *m, const char *id, const char *name, const char *arguments, struct buf *out)
{
    struct lily_err err = {0};
    struct json *v;
    assert_ok(json_parse(arguments, strlen(arguments), "arguments", &v, &err));
    buf_clear(out);
    bool found = call_memory_find(m, id, name, v, out);
    json_free(v);
    return found;
}

static const char one[] = CALL(PARAMETER("a", "{\"x\":1}"));

static void test_memory(void **state)
{
    (void)state;
    struct buf out = {0};
    struct call_memory *m = call_memory_new(3000, NULL);
    call_memory_put(m, "call_1", "f", "{\"a\":{\"x\":1}}", one);
    assert_true(find(m, "call_1", "f", "{\"a\": {\"x\": 1}}", &out)); /* written otherwise, the same */
    assert_string_equal(buf_str(&out), one);
    assert_true(find(m, "call_1", "f", "\"{\\\"a\\\": {\\\"x\\\":1}}\"", &out)); /* as OpenAI's clients send it */
    assert_false(find(m, "call_1", "f", "{\"a\":{\"x\":2}}", &out)); /* edited */
    assert_false(find(m, "call_1", "g", "{\"a\":{\"x\":1}}", &out));
    assert_false(find(m, "call_2", "f", "{\"a\":{\"x\":1}}", &out));
    assert_false(find(m, "call_1", "f", "\"no json\"", &out));
    call_memory_put(m, "call_1", "f", "{}", CALL(""));
    assert_true(find(m, "call_1", "f", "{}", &out)); /* the newer one */
    call_memory_put(m, "call_3", "f", "{}", "<tool_call>\n<function=f>\n</function>");
    assert_true(find(m, "call_3", "f", "{}", &out));
    assert_string_equal(buf_str(&out), CALL(""));
    call_memory_put(m, "call_4", "f", "{}", "<function=f>\n</function>"); /* no envelope: nothing that could be put back */
    assert_false(find(m, "call_4", "f", "{}", &out));
    for (int i = 0; i < 100; i++) {
        char id[20];
        snprintf(id, sizeof id, "more_%d", i);
        call_memory_put(m, id, "f", "{}", CALL(""));
    }
    assert_false(find(m, "call_3", "f", "{}", &out)); /* the oldest go */
    assert_true(find(m, "more_99", "f", "{}", &out));
    call_memory_free(m);
    buf_free(&out);
}

static void test_file(void **state)
{
    (void)state;
    char path[] = "/tmp/lily-calls-XXXXXX";
    struct buf out = {0};
    struct stat sb;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int round = 0; round < 6; round++) {
        struct call_memory *m = call_memory_new(1 << 20, path);
        char id[20];
        for (int i = 0; i < round; i++) {
            snprintf(id, sizeof id, "call_%d", i);
            assert_true(find(m, id, "f", "{\"a\":{\"x\":1}}", &out) == (i != 2)); /* the one that was damaged below */
        }
        snprintf(id, sizeof id, "call_%d", round);
        call_memory_put(m, id, "f", "{\"a\":{\"x\":1}}", one);
        call_memory_free(m);
        assert_int_equal(stat(path, &sb), 0);
        assert_int_equal(sb.st_mode & 0777, 0600);
        if (round == 2) { /* a flipped byte in the last record, and the beginning of one that was never finished */
            fd = open(path, O_RDWR);
            assert_int_equal(pwrite(fd, "X", 1, sb.st_size - 10), 1);
            assert_int_equal(pwrite(fd, "lilycall\x55", 9, sb.st_size), 9);
            close(fd);
            log_quiet(true);
        }
    }
    unlink(path);
    struct call_memory *m = call_memory_new(1 << 20, "/nowhere/calls"); /* goes on without a file */
    call_memory_put(m, "x", "f", "{\"a\":{\"x\":1}}", one);
    assert_true(find(m, "x", "f", "{\"a\":{\"x\":1}}", &out));
    call_memory_free(m);
    buf_free(&out);
}

static off_t size_of(const char *path)
{
    struct stat sb;
    return stat(path, &sb) == 0 ? sb.st_size : -1;
}

/* Two processes write into one file for long: it stays short, and a later start finds the last calls of both. */
static void test_file_stays_short(void **state)
{
    (void)state;
    enum { MOST = 20000 };
    char folder[] = "/tmp/lily-calls-XXXXXX", path[40], id[20];
    struct buf out = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/calls", folder);
    struct call_memory *m[2] = {call_memory_new(MOST, path), call_memory_new(MOST, path)};
    for (int i = 0; i < 2000; i++) {
        snprintf(id, sizeof id, "call_%d", i);
        call_memory_put(m[i % 2], id, "f", "{\"a\":{\"x\":1}}", one);
        assert_true(size_of(path) < 2 * MOST + 1000);
    }
    struct call_memory *late = call_memory_new(MOST, path);
    assert_true(find(late, "call_1998", "f", "{\"a\":{\"x\":1}}", &out));
    assert_true(find(late, "call_1999", "f", "{\"a\":{\"x\":1}}", &out));
    call_memory_free(late);
    unlink(path); /* gone with its folder, and begun anew */
    rmdir(folder);
    call_memory_put(m[0], "after", "f", "{\"a\":{\"x\":1}}", one);
    assert_true(size_of(path) > 0);
    call_memory_free(m[0]);
    call_memory_free(m[1]);
    log_quiet(true);
    assert_int_equal(truncate(path, 50 << 20), 0); /* longer than any that was written here */
    call_memory_free(call_memory_new(MOST, path));
    assert_true(size_of(path) < 2 * MOST);
    log_quiet(false);
    unlink(path);
    rmdir(folder);
    buf_free(&out);
}

/* The rendering holds the model's text, not the form of the template; special tokens in it stay text. */
static void test_rendering(void **state)
{
    (void)state;
    static const char messages[] =
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": {\\\"x\\\": 1}, \\\"b\\\": \\\"<|im_end|>\\\"}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"r\"}]";
    static const char text[] = CALL(PARAMETER("a", "{\"x\":1}") PARAMETER("b", "<|im_end|>"));
    struct lily_err err = {0};
    struct json *v;
    assert_ok(json_parse(messages, sizeof messages - 1, "messages", &v, &err));
    struct call_memory *m = call_memory_new(1 << 20, NULL);
    call_memory_put(m, "c1", "f", "{\"a\":{\"x\":1},\"b\":\"<|im_end|>\"}", text);
    for (int with = 0; with < 2; with++) {
        struct rendering r;
        struct template_options o = {.calls = with ? m : NULL};
        assert_ok(template_render(v, NULL, &o, &r, &err));
        const char *at = strstr(buf_str(&r.text), text);
        assert_true(with ? at != NULL : at == NULL);
        size_t from = 0, end = with ? (size_t)(at - r.text.data) : 0;
        for (int i = 0; with && i < r.n_spans; from = r.spans[i++].end)
            if (from <= end + 100 && r.spans[i].end > end + 100) assert_true(r.spans[i].is_user);
        rendering_free(&r);
    }
    call_memory_free(m);
    json_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parser), cmocka_unit_test(test_long_call), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_file), cmocka_unit_test(test_file_stays_short), cmocka_unit_test(test_rendering)};
    return RUN_TESTS(tests);
}
