/* The server's life: start, wake-ups, the clock, draining, ends. */
#include "serve/server.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/request_log.h"
#include "serve/server_impl.h"
#include "serve/write.h"

enum { MAX_CONNECTIONS = 16384, SPARE_DESCRIPTORS = 64, TICK_MS = 250, LAST_LINES_MS = 500, CALL_BYTES = 16 << 20 };
static const double flush_ms = 2000, idle_s = 120, stall_s = 60, request_s = 60;

static void count(struct server *s, int status)
{
    s->n_requests++;
    s->n_by_class[status / 100 < 6 ? status / 100 : 0]++;
}

void server_note(struct server *s, const struct call *c, const struct http_head *h, int status)
{
    count(s, status);
    request_log(s->opt, c, h, status, NULL);
}

void server_note_error(struct server *s, const struct call *c, const struct http_head *h, const struct api_error *e)
{
    count(s, e->http);
    request_log(s->opt, c, h, c ? c->status : e->http, e);
}

void server_reply_json(struct server *s, struct http_exchange *x, int status, struct buf *body)
{
    buf_addc(body, '\n'); /* for who reads it in a terminal */
    http_reply(x, status, "application/json", server_cors(s, x), buf_str(body), body->len);
}

void server_reply_error(struct server *s, struct http_exchange *x, const struct api_error *e, enum dialect d)
{
    struct buf body = {0}, extra = {0};
    api_error_body(e, d, &body);
    buf_addc(&body, '\n');
    buf_printf(&extra, "%s%s", server_cors(s, x), e->http == 429 || e->http == 503 ? "Retry-After: 2\r\n" : "");
    http_reply(x, e->http, "application/json", buf_str(&extra), buf_str(&body), body.len);
    buf_free(&body);
    buf_free(&extra);
}

/* ---- the loop's events ---- */

static bool is_done(const struct server *s)
{
    if (s->drain_until_ms == 0) return false;
    return (!s->calls && http_flushed(s->http)) || clock_ms() > s->drain_until_ms + flush_ms;
}

static void begin_drain(struct server *s, double seconds)
{
    if (s->drain_until_ms > 0) return;
    s->drain_until_ms = clock_ms() + seconds * 1e3;
    http_close_listener(s->http);
}

/* A broken engine: what is open gets its error, then the process ends so that a supervisor starts it again. */
static void look_at_engine(struct server *s)
{
    if (s->failed || engine_state(s->engine) != ENGINE_FAILED) return;
    struct lily_err err;
    engine_error(s->engine, &err);
    log_warn("the engine has failed: %s", err.msg);
    s->failed = true;
}

static void on_woken(void *ctx)
{
    struct server *s = ctx;
    struct call *c, *next;
    while ((c = prep_take(s->prep))) call_prepared(c);
    for (c = s->calls; c; c = next) {
        next = c->next;
        call_pump(c);
    }
    look_at_engine(s);
    if (is_done(s)) loop_stop(s->loop);
}

/* Ends what is open, and gives it the time for that: a job ends behind the engine's present pass, however long that is. */
static void end_calls(struct server *s, double now)
{
    for (struct call *c = s->calls; c; c = c->next) {
        if (c->preparing) continue;
        call_cancel(c);
        if (call_has_jobs(c)) s->drain_until_ms = now;
    }
}

static void on_tick(void *ctx)
{
    struct server *s = ctx;
    double now = clock_ms();
    for (struct call *c = s->calls; c; c = c->next) call_tick(c, now);
    if (s->drain_until_ms > 0 && now > s->drain_until_ms) end_calls(s, now);
    const struct engine_counters *k = engine_counters(s->engine);
    history_note(&s->history, now, atomic_load(&k->generated_tokens), atomic_load(&k->computed_tokens));
    http_tick(s->http);
    log_flush(0);
    look_at_engine(s);
    /* One more tick, in which /health tells the reason to who asks. */
    if (s->failed && !s->calls) begin_drain(s, 0);
    if (is_done(s)) loop_stop(s->loop);
}

static void on_signal(void *ctx)
{
    struct server *s = ctx;
    if (s->drain_until_ms > 0) s->opt->leave();
    begin_drain(s, s->opt->drain_s);
    if (is_done(s)) {
        log_note("ending: no reply is open");
        loop_stop(s->loop);
    } else {
        log_note("draining: open replies have %g s; Ctrl-C again, or a second SIGTERM, ends at once", s->opt->drain_s);
    }
}

static void wake_loop(void *ctx, double patience_ms)
{
    if (patience_ms > 0) loop_wake_soon(ctx, patience_ms);
    else loop_wake(ctx);
}

/* ---- start and end ---- */

/* As many connections as the system lets us have descriptors for. */
static int find_max_connections(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return MAX_CONNECTIONS;
    l.rlim_cur = l.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_cur > MAX_CONNECTIONS + SPARE_DESCRIPTORS) return MAX_CONNECTIONS;
    return l.rlim_cur > 2 * SPARE_DESCRIPTORS ? (int)l.rlim_cur - SPARE_DESCRIPTORS : SPARE_DESCRIPTORS;
}

static lily_status start(struct server *s, struct runner *runner, struct lily_err *err)
{
    struct http_options ho = {.host = s->opt->host,
                              .port = s->opt->port,
                              .max_body = s->opt->max_body,
                              .max_bodies = 4 * s->opt->max_body,
                              .max_connections = s->max_connections,
                              .idle_s = idle_s,
                              .stall_s = stall_s,
                              .request_s = request_s};
    struct http_handler handler = route_handler;
    handler.ctx = s;
    s->tool_calls = call_memory_new(CALL_BYTES, s->opt->calls_file);
    lily_status st = loop_new(on_woken, s, &s->loop, err);
    if (st == LILY_OK) st = http_listen(s->loop, &ho, &handler, &s->http, err);
    if (st == LILY_OK) st = prep_start(s->loop, &s->prep, err);
    if (st == LILY_OK) st = loop_signal(s->loop, SIGTERM, on_signal, s, err);
    if (st == LILY_OK) st = loop_signal(s->loop, SIGINT, on_signal, s, err);
    if (st != LILY_OK) {
        runner->ops->free(runner);
        return st;
    }
    s->tick = loop_timer_new(s->loop, TICK_MS, on_tick, s);
    struct engine_options eo = {s->opt->queue, wake_loop, s->loop};
    return engine_start(runner, &eo, &s->engine, err);
}

static void tear_down(struct server *s)
{
    prep_free(s->prep);
    if (s->engine) engine_stop(s->engine);
    http_free(s->http);
    while (s->calls) call_free(s->calls);
    engine_free(s->engine);
    call_memory_free(s->tool_calls);
    loop_timer_free(s->tick);
    loop_free(s->loop);
    buf_free(&s->scratch);
}

lily_status server_run(const struct server_options *o, const struct bundle *texts, struct runner *runner, struct lily_err *err)
{
    struct server s = {.opt = o, .texts = texts, .started_ms = clock_ms()};
    s.max_connections = find_max_connections();
    log_never_wait(); /* the loop's thread writes the log */
    lily_status st = start(&s, runner, err);
    if (st == LILY_OK) {
        log_note("serving %s (the API, and a page for the browser) on http://%s:%d", o->model_id, o->host, http_port(s.http));
        loop_run(s.loop);
        loop_release_signals(s.loop); /* the threads may need a moment to end: a further signal ends the process */
        if (s.failed) engine_error(s.engine, err);
        if (s.failed) st = LILY_ERR_DEVICE;
    }
    tear_down(&s);
    log_flush(LAST_LINES_MS);
    return st;
}
