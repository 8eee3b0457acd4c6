/* The output parser outside calls: reasoning, content, finding where a call begins. */
#include "chat/output.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "chat/output_impl.h"

struct output_parser *output_new(const struct output_options *opt, output_sink sink, void *user)
{
    struct output_parser *p = mem_new(sizeof *p);
    p->opt = *opt;
    p->sink = sink;
    p->search = p->raw_at = NOWHERE;
    p->user = user;
    p->state = opt->thinking ? IN_THINKING : IN_TEXT;
    p->kind = opt->thinking ? OUTPUT_REASONING : OUTPUT_CONTENT;
    p->runs[p->kind].marker = opt->thinking;
    return p;
}

void output_free(struct output_parser *p)
{
    if (!p) return;
    buf_free(&p->in);
    buf_free(&p->runs[0].space);
    buf_free(&p->runs[1].space);
    buf_free(&p->scratch);
    buf_free(&p->raw);
    json_free(p->used);
    free(p);
}

struct tag_text output_view(const struct output_parser *p)
{
    return (struct tag_text){buf_str(&p->in), p->in.len, p->final};
}

void output_emit(struct output_parser *p, enum output_event_kind kind, const char *text, size_t n)
{
    int call = kind >= OUTPUT_CALL_START ? p->n_calls - 1 : -1;
    if (n > 0) p->sink(p->user, &(struct output_event){.kind = kind, .call = call, .text = text, .n = n});
}

/* ---- plain text ---- */

static void emit_text(struct output_parser *p, const char *s, size_t n)
{
    struct run *run = &p->runs[p->kind];
    size_t end = n;
    while (end > 0 && tag_is_space(s[end - 1])) end--;
    if (end > 0) {
        size_t start = 0;
        while (tag_is_space(s[start])) start++;
        buf_add(&run->space, s, start);
        if (run->begun || !run->marker) output_emit(p, p->kind, buf_str(&run->space), run->space.len);
        buf_clear(&run->space);
        output_emit(p, p->kind, s + start, end - start);
        run->begun = true;
        run->marker = false;
    }
    buf_add(&run->space, s + end, n - end);
}

/* Passes on the text up to scan. */
static void flush_text(struct output_parser *p)
{
    if (p->scan > p->pos) emit_text(p, p->in.data + p->pos, p->scan - p->pos);
    p->pos = p->scan;
}

/* Leaves out len bytes at scan: a marker. */
static void drop_marker(struct output_parser *p, size_t len)
{
    flush_text(p);
    p->runs[p->kind].marker = true;
    p->pos = p->scan += len;
}

static void switch_to(struct output_parser *p, enum state state, enum output_event_kind kind)
{
    p->state = state;
    p->kind = kind;
    p->runs[kind].marker = true;
    memset(&p->fence, 0, sizeof p->fence);
}

/* ---- where a call begins ---- */

enum opening { OPENS_NOT, OPENS_MAYBE, OPENS_CALL, OPENS_JSON, OPENS_CUT };

/* What stands behind <function=NAME>: with an envelope the text may end there. */
static enum opening function_opens(const struct tag_text *text, const struct tag_found *function, bool envelope)
{
    switch (tag_after(*text, function->at + function->len).tag) {
    case TAG_PARTIAL:
        return OPENS_MAYBE;
    case TAG_PARAMETER:
    case TAG_FUNCTION_CLOSE:
        return OPENS_CALL;
    case TAG_CALL_CLOSE:
    case TAG_END:
        return envelope ? OPENS_CALL : OPENS_NOT;
    default:
        return OPENS_NOT;
    }
}

static bool is_tool(const struct output_parser *p, const struct tag_found *function)
{
    bool known;
    if (!p->opt.tools) return true;
    char *name = mem_dup(function->name, function->n_name);
    (void)tool_properties(p->opt.tools, name, &known);
    free(name);
    return known;
}

/* Whether a call begins at the tag f. */
static enum opening opens_call(const struct output_parser *p, const struct tag_found *f)
{
    struct tag_text text = output_view(p);
    if (p->opt.no_calls) return OPENS_NOT;
    if (f->tag == TAG_FUNCTION) {
        if (p->fence.phase != LINE_START || !is_tool(p, f)) return OPENS_NOT;
        return function_opens(&text, f, false);
    }
    if (f->tag != TAG_CALL && f->tag != TAG_CALL_ALIAS) return OPENS_NOT;
    struct tag_found next = tag_after(text, f->at + f->len);
    if (next.tag == TAG_PARTIAL) return OPENS_MAYBE;
    if (next.tag == TAG_END) return next.at < text.n ? OPENS_CUT : OPENS_NOT;
    if (next.tag == TAG_FUNCTION) return function_opens(&text, &next, true);
    return next.tag == TAG_NONE && text.s[next.at] == '{' && f->tag == TAG_CALL ? OPENS_JSON : OPENS_NOT;
}

static void begin_call(struct output_parser *p, const struct tag_found *f)
{
    struct tag_found function = *f;
    drop_marker(p, 0);
    p->raw_at = f->at;
    if (f->tag != TAG_FUNCTION) function = tag_after(output_view(p), f->at + f->len);
    output_call_start(p, function.name, function.n_name);
    p->pos = p->scan = function.at + function.len;
}

