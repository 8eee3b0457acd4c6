/* Items of the Responses dialect as messages, and its tools. */
#include "serve/responses_input.h"

#include <stdio.h>
#include <string.h>

static bool is_kind(const struct json *v, enum json_kind kind)
{
    return v && json_kind(v) == kind;
}

static const char *text_of(const struct json *v)
{
    return is_kind(v, JSON_STRING) ? json_string(v) : "";
}

/* ---- messages ---- */

/* Items of one assistant turn (thinking, text, calls) become one message; it is under way here. */
struct turns {
    struct json *messages;  /* borrowed */
    struct json *assistant; /* borrowed; NULL between turns */
    struct json *calls;     /* borrowed; of the assistant message */
    struct buf thinking, text; /* owned; of it */
};

static lily_status end_turn(struct turns *t, struct lily_err *err)
{
    bool thought = t->assistant && (t->thinking.len || t->thinking.failed);
    lily_status st = LILY_OK;
    if (t->assistant) st = json_put_text(t->assistant, "content", &t->text, err);
    if (st == LILY_OK && thought) st = json_put_text(t->assistant, "reasoning_content", &t->thinking, err);
    t->assistant = t->calls = NULL;
    buf_clear(&t->thinking);
    buf_clear(&t->text);
    return st;
}

static void begin_turn(struct turns *t)
{
    if (t->assistant) return;
    t->assistant = json_new_object();
    json_put(t->assistant, "role", json_new_string("assistant"));
    json_add(t->messages, t->assistant);
}

/* Appends the text of a string or of parts {input_text, output_text, text, summary_text, reasoning_text, refusal}. */
static lily_status add_text(const struct json *v, const char *what, struct buf *out, struct lily_err *err)
{
    if (is_kind(v, JSON_STRING)) buf_add(out, json_string(v), json_string_len(v));
    for (size_t i = 0; is_kind(v, JSON_ARRAY) && i < json_size(v); i++) {
        const struct json *part = json_at(v, i), *text = json_get(part, "text");
        if (!is_kind(text, JSON_STRING)) text = json_get(part, "refusal");
        if (!is_kind(text, JSON_STRING)) {
            err_set(err, LILY_ERR_UNSUPPORTED, "%s[%zu] is a part of type \"%.40s\", expected text", what, i, text_of(json_get(part, "type")));
            err_hint(err, "this model reads text only");
            return LILY_ERR_UNSUPPORTED;
        }
        buf_add(out, json_string(text), json_string_len(text));
    }
    return LILY_OK;
}

static struct json *parts_of(const struct json *content)
{
    struct json *parts = json_new_array();
    for (size_t i = 0; i < json_size(content); i++) {
        struct json *part = json_new_object();
        json_put(part, "type", json_new_string("text"));
        json_put(part, "text", json_new_view(json_get(json_at(content, i), "text")));
        json_add(parts, part);
    }
    return parts;
}

/* The role and the kind of the content, which only an assistant may leave out. */
static lily_status check_message(const struct json *item, const char *what, struct lily_err *err)
{
    static const char *const roles[] = {"assistant", "user", "system", "developer"};
    const struct json *content = json_get(item, "content"), *role = json_get(item, "role");
    size_t i = 0;
    if (!is_kind(role, JSON_STRING)) LILY_FAIL(err, LILY_ERR_FORMAT, "%s.role is %s, expected a string", what, role ? json_kind_name(role) : "missing");
    while (i < 4 && strcmp(json_string(role), roles[i]) != 0) i++;
    if (i == 4) LILY_FAIL(err, LILY_ERR_FORMAT, "%s.role is \"%.40s\", expected user, assistant, system or developer", what, json_string(role));
    if (is_kind(content, JSON_STRING) || is_kind(content, JSON_ARRAY) || (i == 0 && (!content || is_kind(content, JSON_NULL)))) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_FORMAT, "%s.content is %s, expected a string or parts", what, content ? json_kind_name(content) : "missing");
}

static lily_status add_message(struct turns *t, const struct json *item, const char *what, struct lily_err *err)
{
    const struct json *content = json_get(item, "content");
    const char *role = text_of(json_get(item, "role"));
    struct buf checked = {.tries = true};
    char place[60];
    LILY_TRY(check_message(item, what, err));
    snprintf(place, sizeof place, "%.40s.content", what);
    if (strcmp(role, "assistant") == 0) {
        begin_turn(t);
        return add_text(content, place, &t->text, err);
    }
    LILY_TRY(end_turn(t, err));
    lily_status st = add_text(content, place, &checked, err);
    if (st == LILY_OK) st = buf_check(&checked, place, err);
    buf_free(&checked);
    LILY_TRY(st);
    struct json *m = json_new_object();
    json_put(m, "role", json_new_string(role));
    json_put(m, "content", is_kind(content, JSON_ARRAY) ? parts_of(content) : json_new_view(content));
    json_add(t->messages, m);
    return LILY_OK;
}

