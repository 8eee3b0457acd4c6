/* The life of a call on L: collecting records, writing them, ends. */
#include "serve/call.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "serve/fields.h"
#include "serve/followup.h"
#include "serve/server_impl.h"
#include "serve/write.h"

static const double keepalive_ms = 10e3, progress_ms = 250;

struct call *call_new(struct server *s, const struct endpoint *e, struct http_exchange *x)
{
    struct call *c = mem_new(sizeof *c);
    const struct http_head *head = http_head(x);
    c->server = s;
    c->endpoint = e;
    c->x = x;
    c->preparing = true;
    c->arrived_ms = c->heard_ms = clock_ms();
    c->created = (long)time(NULL);
    strncpy(c->path, head->path, sizeof c->path - 1);
    strncpy(c->method, head->method, sizeof c->method - 1);
    c->ask.spec.owner = server_key(s, head);
    make_id(c->id, sizeof c->id, e->id_prefix);
    http_take_body(x, &c->body);
    http_set_user(x, c);
    c->next = s->calls;
    if (c->next) c->next->prev = c;
    s->calls = c;
    return c;
}

static void choice_free(struct choice *ch)
{
    job_free(ch->job);
    for (int i = 0; i < ch->n_calls; i++) {
        buf_free(&ch->calls[i].name);
        buf_free(&ch->calls[i].arguments);
        buf_free(&ch->calls[i].text);
    }
    free(ch->calls);
    buf_free(&ch->reasoning);
    buf_free(&ch->content);
    buf_free(&ch->logprobs);
}

void call_free(struct call *c)
{
    if (c->prev) c->prev->next = c->next;
    else c->server->calls = c->next;
    if (c->next) c->next->prev = c->prev;
    for (int i = 0; i < MAX_CHOICES; i++) choice_free(&c->choices[i]);
    if (c->dialect) c->dialect_free(c->dialect);
    prompt_free(&c->prompt);
    ids_free(&c->ids);
    chat_request_free(&c->chat);
    json_free(c->converted);
    json_free(c->json);
    buf_free(&c->body);
    buf_free(&c->reply);
    free(c->ask.bias);
    free(c->ask.stop);
    free(c);
}

/* ---- collecting ---- */

static void add_logprob(struct call *c, struct choice *ch, const char *data, size_t n)
{
    const struct tokenizer *t = c->server->texts->tokenizer;
    struct job_logprob lp;
    struct buf *out = &ch->logprobs;
    memcpy(&lp, data, sizeof lp);
    for (int i = -1; i < lp.n_top; i++) {
        size_t len = n - sizeof lp;
        const char *bytes = data + sizeof lp;
        int32_t id = i < 0 ? lp.id : lp.top[i].id;
        if (id < 0) break; /* fewer tokens than asked have a probability */
        if (id != lp.id) bytes = tokenizer_token(t, id, &len);
        if (!bytes) bytes = "", len = 0;
        struct json *text = json_new_text(bytes, len);
        if (i == -1 && ch->n_logprobs++) buf_addc(out, ',');
        if (i > 0) buf_addc(out, ',');
        buf_addz(out, "{\"token\":");
        json_write(text, 0, out);
        buf_printf(out, ",\"logprob\":%.6f,\"bytes\":[", (double)(i < 0 ? lp.logprob : lp.top[i].logprob));
        for (size_t k = 0; k < len; k++) buf_printf(out, "%s%u", k ? "," : "", (unsigned)(unsigned char)bytes[k]);
        buf_addz(out, i < 0 ? "],\"top_logprobs\":[" : "]}");
        json_free(text);
    }
    buf_addz(out, "]}");
}

static void begin_tool_call(struct call *c, struct choice *ch, const char *name, size_t n)
{
    ch->calls = mem_resize(ch->calls, sizeof *ch->calls * (size_t)(ch->n_calls + 1));
    struct tool_call *t = &ch->calls[ch->n_calls++];
    memset(t, 0, sizeof *t);
    make_id(t->id, sizeof t->id, c->endpoint->dialect == DIALECT_ANTHROPIC ? "toolu_" : "call_");
    buf_add(&t->name, name, n);
}

static void collect(struct call *c, struct choice *ch, enum job_record kind, const char *data, size_t n)
{
    switch (kind) {
    case JOB_REASONING:
        buf_add(&ch->reasoning, data, n);
        break;
    case JOB_CONTENT:
        buf_add(&ch->content, data, n);
        break;
    case JOB_CALL_START:
        begin_tool_call(c, ch, data, n);
        break;
    case JOB_CALL_ARGUMENTS:
        buf_add(&ch->calls[ch->n_calls - 1].arguments, data, n);
        break;
    case JOB_CALL_TEXT:
        buf_add(&ch->calls[ch->n_calls - 1].text, data, n);
        break;
    case JOB_LOGPROB:
        add_logprob(c, ch, data, n);
        break;
    case JOB_CALL_END:
    case JOB_END:
        break;
    }
}

