/* lily loadtest: a mix of requests at a rate against a server, and how long answers took. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "chat/message.h"
#include "commands.h"
#include "interrupt.h"
#include "load_stats.h"
#include "base/rng.h"
#include "web.h"

enum { N_CONVERSATIONS = 64, TURNS = 4, MAX_ACTIVE = 1024, MAX_ANSWER = 1 << 20, MAX_LINE = 4 << 20 };

struct loadtest_args {
    struct common_args common;
    double rate, duration;
    int weights[LOAD_KINDS];
    int max_tokens, long_words, seed, timeout;
    const char *api_key, *model_name;
};

/* A chat that goes on: what was said so far. */
struct conversation {
    struct json *messages; /* owned; NULL: not begun */
    int turns;
    bool busy;
};

struct request {
    struct web_transfer t;
    struct run *run;
    enum load_kind kind;
    struct conversation *talk; /* of a chat turn; NULL: none was free, so it stands alone */
    char *body;                /* owned */
    struct buf line, answer;   /* owned; the line of the stream that is coming in; the text so far */
    double started, first, last;
    int events, cancel_after;  /* cancel_after 0: never */
    bool cancelled, broken;    /* broken: the stream brought an error */
    struct request *next;      /* of the active ones */
};

struct run {
    const struct loadtest_args *a;
    struct web *web;      /* owned */
    struct buf url;       /* owned */
    uint64_t n_started, drawn; /* requests, and random numbers of the present one */
    struct load_stats stats;
    struct conversation talks[N_CONVERSATIONS];
    struct request *active;
    int n_active;
    char failure[400];    /* what the first failed request met */
};

/* Each request draws from numbers of its own, so that what is drawn does not depend on how fast the server is. */
static double draw(struct run *r)
{
    return rng_uniform((uint64_t)r->a->seed, r->n_started << 24 | (r->drawn++ & 0xffffff));
}

/* ---- requests ---- */

static const char *const openings[] = {"Tell me a short story about a fox and a lantern.", "What does lily info do?",
                                       "Write a JSON object with the keys name and age.", "Who are you?",
                                       "My locker code is 4417. What is my locker code?"};
static const char *const follow_ups[] = {"Go on.", "Say that in fewer words.", "Why?", "Thank you. What did I ask first?"};
static const char *const words[] = {"river", "lamp", "seven", "walks", "slowly", "green", "under", "the", "and", "stone", "morning", "reads"};

static void long_text(struct run *r, struct buf *out)
{
    buf_printf(out, "Text %d: ", (int)(draw(r) * 1e9)); /* no two begin alike, so no cache helps */
    for (int i = 0; i < r->a->long_words; i++)
        buf_printf(out, "%s ", words[(int)(draw(r) * (double)(sizeof words / sizeof words[0])) % (int)(sizeof words / sizeof words[0])]);
    buf_addz(out, "\nHow many stones are in this text?");
}

/* A conversation that nobody waits for: a begun one first. NULL: all are busy. */
static struct conversation *free_conversation(struct run *r)
{
    int at = (int)(draw(r) * N_CONVERSATIONS) % N_CONVERSATIONS;
    for (int i = 0; i < N_CONVERSATIONS; i++) {
        struct conversation *c = &r->talks[(at + i) % N_CONVERSATIONS];
        if (!c->busy && c->messages) return c;
    }
    for (int i = 0; i < N_CONVERSATIONS; i++)
        if (!r->talks[i].busy) return &r->talks[i];
    return NULL;
}

static struct json *next_turn(struct run *r, struct request *q)
{
    struct conversation *c = q->talk = free_conversation(r);
    struct json *messages = c && c->messages ? c->messages : json_new_array();
    int turn = c ? c->turns : 0;
    const char *text = turn ? follow_ups[(turn - 1) % 4] : openings[(int)(draw(r) * 5) % 5];
    json_add(messages, chat_message("user", text, strlen(text)));
    if (!c) return messages;
    c->busy = true;
    c->messages = messages;
    return json_copy(messages);
}

