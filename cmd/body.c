/* Reading a chat-completions body. */
#include "body.h"

#include <string.h>

#include "commands.h"

static lily_status read_json(const char *path, struct json **out, struct lily_err *err)
{
    struct buf text = {0};
    bool is_file = strcmp(path, "-") != 0;
    lily_status st = read_input(path, &text, err);
    if (st == LILY_OK && is_file) st = json_parse_read(buf_str(&text), text.len, path, out, err);
    else if (st == LILY_OK) st = json_parse(buf_str(&text), text.len, "stdin", out, err);
    buf_free(&text);
    return st;
}

lily_status body_read(const char *path, struct body *out, struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    LILY_TRY(read_json(path, &out->top, err));
    if (json_kind(out->top) == JSON_ARRAY) {
        struct json *top = json_new_object();
        json_put(top, "messages", out->top);
        out->top = top;
    }
    lily_status st = chat_request_parse(out->top, &out->request, err);
    if (st != LILY_OK) {
        err_prefix(err, "%s", strcmp(path, "-") == 0 ? "stdin" : path);
        body_free(out);
    }
    return st;
}

lily_status body_text_only(const struct body *b, struct lily_err *err)
{
    if (!b->request.media[0]) return LILY_OK;
    err_set(err, LILY_ERR_UNSUPPORTED, "%s is an image or a video", b->request.media);
    err_hint(err, "lily reads text only");
    return LILY_ERR_UNSUPPORTED;
}

bool body_ends_answered(const struct body *b)
{
    size_t n = json_size(b->request.messages);
    const struct json *role = n ? json_get(json_at(b->request.messages, n - 1), "role") : NULL;
    return role && json_kind(role) == JSON_STRING && strcmp(json_string(role), "assistant") == 0;
}

void body_free(struct body *b)
{
    if (b->request.messages) chat_request_free(&b->request);
    json_free(b->top);
    memset(b, 0, sizeof *b);
}
