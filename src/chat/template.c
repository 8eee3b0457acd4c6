/* The chat template: messages and tools to text with segments and marks, byte for byte as Jinja2 renders it. */
#include "chat/template.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/message.h"
#include "chat/pytext.h"

static const char tools_head[] = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
static const char tools_tail[] =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n<tool_call>\n"
    "<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within "
    "<tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT "
    "after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge and do not "
    "tell the user about function calls\n</IMPORTANT>";

struct renderer {
    struct rendering *out;
    const struct template_options *opt;
    const struct json *messages;
    size_t n;
    size_t last_query; /* index of the last user message that is no tool response */
    int images, videos;
    struct lily_err *err;
};

/* ---- segments and marks ---- */

/* A list of n with room for one more; it is full at every power of two. NULL: the text has failed, which is checked at the end. */
static void *room_for_one(struct rendering *r, void *list, int n, size_t size)
{
    if (n & (n - 1)) return list;
    void *grown = mem_try_resize(list, n ? 2 * (size_t)n : 1, size);
    if (!grown) r->text.failed = true;
    return grown;
}

static void add_span(struct rendering *r, bool is_user)
{
    if (r->n_spans > 0 && r->spans[r->n_spans - 1].is_user == is_user) {
        r->spans[r->n_spans - 1].end = r->text.len;
        return;
    }
    struct segment_span *spans = room_for_one(r, r->spans, r->n_spans, sizeof *spans);
    if (!spans) return;
    r->spans = spans;
    r->spans[r->n_spans++] = (struct segment_span){r->text.len, is_user};
}

static void emit(struct rendering *r, const char *template_text)
{
    buf_addz(&r->text, template_text);
    add_span(r, false);
}

static void emit_user(struct rendering *r, const char *s, size_t n)
{
    if (n == 0) return;
    buf_add(&r->text, s, n);
    add_span(r, true);
}

/* Copies a range of another rendering's text with its segments. */
static void emit_range(struct rendering *r, const struct rendering *from, struct range part)
{
    size_t at = (size_t)(part.s - buf_str(&from->text)), end = at + part.n;
    for (int i = 0; i < from->n_spans && at < end; i++) {
        size_t stop = from->spans[i].end < end ? from->spans[i].end : end;
        if (stop <= at) continue;
        buf_add(&r->text, from->text.data + at, stop - at);
        add_span(r, from->spans[i].is_user);
        at = stop;
    }
}

static void add_mark(struct rendering *r, enum mark_kind kind)
{
    struct mark *marks = room_for_one(r, r->marks, r->n_marks, sizeof *marks);
    if (!marks) return;
    r->marks = marks;
    r->marks[r->n_marks++] = (struct mark){kind, r->text.len};
}

void rendering_free(struct rendering *r)
{
    buf_free(&r->text);
    free(r->spans);
    free(r->marks);
    memset(r, 0, sizeof *r);
}

/* ---- content ---- */

/* The template's own message, with the place as the hint. */
static lily_status refuse(struct renderer *w, const char *message, const char *place)
{
    err_set(w->err, LILY_ERR_FORMAT, "%s", message);
    err_hint(w->err, "the model's chat template refuses %s", place);
    return LILY_ERR_FORMAT;
}

enum content_use {
    CONTENT_SYSTEM, /* images are refused */
    CONTENT_SCAN,   /* only looked at: images are not counted */
    CONTENT_TURN
};

static bool is_string(const struct json *v, const char *text)
{
    return v && json_kind(v) == JSON_STRING && json_string_len(v) == strlen(text) && strcmp(json_string(v), text) == 0;
}

static lily_status add_media(struct renderer *w, bool image, enum content_use use, struct rendering *out)
{
    int *count = image ? &w->images : &w->videos;
    char label[32];
    if (use == CONTENT_TURN) ++*count;
    snprintf(label, sizeof label, "%s %d: ", image ? "Picture" : "Video", *count);
    if (w->opt->add_vision_id) emit(out, label);
    emit(out, image ? "<|vision_start|><|image_pad|><|vision_end|>" : "<|vision_start|><|video_pad|><|vision_end|>");
    return LILY_OK;
}