static lily_status add_call(struct turns *t, const struct json *item, const char *what, bool custom, struct lily_err *err)
{
    const struct json *name = json_get(item, "name"), *arguments = json_get(item, custom ? "input" : "arguments");
    if (!is_kind(name, JSON_STRING) || !is_kind(arguments, JSON_STRING))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s lacks a string \"name\" or \"%s\"", what, custom ? "input" : "arguments");
    struct json *function = json_new_object(), *call = json_new_object(), *input = json_new_view(arguments);
    begin_turn(t);
    if (!t->calls) {
        t->calls = json_new_array();
        json_put(t->assistant, "tool_calls", t->calls);
    }
    if (custom) {
        struct json *object = json_new_object();
        json_put(object, "input", input);
        input = object;
    }
    json_put(function, "name", json_new_view(name));
    json_put(function, "arguments", input);
    json_put(call, "id", json_new_string(text_of(json_get(item, "call_id"))));
    json_put(call, "type", json_new_string("function"));
    json_put(call, "function", function);
    json_add(t->calls, call);
    return LILY_OK;
}

static lily_status add_output(struct turns *t, const struct json *item, const char *what, struct lily_err *err)
{
    struct buf text = {.tries = true};
    char place[60];
    LILY_TRY(end_turn(t, err));
    snprintf(place, sizeof place, "%.40s.output", what);
    lily_status st = add_text(json_get(item, "output"), place, &text, err);
    struct json *m = json_new_object();
    json_put(m, "role", json_new_string("tool"));
    json_put(m, "tool_call_id", json_new_string(text_of(json_get(item, "call_id"))));
    json_add(t->messages, m);
    if (st == LILY_OK) st = json_put_text(m, "content", &text, err);
    buf_free(&text);
    return st;
}

/* Thoughts come back as text, or in the field that clients keep for us unread. */
static lily_status add_reasoning(struct turns *t, const struct json *item, const char *what, struct lily_err *err)
{
    const struct json *content = json_get(item, "content"), *kept = json_get(item, "encrypted_content");
    begin_turn(t);
    if (is_kind(content, JSON_ARRAY) && json_size(content)) return add_text(content, what, &t->thinking, err);
    return add_text(is_kind(kept, JSON_STRING) ? kept : json_get(item, "summary"), what, &t->thinking, err);
}

static lily_status add_item(struct turns *t, const struct json *item, size_t i, struct lily_err *err)
{
    char what[40];
    const char *type = text_of(json_get(item, "type"));
    snprintf(what, sizeof what, "input[%zu]", i);
    if (!is_kind(item, JSON_OBJECT)) LILY_FAIL(err, LILY_ERR_FORMAT, "%s is of kind %s, expected an object", what, json_kind_name(item));
    if (!*type || strcmp(type, "message") == 0) return add_message(t, item, what, err);
    if (strcmp(type, "function_call") == 0) return add_call(t, item, what, false, err);
    if (strcmp(type, "custom_tool_call") == 0) return add_call(t, item, what, true, err);
    if (strcmp(type, "function_call_output") == 0 || strcmp(type, "custom_tool_call_output") == 0) return add_output(t, item, what, err);
    if (strcmp(type, "reasoning") == 0) return add_reasoning(t, item, what, err);
    if (strcmp(type, "item_reference") == 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s refers to a stored item, and nothing is stored here: send the item itself", what);
    LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s is an item of type \"%.40s\", which is not known here", what, type);
}

static lily_status read_input(const struct json *body, struct json *messages, struct lily_err *err)
{
    const struct json *input = json_get(body, "input"), *instructions = json_get(body, "instructions");
    struct turns t = {.messages = messages, .thinking.tries = true, .text.tries = true};
    lily_status st = LILY_OK;
    if (instructions && json_kind(instructions) != JSON_NULL) {
        if (json_kind(instructions) != JSON_STRING)
            LILY_FAIL(err, LILY_ERR_FORMAT, "instructions is of kind %s, expected a string", json_kind_name(instructions));
        struct json *m = json_new_object();
        json_put(m, "role", json_new_string("system"));
        json_put(m, "content", json_new_view(instructions));
        json_add(messages, m);
    }
    if (is_kind(input, JSON_STRING)) {
        struct json *m = json_new_object();
        json_put(m, "role", json_new_string("user"));
        json_put(m, "content", json_new_view(input));
        json_add(messages, m);
    } else if (!is_kind(input, JSON_ARRAY)) {
        LILY_FAIL(err, LILY_ERR_FORMAT, "input is %s, expected a string or an array of items", input ? json_kind_name(input) : "missing");
    }
    for (size_t i = 0; is_kind(input, JSON_ARRAY) && i < json_size(input) && st == LILY_OK; i++) st = add_item(&t, json_at(input, i), i, err);
    if (st == LILY_OK) st = end_turn(&t, err);
    buf_free(&t.text);
    buf_free(&t.thinking);
    return st;
}

