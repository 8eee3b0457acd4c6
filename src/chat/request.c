/* A chat-completions body to what the template takes. */
#include "chat/request.h"

#include <stdio.h>
#include <string.h>

#include "chat/message.h"
#include "chat/pytext.h"

enum role { ROLE_SYSTEM, ROLE_DEVELOPER, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, N_ROLES };
static const char *const role_names[N_ROLES] = {"system", "developer", "user", "assistant", "tool"};

static bool is_kind(const struct json *v, enum json_kind kind)
{
    return v && json_kind(v) == kind;
}

static bool is_absent(const struct json *v)
{
    return !v || json_kind(v) == JSON_NULL;
}

/* ---- checks ---- */

static lily_status check_role(const struct json *message, size_t i, enum role *role, struct lily_err *err)
{
    const struct json *v = json_get(message, "role");
    if (!is_kind(message, JSON_OBJECT))
        LILY_FAIL(err, LILY_ERR_FORMAT, "messages[%zu] is of kind %s, expected an object", i, json_kind_name(message));
    if (!is_kind(v, JSON_STRING))
        LILY_FAIL(err, LILY_ERR_FORMAT, "messages[%zu].role is %s, expected a string", i, v ? json_kind_name(v) : "missing");
    for (int k = 0; k < N_ROLES; k++) {
        if (json_string_len(v) != strlen(role_names[k]) || strcmp(json_string(v), role_names[k]) != 0) continue;
        *role = (enum role)k;
        return LILY_OK;
    }
    LILY_FAIL(err, LILY_ERR_FORMAT, "messages[%zu].role is \"%.40s\", expected system, developer, user, assistant or tool", i,
              json_string(v));
}

static bool type_is(const struct json *part, const char *type)
{
    const struct json *v = json_get(part, "type");
    return is_kind(v, JSON_STRING) && strcmp(json_string(v), type) == 0;
}

/* The same question as the template's. */
static bool is_media(const struct json *part)
{
    return json_get(part, "image") || json_get(part, "image_url") || json_get(part, "video") || type_is(part, "image") ||
           type_is(part, "video");
}

static lily_status check_part(const struct json *part, const char *place, struct chat_request *out, struct lily_err *err)
{
    const struct json *text = json_get(part, "text"), *type = json_get(part, "type");
    if (!is_kind(part, JSON_OBJECT))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s is of kind %s, expected an object", place, json_kind_name(part));
    if (is_media(part)) {
        if (!out->media[0]) snprintf(out->media, sizeof out->media, "%s", place);
        return LILY_OK;
    }
    if (is_kind(text, JSON_STRING)) return LILY_OK;
    if (text || type_is(part, "text"))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s.text is %s, expected a string", place, text ? json_kind_name(text) : "missing");
    err_set(err, LILY_ERR_UNSUPPORTED, "%s is a part of type \"%.40s\", expected \"text\"", place,
            is_kind(type, JSON_STRING) ? json_string(type) : "");
    err_hint(err, "lily reads text only: send the content as text");
    return LILY_ERR_UNSUPPORTED;
}

lily_status chat_refuse_media(const char *place, struct lily_err *err)
{
    err_set(err, LILY_ERR_UNSUPPORTED, "%s is an image or a video, and this model reads text only", place);
    err_hint(err, "send the content as text");
    return LILY_ERR_UNSUPPORTED;
}

lily_status chat_text_part(const struct json *part, const char *place, struct lily_err *err)
{
    struct chat_request media = {.messages = NULL};
    LILY_TRY(check_part(part, place, &media, err));
    return media.media[0] ? chat_refuse_media(place, err) : LILY_OK;
}

static lily_status check_content(const struct json *message, size_t i, struct chat_request *out, struct lily_err *err)
{
    const struct json *content = json_get(message, "content");
    if (is_absent(content) || json_kind(content) == JSON_STRING) return LILY_OK;
    if (json_kind(content) != JSON_ARRAY) {
        LILY_FAIL(err, LILY_ERR_FORMAT, "messages[%zu].content is of kind %s, expected a string, null or an array of parts", i,
                  json_kind_name(content));
    }
    for (size_t k = 0; k < json_size(content); k++) {
        char place[80];
        snprintf(place, sizeof place, "messages[%zu].content[%zu]", i, k);
        LILY_TRY(check_part(json_at(content, k), place, out, err));
    }
    return LILY_OK;
}

