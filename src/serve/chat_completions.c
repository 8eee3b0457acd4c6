/* POST /v1/chat/completions: fields in, chunks or one message out. */
#include <string.h>

#include "serve/fields.h"
#include "serve/server_impl.h"
#include "serve/vendor.h"
#include "serve/write.h"

/* ---- the request, on P ---- */

static lily_status read_logprobs(struct call *c, struct lily_err *err)
{
    bool on = false;
    int64_t top = -1;
    LILY_TRY(json_get_bool((struct json_field){c->json, "request", "logprobs"}, &on, err));
    LILY_TRY(json_get_int((struct json_field){c->json, "request", "top_logprobs"}, 0, MAX_TOP_LOGPROBS, &top, err));
    if (top >= 0 && !on) LILY_FAIL(err, LILY_ERR_FORMAT, "top_logprobs is given, but logprobs is not true");
    if (on) c->ask.spec.n_logprobs = top > 0 ? (int)top : 0;
    return LILY_OK;
}

static lily_status read_stream_options(struct call *c, struct lily_err *err)
{
    const struct json *v = json_get(c->json, "stream_options");
    if (!v || json_kind(v) == JSON_NULL) return LILY_OK;
    if (json_kind(v) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "stream_options is of kind %s, expected an object", json_kind_name(v));
    return json_get_bool((struct json_field){v, "stream_options", "include_usage"}, &c->ask.include_usage, err);
}

static lily_status prepare(struct call *c, struct lily_err *err)
{
    LILY_TRY(fields_sampling(c, c->json, err));
    LILY_TRY(fields_stop(c, c->json, "stop", err));
    LILY_TRY(fields_max_tokens(c, c->json, "max_tokens", err));
    LILY_TRY(fields_max_tokens(c, c->json, "max_completion_tokens", err));
    LILY_TRY(fields_format(json_get(c->json, "response_format"), "response_format", err));
    LILY_TRY(read_logprobs(c, err));
    LILY_TRY(read_stream_options(c, err));
    LILY_TRY(call_render(c, c->json, err));
    return fields_last_message(c, err);
}

void chat_prepare(struct call *c)
{
    struct lily_err err;
    if (!call_parse(c)) return;
    lily_status st = prepare(c, &err);
    if (st != LILY_OK) call_fail(c, &err);
    else call_submit(c);
}

/* ---- streams ---- */

static void begin_chunk(const struct call *c, struct buf *out)
{
    sse_begin(out, NULL);
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":%ld,", c->id, c->created);
    put_memberz(out, "model", c->server->opt->model_id);
}

static void begin_delta(const struct call *c, int i, struct buf *out)
{
    begin_chunk(c, out);
    buf_printf(out, ",\"choices\":[{\"index\":%d,\"delta\":{", i);
}

static void end_delta(struct call *c, int i, struct buf *out)
{
    struct choice *ch = &c->choices[i];
    buf_addz(out, "},\"logprobs\":");
    if (ch->logprobs.len > ch->logprobs_sent) {
        const char *from = ch->logprobs.data + ch->logprobs_sent;
        buf_addz(out, "{\"content\":[");
        buf_addz(out, from + (*from == ','));
        buf_addz(out, "],\"refusal\":null}");
        ch->logprobs_sent = ch->logprobs.len;
    } else {
        buf_addz(out, "null");
    }
    buf_addz(out, ",\"finish_reason\":null}]}");
    sse_end(out);
}

static void stream_begin(struct call *c, struct buf *out)
{
    for (int i = 0; i < c->n_choices; i++) {
        begin_delta(c, i, out);
        buf_addz(out, "\"role\":\"assistant\",\"content\":\"\"");
        end_delta(c, i, out);
    }
}

static void put_text_delta(struct call *c, int i, const char *key, const char *s, size_t n, struct buf *out)
{
    begin_delta(c, i, out);
    put_member(out, key, s, n);
    if (c->ask.alias && strcmp(key, "reasoning_content") == 0) {
        buf_addc(out, ',');
        put_member(out, "reasoning", s, n);
    }
    end_delta(c, i, out);
}

/* reasoning_format "none": where the tags go. Nothing of this text was passed on before when its length is n. */
static void put_tag(struct call *c, int i, enum job_record kind, size_t n, struct buf *out)
{
    static const char open[] = "<think>\n", close[] = "\n</think>\n\n";
    const struct choice *ch = &c->choices[i];
    if (kind == JOB_REASONING && ch->reasoning.len == n) put_text_delta(c, i, "content", open, sizeof open - 1, out);
    if (kind == JOB_CONTENT && ch->content.len == n && ch->reasoning.len) put_text_delta(c, i, "content", close, sizeof close - 1, out);
}

