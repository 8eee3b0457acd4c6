/* POST /v1/messages and /v1/messages/count_tokens, Anthropic's dialect. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/fields.h"
#include "serve/messages_input.h"
#include "serve/server_impl.h"
#include "serve/vendor.h"
#include "serve/write.h"

enum block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_TOOL };

/* Where a stream is. */
struct stream {
    enum block open;
    int index; /* of the next block */
};

/* ---- the request, on P ---- */

static lily_status read_thinking(struct call *c, struct lily_err *err)
{
    const struct json *v = json_get(c->json, "thinking"), *config = json_get(c->json, "output_config");
    const char *type = NULL;
    int64_t budget = -1;
    if (config && json_kind(config) == JSON_OBJECT) {
        LILY_TRY(fields_effort(c, json_get(config, "effort"), "output_config.effort", err));
        LILY_TRY(fields_format(json_get(config, "format"), "output_config.format", err));
    }
    LILY_TRY(fields_format(json_get(c->json, "output_format"), "output_format", err));
    if (!v || json_kind(v) == JSON_NULL) return LILY_OK;
    if (json_kind(v) != JSON_OBJECT) LILY_FAIL(err, LILY_ERR_FORMAT, "thinking is of kind %s, expected an object", json_kind_name(v));
    LILY_TRY(json_get_string((struct json_field){v, "thinking", "type"}, &type, err));
    LILY_TRY(json_get_int((struct json_field){v, "thinking", "budget_tokens"}, 0, INT32_MAX, &budget, err));
    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0 && strcmp(type, "adaptive") != 0))
        LILY_FAIL(err, LILY_ERR_FORMAT, "thinking.type is \"%.40s\", expected enabled, disabled or adaptive", type ? type : "");
    if (strcmp(type, "disabled") == 0) c->chat.options.no_thinking = true;
    else if (budget >= 0) c->ask.spec.thinking_budget = (int)budget;
    return LILY_OK;
}

static lily_status convert(struct call *c, struct lily_err *err)
{
    LILY_TRY(read_thinking(c, err));
    LILY_TRY(messages_to_chat(c->json, &c->converted, err));
    return call_render(c, c->converted, err);
}

static lily_status prepare(struct call *c, struct lily_err *err)
{
    LILY_TRY(fields_sampling(c, c->json, err));
    LILY_TRY(fields_stop(c, c->json, "stop_sequences", err));
    LILY_TRY(fields_max_tokens(c, c->json, "max_tokens", err));
    LILY_TRY(convert(c, err));
    return fields_last_message(c, err);
}

void messages_prepare(struct call *c)
{
    struct lily_err err;
    if (!call_parse(c)) return;
    c->dialect = mem_new(sizeof(struct stream));
    c->dialect_free = free;
    lily_status st = prepare(c, &err);
    c->ask.n = 1;
    if (st != LILY_OK) call_fail(c, &err);
    else call_submit(c);
}

void count_tokens_prepare(struct call *c)
{
    struct lily_err err;
    if (!call_parse(c)) return;
    if (convert(c, &err) != LILY_OK) call_fail(c, &err);
    else buf_printf(&c->reply, "{\"input_tokens\":%d}", c->ask.spec.n_ids);
}

/* ---- replies ---- */

static const char *stop_reason(const struct choice *ch)
{
    if (ch->result.finish == FINISH_STOP_STRING) return "stop_sequence";
    if (ch->result.finish != FINISH_STOP) return "max_tokens";
    return ch->n_calls ? "tool_use" : "end_turn";
}

static void put_stop(const struct call *c, struct buf *out)
{
    const struct choice *ch = &c->choices[0];
    int i = ch->result.stop_index;
    put_memberz(out, "stop_reason", stop_reason(ch));
    buf_addz(out, ",\"stop_sequence\":");
    if (ch->result.finish == FINISH_STOP_STRING && i >= 0) put_stringz(out, c->ask.spec.stop[i]);
    else buf_addz(out, "null");
}

static void put_counts(const struct call *c, struct buf *out)
{
    struct call_usage u = call_usage(c);
    buf_printf(out,
               "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,"
               "\"output_tokens\":%d}",
               u.prompt - u.cached, u.cached, u.completion);
}

static void begin_message(const struct call *c, struct buf *out)
{
    buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",", c->id);
    put_memberz(out, "model", c->server->opt->model_id);
}