static lily_status add_part(struct renderer *w, const struct json *part, enum content_use use, struct rendering *out,
                            const char *place)
{
    const struct json *type = json_get(part, "type");
    if (json_get(part, "image") || json_get(part, "image_url") || is_string(type, "image")) {
        if (use == CONTENT_SYSTEM) return refuse(w, "System message cannot contain images.", place);
        return add_media(w, true, use, out);
    }
    if (json_get(part, "video") || is_string(type, "video")) {
        if (use == CONTENT_SYSTEM) return refuse(w, "System message cannot contain videos.", place);
        return add_media(w, false, use, out);
    }
    const struct json *text = json_get(part, "text");
    if (!text) return refuse(w, "Unexpected item type in content.", place);
    size_t before = out->text.len;
    json_write_python_str(text, &out->text);
    if (out->text.len > before) add_span(out, true);
    return LILY_OK;
}

/* The content of message i into out (empty before); *trimmed gets the view without whitespace at its ends. */
static lily_status render_content(struct renderer *w, size_t i, enum content_use use, struct rendering *out,
                                  struct range *trimmed)
{
    const struct json *content = json_get(json_at(w->messages, i), "content");
    char place[80];
    if (content && json_kind(content) == JSON_STRING) {
        emit_user(out, json_string(content), json_string_len(content));
    } else if (content && json_kind(content) == JSON_ARRAY) {
        for (size_t k = 0; k < json_size(content); k++) {
            snprintf(place, sizeof place, "messages[%zu].content[%zu]", i, k);
            LILY_TRY(add_part(w, json_at(content, k), use, out, place));
        }
    } else if (content && json_kind(content) != JSON_NULL) {
        snprintf(place, sizeof place, "messages[%zu].content", i);
        return refuse(w, "Unexpected content type.", place);
    }
    *trimmed = py_strip((struct range){buf_str(&out->text), out->text.len});
    return buf_check(&out->text, "a message", w->err);
}

/* ---- turns ---- */

static bool has_role(const struct renderer *w, size_t i, const char *role)
{
    return is_string(json_get(json_at(w->messages, i), "role"), role);
}

static lily_status render_system(struct renderer *w, const struct json *tools)
{
    struct rendering content = {.text.tries = true};
    struct range text = {"", 0};
    bool with_tools = tools && json_kind(tools) == JSON_ARRAY && json_size(tools) > 0, first = has_role(w, 0, "system");
    lily_status st = LILY_OK;
    if (!with_tools && !first) return LILY_OK;
    if (first) LILY_TRY_GOTO(render_content(w, 0, CONTENT_SYSTEM, &content, &text), out);
    emit(w->out, "<|im_start|>system\n");
    if (with_tools) {
        emit(w->out, tools_head);
        for (size_t k = 0; k < json_size(tools); k++) {
            emit(w->out, "\n");
            json_write_python(json_at(tools, k), &w->out->text);
            add_span(w->out, true);
        }
        emit(w->out, tools_tail);
        if (text.n > 0) emit(w->out, "\n\n");
    }
    emit_range(w->out, &content, text);
    emit(w->out, "<|im_end|>\n");
    add_mark(w->out, MARK_SYSTEM_END);
out:
    rendering_free(&content);
    return st;
}

static lily_status find_last_query(struct renderer *w)
{
    for (size_t i = w->n; i-- > 0;) {
        if (!has_role(w, i, "user")) continue;
        struct rendering content = {.text.tries = true};
        struct range text = {"", 0};
        lily_status st = render_content(w, i, CONTENT_SCAN, &content, &text);
        bool response = py_starts_with(text, "<tool_response>") && py_ends_with(text, "</tool_response>");
        rendering_free(&content);
        LILY_TRY(st);
        if (response) continue;
        w->last_query = i;
        return LILY_OK;
    }
    return refuse(w, "No user query found in messages.", "messages");
}

/* Splits an assistant's content at its think tags, as the template does when the message has no reasoning_content. */
static void split_thinking(struct range *content, struct range *reasoning)
{
    size_t first, last, open;
    if (!py_find(*content, "</think>", &first)) return;
    (void)py_find_last(*content, "</think>", &last);
    *reasoning = py_rstrip_newlines((struct range){content->s, first});
    if (py_find_last(*reasoning, "<think>", &open)) {
        open += strlen("<think>");
        *reasoning = (struct range){reasoning->s + open, reasoning->n - open};
    }
    *reasoning = py_lstrip_newlines(*reasoning);
    last += strlen("</think>");
    *content = py_lstrip_newlines((struct range){content->s + last, content->n - last});
}

static void emit_value(struct renderer *w, const struct json *value)
{
    enum json_kind kind = json_kind(value);
    size_t before = w->out->text.len;
    bool python_str = w->opt->version == TEMPLATE_QWEN35 && kind != JSON_ARRAY && kind != JSON_OBJECT;
    if (python_str || kind == JSON_STRING) json_write_python_str(value, &w->out->text);
    else json_write_python(value, &w->out->text);
    if (w->out->text.len > before) add_span(w->out, true);
}