static lily_status check_optional(const struct json *message, size_t i, const char *key, enum json_kind kind,
                                  struct lily_err *err)
{
    const struct json *v = json_get(message, key);
    if (is_absent(v) || json_kind(v) == kind) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_FORMAT, "messages[%zu].%s is of kind %s, expected %s or null", i, key, json_kind_name(v),
              kind == JSON_STRING ? "a string" : "an array");
}

static lily_status check_message(const struct json *message, size_t i, enum role *role, struct chat_request *out,
                                 struct lily_err *err)
{
    LILY_TRY(check_role(message, i, role, err));
    LILY_TRY(check_content(message, i, out, err));
    if (*role != ROLE_ASSISTANT) return LILY_OK;
    LILY_TRY(check_optional(message, i, "reasoning_content", JSON_STRING, err));
    return check_optional(message, i, "tool_calls", JSON_ARRAY, err);
}

/* ---- system texts ---- */

static struct range without_billing_line(const struct json *text)
{
    struct range r = {json_string(text), json_string_len(text)};
    if (!py_starts_with(r, "x-anthropic-billing-header:")) return r;
    const char *end = memchr(r.s, '\n', r.n);
    size_t line = end ? (size_t)(end - r.s) + 1 : r.n;
    return (struct range){r.s + line, r.n - line};
}

/* Appends the text of a system message; checked before. */
static lily_status add_system_text(const struct json *message, size_t i, struct buf *out, struct lily_err *err)
{
    const struct json *content = json_get(message, "content");
    struct range r;
    if (is_kind(content, JSON_STRING)) {
        r = without_billing_line(content);
        buf_add(out, r.s, r.n);
    }
    for (size_t k = 0; is_kind(content, JSON_ARRAY) && k < json_size(content); k++) {
        const struct json *part = json_at(content, k);
        if (is_media(part)) {
            bool video = json_get(part, "video") || type_is(part, "video");
            err_set(err, LILY_ERR_FORMAT, "System message cannot contain %s.", video ? "videos" : "images");
            err_hint(err, "see messages[%zu].content[%zu]", i, k);
            return LILY_ERR_FORMAT;
        }
        r = without_billing_line(json_get(part, "text"));
        buf_add(out, r.s, r.n);
    }
    return LILY_OK;
}

/* Joins the first n messages, which are system or developer, to one. */
static lily_status fold_leading(const struct json *messages, size_t n, struct json *out, struct lily_err *err)
{
    struct buf all = {.tries = true}, one = {.tries = true};
    lily_status st = LILY_OK;
    for (size_t i = 0; i < n && st == LILY_OK; i++) {
        buf_clear(&one);
        st = add_system_text(json_at(messages, i), i, &one, err);
        if (st == LILY_OK) st = buf_check(&one, "a system message", err);
        struct range r = py_strip((struct range){buf_str(&one), one.len});
        if (all.len && r.n) buf_addz(&all, "\n\n");
        buf_add(&all, r.s, r.n);
    }
    if (st == LILY_OK && n > 0) st = chat_message_add(out, "system", &all, err);
    buf_free(&all);
    buf_free(&one);
    return st;
}

static lily_status add_later_system(const struct json *message, size_t i, struct json *out, struct lily_err *err)
{
    struct buf text = {.tries = true};
    lily_status st = add_system_text(message, i, &text, err);
    if (st == LILY_OK) st = chat_message_add(out, "system", &text, err);
    buf_free(&text);
    return st;
}

/* ---- messages ---- */

static struct json *assistant_message(const struct json *message)
{
    const struct json *reasoning = json_get(message, "reasoning"), *value;
    if (!is_kind(reasoning, JSON_STRING) || !is_absent(json_get(message, "reasoning_content"))) return json_new_view(message);
    struct json *m = json_new_object();
    for (size_t k = 0; k < json_size(message); k++) {
        const char *key = json_key_at(message, k, &value);
        json_put(m, key, json_new_view(value));
    }
    json_put(m, "reasoning_content", json_new_view(reasoning));
    return m;
}