/* ---- tools ---- */

static struct json *input_schema(void)
{
    struct json *schema = json_new_object(), *properties = json_new_object(), *input = json_new_object(), *required = json_new_array();
    json_put(input, "type", json_new_string("string"));
    json_put(properties, "input", input);
    json_add(required, json_new_string("input"));
    json_put(schema, "type", json_new_string("object"));
    json_put(schema, "properties", properties);
    json_put(schema, "required", required);
    return schema;
}

static void add_function(const struct json *tool, bool custom, struct json *tools)
{
    const struct json *description = json_get(tool, "description"), *parameters = json_get(tool, "parameters");
    struct json *f = json_new_object(), *t = json_new_object();
    json_put(f, "name", json_new_view(json_get(tool, "name")));
    if (is_kind(description, JSON_STRING)) json_put(f, "description", json_new_view(description));
    if (custom) json_put(f, "parameters", input_schema());
    else json_put(f, "parameters", is_kind(parameters, JSON_OBJECT) ? json_new_view(parameters) : json_new_object());
    json_put(t, "type", json_new_string("function"));
    json_put(t, "function", f);
    json_add(tools, t);
}

static lily_status add_tools(const struct json *list, const char *what, struct json *tools, struct lily_err *err)
{
    for (size_t i = 0; i < json_size(list); i++) {
        const struct json *tool = json_at(list, i), *inner = json_get(tool, "tools");
        const char *type = text_of(json_get(tool, "type"));
        bool function = strcmp(type, "function") == 0, custom = strcmp(type, "custom") == 0;
        if (!*type) LILY_FAIL(err, LILY_ERR_FORMAT, "%s[%zu].type is missing, expected a string", what, i);
        if ((function || custom) && !is_kind(json_get(tool, "name"), JSON_STRING))
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s[%zu].name is missing, expected a string", what, i);
        if (function || custom) add_function(tool, custom, tools);
        else if (strcmp(type, "namespace") == 0 && is_kind(inner, JSON_ARRAY)) LILY_TRY(add_tools(inner, what, tools, err));
    }
    return LILY_OK;
}

/* The tool of that name, and the namespace around it. */
static const struct json *find_tool(const struct json *list, const char *name, const struct json **around)
{
    for (size_t i = 0; is_kind(list, JSON_ARRAY) && i < json_size(list); i++) {
        const struct json *tool = json_at(list, i), *inner = json_get(tool, "tools");
        if (is_kind(inner, JSON_ARRAY)) {
            const struct json *found = find_tool(inner, name, around);
            if (found) *around = tool;
            if (found) return found;
        } else if (strcmp(text_of(json_get(tool, "name")), name) == 0) {
            return tool;
        }
    }
    return NULL;
}

bool responses_tool_is_custom(const struct json *body, const char *name)
{
    const struct json *around = NULL, *tool = find_tool(json_get(body, "tools"), name, &around);
    return tool && strcmp(text_of(json_get(tool, "type")), "custom") == 0;
}

const char *responses_tool_namespace(const struct json *body, const char *name)
{
    const struct json *around = NULL;
    find_tool(json_get(body, "tools"), name, &around);
    return around && is_kind(json_get(around, "name"), JSON_STRING) ? json_string(json_get(around, "name")) : NULL;
}

lily_status responses_to_chat(const struct json *body, struct json **out, struct lily_err *err)
{
    const struct json *list = json_get(body, "tools"), *choice = json_get(body, "tool_choice"), *parallel = json_get(body, "parallel_tool_calls");
    struct json *chat = json_new_object(), *messages = json_new_array();
    json_put(chat, "messages", messages);
    *out = chat;
    LILY_TRY(read_input(body, messages, err));
    if (list && json_kind(list) != JSON_NULL) {
        if (json_kind(list) != JSON_ARRAY) LILY_FAIL(err, LILY_ERR_FORMAT, "tools is of kind %s, expected an array", json_kind_name(list));
        struct json *tools = json_new_array();
        lily_status st = add_tools(list, "tools", tools, err);
        if (json_size(tools)) json_put(chat, "tools", tools);
        else json_free(tools);
        LILY_TRY(st);
    }
    if (choice) json_put(chat, "tool_choice", json_new_view(choice));
    if (parallel) json_put(chat, "parallel_tool_calls", json_new_view(parallel));
    return LILY_OK;
}
