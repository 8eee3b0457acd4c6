/* From tokens to records: characters, stop strings, the parser, and the closing of thoughts. */
#include "run/reply.h"

#include <string.h>

#include "base/utf8.h"

enum { MAX_NAME = 1024 };

/* What one token brings goes out as one record of each kind. */
static void send_ready(struct reply *r)
{
    if (r->ready.len) r->put(r->ctx, r->ready_kind, r->ready.data, r->ready.len);
    buf_clear(&r->ready);
}

static void on_output(void *user, const struct output_event *e)
{
    static const enum job_record kinds[] = {[OUTPUT_REASONING] = JOB_REASONING,
                                            [OUTPUT_CONTENT] = JOB_CONTENT,
                                            [OUTPUT_CALL_START] = JOB_CALL_START,
                                            [OUTPUT_CALL_ARGUMENTS] = JOB_CALL_ARGUMENTS,
                                            [OUTPUT_CALL_END] = JOB_CALL_END,
                                            [OUTPUT_CALL_TEXT] = JOB_CALL_TEXT};
    struct reply *r = user;
    enum job_record kind = kinds[e->kind];
    size_t n = e->n;
    if (r->spec->one_call && (r->second_call || e->call > 0)) {
        r->second_call = true;
        return;
    }
    if (kind == JOB_CONTENT) r->content_begun = true;
    if (r->ready.len && r->ready_kind != kind) send_ready(r);
    if (kind == JOB_REASONING || kind == JOB_CONTENT || kind == JOB_CALL_ARGUMENTS) {
        r->ready_kind = kind;
        buf_add(&r->ready, e->text, n);
        return;
    }
    if (e->kind == OUTPUT_CALL_START && n > MAX_NAME) /* no tool has such a name; a record must hold it */
        for (n = MAX_NAME; n > 0 && ((unsigned char)e->text[n] & 0xC0) == 0x80;) n--;
    r->put(r->ctx, kind, e->text, n);
}

lily_status reply_open(struct reply *r, const struct job_spec *spec, const struct bundle *texts, struct lily_err *err)
{
    reply_put put = r->put;
    void *ctx = r->ctx;
    *r = (struct reply){.spec = spec, .texts = texts, .put = put, .ctx = ctx, .finish = FINISH_CANCELLED, .stop_index = -1};
    if (spec->n_stop) LILY_TRY(stops_new(spec->stop, spec->n_stop, &r->stops, err));
    detokenizer_init(&r->chars, texts->tokenizer, true);
    struct output_options opt = {.tools = spec->tools, .thinking = spec->thinking_open, .no_calls = spec->no_calls};
    if (!spec->raw) r->parser = output_new(&opt, on_output, r);
    return LILY_OK;
}

void reply_free(struct reply *r)
{
    stops_free(r->stops);
    output_free(r->parser);
    buf_free(&r->whole);
    buf_free(&r->shown);
    buf_free(&r->ready);
    ids_free(&r->closing);
    memset(r, 0, sizeof *r);
}

static enum output_place place(const struct reply *r)
{
    return r->parser ? output_place(r->parser) : OUTPUT_IN_CONTENT;
}

static bool in_thinking(const struct reply *r)
{
    return place(r) == OUTPUT_IN_REASONING || place(r) == OUTPUT_IN_HELD_CALL;
}

static bool is_closing(const struct reply *r)
{
    return r->forced < r->closing.n;
}

/* False when there is no memory for it: then the thoughts go on. */
static bool close_thinking(struct reply *r, enum job_detail why)
{
    static const char text[] = "\n</think>\n\n";
    ids_clear(&r->closing);
    r->forced = 0;
    if (tokenizer_encode_special(r->texts->tokenizer, text, sizeof text - 1, &r->closing, NULL) != LILY_OK) return false;
    r->detail = why;
    return true;
}

static bool over_budget(const struct reply *r)
{
    int budget = r->spec->thinking_budget;
    return !is_closing(r) && budget >= 0 && r->reasoning_tokens >= budget && in_thinking(r);
}

bool reply_goes_on(const struct reply *r)
{
    return !is_closing(r) && !over_budget(r) && r->completion_tokens + 1 < r->spec->max_tokens;
}