static lily_status read_messages(const struct json *messages, struct chat_request *out, struct lily_err *err)
{
    bool leading = true;
    for (size_t i = 0; i < json_size(messages); i++) {
        const struct json *message = json_at(messages, i);
        enum role role = ROLE_USER;
        LILY_TRY(check_message(message, i, &role, out, err));
        bool system = role == ROLE_SYSTEM || role == ROLE_DEVELOPER;
        if (leading && system) continue;
        if (leading) LILY_TRY(fold_leading(messages, i, out->messages, err));
        leading = false;
        if (system) LILY_TRY(add_later_system(message, i, out->messages, err));
        else json_add(out->messages, role == ROLE_ASSISTANT ? assistant_message(message) : json_new_view(message));
    }
    return leading ? fold_leading(messages, json_size(messages), out->messages, err) : LILY_OK;
}

/* ---- the body ---- */

/* Template variables may stand in the body or in chat_template_kwargs. */
static lily_status read_options(const struct json *object, const char *what, struct chat_request *out, struct lily_err *err)
{
    bool thinking = true, prompt = true;
    LILY_TRY(json_get_bool((struct json_field){object, what, "enable_thinking"}, &thinking, err));
    LILY_TRY(json_get_bool((struct json_field){object, what, "add_generation_prompt"}, &prompt, err));
    LILY_TRY(json_get_bool((struct json_field){object, what, "preserve_thinking"}, &out->options.preserve_thinking, err));
    LILY_TRY(json_get_bool((struct json_field){object, what, "add_vision_id"}, &out->options.add_vision_id, err));
    if (!thinking) out->options.no_thinking = true;
    if (!prompt) out->options.no_generation_prompt = true;
    return LILY_OK;
}

static lily_status read_tools(const struct json *tools, struct chat_request *out, struct lily_err *err)
{
    if (is_absent(tools)) return LILY_OK;
    if (json_kind(tools) != JSON_ARRAY)
        LILY_FAIL(err, LILY_ERR_FORMAT, "tools is of kind %s, expected an array or null", json_kind_name(tools));
    for (size_t i = 0; i < json_size(tools); i++) {
        if (json_kind(json_at(tools, i)) == JSON_OBJECT) continue;
        LILY_FAIL(err, LILY_ERR_FORMAT, "tools[%zu] is of kind %s, expected an object", i, json_kind_name(json_at(tools, i)));
    }
    out->tools = tools;
    return LILY_OK;
}

static lily_status read_body(const struct json *body, struct chat_request *out, struct lily_err *err)
{
    if (!is_kind(body, JSON_OBJECT))
        LILY_FAIL(err, LILY_ERR_FORMAT, "the body is of kind %s, expected an object with messages", json_kind_name(body));
    const struct json *messages = json_get(body, "messages"), *kwargs = json_get(body, "chat_template_kwargs");
    if (!is_kind(messages, JSON_ARRAY)) {
        LILY_FAIL(err, LILY_ERR_FORMAT, "messages is %s%s, expected an array", messages ? "of kind " : "missing",
                  messages ? json_kind_name(messages) : "");
    }
    if (!is_absent(kwargs) && json_kind(kwargs) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "chat_template_kwargs is of kind %s, expected an object", json_kind_name(kwargs));
    LILY_TRY(read_options(kwargs, "chat_template_kwargs", out, err));
    LILY_TRY(read_options(body, "request body", out, err));
    LILY_TRY(read_tools(json_get(body, "tools"), out, err));
    return read_messages(messages, out, err);
}

lily_status chat_request_parse(const struct json *body, struct chat_request *out, struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    out->messages = json_new_array();
    out->options.system_reminders = true;
    lily_status st = read_body(body, out, err);
    if (st != LILY_OK) chat_request_free(out);
    return st;
}

void chat_request_free(struct chat_request *r)
{
    json_free(r->messages);
    memset(r, 0, sizeof *r);
}
