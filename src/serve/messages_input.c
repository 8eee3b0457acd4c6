/* An Anthropic messages body as a chat-completions body. On P. */
#include "serve/messages_input.h"

#include <stdio.h>
#include <string.h>

#include "chat/request.h"

static bool is_kind(const struct json *v, enum json_kind kind)
{
    return v && json_kind(v) == kind;
}

static bool is_type(const struct json *block, const char *type)
{
    const struct json *v = json_get(block, "type");
    return is_kind(v, JSON_STRING) && strcmp(json_string(v), type) == 0;
}

static struct json *new_message(const char *role, struct json *content)
{
    struct json *m = json_new_object();
    json_put(m, "role", json_new_string(role));
    if (content) json_put(m, "content", content);
    return m;
}

static lily_status want_string(const struct json *v, const char *what, struct lily_err *err)
{
    if (is_kind(v, JSON_STRING)) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_FORMAT, "%s is %s, expected a string", what, v ? json_kind_name(v) : "missing");
}

/* Content that is text: a string or text blocks. */
static lily_status text_content(const struct json *v, const char *what, struct json **out, struct lily_err *err)
{
    *out = NULL;
    if (!v || json_kind(v) == JSON_NULL) {
        *out = json_new_string("");
        return LILY_OK;
    }
    if (json_kind(v) == JSON_STRING) {
        *out = json_new_view(v);
        return LILY_OK;
    }
    if (json_kind(v) != JSON_ARRAY) LILY_FAIL(err, LILY_ERR_FORMAT, "%s is of kind %s, expected a string or blocks", what, json_kind_name(v));
    struct json *parts = json_new_array();
    for (size_t i = 0; i < json_size(v); i++) {
        const struct json *block = json_at(v, i), *text = json_get(block, "text");
        if (!is_type(block, "text") || !is_kind(text, JSON_STRING)) {
            const struct json *type = json_get(block, "type");
            json_free(parts);
            err_set(err, LILY_ERR_UNSUPPORTED, "%s[%zu] is a block of type \"%.40s\", expected text", what, i,
                    is_kind(type, JSON_STRING) ? json_string(type) : "");
            err_hint(err, "this model reads text only");
            return LILY_ERR_UNSUPPORTED;
        }
        struct json *part = json_new_object();
        json_put(part, "type", json_new_string("text"));
        json_put(part, "text", json_new_view(text));
        json_add(parts, part);
    }
    *out = parts;
    return LILY_OK;
}

static lily_status add_tool_result(const struct json *block, const char *what, struct json *messages, struct lily_err *err)
{
    struct json *content;
    char place[120];
    const struct json *id = json_get(block, "tool_use_id");
    snprintf(place, sizeof place, "%.90s.content", what);
    LILY_TRY(text_content(json_get(block, "content"), place, &content, err));
    struct json *m = new_message("tool", content);
    if (is_kind(id, JSON_STRING)) json_put(m, "tool_call_id", json_new_view(id));
    json_add(messages, m);
    return LILY_OK;
}

/* Text between tool results becomes user messages of its own, in order. */
static void flush_parts(struct json **parts, struct json *messages)
{
    if (json_size(*parts)) json_add(messages, new_message("user", *parts));
    else json_free(*parts);
    *parts = NULL;
}

static lily_status add_user_blocks(const struct json *content, const char *what, struct json *messages, struct lily_err *err)
{
    struct json *parts = json_new_array();
    lily_status st = LILY_OK;
    for (size_t i = 0; i < json_size(content) && st == LILY_OK; i++) {
        const struct json *block = json_at(content, i);
        char place[100];
        snprintf(place, sizeof place, "%.60s.content[%zu]", what, i);
        if (is_type(block, "tool_result")) {
            flush_parts(&parts, messages);
            st = add_tool_result(block, place, messages, err);
            parts = json_new_array();
        } else {
            st = chat_text_part(block, place, err); /* here, since other messages may stand before it in the chat body */
            json_add(parts, json_new_view(block));
        }
    }
    if (st == LILY_OK) flush_parts(&parts, messages);
    json_free(parts);
    return st;
}

