/* POST /v1/responses, stateless: every item of the answer with its events in full. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/fields.h"
#include "serve/responses_input.h"
#include "serve/server_impl.h"
#include "serve/vendor.h"
#include "serve/write.h"

enum item_kind { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_FUNCTION, ITEM_CUSTOM };

struct item {
    enum item_kind kind;
    char id[ID_BYTES];
    size_t begin;  /* of its text in the choice's content or reasoning */
    size_t end;    /* when it is done */
    int call;      /* of ITEM_FUNCTION and ITEM_CUSTOM */
};

/* Where a reply is. */
struct stream {
    struct item *items; /* owned */
    int n_items;
    bool open;          /* the last item is under way */
    int sequence;       /* of the next event */
    bool keep_reasoning; /* the client wants thoughts in encrypted_content, to send them back */
};

static void stream_free(void *p)
{
    struct stream *s = p;
    free(s->items);
    free(s);
}

/* ---- the request, on P ---- */

static lily_status read_include(struct call *c, struct lily_err *err)
{
    const struct json *v = json_get(c->json, "include");
    struct stream *s = c->dialect;
    if (!v || json_kind(v) == JSON_NULL) return LILY_OK;
    if (json_kind(v) != JSON_ARRAY) LILY_FAIL(err, LILY_ERR_FORMAT, "include is of kind %s, expected an array", json_kind_name(v));
    for (size_t i = 0; i < json_size(v); i++) {
        const struct json *one = json_at(v, i);
        if (json_kind(one) != JSON_STRING) continue;
        if (strcmp(json_string(one), "reasoning.encrypted_content") == 0) s->keep_reasoning = true;
        if (strcmp(json_string(one), "message.output_text.logprobs") == 0 && c->ask.spec.n_logprobs < 0) c->ask.spec.n_logprobs = 0;
    }
    return LILY_OK;
}

static lily_status prepare(struct call *c, struct lily_err *err)
{
    const struct json *text = json_get(c->json, "text"), *previous = json_get(c->json, "previous_response_id");
    LILY_TRY(fields_sampling(c, c->json, err));
    LILY_TRY(fields_stop(c, c->json, "stop", err));
    LILY_TRY(fields_max_tokens(c, c->json, "max_output_tokens", err));
    LILY_TRY(read_include(c, err));
    if (text && json_kind(text) == JSON_OBJECT) LILY_TRY(fields_format(json_get(text, "format"), "text.format", err));
    if (previous && json_kind(previous) != JSON_NULL)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "previous_response_id is given, but nothing is stored here: send the items themselves");
    LILY_TRY(responses_to_chat(c->json, &c->converted, err));
    return call_render(c, c->converted, err);
}

void responses_prepare(struct call *c)
{
    struct lily_err err;
    if (!call_parse(c)) return;
    c->dialect = mem_new(sizeof(struct stream));
    c->dialect_free = stream_free;
    lily_status st = prepare(c, &err);
    c->ask.n = 1;
    if (st != LILY_OK) call_fail(c, &err);
    else call_submit(c);
}

/* ---- items ---- */

static const struct tool_call *call_of(const struct call *c, const struct item *it)
{
    return &c->choices[0].calls[it->call];
}

/* The input of a custom tool: the one string of the arguments. */
static struct json *custom_input(const struct tool_call *t)
{
    struct json *v, *out;
    if (json_parse(buf_str(&t->arguments), t->arguments.len, "", &v, NULL) != LILY_OK) return json_new_string("");
    const struct json *input = json_get(v, "input");
    out = input && json_kind(input) == JSON_STRING ? json_copy(input) : json_new_text(buf_str(&t->arguments), t->arguments.len);
    json_free(v);
    return out;
}

/* The one part of a message or of thoughts; without its text until it is done. */
static void put_part(const struct call *c, const struct item *it, bool done, struct buf *out)
{
    const struct choice *ch = &c->choices[0];
    bool thoughts = it->kind == ITEM_REASONING;
    buf_printf(out, "{\"type\":\"%s\",", thoughts ? "reasoning_text" : "output_text");
    if (!thoughts) buf_printf(out, "\"annotations\":[],\"logprobs\":[%s],", done ? buf_str(&ch->logprobs) : "");
    put_member(out, "text", buf_str(thoughts ? &ch->reasoning : &ch->content) + it->begin, done ? it->end - it->begin : 0);
    buf_addc(out, '}');
}