/* ---- calls in JSON form ---- */

/* {"name": ..., "arguments": {...} or its text}: passes the call on, or false. */
static bool emit_json_call(struct output_parser *p, const char *s, size_t n)
{
    struct json *v, *parsed = NULL;
    if (json_parse(s, n, "", &v, NULL) != LILY_OK) return false;
    const struct json *name = json_get(v, "name"), *arguments = json_get(v, "arguments");
    if (arguments && json_kind(arguments) == JSON_STRING &&
        json_parse(json_string(arguments), json_string_len(arguments), "", &parsed, NULL) == LILY_OK)
        arguments = parsed;
    bool good = name && json_kind(name) == JSON_STRING && json_string_len(name) > 0 && arguments &&
                json_kind(arguments) == JSON_OBJECT;
    if (good) {
        struct buf text = {0};
        json_write(arguments, 0, &text);
        output_call_start(p, json_string(name), json_string_len(name));
        output_emit(p, OUTPUT_CALL_ARGUMENTS, buf_str(&text), text.len);
        buf_free(&text);
    }
    json_free(parsed);
    json_free(v);
    return good;
}

/* A JSON call at the tag f: false while its end is missing. */
static bool json_call_step(struct output_parser *p, const struct tag_found *f)
{
    static const char close[] = "</tool_call>";
    const char *body = p->in.data + f->at + f->len, *limit = p->in.data + p->in.len;
    const char *from = p->search == NOWHERE ? body : p->in.data + p->search;
    const char *end = memmem(from, (size_t)(limit - from), close, sizeof close - 1);
    if (!end && !p->final) {
        if (limit - body > (ptrdiff_t)sizeof close) p->search = p->in.len - sizeof close;
        return false;
    }
    p->search = NOWHERE;
    drop_marker(p, 0);
    if (emit_json_call(p, body, (size_t)((end ? end : limit) - body))) {
        p->raw_at = f->at;
        p->pos = p->scan = (size_t)((end ? end : limit) - p->in.data);
        output_call_end(p, end != NULL);
    } else {
        drop_marker(p, f->len);
    }
    return true;
}

/* ---- steps ---- */

enum step { STEP_TEXT, STEP_WAIT, STEP_DONE };

static enum step think_tag(struct output_parser *p, const struct tag_found *f)
{
    if (f->tag == TAG_THINK) {
        drop_marker(p, f->len);
        return STEP_DONE;
    }
    if (f->tag == TAG_THINK_CLOSE) {
        drop_marker(p, f->len);
        p->quoted = false;
        switch_to(p, IN_TEXT, OUTPUT_CONTENT);
        return STEP_DONE;
    }
    if (p->quoted || fence_is_open(&p->fence)) return STEP_TEXT;
    switch (opens_call(p, f)) {
    case OPENS_MAYBE:
        return STEP_WAIT;
    case OPENS_NOT:
        return STEP_TEXT;
    default:
        flush_text(p);
        p->state = IN_HELD;
        return STEP_DONE;
    }
}

/* The answer begins with a think block. */
static void reopen_thinking(struct output_parser *p)
{
    struct buf *space = &p->runs[OUTPUT_CONTENT].space;
    buf_add(&p->runs[OUTPUT_REASONING].space, buf_str(space), space->len);
    buf_clear(space);
    switch_to(p, IN_THINKING, OUTPUT_REASONING);
}

static enum step text_tag(struct output_parser *p, const struct tag_found *f)
{
    switch (opens_call(p, f)) {
    case OPENS_MAYBE:
        return STEP_WAIT;
    case OPENS_CALL:
        begin_call(p, f);
        return STEP_DONE;
    case OPENS_JSON:
        return json_call_step(p, f) ? STEP_DONE : STEP_WAIT;
    case OPENS_CUT:
        drop_marker(p, p->in.len - p->scan);
        return STEP_DONE;
    case OPENS_NOT:
        break;
    }
    switch (f->tag) {
    case TAG_THINK:
        drop_marker(p, f->len);
        if (p->kind == OUTPUT_CONTENT && !p->runs[OUTPUT_CONTENT].begun && p->n_calls == 0) reopen_thinking(p);
        return STEP_DONE;
    case TAG_THINK_CLOSE:
    case TAG_CALL:
    case TAG_CALL_CLOSE:
    case TAG_RESPONSE:
    case TAG_RESPONSE_CLOSE:
        drop_marker(p, f->len);
        return STEP_DONE;
    default:
        return STEP_TEXT;
    }
}

/* Reasoning and content up to the next marker. */
static bool text_step(struct output_parser *p)
{
    while (p->scan < p->in.len) {
        char c = p->in.data[p->scan];
        bool thinking = p->state == IN_THINKING;
        if (c == '<' && (thinking || !fence_is_open(&p->fence))) {
            struct tag_found f = tag_at(output_view(p), p->scan);
            enum step step = STEP_TEXT;
            if (f.tag == TAG_PARTIAL && !p->final) step = STEP_WAIT;
            else if (f.tag != TAG_NONE && f.tag != TAG_PARTIAL) step = thinking ? think_tag(p, &f) : text_tag(p, &f);
            if (step == STEP_DONE) return true;
            if (step == STEP_WAIT) break;
        }
        fence_feed(&p->fence, c);
        p->scan++;
    }
    flush_text(p);
    return false;
}