static void emit_arguments(struct renderer *w, const struct json *arguments)
{
    for (size_t k = 0; k < json_size(arguments); k++) {
        const struct json *value;
        const char *key = json_key_at(arguments, k, &value);
        emit(w->out, "<parameter=");
        emit_user(w->out, key, strlen(key));
        emit(w->out, ">\n");
        emit_value(w, value);
        emit(w->out, "\n</parameter>\n");
    }
}

/* Arguments as clients of OpenAI send them: the text of a JSON object. */
static lily_status emit_arguments_text(struct renderer *w, const struct json *text, const char *place)
{
    struct json *parsed = NULL;
    struct range all = {json_string(text), json_string_len(text)};
    if (py_strip(all).n == 0) return LILY_OK; /* what some clients send for a call without arguments */
    LILY_TRY(json_parse(all.s, all.n, place, &parsed, w->err));
    lily_status st = LILY_OK;
    if (json_kind(parsed) == JSON_OBJECT) {
        emit_arguments(w, parsed);
    } else {
        st = err_set(w->err, LILY_ERR_FORMAT, "%s: the text is JSON of kind %s, expected an object", place,
                     json_kind_name(parsed));
    }
    json_free(parsed);
    return st;
}

/* The call as the model wrote it: between its outer tags special tokens are text. */
static bool replay_call(struct renderer *w, const struct json *call, const struct json *name, const struct json *arguments)
{
    static const char open[] = "<tool_call>", close[] = "</tool_call>";
    const size_t n_open = sizeof open - 1, n_close = sizeof close - 1;
    const struct json *id = json_get(call, "id");
    struct buf text = {0};
    bool found = w->opt->calls && id && json_kind(id) == JSON_STRING &&
                 call_memory_find(w->opt->calls, json_string(id), json_string(name), arguments, &text);
    if (found) {
        emit(w->out, open);
        emit_user(w->out, text.data + n_open, text.len - n_open - n_close);
        emit(w->out, close);
    }
    buf_free(&text);
    return found;
}

static lily_status render_call(struct renderer *w, const struct json *call, const char *before, const char *place)
{
    const struct json *function = json_get(call, "function") ? json_get(call, "function") : call;
    const struct json *name = json_get(function, "name"), *arguments = json_get(function, "arguments");
    char arguments_place[112];
    if (!name || json_kind(name) != JSON_STRING)
        LILY_FAIL(w->err, LILY_ERR_FORMAT, "%s: the function's name is missing, expected a string", place);
    emit(w->out, before);
    if (replay_call(w, call, name, arguments)) return LILY_OK;
    emit(w->out, "<tool_call>\n<function=");
    emit_user(w->out, json_string(name), json_string_len(name));
    emit(w->out, ">\n");
    snprintf(arguments_place, sizeof arguments_place, "%s%s.arguments", place, function == call ? "" : ".function");
    if (arguments && json_kind(arguments) == JSON_OBJECT) emit_arguments(w, arguments);
    else if (arguments && json_kind(arguments) == JSON_STRING) LILY_TRY(emit_arguments_text(w, arguments, arguments_place));
    else if (arguments) return refuse(w, "Can only get item pairs from a mapping.", arguments_place);
    emit(w->out, "</function>\n</tool_call>");
    return LILY_OK;
}

static lily_status render_calls(struct renderer *w, size_t i, bool after_content)
{
    const struct json *calls = json_get(json_at(w->messages, i), "tool_calls");
    if (!calls || json_kind(calls) != JSON_ARRAY) return LILY_OK;
    for (size_t k = 0; k < json_size(calls); k++) {
        char place[80];
        snprintf(place, sizeof place, "messages[%zu].tool_calls[%zu]", i, k);
        LILY_TRY(render_call(w, json_at(calls, k), k > 0 ? "\n" : after_content ? "\n\n" : "", place));
    }
    return LILY_OK;
}