static void put_reasoning_item(const struct call *c, const struct item *it, bool done, struct buf *out)
{
    const struct stream *s = c->dialect;
    const char *text = buf_str(&c->choices[0].reasoning) + it->begin;
    size_t n = it->end - it->begin;
    buf_printf(out, "{\"id\":\"%s\",\"type\":\"reasoning\",\"summary\":[],\"content\":[", it->id);
    if (done) put_part(c, it, true, out);
    buf_addc(out, ']');
    if (done && s->keep_reasoning) {
        buf_addc(out, ',');
        put_member(out, "encrypted_content", text, n);
    }
    buf_printf(out, ",\"status\":\"%s\"}", done ? "completed" : "in_progress");
}

static void put_call_item(const struct call *c, const struct item *it, bool done, struct buf *out)
{
    const struct tool_call *t = call_of(c, it);
    const char *space = responses_tool_namespace(c->json, buf_str(&t->name));
    bool custom = it->kind == ITEM_CUSTOM;
    buf_printf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\",\"call_id\":\"%s\",", it->id,
               custom ? "custom_tool_call" : "function_call", done ? "completed" : "in_progress", t->id);
    put_member(out, "name", buf_str(&t->name), t->name.len);
    buf_addc(out, ',');
    if (space) put_memberz(out, "namespace", space);
    if (space) buf_addc(out, ',');
    if (custom && done) {
        struct json *input = custom_input(t);
        put_member(out, "input", json_string(input), json_string_len(input));
        json_free(input);
    } else {
        put_member(out, custom ? "input" : "arguments", buf_str(&t->arguments), done ? t->arguments.len : 0);
    }
    buf_addc(out, '}');
}

static void put_item(const struct call *c, const struct item *it, bool done, struct buf *out)
{
    if (it->kind == ITEM_REASONING) {
        put_reasoning_item(c, it, done, out);
    } else if (it->kind == ITEM_MESSAGE) {
        buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"%s\",\"content\":[", it->id,
                   done ? "completed" : "in_progress");
        if (done) put_part(c, it, true, out);
        buf_addz(out, "]}");
    } else {
        put_call_item(c, it, done, out);
    }
}

/* ---- the response object ---- */

static void put_member_of_request(const struct call *c, const char *key, const char *otherwise, struct buf *out)
{
    const struct json *v = json_get(c->json, key);
    buf_printf(out, "\"%s\":", key);
    if (v) json_write(v, 0, out);
    else buf_addz(out, otherwise);
    buf_addc(out, ',');
}

static void put_response_usage(const struct call *c, struct buf *out)
{
    struct call_usage u = call_usage(c);
    buf_printf(out,
               "\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d},\"output_tokens\":%d,"
               "\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d}",
               u.prompt, u.cached, u.completion, u.reasoning, u.prompt + u.completion);
}

static const char *final_status(const struct call *c)
{
    return strcmp(choice_finish(&c->choices[0]), "length") == 0 ? "incomplete" : "completed";
}

/* status: "in_progress", "completed", "incomplete" or "failed". error: the object's text, or NULL. */
static void put_response(struct call *c, const char *status, const char *error, struct buf *out)
{
    const struct stream *s = c->dialect;
    bool over = strcmp(status, "in_progress") != 0;
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%ld,\"status\":\"%s\",\"error\":%s,", c->id, c->created, status,
               error ? error : "null");
    buf_addz(out, strcmp(status, "incomplete") == 0 ? "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}," : "\"incomplete_details\":null,");
    put_member_of_request(c, "instructions", "null", out);
    put_member_of_request(c, "max_output_tokens", "null", out);
    put_member_of_request(c, "metadata", "{}", out);
    put_member_of_request(c, "parallel_tool_calls", "true", out);
    put_member_of_request(c, "reasoning", "{\"effort\":null,\"summary\":null}", out);
    put_member_of_request(c, "text", "{\"format\":{\"type\":\"text\"}}", out);
    put_member_of_request(c, "tool_choice", "\"auto\"", out);
    put_member_of_request(c, "tools", "[]", out);
    buf_addz(out, "\"previous_response_id\":null,\"store\":false,\"truncation\":\"disabled\",");
    buf_printf(out, "\"temperature\":%g,\"top_p\":%g,", c->ask.spec.sampling.temperature, c->ask.spec.sampling.top_p);
    put_memberz(out, "model", c->server->opt->model_id);
    buf_addz(out, ",\"output\":[");
    for (int i = 0; over && i < s->n_items; i++) {
        if (i) buf_addc(out, ',');
        put_item(c, &s->items[i], true, out);
    }
    buf_addz(out, "],");
    if (over && !error) put_response_usage(c, out);
    else buf_addz(out, "\"usage\":null");
    if (over && !error) put_vendor(c, 0, out);
    buf_addc(out, '}');
}