static bool held_step(struct output_parser *p)
{
    static const char close[] = "</think>";
    size_t from = p->scan > p->pos + sizeof close ? p->scan - sizeof close : p->pos;
    if (memmem(p->in.data + from, p->in.len - from, close, sizeof close - 1)) {
        p->quoted = true;
        p->state = IN_THINKING;
    } else if (p->final) {
        p->state = IN_TEXT; /* of kind reasoning: what is no call stays thinking */
    } else {
        p->scan = p->in.len;
        return false;
    }
    p->scan = p->pos;
    return true;
}

static bool after_step(struct output_parser *p)
{
    struct tag_found f = tag_after(output_view(p), p->pos);
    switch (f.tag) {
    case TAG_PARTIAL:
        return false;
    case TAG_END:
        p->pos = p->scan = p->in.len;
        return false;
    case TAG_PARAMETER_CLOSE:
    case TAG_FUNCTION_CLOSE:
    case TAG_CALL_CLOSE:
    case TAG_CALL_ALIAS_CLOSE:
        p->pos = p->scan = f.at + f.len;
        return true;
    default:
        output_call_text(p);
        p->scan = p->pos;
        p->state = IN_TEXT;
        p->runs[p->kind].marker = true;
        memset(&p->fence, 0, sizeof p->fence);
        return true;
    }
}

static bool step_of_state(struct output_parser *p)
{
    switch (p->state) {
    case IN_THINKING:
    case IN_TEXT:
        return text_step(p);
    case IN_HELD:
        return held_step(p);
    case IN_BODY:
        return output_body_step(p);
    case IN_VALUE:
        return output_value_step(p);
    case AFTER_CALL:
        return after_step(p);
    }
    return false;
}

static bool step(struct output_parser *p)
{
    bool more = step_of_state(p);
    if (p->state == AFTER_CALL) p->raw_end = p->pos;
    return more;
}

/* Drops what is done with, when that is worth the move. */
static void compact(struct output_parser *p)
{
    size_t n = p->pos;
    if (n < 4096 || n < p->in.len / 2) return;
    if (p->raw_at != NOWHERE) {
        size_t end = p->state == AFTER_CALL ? p->raw_end : n; /* behind it there is nothing of the call */
        if (end > p->raw_at) buf_add(&p->raw, p->in.data + p->raw_at, end - p->raw_at);
        p->raw_at = p->raw_end = 0;
    }
    memmove(p->in.data, p->in.data + n, p->in.len - n + 1); /* with the NUL */
    p->in.len -= n;
    p->pos = 0;
    p->scan -= n;
    size_t *offsets[] = {&p->search, &p->value.begin, &p->value.doubt, &p->value.parameter};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        *offsets[i] = *offsets[i] == NOWHERE || *offsets[i] < n ? NOWHERE : *offsets[i] - n;
}

/* Appends the text with invalid UTF-8 repaired; a character that is not complete waits. */
static void take_in(struct output_parser *p, const char *text, size_t n)
{
    struct buf all = {0};
    size_t used, at = 0;
    buf_add(&all, p->held, p->n_held);
    buf_add(&all, text, n);
    p->n_held = 0;
    for (size_t back = all.len > 3 ? all.len - 3 : 0; back < all.len; back++) {
        if (utf8_decode(all.data + back, all.len - back, &used) != UTF8_PARTIAL) continue;
        p->n_held = all.len - back;
        break;
    }
    at = all.len - p->n_held;
    memcpy(p->held, buf_str(&all) + at, p->n_held);
    utf8_add_repaired(&p->in, buf_str(&all), at);
    buf_free(&all);
}

void output_push(struct output_parser *p, const char *text, size_t n)
{
    assert(!p->final);
    compact(p);
    take_in(p, text, n);
    while (step(p)) {
    }
}

void output_finish(struct output_parser *p)
{
    utf8_add_repaired(&p->in, p->held, p->n_held);
    p->n_held = 0;
    p->final = true;
    while (step(p)) {
    }
    output_call_text(p);
    for (int kind = OUTPUT_REASONING; kind <= OUTPUT_CONTENT; kind++) {
        struct run *run = &p->runs[kind];
        if (!run->marker) output_emit(p, (enum output_event_kind)kind, buf_str(&run->space), run->space.len);
        buf_clear(&run->space);
    }
}

enum output_place output_place(const struct output_parser *p)
{
    switch (p->state) {
    case IN_THINKING:
        return OUTPUT_IN_REASONING;
    case IN_HELD:
        return OUTPUT_IN_HELD_CALL;
    case IN_TEXT:
    case AFTER_CALL:
        return OUTPUT_IN_CONTENT;
    default:
        return OUTPUT_IN_CALL;
    }
}

int output_n_calls(const struct output_parser *p)
{
    return p->n_calls;
}