static void stream_record(struct call *c, int i, enum job_record kind, const char *data, size_t n, struct buf *out)
{
    const struct choice *ch = &c->choices[i];
    const struct tool_call *t = ch->n_calls ? &ch->calls[ch->n_calls - 1] : NULL;
    if (kind == JOB_REASONING || kind == JOB_CONTENT) {
        if (c->ask.tags) put_tag(c, i, kind, n, out);
        put_text_delta(c, i, kind == JOB_REASONING && !c->ask.tags ? "reasoning_content" : "content", data, n, out);
    } else if (kind == JOB_CALL_START) {
        begin_delta(c, i, out);
        buf_printf(out, "\"tool_calls\":[{\"index\":%d,\"id\":\"%s\",\"type\":\"function\",\"function\":{", ch->n_calls - 1, t->id);
        put_member(out, "name", data, n);
        buf_addz(out, ",\"arguments\":\"\"}}]");
        end_delta(c, i, out);
    } else if (kind == JOB_CALL_ARGUMENTS) {
        begin_delta(c, i, out);
        buf_printf(out, "\"tool_calls\":[{\"index\":%d,\"function\":{", ch->n_calls - 1);
        put_member(out, "arguments", data, n);
        buf_addz(out, "}}]");
        end_delta(c, i, out);
    }
}

static void stream_choice_end(struct call *c, int i, struct buf *out)
{
    struct choice *ch = &c->choices[i];
    if (ch->logprobs.len > ch->logprobs_sent) put_text_delta(c, i, "content", "", 0, out);
    begin_chunk(c, out);
    buf_printf(out, ",\"choices\":[{\"index\":%d,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}]", i, choice_finish(ch));
    put_vendor(c, i, out);
    buf_addc(out, '}');
    sse_end(out);
}

static void stream_end(struct call *c, struct buf *out)
{
    if (c->ask.include_usage) {
        begin_chunk(c, out);
        buf_addz(out, ",\"choices\":[],");
        put_usage(c, out);
        buf_addc(out, '}');
        sse_end(out);
    }
    buf_addz(out, "data: [DONE]\n\n");
}

static void stream_error(struct call *c, const struct api_error *e, struct buf *out)
{
    (void)c;
    sse_begin(out, NULL);
    api_error_body(e, DIALECT_OPENAI, out);
    sse_end(out);
    buf_addz(out, "data: [DONE]\n\n");
}

static void stream_keepalive(struct call *c, struct buf *out)
{
    put_text_delta(c, 0, "content", "", 0, out);
}

static void stream_progress(struct call *c, const char *state, struct buf *out)
{
    begin_chunk(c, out);
    buf_addz(out, ",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":null}],");
    put_progress(c, state, out);
    buf_addc(out, '}');
    sse_end(out);
}

/* ---- whole replies ---- */

static void put_content(const struct call *c, const struct choice *ch, struct buf *out)
{
    struct buf text = {0};
    if (c->ask.tags && ch->reasoning.len) {
        buf_printf(&text, "<think>\n");
        buf_add(&text, ch->reasoning.data, ch->reasoning.len);
        if (ch->content.len) buf_addz(&text, "\n</think>\n\n");
    }
    buf_add(&text, buf_str(&ch->content), ch->content.len);
    if (text.len == 0 && ch->n_calls) buf_addz(out, "\"content\":null");
    else put_member(out, "content", buf_str(&text), text.len);
    buf_free(&text);
}

static void put_calls(const struct choice *ch, struct buf *out)
{
    if (!ch->n_calls) return;
    buf_addz(out, ",\"tool_calls\":[");
    for (int k = 0; k < ch->n_calls; k++) {
        const struct tool_call *t = &ch->calls[k];
        buf_printf(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{", k ? "," : "", t->id);
        put_member(out, "name", buf_str(&t->name), t->name.len);
        buf_addc(out, ',');
        put_member(out, "arguments", buf_str(&t->arguments), t->arguments.len);
        buf_addz(out, "}}");
    }
    buf_addc(out, ']');
}

static void put_choice(const struct call *c, int i, struct buf *out)
{
    const struct choice *ch = &c->choices[i];
    buf_printf(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",", i);
    put_content(c, ch, out);
    buf_addz(out, ",\"refusal\":null");
    if (ch->reasoning.len && !c->ask.tags) {
        buf_addc(out, ',');
        put_member(out, "reasoning_content", ch->reasoning.data, ch->reasoning.len);
        if (c->ask.alias) buf_addc(out, ',');
        if (c->ask.alias) put_member(out, "reasoning", ch->reasoning.data, ch->reasoning.len);
    }
    put_calls(ch, out);
    buf_addz(out, "},\"logprobs\":");
    if (c->ask.spec.n_logprobs < 0) buf_addz(out, "null");
    else buf_printf(out, "{\"content\":[%s],\"refusal\":null}", buf_str(&ch->logprobs));
    buf_printf(out, ",\"finish_reason\":\"%s\"}", choice_finish(ch));
}

static void whole(struct call *c, struct buf *out)
{
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":%ld,", c->id, c->created);
    put_memberz(out, "model", c->server->opt->model_id);
    buf_addz(out, ",\"choices\":[");
    for (int i = 0; i < c->n_choices; i++) {
        if (i) buf_addc(out, ',');
        put_choice(c, i, out);
    }
    buf_addz(out, "],");
    put_usage(c, out);
    put_vendor(c, 0, out);
    buf_addc(out, '}');
}

const struct dialect_ops chat_ops = {stream_begin, stream_record, stream_choice_end, stream_end,
                                     whole, stream_error, stream_keepalive, stream_progress};