const char *choice_finish(const struct choice *ch)
{
    bool stopped = ch->result.finish == FINISH_STOP || ch->result.finish == FINISH_STOP_STRING;
    if (!stopped) return "length"; /* also when the server was told to end in the middle */
    return ch->n_calls ? "tool_calls" : "stop";
}

struct call_usage call_usage(const struct call *c)
{
    struct call_usage u = {.prompt = c->n_prompts ? 0 : c->ask.spec.n_ids};
    for (int i = 0; i < c->n_prompts; i++) u.prompt += c->prompts[i]->n_ids;
    for (int i = 0; i < c->n_choices; i++) {
        const struct job_result *r = &c->choices[i].result;
        u.completion += r->completion_tokens;
        u.reasoning += r->reasoning_tokens;
    }
    u.cached = c->choices[0].result.reused;
    return u;
}

/* ---- ends ---- */

static bool all_ended(const struct call *c)
{
    for (int i = 0; i < c->n_choices; i++)
        if (!c->choices[i].ended) return false;
    return true;
}

static void note(struct call *c, int status)
{
    c->status = status;
    server_note(c->server, c, c->x ? http_head(c->x) : NULL, status);
}

/* The reply is over; the call lives on while jobs do. */
static void close_exchange(struct call *c)
{
    c->x = NULL;
    c->ended = true;
}

static void reply_error(struct call *c, const struct api_error *e)
{
    struct buf *out = &c->server->scratch;
    buf_clear(out);
    if (!c->x) return;
    c->status = c->streaming ? 200 : e->http;
    server_note_error(c->server, c, http_head(c->x), e);
    if (c->streaming) {
        c->endpoint->ops->error(c, e, out);
        http_write(c->x, buf_str(out), out->len);
        http_end(c->x);
    } else {
        server_reply_error(c->server, c->x, e, c->endpoint->dialect);
    }
    close_exchange(c);
    call_cancel(c);
}

static void reply_whole(struct call *c)
{
    struct buf *out = &c->server->scratch;
    buf_clear(out);
    note(c, 200);
    if (c->streaming) {
        c->endpoint->ops->end(c, out);
        http_write(c->x, buf_str(out), out->len);
        http_end(c->x);
    } else {
        c->endpoint->ops->whole(c, out);
        server_reply_json(c->server, c->x, 200, out);
    }
    close_exchange(c);
    struct followup *f = followup_of(c);
    if (f) prep_add_followup(c->server->prep, f);
}

void call_cancel(struct call *c)
{
    bool any = false;
    atomic_store(&c->gone, true);
    for (int i = 0; i < c->n_choices; i++) {
        if (!c->choices[i].job) continue;
        atomic_store(&c->choices[i].job->cancel, true);
        any = true;
    }
    if (any) engine_kick(c->server->engine);
}

bool call_has_jobs(const struct call *c)
{
    for (int i = 0; i < c->n_choices; i++)
        if (c->choices[i].job && atomic_load(&c->choices[i].job->state) != JOB_DONE) return true;
    return false;
}

void call_client_gone(struct call *c)
{
    c->server->n_gone++;
    close_exchange(c); /* noted when the jobs have ended, which know how far they came */
    atomic_store(&c->gone, true);
    if (c->preparing) return; /* comes back from P first */
    call_cancel(c);
}

/* A client that closed its sending side and waits for no stream: nobody reads the reply. */
static void abandon(struct call *c)
{
    struct http_exchange *x = c->x;
    call_client_gone(c);
    http_abort(x);
}

void call_client_fin(struct call *c)
{
    struct buf *out = &c->server->scratch;
    c->fin = true;
    if (c->preparing) return;
    if (!c->streaming) {
        abandon(c);
        return;
    }
    buf_clear(out);
    c->endpoint->ops->keepalive(c, out); /* a client that is gone answers this with a reset */
    http_write(c->x, buf_str(out), out->len);
}

/* ---- the engine's records ---- */

/* The server was told to end before the first token. */
static bool is_unmade(const struct choice *ch)
{
    return ch->result.finish == FINISH_CANCELLED && !ch->result.completion_tokens;
}

static void stream_end(struct call *c, int i, struct buf *out)
{
    if (c->x && c->streaming && c->endpoint->ops->choice_end) c->endpoint->ops->choice_end(c, i, out);
}

static void end_choice(struct call *c, int i, const char *data, struct buf *out)
{
    struct choice *ch = &c->choices[i];
    memcpy(&ch->result, data, sizeof ch->result);
    ch->ended = true;
    for (int k = 0; k < ch->n_calls; k++) {
        const struct tool_call *t = &ch->calls[k];
        if (t->text.len) call_memory_put(c->server->tool_calls, t->id, buf_str(&t->name), buf_str(&t->arguments), buf_str(&t->text));
    }
    job_free(ch->job);
    ch->job = NULL;
    if (ch->result.status == LILY_OK && !is_unmade(ch)) stream_end(c, i, out); /* of one that is not made it is told later, if any was */
}