/* ---- events ---- */

static void begin_event(struct call *c, const char *name, struct buf *out)
{
    struct stream *s = c->dialect;
    sse_begin(out, name);
    buf_printf(out, "{\"type\":\"%s\",\"sequence_number\":%d,", name, s->sequence++);
}

static void end_event(struct buf *out)
{
    buf_addc(out, '}');
    sse_end(out);
}

static void response_event(struct call *c, const char *name, const char *status, const char *error, struct buf *out)
{
    begin_event(c, name, out);
    buf_addz(out, "\"response\":");
    put_response(c, status, error, out);
    end_event(out);
}

/* An event about the item under way: its place is put, members may follow. */
static struct item *begin_item_event(struct call *c, const char *name, bool with_id, struct buf *out)
{
    struct stream *s = c->dialect;
    struct item *it = &s->items[s->n_items - 1];
    begin_event(c, name, out);
    buf_printf(out, "\"output_index\":%d", s->n_items - 1);
    if (with_id) buf_printf(out, ",\"item_id\":\"%s\"", it->id);
    return it;
}

static void item_event(struct call *c, const char *name, bool done, struct buf *out)
{
    struct item *it = begin_item_event(c, name, false, out);
    buf_addz(out, ",\"item\":");
    put_item(c, it, done, out);
    end_event(out);
}

static void text_event(struct call *c, const char *name, const char *key, const char *text, size_t n, struct buf *out)
{
    const struct item *it = begin_item_event(c, name, true, out);
    if (it->kind == ITEM_MESSAGE || it->kind == ITEM_REASONING) buf_addz(out, ",\"content_index\":0");
    if (it->kind == ITEM_MESSAGE) buf_addz(out, ",\"logprobs\":[]");
    buf_addc(out, ',');
    put_member(out, key, text, n);
    end_event(out);
}

static void part_event(struct call *c, const char *name, bool done, struct buf *out)
{
    const struct item *it = begin_item_event(c, name, true, out);
    buf_addz(out, ",\"content_index\":0,\"part\":");
    put_part(c, it, done, out);
    end_event(out);
}

static void call_done_events(struct call *c, const struct item *it, struct buf *out)
{
    const struct tool_call *t = call_of(c, it);
    if (it->kind == ITEM_FUNCTION) {
        begin_item_event(c, "response.function_call_arguments.done", true, out);
        buf_addc(out, ',');
        put_member(out, "name", buf_str(&t->name), t->name.len);
        buf_addc(out, ',');
        put_member(out, "arguments", buf_str(&t->arguments), t->arguments.len);
        end_event(out);
        return;
    }
    struct json *input = custom_input(t);
    text_event(c, "response.custom_tool_call_input.delta", "delta", json_string(input), json_string_len(input), out);
    text_event(c, "response.custom_tool_call_input.done", "input", json_string(input), json_string_len(input), out);
    json_free(input);
}

/* out is NULL when nothing is streamed: then only the items are kept. */
static void close_item(struct call *c, struct buf *out)
{
    struct stream *s = c->dialect;
    const struct choice *ch = &c->choices[0];
    if (!s->open) return;
    struct item *it = &s->items[s->n_items - 1];
    if (out && (it->kind == ITEM_REASONING || it->kind == ITEM_MESSAGE)) {
        bool thoughts = it->kind == ITEM_REASONING;
        const char *text = buf_str(thoughts ? &ch->reasoning : &ch->content) + it->begin;
        text_event(c, thoughts ? "response.reasoning_text.done" : "response.output_text.done", "text", text, it->end - it->begin, out);
        part_event(c, "response.content_part.done", true, out);
    }
    if (out && it->kind >= ITEM_FUNCTION) call_done_events(c, it, out);
    if (out) item_event(c, "response.output_item.done", true, out);
    s->open = false;
}

