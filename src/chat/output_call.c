/* The output parser inside a call: its parameters, and where each value ends. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/output_impl.h"

static void emit_arguments(struct output_parser *p, const struct buf *text)
{
    output_emit(p, OUTPUT_CALL_ARGUMENTS, buf_str(text), text->len);
}

void output_call_start(struct output_parser *p, const char *name, size_t n)
{
    bool known;
    char *copy = mem_dup(name, n);
    p->properties = tool_properties(p->opt.tools, copy, &known);
    p->used = json_new_object();
    p->n_calls++;
    p->state = IN_BODY;
    output_emit(p, OUTPUT_CALL_START, copy, n);
    free(copy);
}

void output_call_end(struct output_parser *p, bool complete)
{
    json_free(p->used);
    p->used = NULL;
    p->state = AFTER_CALL;
    p->sink(p->user, &(struct output_event){OUTPUT_CALL_END, p->n_calls - 1, "", 0, complete});
}

void output_call_text(struct output_parser *p)
{
    if (p->raw_at == NOWHERE) return;
    if (p->raw_end > p->raw_at) buf_add(&p->raw, p->in.data + p->raw_at, p->raw_end - p->raw_at);
    while (p->raw.len && tag_is_space(p->raw.data[p->raw.len - 1])) p->raw.len--;
    output_emit(p, OUTPUT_CALL_TEXT, buf_str(&p->raw), p->raw.len);
    buf_clear(&p->raw);
    p->raw_at = NOWHERE;
}

/* ---- parameters ---- */

static void begin_value(struct output_parser *p, const struct tag_found *f)
{
    char *key = mem_dup(f->name, f->n_name);
    struct value *v = &p->value;
    *v = (struct value){.begin = NOWHERE, .doubt = NOWHERE, .parameter = NOWHERE};
    v->types = argument_types(p->properties, key);
    v->is_text = argument_is_text(&v->types);
    buf_clear(&p->scratch);
    buf_addz(&p->scratch, json_size(p->used) ? ",\"" : "{\"");
    json_write_escaped(key, f->n_name, &p->scratch);
    buf_addz(&p->scratch, v->is_text ? "\":\"" : "\":");
    json_put(p->used, key, json_new_null());
    free(key);
    p->state = IN_VALUE;
    emit_arguments(p, &p->scratch);
}

static void end_function(struct output_parser *p, bool complete)
{
    buf_clear(&p->scratch);
    buf_addz(&p->scratch, json_size(p->used) ? "}" : "{}");
    emit_arguments(p, &p->scratch);
    output_call_end(p, complete);
}

bool output_body_step(struct output_parser *p)
{
    struct tag_found f = tag_after(output_view(p), p->pos);
    switch (f.tag) {
    case TAG_PARTIAL:
        return false;
    case TAG_END:
        p->pos = p->scan = p->in.len;
        end_function(p, false);
        return false;
    case TAG_PARAMETER:
        begin_value(p, &f);
        break;
    case TAG_PARAMETER_CLOSE:
        break;
    case TAG_FUNCTION_CLOSE:
    case TAG_CALL_CLOSE:
    case TAG_CALL_ALIAS_CLOSE:
        end_function(p, true);
        break;
    default: /* a value never ends in front of anything else */
        end_function(p, false);
        return true;
    }
    p->pos = p->scan = f.at + f.len;
    return true;
}

/* ---- where a value ends ---- */

static bool starts_line(const struct output_parser *p, size_t at)
{
    return at == p->value.begin || (at > p->pos && p->in.data[at - 1] == '\n');
}

/* The value's end when a tag at this offset closes it: without the newline in front of the tag. */
static size_t content_end(const struct output_parser *p, size_t at)
{
    return at > p->pos && p->in.data[at - 1] == '\n' ? at - 1 : at;
}

enum verdict {
    V_WAIT,
    V_TEXT,  /* part of the value */
    V_NEXT,  /* closes the parameter: the next one follows */
    V_OVER,  /* closes the function: the text ends behind it */
    V_CALL,  /* closes the function: another call follows */
    V_DOUBT  /* closes the function, but text follows */
};

/* Whether a call begins at f, which is its envelope or its function: V_CALL, V_TEXT or V_WAIT. */
static enum verdict opens_call(const struct output_parser *p, const struct tag_found *f)
{
    struct tag_text text = output_view(p);
    struct tag_found next = *f;
    if (f->tag != TAG_FUNCTION) next = tag_after(text, f->at + f->len);
    if (next.tag == TAG_NONE && text.s[next.at] == '{') return V_CALL;
    if (next.tag == TAG_FUNCTION) {
        next = tag_after(text, next.at + next.len);
        if (next.tag == TAG_PARAMETER || next.tag == TAG_FUNCTION_CLOSE) return V_CALL;
    }
    return next.tag == TAG_PARTIAL ? V_WAIT : next.tag == TAG_END ? V_CALL : V_TEXT;
}