static void stream_begin(struct call *c, struct buf *out)
{
    sse_begin(out, "message_start");
    buf_addz(out, "{\"type\":\"message_start\",\"message\":");
    begin_message(c, out);
    buf_addz(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    put_counts(c, out);
    buf_addz(out, "}}");
    sse_end(out);
    sse_begin(out, "ping");
    buf_addz(out, "{\"type\":\"ping\"}");
    sse_end(out);
}

static void put_delta(int index, const char *type, const char *key, const char *s, size_t n, struct buf *out)
{
    sse_begin(out, "content_block_delta");
    buf_printf(out, "{\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"%s\",", index, type);
    put_member(out, key, s, n);
    buf_addz(out, "}}");
    sse_end(out);
}

static void close_block(struct call *c, struct buf *out)
{
    struct stream *s = c->dialect;
    if (s->open == BLOCK_NONE) return;
    if (s->open == BLOCK_THINKING) put_delta(s->index, "signature_delta", "signature", "lily", 4, out);
    sse_begin(out, "content_block_stop");
    buf_printf(out, "{\"type\":\"content_block_stop\",\"index\":%d}", s->index++);
    sse_end(out);
    s->open = BLOCK_NONE;
}

static void open_block(struct call *c, enum block kind, struct buf *out)
{
    struct stream *s = c->dialect;
    const struct choice *ch = &c->choices[0];
    if (s->open == kind && kind != BLOCK_TOOL) return;
    close_block(c, out);
    s->open = kind;
    sse_begin(out, "content_block_start");
    buf_printf(out, "{\"type\":\"content_block_start\",\"index\":%d,\"content_block\":", s->index);
    if (kind == BLOCK_THINKING) buf_addz(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}");
    if (kind == BLOCK_TEXT) buf_addz(out, "{\"type\":\"text\",\"text\":\"\"}}");
    if (kind == BLOCK_TOOL) {
        const struct tool_call *t = &ch->calls[ch->n_calls - 1];
        buf_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",", t->id);
        put_member(out, "name", buf_str(&t->name), t->name.len);
        buf_addz(out, ",\"input\":{}}}");
    }
    sse_end(out);
}

static void stream_record(struct call *c, int i, enum job_record kind, const char *data, size_t n, struct buf *out)
{
    struct stream *s = c->dialect;
    (void)i;
    switch (kind) {
    case JOB_REASONING:
        open_block(c, BLOCK_THINKING, out);
        put_delta(s->index, "thinking_delta", "thinking", data, n, out);
        break;
    case JOB_CONTENT:
        open_block(c, BLOCK_TEXT, out);
        put_delta(s->index, "text_delta", "text", data, n, out);
        break;
    case JOB_CALL_START:
        open_block(c, BLOCK_TOOL, out);
        break;
    case JOB_CALL_ARGUMENTS:
        put_delta(s->index, "input_json_delta", "partial_json", data, n, out);
        break;
    case JOB_CALL_END:
        close_block(c, out);
        break;
    default:
        break;
    }
}

static void stream_end(struct call *c, struct buf *out)
{
    close_block(c, out);
    sse_begin(out, "message_delta");
    buf_addz(out, "{\"type\":\"message_delta\",\"delta\":{");
    put_stop(c, out);
    buf_addz(out, "},");
    put_counts(c, out);
    put_vendor(c, 0, out);
    buf_addc(out, '}');
    sse_end(out);
    sse_begin(out, "message_stop");
    buf_addz(out, "{\"type\":\"message_stop\"}");
    sse_end(out);
}

static void stream_error(struct call *c, const struct api_error *e, struct buf *out)
{
    (void)c;
    sse_begin(out, "error");
    api_error_body(e, DIALECT_ANTHROPIC, out);
    sse_end(out);
}

static void stream_keepalive(struct call *c, struct buf *out)
{
    (void)c;
    sse_begin(out, "ping");
    buf_addz(out, "{\"type\":\"ping\"}");
    sse_end(out);
}

static void stream_progress(struct call *c, const char *state, struct buf *out)
{
    sse_begin(out, "ping");
    buf_addz(out, "{\"type\":\"ping\",");
    put_progress(c, state, out);
    buf_addc(out, '}');
    sse_end(out);
}

static void whole(struct call *c, struct buf *out)
{
    const struct choice *ch = &c->choices[0];
    const char *comma = "";
    begin_message(c, out);
    buf_addz(out, ",\"content\":[");
    if (ch->reasoning.len) {
        buf_addz(out, "{\"type\":\"thinking\",");
        put_member(out, "thinking", ch->reasoning.data, ch->reasoning.len);
        buf_addz(out, ",\"signature\":\"lily\"}");
        comma = ",";
    }
    if (ch->content.len) {
        buf_printf(out, "%s{\"type\":\"text\",", comma);
        put_member(out, "text", ch->content.data, ch->content.len);
        buf_addc(out, '}');
        comma = ",";
    }
    for (int k = 0; k < ch->n_calls; k++) {
        const struct tool_call *t = &ch->calls[k];
        buf_printf(out, "%s{\"type\":\"tool_use\",\"id\":\"%s\",", comma, t->id);
        put_member(out, "name", buf_str(&t->name), t->name.len);
        buf_printf(out, ",\"input\":%s}", t->arguments.len ? t->arguments.data : "{}");
        comma = ",";
    }
    buf_addz(out, "],");
    put_stop(c, out);
    buf_addc(out, ',');
    put_counts(c, out);
    put_vendor(c, 0, out);
    buf_addc(out, '}');
}

const struct dialect_ops messages_ops = {stream_begin, stream_record, NULL, stream_end,
                                         whole, stream_error, stream_keepalive, stream_progress};