static char *make_body(struct run *r, struct request *q)
{
    struct json *v = json_new_object(), *messages;
    struct buf text = {0};
    if (q->kind == LOAD_CHAT) {
        messages = next_turn(r, q);
    } else {
        messages = json_new_array();
        if (q->kind == LOAD_LONG) long_text(r, &text);
        else buf_addz(&text, openings[0]);
        json_add(messages, chat_message("user", buf_str(&text), text.len));
        buf_clear(&text);
    }
    if (r->a->model_name) json_put(v, "model", json_new_string(r->a->model_name));
    json_put(v, "messages", messages);
    json_put(v, "stream", json_new_bool(true));
    json_put(v, "max_tokens", json_new_int(r->a->max_tokens));
    json_put(v, "seed", json_new_int((int64_t)(draw(r) * 1e9)));
    json_write(v, 0, &text);
    json_free(v);
    return buf_take(&text);
}

/* One `data:` line of the stream: whether it brings text, which is kept for the conversation's next turn. */
static bool take_event(struct request *q, const char *text, size_t n)
{
    struct json *v = NULL;
    if (n == 6 && memcmp(text, "[DONE]", 6) == 0) return false;
    if (json_parse(text, n, "event", &v, NULL) != LILY_OK) return false;
    const struct json *error = json_get(v, "error"), *choices = json_get(v, "choices");
    const struct json *message = error ? json_get(error, "message") : NULL;
    if (error && json_kind(error) != JSON_NULL) {
        q->broken = true;
        snprintf(q->t.error, sizeof q->t.error, "%.200s", message && json_kind(message) == JSON_STRING ? json_string(message) : "an error");
    }
    const struct json *first = choices && json_kind(choices) == JSON_ARRAY ? json_at(choices, 0) : NULL;
    const struct json *delta = first ? json_get(first, "delta") : NULL;
    static const char *const keys[] = {"content", "reasoning_content", "reasoning"};
    bool brings = delta && json_get(delta, "tool_calls");
    for (int i = 0; delta && i < 3; i++) {
        const struct json *s = json_get(delta, keys[i]);
        if (!s || json_kind(s) != JSON_STRING || !json_string_len(s)) continue;
        brings = true;
        if (i == 0 && q->answer.len < MAX_ANSWER) buf_add(&q->answer, json_string(s), json_string_len(s));
    }
    json_free(v);
    return brings;
}

static void count_piece(struct request *q, double now)
{
    struct load_group *g = &q->run->stats.kind[q->kind];
    if (!q->events++) load_series_add(&g->first, (q->first = now) - q->started);
    else load_series_add(&g->gap, now - q->last);
    q->last = now;
    g->events++;
}

static bool take_stream(struct web_transfer *t, const char *bytes, size_t n)
{
    struct request *q = t->ctx;
    double now = clock_ms();
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        size_t part = end ? (size_t)(end - bytes) : n;
        if (q->line.len + part > MAX_LINE) return false;
        buf_add(&q->line, bytes, part);
        bytes += part + (end != NULL);
        n -= part + (end != NULL);
        if (!end) break;
        while (q->line.len && q->line.data[q->line.len - 1] == '\r') q->line.data[--q->line.len] = 0;
        if (q->line.len > 5 && memcmp(q->line.data, "data:", 5) == 0) {
            const char *text = q->line.data + 5;
            while (*text == ' ') text++;
            if (take_event(q, text, strlen(text))) count_piece(q, now);
        }
        buf_clear(&q->line);
        if (q->cancel_after && q->events >= q->cancel_after) return !(q->cancelled = true);
    }
    return true;
}

static enum load_kind draw_kind(struct run *r)
{
    int sum = 0, kind = 0;
    for (int k = 0; k < LOAD_KINDS; k++) sum += r->a->weights[k];
    double at = draw(r) * sum;
    while (kind + 1 < LOAD_KINDS && at > r->a->weights[kind]) at -= r->a->weights[kind++];
    return (enum load_kind)kind;
}

static lily_status start_request(struct run *r, struct lily_err *err)
{
    struct request *q = mem_new(sizeof *q);
    q->run = r;
    q->kind = draw_kind(r);
    q->cancel_after = q->kind == LOAD_CANCEL ? 1 + (int)(draw(r) * 15) : 0;
    q->body = make_body(r, q);
    q->t = (struct web_transfer){.url = buf_str(&r->url), .bearer = r->a->api_key, .json = q->body, .data = take_stream, .ctx = q};
    q->started = clock_ms();
    q->next = r->active;
    r->active = q;
    r->n_active++;
    r->stats.kind[q->kind].started++;
    return web_start(r->web, &q->t, err);
}