enum {
    MAX_CLOSING = 8,   /* closing tags in a row that are looked at */
    MAX_FALLBACKS = 16 /* values that may be searched to the end of the text for nothing */
};

/* What a closing tag in a value means, by the tags that follow it. *next gets the offset behind those that belong to it. */
static enum verdict judge(const struct output_parser *p, const struct tag_found *first, size_t *next)
{
    enum tag seen = first->tag;
    *next = first->at + first->len;
    for (int i = 0; i < MAX_CLOSING; i++) {
        struct tag_found f = tag_after(output_view(p), *next);
        bool closed = seen != TAG_PARAMETER_CLOSE;
        switch (f.tag) {
        case TAG_PARTIAL:
            return V_WAIT;
        case TAG_END:
            return V_OVER;
        case TAG_PARAMETER:
            if (!closed) return V_NEXT;
            break;
        case TAG_FUNCTION_CLOSE:
        case TAG_CALL_CLOSE:
        case TAG_CALL_ALIAS_CLOSE:
            seen = f.tag;
            *next = f.at + f.len;
            continue;
        case TAG_CALL:
        case TAG_CALL_ALIAS:
        case TAG_FUNCTION:
            if (closed && opens_call(p, &f) != V_TEXT) return opens_call(p, &f);
            break;
        default:
            break;
        }
        return first->tag == seen ? V_TEXT : V_DOUBT;
    }
    return V_TEXT;
}

enum look { LOOK_WAIT, LOOK_ON, LOOK_END };

static enum look look_on(struct output_parser *p, size_t at)
{
    p->scan = at;
    return LOOK_ON;
}

/* So many values ended at their second-best place that the rest is not searched for better ones: that bounds the time. */
static bool is_hurried(const struct output_parser *p)
{
    return p->n_fallbacks >= MAX_FALLBACKS;
}

static size_t first_end(const struct output_parser *p, size_t at)
{
    return p->value.parameter != NOWHERE ? p->value.parameter : at;
}

/* The value ends at `end` if nothing better comes. weak: without a tag that closes the parameter. */
static void set_doubt(struct output_parser *p, size_t end, bool weak)
{
    struct value *v = &p->value;
    v->parameter = NOWHERE;
    if (v->doubt != NOWHERE && (weak || !v->weak)) return;
    v->doubt = end;
    v->weak = weak;
}

/* Whether the parameter that seemed to open inside the value opens behind it: then it was text there. */
static bool opens_again(const struct output_parser *p, size_t behind)
{
    if (p->value.parameter == NOWHERE) return false;
    struct tag_found text = tag_at(output_view(p), p->value.parameter), next = tag_after(output_view(p), behind);
    return text.n_name == next.n_name && memcmp(text.name, next.name, next.n_name) == 0;
}

/* A closing tag; *end gets the offset of the tag that ends the value. */
static enum look look_at_close(struct output_parser *p, const struct tag_found *f, size_t *end)
{
    struct value *v = &p->value;
    size_t next, behind = f->at + f->len;
    bool weak = f->tag != TAG_PARAMETER_CLOSE, doubted = v->doubt != NOWHERE;
    enum verdict verdict = judge(p, f, &next);
    *end = first_end(p, f->at);
    switch (verdict) {
    case V_WAIT:
        return LOOK_WAIT;
    case V_TEXT:
        if (!weak) v->parameter = NOWHERE;
        return look_on(p, behind);
    case V_OVER:
        if (doubted && (v->depth > 0 || (weak && !v->weak))) *end = v->doubt;
        return LOOK_END;
    case V_NEXT:
        if (v->depth > 0) return look_on(p, behind);
        if (opens_again(p, behind)) *end = f->at;
        return LOOK_END;
    case V_CALL:
    case V_DOUBT:
        break;
    }
    if (v->depth > 0) {
        v->depth--;
        return look_on(p, next);
    }
    if (verdict == V_CALL && (!weak || is_hurried(p))) return LOOK_END;
    set_doubt(p, *end, weak);
    return look_on(p, next);
}

/* The start of another call: the end of the value when that was in doubt, else a call inside the value. */
static enum look look_at_call(struct output_parser *p, const struct tag_found *f, size_t *end)
{
    enum verdict verdict = opens_call(p, f);
    if (verdict == V_WAIT) return LOOK_WAIT;
    if (verdict == V_CALL && p->value.doubt != NOWHERE && !p->value.weak) {
        *end = p->value.doubt;
        return LOOK_END;
    }
    if (verdict == V_CALL && f->tag != TAG_FUNCTION) p->value.depth++;
    return look_on(p, f->at + f->len);
}