int32_t reply_forced(struct reply *r, bool *closes)
{
    if (over_budget(r)) close_thinking(r, JOB_CLOSED_BY_BUDGET);
    *closes = is_closing(r) && r->forced == 0;
    return is_closing(r) ? r->closing.data[r->forced++] : -1;
}

bool reply_end_of_turn(struct reply *r)
{
    if (place(r) == OUTPUT_IN_REASONING && r->closing.n == 0 && close_thinking(r, JOB_CLOSED_AT_END)) return true;
    r->finish = FINISH_STOP;
    return false;
}

static void pass_on(struct reply *r, const char *text, size_t n)
{
    if (r->parser) output_push(r->parser, text, n);
    else if (n) r->put(r->ctx, JOB_CONTENT, text, n);
}

/* Stop strings look at the answer's text alone; a call between two texts starts them afresh. */
static void skip_stops(struct reply *r)
{
    struct stops *fresh = NULL;
    buf_clear(&r->shown);
    stops_flush(r->stops, &r->shown);
    pass_on(r, buf_str(&r->shown), r->shown.len);
    if (r->shown.len && stops_new(r->spec->stop, r->spec->n_stop, &fresh, NULL) == LILY_OK) {
        stops_free(r->stops);
        r->stops = fresh;
    }
}

/* true: a stop string is complete. */
static bool take_text(struct reply *r)
{
    bool stopped = false;
    if (r->stops && !in_thinking(r) && place(r) != OUTPUT_IN_CALL) {
        buf_clear(&r->shown);
        stopped = stops_push(r->stops, buf_str(&r->whole), r->whole.len, &r->shown);
        pass_on(r, buf_str(&r->shown), r->shown.len);
    } else {
        if (r->stops) skip_stops(r);
        pass_on(r, buf_str(&r->whole), r->whole.len);
    }
    return stopped;
}

static void put_logprob(struct reply *r, const char *bytes, size_t n, const struct job_logprob *lp)
{
    buf_clear(&r->shown);
    buf_add(&r->shown, lp, sizeof *lp);
    buf_add(&r->shown, bytes, n);
    r->put(r->ctx, JOB_LOGPROB, r->shown.data, r->shown.len);
}

/* The whitespace between the thinking and the answer is no part of the answer. */
static bool belongs_to_content(const struct reply *r, const char *bytes, size_t n)
{
    if (place(r) != OUTPUT_IN_CONTENT) return false;
    if (r->content_begun || !r->parser || !r->spec->thinking_open) return true;
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", bytes[i]) || !bytes[i]) return true;
    return false;
}

bool reply_token(struct reply *r, int32_t id, const char *bytes, size_t n, const struct job_logprob *lp)
{
    bool thinking = in_thinking(r);
    r->completion_tokens++;
    r->reasoning_tokens += thinking;
    if (lp && belongs_to_content(r, bytes, n)) put_logprob(r, bytes, n, lp);
    buf_clear(&r->whole);
    detokenizer_bytes(&r->chars, bytes, n, &r->whole);
    bool stopped = take_text(r);
    send_ready(r);
    if (stopped) {
        r->stop_index = stops_matched(r->stops);
        r->finish = FINISH_STOP_STRING;
        return false;
    }
    if (thinking && r->spec->loop_guard > 1 && !is_closing(r) && repeat_add(&r->repeat, id, r->spec->loop_guard) && in_thinking(r))
        close_thinking(r, JOB_CLOSED_BY_GUARD);
    if (r->second_call || (r->spec->one_call && r->parser && output_n_calls(r->parser) > 0 && place(r) != OUTPUT_IN_CALL)) {
        r->finish = FINISH_STOP;
        return false;
    }
    r->finish = FINISH_LENGTH;
    return r->completion_tokens < r->spec->max_tokens;
}

void reply_finish(struct reply *r)
{
    /* A character that the end cuts in two is dropped, so the detokenizer is not flushed. */
    if (r->stops && r->finish != FINISH_STOP_STRING) {
        buf_clear(&r->shown);
        stops_flush(r->stops, &r->shown);
        pass_on(r, buf_str(&r->shown), r->shown.len);
    }
    if (r->parser) output_finish(r->parser);
    send_ready(r);
}
