/* GET /health, /metrics, /state: how the server is. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/resident.h"
#include "serve/cache_report.h"
#include "serve/server_impl.h"
#include "serve/write.h"

static const char *status_word(const struct server *s)
{
    if (s->failed || engine_state(s->engine) == ENGINE_FAILED) return "failed";
    if (s->drain_until_ms > 0) return "draining";
    return engine_state(s->engine) == ENGINE_LOADING ? "loading" : "ok";
}

void health_reply(struct server *s, struct http_exchange *x)
{
    struct buf out = {0};
    const char *word = status_word(s);
    int status = word[0] == 'o' ? 200 : 503;
    buf_printf(&out, "{\"status\":\"%s\"", word);
    if (word[0] == 'l')
        buf_printf(&out, ",\"progress\":%.3f,\"seconds\":%.1f", engine_loaded(s->engine) / 1e3, (clock_ms() - s->started_ms) / 1e3);
    if (word[0] == 'f') {
        struct lily_err err;
        engine_error(s->engine, &err);
        buf_addc(&out, ',');
        put_memberz(&out, "error", err.msg);
    }
    buf_addc(&out, '}');
    server_note(s, NULL, http_head(x), status);
    server_reply_json(s, x, status, &out);
    buf_free(&out);
}

/* ---- metrics ---- */

static void metric(struct buf *out, const char *name, const char *type, const char *help, double v)
{
    buf_printf(out, "# HELP lily_%s %s\n# TYPE lily_%s %s\nlily_%s %.17g\n", name, help, name, type, name, v);
}

static void put_engine(const struct engine_counters *k, struct buf *out)
{
    const struct {
        const char *name, *help;
        const _Atomic uint64_t *v;
        double unit;
    } counters[] = {
        {"jobs_done_total", "Answers that came to their end.", &k->jobs_done, 1},
        {"jobs_failed_total", "Answers that ended with an error.", &k->jobs_failed, 1},
        {"jobs_cancelled_total", "Answers whose client left.", &k->jobs_cancelled, 1},
        {"prompt_tokens_total", "Prompt tokens asked for.", &k->prompt_tokens, 1},
        {"prompt_tokens_reused_total", "Prompt tokens taken from saved state.", &k->reused_tokens, 1},
        {"prompt_tokens_computed_total", "Prompt tokens read.", &k->computed_tokens, 1},
        {"generated_tokens_total", "Tokens generated.", &k->generated_tokens, 1},
        {"reasoning_tokens_total", "Of them, tokens of thinking.", &k->reasoning_tokens, 1},
        {"decode_steps_total", "Decode batches.", &k->decode_steps, 1},
        {"decode_rows_total", "Tokens in decode batches.", &k->decode_rows, 1},
        {"prefill_pieces_total", "Pieces of prompts read.", &k->prefill_pieces, 1},
        {"decode_seconds_total", "Time in decode batches.", &k->decode_us, 1e-6},
        {"prefill_seconds_total", "Time reading prompts.", &k->prefill_us, 1e-6},
        {"queue_seconds_total", "Time that answers waited for a slot.", &k->queue_us, 1e-6},
    };
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        metric(out, counters[i].name, "counter", counters[i].help, (double)atomic_load(counters[i].v) * counters[i].unit);
    metric(out, "jobs_active", "gauge", "Answers in a slot.", atomic_load(&k->active));
    metric(out, "jobs_queued", "gauge", "Answers that wait for a slot.", atomic_load(&k->queued));
}

void metrics_reply(struct server *s, struct http_exchange *x)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    struct buf out = {0};
    put_engine(engine_counters(s->engine), &out);
    put_cache_metrics(s, &out);
    buf_addz(&out, "# HELP lily_requests_total Requests by the status of their reply.\n# TYPE lily_requests_total counter\n");
    for (int i = 0; i < 6; i++) buf_printf(&out, "lily_requests_total{status=\"%s\"} %" PRIu64 "\n", classes[i], s->n_by_class[i]);
    metric(&out, "clients_gone_total", "counter", "Requests whose client left before the end.", (double)s->n_gone);
    metric(&out, "connections", "gauge", "Open connections.", http_n_connections(s->http));
    metric(&out, "uptime_seconds", "gauge", "Seconds since the start.", (clock_ms() - s->started_ms) / 1e3);
    metric(&out, "resident_bytes", "gauge", "Resident memory of the process.", (double)resident_bytes());
    metric(&out, "context_tokens", "gauge", "Tokens that one sequence may hold.", engine_ctx(s->engine));
    server_note(s, NULL, http_head(x), 200);
    http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", server_cors(s, x), buf_str(&out), out.len);
    buf_free(&out);
}

/* ---- state ---- */

static void put_call(const struct call *c, bool first, struct buf *out)
{
    static const char *const names[] = {"prep", "queued", "prefill", "decode", "done"};
    const struct job *j = c->preparing ? NULL : c->choices[0].job; /* while it is being prepared, all but its name is P's */
    int state = c->preparing ? JOB_PREP : j ? atomic_load(&j->state) : JOB_DONE;
    buf_printf(out, "%s{\"id\":\"%s\",", first ? "" : ",", c->id);
    put_memberz(out, "path", c->path);
    buf_printf(out, ",\"state\":\"%s\",\"age_ms\":%.0f", names[state], clock_ms() - c->arrived_ms);
    if (!c->preparing)
        buf_printf(out, ",\"choices\":%d,\"prompt_tokens\":%d,\"read\":%d,\"position\":%d,\"stream\":%s,\"client\":%s", c->n_choices,
                   c->ask.spec.n_ids, j ? atomic_load(&j->done) : 0, j ? atomic_load(&j->position) : 0,
                   c->ask.stream ? "true" : "false", c->x ? "true" : "false");
    buf_addc(out, '}');
}

static void put_plan(const struct server *s, struct buf *out)
{
    /* The plan is there once the engine is: the model is not changed after that. */
    if (engine_state(s->engine) != ENGINE_OK || !s->texts->model) return;
    const struct memory_plan *p = model_plan(s->texts->model);
    buf_printf(out, ",\"plan\":{\"weights\":%zu,\"kv\":%zu,\"borders\":%zu,\"scratch\":%zu,\"total\":%zu,\"limit\":%zu}", p->weights,
               p->kv, p->borders, p->scratch, p->total, p->limit);
}

void state_reply(struct server *s, struct http_exchange *x)
{
    const struct engine_counters *k = engine_counters(s->engine);
    struct buf out = {0};
    buf_printf(&out, "{\"status\":\"%s\",", status_word(s));
    put_memberz(&out, "model", s->opt->model_id);
    buf_printf(&out, ",\"context\":%d,\"active\":%d,\"queued\":%d,\"queue_limit\":%d,\"connections\":%d,\"resident\":%zu",
               engine_ctx(s->engine), atomic_load(&k->active), atomic_load(&k->queued), s->opt->queue, http_n_connections(s->http),
               resident_bytes());
    buf_printf(&out, ",\"uptime_s\":%.1f,\"history\":", (clock_ms() - s->started_ms) / 1e3);
    history_put(&s->history, &out);
    put_plan(s, &out);
    put_cache_state(s, &out);
    buf_addz(&out, ",\"requests\":[");
    for (const struct call *c = s->calls; c; c = c->next) put_call(c, c == s->calls, &out);
    buf_addz(&out, "]}");
    server_note(s, NULL, http_head(x), 200);
    server_reply_json(s, x, 200, &out);
    buf_free(&out);
}