static void end_turn(struct request *q, bool good)
{
    struct conversation *c = q->talk;
    if (!c) return;
    c->busy = false;
    if (good) json_add(c->messages, chat_message("assistant", buf_str(&q->answer), q->answer.len));
    if (good && ++c->turns < TURNS) return;
    json_free(c->messages);
    c->messages = NULL;
    c->turns = 0;
}

static void note_failure(struct run *r, const struct request *q)
{
    if (r->failure[0]) return;
    if (q->t.status >= 200 && q->t.status < 300) snprintf(r->failure, sizeof r->failure, "the stream broke off: %.200s", q->t.error);
    else if (q->t.status) snprintf(r->failure, sizeof r->failure, "status %ld: %.200s", q->t.status, q->t.message);
    else snprintf(r->failure, sizeof r->failure, "%.200s", q->t.error);
}

static void end_request(struct run *r, struct request *q)
{
    struct load_group *g = &r->stats.kind[q->kind];
    bool good = q->t.complete && !q->broken && q->t.status >= 200 && q->t.status < 300;
    struct request **at = &r->active;
    if (q->cancelled) {
        g->cancelled++;
    } else if (good) {
        g->done++;
        load_series_add(&g->total, clock_ms() - q->started);
    } else if (q->t.status == 429 || q->t.status == 503) {
        g->refused++;
    } else {
        g->failed++;
        note_failure(r, q);
    }
    end_turn(q, good);
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    r->n_active--;
    buf_free(&q->line);
    buf_free(&q->answer);
    free(q->body);
    free(q);
}

/* ---- the run ---- */

/* Requests begin at random moments of the given rate, whether or not earlier ones are done. */
static lily_status run_all(struct run *r, struct lily_err *err)
{
    double begun = clock_ms(), end = begun + r->a->duration * 1e3, next = begun;
    struct progress bar;
    lily_status st = LILY_OK;
    progress_begin(&bar, "loadtest", r->a->duration, "s");
    while (st == LILY_OK && !interrupted()) {
        double now = clock_ms();
        if (now >= end && !r->active) break;
        while (st == LILY_OK && next <= now && next < end) {
            r->n_started++;
            r->drawn = 0;
            next += -log(draw(r)) * 1e3 / r->a->rate;
            if (r->n_active < MAX_ACTIVE) st = start_request(r, err);
        }
        double wait = next < end ? next - clock_ms() : 100;
        struct web_transfer *t = web_poll(r->web, wait < 1 ? 1 : wait < 100 ? (int)wait : 100);
        if (t) end_request(r, t->ctx);
        progress_at(&bar, (clock_ms() - begun) / 1e3);
    }
    progress_end(&bar);
    r->stats.seconds = (clock_ms() - begun) / 1e3;
    while (r->active) {
        web_cancel(r->web, &r->active->t);
        r->active->cancelled = true;
        end_request(r, r->active);
    }
    return st;
}

static lily_status report(struct run *r, struct lily_err *err)
{
    if (!load_stats_done(&r->stats)) {
        err_set(err, LILY_ERR_IO, "%s: no request ended well%s%s", buf_str(&r->url), r->failure[0] ? "; the first: " : "", r->failure);
        err_hint(err, "URL is a server's address, as http://127.0.0.1:8080; /v1/chat/completions is added");
        return LILY_ERR_IO;
    }
    if (r->a->common.json) print_json(load_stats_json(&r->stats));
    else load_stats_print(&r->stats);
    if (r->failure[0]) log_warn("the first request that failed: %s", r->failure);
    return LILY_OK;
}

static lily_status run_loadtest(void *args, int n, char **words_given, struct lily_err *err)
{
    struct run *r = mem_new(sizeof *r);
    r->a = args;
    lily_status st = LILY_OK;
    if (n != 1 || !(strncmp(words_given[0], "http://", 7) == 0 || strncmp(words_given[0], "https://", 8) == 0)) {
        st = err_set(err, LILY_ERR_USAGE, n ? "loadtest: \"%.100s\" is no address" : "loadtest: an address is needed", n ? words_given[0] : "");
        err_hint(err, "usage: lily loadtest http://127.0.0.1:8080");
    }
    if (st == LILY_OK) {
        buf_addz(&r->url, words_given[0]);
        while (r->url.data[r->url.len - 1] == '/') r->url.data[--r->url.len] = 0;
        if (r->url.len < 3 || strcmp(r->url.data + r->url.len - 3, "/v1") != 0) buf_addz(&r->url, "/v1");
        buf_addz(&r->url, "/chat/completions");
        interrupt_init();
        interrupt_mode(INTERRUPT_STOPS_ANSWER);
        st = web_open(r->a->timeout, &r->web, err);
    }
    if (st == LILY_OK) st = run_all(r, err);
    if (st == LILY_OK) st = report(r, err);
    web_close(r->web);
    for (int i = 0; i < N_CONVERSATIONS; i++) json_free(r->talks[i].messages);
    load_stats_free(&r->stats);
    buf_free(&r->url);
    free(r);
    return st;
}