/* A parameter that opens at the start of a line: the next one if this one was not closed, or text. */
static enum look look_at_parameter(struct output_parser *p, const struct tag_found *f, size_t *end)
{
    struct value *v = &p->value;
    if (v->parameter == NOWHERE && v->doubt == NOWHERE && v->depth == 0) {
        char *key = mem_dup(f->name, f->n_name);
        if (!json_get(p->used, key) && (!p->properties || json_get(p->properties, key))) v->parameter = f->at;
        free(key);
    }
    *end = v->parameter;
    return v->parameter != NOWHERE && is_hurried(p) ? LOOK_END : look_on(p, f->at + f->len);
}

/* The text ends inside a tag: a closing one ends the value. */
static enum look look_at_cut(struct output_parser *p, const struct tag_found *f, bool fits, size_t *end)
{
    if (!p->final) return LOOK_WAIT;
    if (!fits || p->in.len - f->at < 2 || p->in.data[f->at + 1] != '/') return look_on(p, f->at + 1);
    *end = first_end(p, f->at);
    return LOOK_END;
}

static enum look look_at(struct output_parser *p, size_t at, size_t *end)
{
    struct tag_found f = tag_at(output_view(p), at);
    bool fits = p->value.in_line || starts_line(p, at);
    switch (f.tag) {
    case TAG_PARTIAL:
        return look_at_cut(p, &f, fits, end);
    case TAG_CALL:
    case TAG_CALL_ALIAS:
        return look_at_call(p, &f, end);
    case TAG_FUNCTION:
        return fits ? look_at_call(p, &f, end) : look_on(p, at + f.len);
    case TAG_PARAMETER:
        return fits ? look_at_parameter(p, &f, end) : look_on(p, at + f.len);
    case TAG_PARAMETER_CLOSE:
    case TAG_FUNCTION_CLOSE:
    case TAG_CALL_CLOSE:
    case TAG_CALL_ALIAS_CLOSE:
        return fits ? look_at_close(p, &f, end) : look_on(p, at + f.len);
    default:
        return look_on(p, at + 1);
    }
}

/* ---- passing values on ---- */

/* Passes on the text of a string value up to an offset. */
static void stream_value(struct output_parser *p, size_t to)
{
    if (to <= p->pos) return;
    buf_clear(&p->scratch);
    json_write_escaped(p->in.data + p->pos, to - p->pos, &p->scratch);
    emit_arguments(p, &p->scratch);
    p->pos = to;
}

static void end_value(struct output_parser *p, size_t at)
{
    struct value *v = &p->value;
    size_t end = content_end(p, at);
    if (v->is_text) {
        stream_value(p, end);
        output_emit(p, OUTPUT_CALL_ARGUMENTS, "\"", 1);
    } else {
        buf_clear(&p->scratch);
        argument_convert(&v->types, p->in.data + p->pos, end - p->pos, &p->scratch);
        emit_arguments(p, &p->scratch);
    }
    if (p->scan > at) p->n_fallbacks++;
    p->pos = p->scan = at;
    p->state = IN_BODY;
}

/* The newline behind the opening tag is no part of the value. */
static bool start_value(struct output_parser *p)
{
    if (p->pos == p->in.len && !p->final) return false;
    p->value.started = true;
    p->value.in_line = p->pos == p->in.len || p->in.data[p->pos] != '\n';
    if (!p->value.in_line) p->pos++;
    p->scan = p->value.begin = p->pos;
    return true;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool output_value_step(struct output_parser *p)
{
    struct value *v = &p->value;
    if (!v->started && !start_value(p)) return false;
    size_t end = NOWHERE;
    enum look look = LOOK_ON;
    while (look == LOOK_ON && p->scan < p->in.len) {
        const char *open = memchr(p->in.data + p->scan, '<', p->in.len - p->scan);
        p->scan = open ? (size_t)(open - p->in.data) : p->in.len;
        if (open) look = look_at(p, p->scan, &end);
    }
    if (look == LOOK_ON && p->final) {
        end = v->doubt != NOWHERE ? v->doubt : first_end(p, p->in.len);
        look = LOOK_END;
    }
    if (look == LOOK_END) {
        end_value(p, end);
        return true;
    }
    /* What a later tag may still turn into the end stays here, and so does a newline that may belong to that tag. */
    if (v->is_text) stream_value(p, content_end(p, least(p->scan, least(v->doubt, v->parameter))));
    return false;
}
