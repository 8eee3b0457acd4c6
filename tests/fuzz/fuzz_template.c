/* A chat-completions body to its rendering: segments cover the text, marks lie in order; a refusal says why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/request.h"

static void check(const struct rendering *r)
{
    size_t at = 0, used;
    for (int i = 0; i < r->n_spans; i++) {
        if (r->spans[i].end < at) abort();
        at = r->spans[i].end;
    }
    if (at != r->text.len) abort();
    at = 0;
    for (int i = 0; i < r->n_marks; i++) {
        if (r->marks[i].at < at || r->marks[i].at > r->text.len) abort();
        at = r->marks[i].at;
    }
    for (size_t i = 0; i < r->text.len; i += used)
        if (utf8_decode(r->text.data + i, r->text.len - i, &used) >= UTF8_PARTIAL) abort();
}

static void render(const struct json *messages, const struct json *tools, const struct template_options *opt)
{
    struct rendering r;
    struct lily_err err = {0};
    if (template_render(messages, tools, opt, &r, &err) == LILY_OK) check(&r);
    else if (!err.msg[0] || r.text.data) abort();
    rendering_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json *body;
    struct lily_err err = {0};
    struct chat_request request;
    if (json_parse((const char *)data, size, "body", &body, &err) != LILY_OK) return 0;
    if (chat_request_parse(body, &request, &err) == LILY_OK) {
        render(request.messages, request.tools, &request.options);
        request.options.version = TEMPLATE_QWEN35;
        render(request.messages, request.tools, &request.options);
        chat_request_free(&request);
    } else if (!err.msg[0]) {
        abort();
    }
    /* The template alone, with parts that the request would refuse. */
    struct template_options opt = {.preserve_thinking = true, .add_vision_id = true};
    render(json_get(body, "messages"), json_get(body, "tools"), &opt);
    json_free(body);
    return 0;
}