static void init(void *args)
{
    struct loadtest_args *a = args;
    *a = (struct loadtest_args){.rate = 1, .duration = 30, .weights = {6, 2, 2}, .max_tokens = 64, .long_words = 1500, .seed = 1, .timeout = 120};
}

/* "chat:6,long:2,cancel:2"; a kind that is not named has no share. */
static lily_status take_mix(void *values, const char *text, struct lily_err *err)
{
    struct loadtest_args *a = values;
    int sum = 0;
    memset(a->weights, 0, sizeof a->weights);
    for (const char *s = text; *s;) {
        size_t name = strcspn(s, ":,");
        int kind = 0;
        char *end = NULL;
        while (kind < LOAD_KINDS && (strlen(load_kind_names[kind]) != name || strncmp(s, load_kind_names[kind], name) != 0)) kind++;
        long weight = s[name] == ':' ? strtol(s + name + 1, &end, 10) : -1;
        if (kind == LOAD_KINDS || weight < 0 || weight > 1000000 || end == s + name + 1 || (*end && *end != ','))
            LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no mix; expected as in chat:6,long:2,cancel:2", text);
        sum += a->weights[kind] = (int)weight;
        s = *end ? end + 1 : end;
    }
    if (!sum) LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" gives no kind of request a share", text);
    return LILY_OK;
}

#define AT(field) offsetof(struct loadtest_args, field)
static const struct opt options[] = {
    {"rate", 0, "N", "requests a second, at random moments (default: 1)", OPT_REAL, AT(rate), 0.001, 10000, NULL},
    {"duration", 0, "SECONDS", "how long requests begin; those that have begun are waited for (default: 30)", OPT_REAL, AT(duration), 0.1, 86400,
     NULL},
    {"mix", 0, "TEXT", "shares of turns of chats, of long prompts, and of answers that are cancelled (default: chat:6,long:2,cancel:2)", OPT_TAKE, 0,
     0, 0, take_mix},
    {"max-tokens", 'n', "N", "tokens of an answer at most (default: 64)", OPT_INT, AT(max_tokens), 1, 1 << 20, NULL},
    {"long", 0, "N", "words of a long prompt (default: 1500)", OPT_INT, AT(long_words), 1, 1 << 20, NULL},
    {"api-key", 0, "KEY", "key of the server", OPT_TEXT, AT(api_key), 0, 0, NULL},
    {"model-name", 0, "NAME", "model that is asked for (default: what the server has)", OPT_TEXT, AT(model_name), 0, 0, NULL},
    {"timeout", 0, "SECONDS", "a server that is silent for so long has failed (default: 120)", OPT_INT, AT(timeout), 1, 86400, NULL},
    {"seed", 0, "N", "another seed gives other moments, kinds and texts (default: 1)", OPT_INT, AT(seed), 0, 1 << 30, NULL},
};
static const struct opt_group group = {"Load", options, (int)(sizeof options / sizeof options[0])};

const struct command cmd_loadtest = {
    .name = "loadtest",
    .usage = "URL",
    .summary = "measure the latency of a server under load",
    .about = "Sends chat completions, streamed, to the server at URL: turns of conversations,\n"
             "long prompts, and answers that are cancelled on the way. Prints percentiles of\n"
             "the time to the first piece of text, between pieces, and to the end.\n"
             "With --json: {started, done, cancelled, refused, failed, pieces, first_ms,\n"
             "gap_ms, total_ms, seconds, kinds: {chat, long, cancel}}; a time is {p50, p90,\n"
             "p99, max, count}.",
    .uses = {{&group, 0}, {&opts_json, offsetof(struct loadtest_args, common)}},
    .max_args = 1,
    .args_size = sizeof(struct loadtest_args),
    .init = init,
    .run = run_loadtest,
};