static struct item *open_item(struct call *c, enum item_kind kind, size_t begin, struct buf *out)
{
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_", "ctc_"};
    struct stream *s = c->dialect;
    close_item(c, out);
    s->items = mem_resize(s->items, sizeof *s->items * (size_t)(s->n_items + 1));
    struct item *it = &s->items[s->n_items++];
    *it = (struct item){.kind = kind, .begin = begin, .end = begin, .call = c->choices[0].n_calls - 1};
    make_id(it->id, sizeof it->id, prefixes[kind]);
    s->open = true;
    if (out) item_event(c, "response.output_item.added", false, out);
    if (out && (kind == ITEM_MESSAGE || kind == ITEM_REASONING)) part_event(c, "response.content_part.added", false, out);
    return it;
}

static void take_text(struct call *c, enum item_kind kind, const struct buf *all, size_t n, struct buf *out)
{
    struct stream *s = c->dialect;
    struct item *it = s->open ? &s->items[s->n_items - 1] : NULL;
    if (!it || it->kind != kind) it = open_item(c, kind, all->len - n, out);
    it->end = all->len;
    const char *name = kind == ITEM_MESSAGE ? "response.output_text.delta" : "response.reasoning_text.delta";
    if (out) text_event(c, name, "delta", all->data + all->len - n, n, out);
}

static void take_record(struct call *c, enum job_record kind, const char *data, size_t n, struct buf *out)
{
    const struct choice *ch = &c->choices[0];
    const struct stream *s = c->dialect;
    switch (kind) {
    case JOB_REASONING:
        take_text(c, ITEM_REASONING, &ch->reasoning, n, out);
        break;
    case JOB_CONTENT:
        take_text(c, ITEM_MESSAGE, &ch->content, n, out);
        break;
    case JOB_CALL_START:
        open_item(c, responses_tool_is_custom(c->json, buf_str(&ch->calls[ch->n_calls - 1].name)) ? ITEM_CUSTOM : ITEM_FUNCTION, 0, out);
        break;
    case JOB_CALL_ARGUMENTS:
        if (out && s->items[s->n_items - 1].kind == ITEM_FUNCTION)
            text_event(c, "response.function_call_arguments.delta", "delta", data, n, out);
        break;
    case JOB_CALL_END:
        close_item(c, out);
        break;
    default:
        break;
    }
}

static void stream_begin(struct call *c, struct buf *out)
{
    response_event(c, "response.created", "in_progress", NULL, out);
    response_event(c, "response.in_progress", "in_progress", NULL, out);
}

static void stream_record(struct call *c, int i, enum job_record kind, const char *data, size_t n, struct buf *out)
{
    (void)i;
    take_record(c, kind, data, n, out);
}

static void stream_end(struct call *c, struct buf *out)
{
    const char *status = final_status(c);
    close_item(c, out);
    response_event(c, status[0] == 'i' ? "response.incomplete" : "response.completed", status, NULL, out);
}

static void stream_error(struct call *c, const struct api_error *e, struct buf *out)
{
    struct buf error = {0};
    buf_printf(&error, "{\"code\":\"%s\",", e->code ? e->code : "server_error");
    struct json *text = json_new_text(e->err.msg, strlen(e->err.msg));
    buf_addz(&error, "\"message\":");
    json_write(text, 0, &error);
    buf_addc(&error, '}');
    response_event(c, "response.failed", "failed", buf_str(&error), out);
    json_free(text);
    buf_free(&error);
}

static void stream_keepalive(struct call *c, struct buf *out)
{
    response_event(c, "response.in_progress", "in_progress", NULL, out);
}

static void stream_progress(struct call *c, const char *state, struct buf *out)
{
    begin_event(c, "response.in_progress", out);
    buf_addz(out, "\"response\":");
    put_response(c, "in_progress", NULL, out);
    buf_addc(out, ',');
    put_progress(c, state, out);
    end_event(out);
}

/* Without a stream the items follow from what was collected: thoughts, text, calls. */
static void whole(struct call *c, struct buf *out)
{
    const struct choice *ch = &c->choices[0];
    if (ch->reasoning.len) take_text(c, ITEM_REASONING, &ch->reasoning, ch->reasoning.len, NULL);
    if (ch->content.len) take_text(c, ITEM_MESSAGE, &ch->content, ch->content.len, NULL);
    for (int k = 0; k < ch->n_calls; k++)
        open_item(c, responses_tool_is_custom(c->json, buf_str(&ch->calls[k].name)) ? ITEM_CUSTOM : ITEM_FUNCTION, 0, NULL)->call = k;
    close_item(c, NULL);
    put_response(c, final_status(c), NULL, out);
}

const struct dialect_ops responses_ops = {stream_begin, stream_record, NULL, stream_end,
                                          whole, stream_error, stream_keepalive, stream_progress};