static lily_status add_tool_use(const struct json *block, const char *place, struct json *calls, struct lily_err *err)
{
    const struct json *name = json_get(block, "name"), *input = json_get(block, "input"), *id = json_get(block, "id");
    char what[140];
    snprintf(what, sizeof what, "%.100s.name", place);
    LILY_TRY(want_string(name, what, err));
    if (input && json_kind(input) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s.input is of kind %s, expected an object", place, json_kind_name(input));
    struct json *call = json_new_object(), *function = json_new_object();
    json_put(function, "name", json_new_view(name));
    json_put(function, "arguments", input ? json_new_view(input) : json_new_object());
    if (is_kind(id, JSON_STRING)) json_put(call, "id", json_new_view(id));
    json_put(call, "type", json_new_string("function"));
    json_put(call, "function", function);
    json_add(calls, call);
    return LILY_OK;
}

/* One assistant message: its thinking, its texts joined, its calls. */
static lily_status read_assistant_blocks(const struct json *content, const char *what, struct json *m, struct lily_err *err)
{
    struct buf text = {.tries = true}, thinking = {.tries = true};
    struct json *calls = json_new_array();
    lily_status st = LILY_OK;
    for (size_t i = 0; i < json_size(content) && st == LILY_OK; i++) {
        const struct json *block = json_at(content, i), *t = json_get(block, "text"), *th = json_get(block, "thinking");
        char place[100];
        snprintf(place, sizeof place, "%.60s.content[%zu]", what, i);
        if (is_type(block, "text") && is_kind(t, JSON_STRING)) buf_add(&text, json_string(t), json_string_len(t));
        else if (is_type(block, "thinking") && is_kind(th, JSON_STRING)) buf_add(&thinking, json_string(th), json_string_len(th));
        else if (is_type(block, "tool_use")) st = add_tool_use(block, place, calls, err);
        else if (!is_type(block, "redacted_thinking")) {
            const struct json *type = json_get(block, "type");
            st = err_set(err, LILY_ERR_UNSUPPORTED, "%s is a block of type \"%.40s\", expected text, thinking or tool_use", place,
                         is_kind(type, JSON_STRING) ? json_string(type) : "");
        }
    }
    if (st == LILY_OK) st = json_put_text(m, "content", &text, err);
    if (st == LILY_OK && (thinking.len || thinking.failed)) st = json_put_text(m, "reasoning_content", &thinking, err);
    if (json_size(calls)) json_put(m, "tool_calls", calls);
    else json_free(calls);
    buf_free(&text);
    buf_free(&thinking);
    return st;
}

static lily_status add_system_blocks(const struct json *content, const char *what, struct json *messages, struct lily_err *err)
{
    for (size_t i = 0; i < json_size(content); i++) {
        char place[100];
        snprintf(place, sizeof place, "%.60s.content[%zu]", what, i);
        LILY_TRY(chat_text_part(json_at(content, i), place, err));
    }
    json_add(messages, new_message("system", json_new_view(content)));
    return LILY_OK;
}

static lily_status add_message(const struct json *v, size_t i, struct json *messages, struct lily_err *err)
{
    const struct json *role = json_get(v, "role"), *content = json_get(v, "content");
    char what[40], place[60];
    snprintf(what, sizeof what, "messages[%zu]", i);
    snprintf(place, sizeof place, "%s.role", what);
    if (!is_kind(v, JSON_OBJECT)) LILY_FAIL(err, LILY_ERR_FORMAT, "%s is of kind %s, expected an object", what, json_kind_name(v));
    LILY_TRY(want_string(role, place, err));
    if (strcmp(json_string(role), "user") != 0 && strcmp(json_string(role), "assistant") != 0 && strcmp(json_string(role), "system") != 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s is \"%.40s\", expected user, assistant or system", place, json_string(role));
    if (!is_kind(content, JSON_ARRAY)) {
        if (!is_kind(content, JSON_STRING))
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s.content is %s, expected a string or blocks", what, content ? json_kind_name(content) : "missing");
        json_add(messages, new_message(json_string(role), json_new_view(content)));
        return LILY_OK;
    }
    if (strcmp(json_string(role), "assistant") == 0) {
        struct json *m = new_message("assistant", NULL);
        json_add(messages, m);
        return read_assistant_blocks(content, what, m, err);
    }
    if (strcmp(json_string(role), "user") == 0) return add_user_blocks(content, what, messages, err);
    return add_system_blocks(content, what, messages, err);
}

/* ---- tools ---- */

static lily_status add_tool(const struct json *v, size_t i, struct json *tools, struct lily_err *err)
{
    const struct json *type = json_get(v, "type"), *name = json_get(v, "name"), *schema = json_get(v, "input_schema");
    const struct json *description = json_get(v, "description");
    char what[40];
    snprintf(what, sizeof what, "tools[%zu].name", i);
    /* Tools that a provider would run itself have no schema; nobody runs them here. */
    if (is_kind(type, JSON_STRING) && strcmp(json_string(type), "custom") != 0 && !schema) return LILY_OK;
    LILY_TRY(want_string(name, what, err));
    struct json *f = json_new_object(), *tool = json_new_object();
    json_put(f, "name", json_new_view(name));
    if (is_kind(description, JSON_STRING)) json_put(f, "description", json_new_view(description));
    json_put(f, "parameters", schema ? json_new_view(schema) : json_new_object());
    json_put(tool, "type", json_new_string("function"));
    json_put(tool, "function", f);
    json_add(tools, tool);
    return LILY_OK;
}

static lily_status read_tools(const struct json *v, struct json *out, struct lily_err *err)
{
    if (!v || json_kind(v) == JSON_NULL) return LILY_OK;
    if (json_kind(v) != JSON_ARRAY) LILY_FAIL(err, LILY_ERR_FORMAT, "tools is of kind %s, expected an array", json_kind_name(v));
    struct json *tools = json_new_array();
    lily_status st = LILY_OK;
    for (size_t i = 0; i < json_size(v) && st == LILY_OK; i++) st = add_tool(json_at(v, i), i, tools, err);
    if (json_size(tools)) json_put(out, "tools", tools);
    else json_free(tools);
    return st;
}

/* auto, none, any, {type: tool, name} */
static lily_status read_tool_choice(const struct json *v, struct json *out, struct lily_err *err)
{
    bool off = false;
    if (!v || json_kind(v) == JSON_NULL) return LILY_OK;
    const struct json *type = json_get(v, "type"), *name = json_get(v, "name");
    if (!is_kind(type, JSON_STRING)) LILY_FAIL(err, LILY_ERR_FORMAT, "tool_choice is no object with a \"type\"");
    LILY_TRY(json_get_bool((struct json_field){v, "tool_choice", "disable_parallel_tool_use"}, &off, err));
    if (off) json_put(out, "parallel_tool_calls", json_new_bool(false));
    if (strcmp(json_string(type), "tool") == 0) {
        struct json *choice = json_new_object();
        if (is_kind(name, JSON_STRING)) json_put(choice, "name", json_new_view(name));
        json_put(out, "tool_choice", choice);
    } else {
        json_put(out, "tool_choice", json_new_view(type));
    }
    return LILY_OK;
}

lily_status messages_to_chat(const struct json *body, struct json **out, struct lily_err *err)
{
    const struct json *system = json_get(body, "system"), *list = json_get(body, "messages");
    struct json *chat = json_new_object(), *messages = json_new_array(), *content;
    json_put(chat, "messages", messages);
    *out = chat;
    if (system && json_kind(system) != JSON_NULL) {
        LILY_TRY(text_content(system, "system", &content, err));
        json_add(messages, new_message("system", content));
    }
    if (!is_kind(list, JSON_ARRAY))
        LILY_FAIL(err, LILY_ERR_FORMAT, "messages is %s, expected an array", list ? json_kind_name(list) : "missing");
    for (size_t i = 0; i < json_size(list); i++) LILY_TRY(add_message(json_at(list, i), i, messages, err));
    LILY_TRY(read_tools(json_get(body, "tools"), chat, err));
    return read_tool_choice(json_get(body, "tool_choice"), chat, err);
}