/* Takes the records of one choice until there are none, or the client has enough to read. */
static void pump_choice(struct call *c, int i, struct buf *record, struct buf *out)
{
    struct choice *ch = &c->choices[i];
    uint32_t kind;
    while (!ch->ended && (!c->x || http_waiting(c->x) + out->len <= HTTP_HIGH) && ring_take(&ch->job->ring, &kind, record)) {
        if (kind == JOB_END) {
            end_choice(c, i, record->data, out);
            return;
        }
        if (!c->x) continue;
        collect(c, ch, (enum job_record)kind, record->data, record->len);
        if (c->streaming && kind != JOB_CALL_TEXT) c->endpoint->ops->record(c, i, (enum job_record)kind, record->data, record->len, out);
    }
    if (!ch->ended && atomic_load(&ch->job->blocked)) engine_kick(c->server->engine);
}

static const struct job_result *failure(const struct call *c)
{
    for (int i = 0; i < c->n_choices; i++)
        if (c->choices[i].ended && c->choices[i].result.status != LILY_OK) return &c->choices[i].result;
    return NULL;
}

/* Not one choice has a token, since the server ends: no answer, which must not look like one. */
static bool nothing_made(const struct call *c)
{
    for (int i = 0; i < c->n_choices; i++)
        if (!is_unmade(&c->choices[i])) return false;
    return true;
}

static void reply(struct call *c)
{
    if (nothing_made(c)) {
        struct api_error e;
        api_error_set(&e, 503, "shutting_down", "", "the server is shutting down");
        reply_error(c, &e);
        return;
    }
    struct buf out = {0};
    for (int i = 0; i < c->n_choices; i++)
        if (is_unmade(&c->choices[i])) stream_end(c, i, &out);
    if (out.len) http_write(c->x, buf_str(&out), out.len);
    buf_free(&out);
    reply_whole(c);
}

bool call_pump(struct call *c)
{
    struct buf record = {0}, out = {0};
    if (c->preparing) return false;
    for (int i = 0; i < c->n_choices; i++) pump_choice(c, i, &record, &out);
    bool enough = c->x && http_waiting(c->x) + out.len > HTTP_HIGH;
    if (c->x && out.len) {
        http_write(c->x, buf_str(&out), out.len);
        c->heard_ms = clock_ms();
    }
    /* The socket took it, so no on_drained will come, and maybe nothing more of the engine's: the rest is taken in the next round. */
    if (enough && http_waiting(c->x) <= HTTP_LOW) loop_wake(c->server->loop);
    buf_free(&record);
    buf_free(&out);
    const struct job_result *bad = failure(c);
    if (c->x && bad) {
        struct api_error e;
        api_error_from(&e, &bad->err, NULL);
        if (bad->status != LILY_ERR_MEMORY) e.http = 500;
        reply_error(c, &e);
    }
    if (c->x && all_ended(c)) reply(c);
    if (c->x || !all_ended(c)) return false;
    if (!c->status) note(c, 499); /* the client left */
    call_free(c);
    return true;
}

/* ---- from P ---- */

static void begin_stream(struct call *c)
{
    struct buf *out = &c->server->scratch;
    struct buf extra = {0};
    buf_printf(&extra, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s", server_cors(c->server, c->x));
    c->streaming = true;
    http_begin(c->x, 200, "text/event-stream; charset=utf-8", buf_str(&extra));
    buf_clear(out);
    c->endpoint->ops->begin(c, out);
    http_write(c->x, buf_str(out), out->len);
    c->heard_ms = clock_ms();
    buf_free(&extra);
}

void call_prepared(struct call *c)
{
    c->preparing = false;
    if (!c->x) {
        call_cancel(c);
    } else if (c->error.http) {
        reply_error(c, &c->error);
    } else if (!c->endpoint->ops) {
        note(c, 200);
        server_reply_json(c->server, c->x, 200, &c->reply);
        close_exchange(c);
    } else if (c->ask.stream) {
        begin_stream(c);
        if (c->fin) call_client_fin(c);
    } else if (c->fin || http_half_closed(c->x)) {
        abandon(c);
    }
    call_pump(c);
}

/* ---- the clock ---- */

static const char *state_name(const struct call *c)
{
    const struct job *j = c->choices[0].job;
    int state = j ? atomic_load(&j->state) : JOB_DONE;
    return state == JOB_QUEUED ? "queued" : state == JOB_PREFILL ? "prefill" : NULL;
}

void call_tick(struct call *c, double now)
{
    struct buf *out = &c->server->scratch;
    if (c->preparing || !c->x || !c->streaming || http_waiting(c->x) > HTTP_HIGH) return;
    const char *state = c->ask.progress && c->endpoint->ops && c->endpoint->ops->progress ? state_name(c) : NULL;
    buf_clear(out);
    if (state && now - c->progress_ms >= progress_ms - 1) {
        c->endpoint->ops->progress(c, state, out);
        c->progress_ms = now;
    } else if (now - c->heard_ms >= keepalive_ms) {
        c->endpoint->ops->keepalive(c, out);
    }
    if (!out->len) return;
    http_write(c->x, buf_str(out), out->len);
    c->heard_ms = now;
}