static lily_status render_assistant(struct renderer *w, size_t i, const struct rendering *content, struct range text)
{
    const struct json *given = json_get(json_at(w->messages, i), "reasoning_content");
    bool has_reasoning = given && json_kind(given) == JSON_STRING;
    struct range reasoning = {"", 0};
    if (has_reasoning) reasoning = (struct range){json_string(given), json_string_len(given)};
    else split_thinking(&text, &reasoning);
    reasoning = py_strip(reasoning);
    bool keep = w->opt->preserve_thinking && w->opt->version == TEMPLATE_QWEN36;
    emit(w->out, "<|im_start|>assistant\n");
    if (keep || i > w->last_query) {
        emit(w->out, "<think>\n");
        if (has_reasoning) emit_user(w->out, reasoning.s, reasoning.n);
        else if (reasoning.n > 0) emit_range(w->out, content, reasoning);
        emit(w->out, "\n</think>\n\n");
    }
    emit_range(w->out, content, text);
    LILY_TRY(render_calls(w, i, py_strip(text).n > 0));
    emit(w->out, "<|im_end|>\n");
    return LILY_OK;
}

static void render_tool(struct renderer *w, size_t i, const struct rendering *content, struct range text)
{
    if (i > 0 && !has_role(w, i - 1, "tool")) emit(w->out, "<|im_start|>user");
    emit(w->out, "\n<tool_response>\n");
    emit_range(w->out, content, text);
    emit(w->out, "\n</tool_response>");
    if (i + 1 == w->n || !has_role(w, i + 1, "tool")) emit(w->out, "<|im_end|>\n");
}

static void render_wrapped(struct renderer *w, const char *open, const struct rendering *content, struct range text,
                           const char *close)
{
    emit(w->out, open);
    emit_range(w->out, content, text);
    emit(w->out, close);
}

static lily_status render_turn(struct renderer *w, size_t i, const struct rendering *content, struct range text)
{
    char place[40];
    snprintf(place, sizeof place, "messages[%zu]", i);
    if (has_role(w, i, "user")) {
        render_wrapped(w, "<|im_start|>user\n", content, text, "<|im_end|>\n");
    } else if (has_role(w, i, "assistant")) {
        LILY_TRY(render_assistant(w, i, content, text));
    } else if (has_role(w, i, "tool")) {
        render_tool(w, i, content, text);
    } else if (has_role(w, i, "system")) {
        if (i == 0) return LILY_OK; /* it is in the system block */
        if (!w->opt->system_reminders) return refuse(w, "System message must be at the beginning.", place);
        if (text.n == 0) return LILY_OK;
        render_wrapped(w, "<|im_start|>user\n<system-reminder>\n", content, text, "\n</system-reminder><|im_end|>\n");
    } else {
        return refuse(w, "Unexpected message role.", place);
    }
    add_mark(w->out, MARK_MESSAGE_END);
    if (i == w->last_query) add_mark(w->out, MARK_LAST_USER_END);
    return LILY_OK;
}

static lily_status render_message(struct renderer *w, size_t i)
{
    struct rendering content = {.text.tries = true};
    struct range text = {"", 0};
    lily_status st = render_content(w, i, CONTENT_TURN, &content, &text);
    if (st == LILY_OK) st = render_turn(w, i, &content, text);
    rendering_free(&content);
    return st;
}

static lily_status render_all(struct renderer *w, const struct json *tools)
{
    if (w->n == 0) return refuse(w, "No messages provided.", "messages");
    LILY_TRY(render_system(w, tools));
    LILY_TRY(find_last_query(w));
    for (size_t i = 0; i < w->n; i++) LILY_TRY(render_message(w, i));
    if (w->opt->no_generation_prompt) return LILY_OK;
    emit(w->out, "<|im_start|>assistant\n");
    emit(w->out, w->opt->no_thinking ? "<think>\n\n</think>\n\n" : "<think>\n");
    return LILY_OK;
}

lily_status template_render(const struct json *messages, const struct json *tools, const struct template_options *opt,
                            struct rendering *out, struct lily_err *err)
{
    struct renderer w = {.out = out, .opt = opt, .messages = messages, .err = err};
    memset(out, 0, sizeof *out);
    out->text.tries = true;
    if (messages && json_kind(messages) == JSON_ARRAY) w.n = json_size(messages);
    lily_status st = render_all(&w, tools);
    if (st == LILY_OK) st = buf_check(&out->text, "the prompt's text", err);
    if (st != LILY_OK) rendering_free(out);
    return st;
}

lily_status template_render_simple(const char *system, const char *user, const struct template_options *opt,
                                   struct rendering *out, struct lily_err *err)
{
    struct json *messages = json_new_array();
    if (system && system[0]) json_add(messages, chat_message("system", system, strlen(system)));
    json_add(messages, chat_message("user", user, strlen(user)));
    lily_status st = template_render(messages, NULL, opt, out, err);
    json_free(messages);
    return st;
}
