/*
 * Large inputs without memory: on the way from bytes to a prompt, whichever request for memory is refused, that is an error
 * that says so, and nothing that grows with the input is asked for in the way that ends the process.
 */
#include "unit/testing.h"

#include <errno.h>
#include <unistd.h>

#include "base/file.h"
#include "chat/request.h"
#include "inject.h"
#include "run/prompt.h"
#include "serve/http_head.h"
#include "serve/messages_input.h"
#include "serve/responses_input.h"

enum { LONG_TEXT = 1 << 16, SURE_BYTES = 1 << 14 };

static struct bundle bundle;
static char long_text[LONG_TEXT + 1];
static char path[] = "/tmp/lily-input-XXXXXX";

static lily_status parse_body(const char *fmt, struct json **out, struct lily_err *err)
{
    struct buf body = {.tries = true};
    for (const char *p = fmt; *p; p++) { /* @ stands for the long text */
        if (*p == '@') buf_add(&body, long_text, LONG_TEXT);
        else buf_add(&body, p, 1);
    }
    lily_status st = buf_check(&body, "the body", err);
    if (st == LILY_OK) st = json_parse(buf_str(&body), body.len, "body", out, err);
    buf_free(&body);
    return st;
}

static lily_status read_file(struct lily_err *err)
{
    struct buf text = {0};
    lily_status st = file_read(path, LONG_TEXT, &text, err);
    buf_free(&text);
    return st;
}

static lily_status render_chat(const struct json *body, struct lily_err *err)
{
    struct chat_request request;
    struct prompt prompt = {0};
    LILY_TRY(chat_request_parse(body, &request, err));
    lily_status st = prompt_render(&bundle, request.messages, request.tools, &request.options, &prompt, err);
    if (st == LILY_OK) prompt_free(&prompt);
    chat_request_free(&request);
    return st;
}

static lily_status read_chat(struct lily_err *err)
{
    struct json *body = NULL;
    lily_status st = parse_body("{\"tools\": [{\"name\": \"@\"}], \"messages\": [{\"role\": \"system\", \"content\": \"@\"},"
                                "{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"@\"}]},"
                                "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"@\"}]},"
                                "{\"role\": \"assistant\", \"content\": \"@\", \"reasoning\": \"@\", \"tool_calls\": ["
                                "{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"@\\\"}\"}}]},"
                                "{\"role\": \"tool\", \"content\": \"@\"}, {\"role\": \"system\", \"content\": \"@\"},"
                                "{\"role\": \"user\", \"content\": \"@\"}]}", &body, err);
    if (st == LILY_OK) st = render_chat(body, err);
    json_free(body);
    return st;
}

static lily_status read_dialect(const char *fmt, lily_status (*to_chat)(const struct json *, struct json **, struct lily_err *),
                                struct lily_err *err)
{
    struct json *body = NULL, *chat = NULL;
    lily_status st = parse_body(fmt, &body, err);
    if (st == LILY_OK) st = to_chat(body, &chat, err);
    if (st == LILY_OK) st = render_chat(chat, err);
    json_free(chat);
    json_free(body);
    return st;
}

static lily_status read_messages(struct lily_err *err)
{
    return read_dialect("{\"system\": [{\"type\": \"text\", \"text\": \"@\"}], \"messages\": [{\"role\": \"user\", \"content\": \"@\"},"
                        "{\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": \"@\"}, {\"type\": \"text\","
                        "\"text\": \"@\"}, {\"type\": \"tool_use\", \"id\": \"1\", \"name\": \"f\", \"input\": {\"a\": \"@\"}}]},"
                        "{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"1\", \"content\": \"@\"},"
                        "{\"type\": \"text\", \"text\": \"@\"}]}]}", messages_to_chat, err);
}

static lily_status read_responses(struct lily_err *err)
{
    return read_dialect("{\"instructions\": \"@\", \"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\":"
                        "\"@\"}]}, {\"type\": \"reasoning\", \"summary\": [{\"text\": \"@\"}]}, {\"role\": \"assistant\", \"content\":"
                        "[{\"type\": \"output_text\", \"text\": \"@\"}]}, {\"type\": \"function_call\", \"call_id\": \"1\","
                        "\"name\": \"f\", \"arguments\": \"{}\"}, {\"type\": \"function_call_output\", \"call_id\": \"1\","
                        "\"output\": \"@\"}, {\"role\": \"user\", \"content\": \"@\"}]}", responses_to_chat, err);
}

/* A body in chunks; http_chunks_feed has no message of its own. */
static lily_status read_chunks(struct lily_err *err)
{
    struct http_chunks chunks = {0};
    struct buf wire = {.tries = true}, body = {0};
    size_t used;
    buf_printf(&wire, "%x\r\n%s\r\n0\r\n\r\n", (unsigned)LONG_TEXT, long_text);
    lily_status st = buf_check(&wire, "the wire", err);
    enum http_chunk_result r = http_chunks_feed(&chunks, buf_str(&wire), wire.len, wire.len, &body, &used);
    if (st == LILY_OK && r == HTTP_CHUNK_NO_MEMORY) st = err_set(err, LILY_ERR_MEMORY, "no memory");
    if (st == LILY_OK) assert_int_equal(r, HTTP_CHUNK_DONE);
    buf_free(&wire);
    buf_free(&body);
    return st;
}

static void each_refusal(const char *name, lily_status (*read)(struct lily_err *))
{
    static const enum inject_call calls[] = {INJECT_MEM_TRY, INJECT_MEM_TRY_RESIZE};
    struct lily_err err = {0};
    int refusals = 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        for (int n = 0;; n++) {
            inject_sure_bytes = 0;
            inject_fail(calls[i], n, ENOMEM);
            lily_status st = read(&err);
            bool refused = inject_end();
            if (st != (refused ? LILY_ERR_MEMORY : LILY_OK))
                fail_msg("%s: refusal %d of %s: status %d, %s", name, n, inject_names[calls[i]], (int)st, st ? err.msg : "");
            if (refused) assert_non_null(strstr(err.msg, "memory"));
            if (inject_sure_bytes > SURE_BYTES)
                fail_msg("%s: %zu bytes were asked for in the way that ends the process", name, inject_sure_bytes);
            if (!refused) break;
            refusals++;
        }
    print_message("%s: %d refusals\n", name, refusals);
    assert_true(refusals > 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    each_refusal("a file", read_file);
    each_refusal("a chat", read_chat);
    each_refusal("messages", read_messages);
    each_refusal("responses", read_responses);
    each_refusal("chunks", read_chunks);
}

/* The measure above sees what it is meant to see. */
static void test_sure_requests_are_seen(void **state)
{
    struct buf text = {0};
    (void)state;
    inject_sure_bytes = 0;
    buf_add(&text, long_text, LONG_TEXT);
    assert_true(inject_sure_bytes > LONG_TEXT);
    buf_free(&text);
}

int main(void)
{
    struct lily_err err;
    for (size_t i = 0; i < LONG_TEXT; i++) long_text[i] = "words, and more "[i % 16];
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, long_text, LONG_TEXT) != LONG_TEXT || bundle_open("models/demo", &bundle, &err) != LILY_OK) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_memory), cmocka_unit_test(test_sure_requests_are_seen)};
    int rc = RUN_TESTS(tests);
    bundle_close(&bundle);
    unlink(path);
    return rc;
}
