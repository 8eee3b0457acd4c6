/* The inside of the server, for the files of this folder. Thread: L, unless a field says otherwise. */
#ifndef LILY_SERVE_SERVER_IMPL_H
#define LILY_SERVE_SERVER_IMPL_H

#include "run/engine.h"
#include "serve/call.h"
#include "serve/history.h"
#include "serve/http.h"
#include "serve/loop.h"
#include "serve/prep.h"
#include "serve/server.h"

struct endpoint {
    const char *method, *path; /* path without the optional /v1 */
    const char *id_prefix;     /* of reply ids: "chatcmpl-" */
    enum dialect dialect;
    bool prefix;               /* the path may go on behind a slash */
    bool is_open;              /* needs no key */
    /* Answers at once, on L; NULL: the body goes to prepare. */
    void (*at_once)(struct server *s, struct http_exchange *x);
    /* On P: fills the call and its jobs' spec, or its reply. Failures fill c->error. */
    void (*prepare)(struct call *c);
    const struct dialect_ops *ops; /* NULL: prepare makes the whole reply */
};

struct server {
    const struct server_options *opt; /* borrowed; immutable, any thread */
    const struct bundle *texts;       /* borrowed; immutable, any thread */
    struct engine *engine;            /* owned; any thread */
    struct loop *loop;                /* owned */
    struct http *http;                /* owned */
    struct prep *prep;                /* owned */
    struct call_memory *tool_calls;   /* owned; any thread */
    struct loop_timer *tick;          /* owned */
    struct call *calls;               /* all that are open */
    struct buf scratch;               /* owned */
    double started_ms;
    double drain_until_ms; /* 0: not draining; later it moves on with the clock until the engine has ended every job */
    struct history history;
    int max_connections;
    bool failed;
    uint64_t n_requests, n_by_class[6], n_gone; /* for the metrics; by the status' first digit */
};

extern const struct endpoint endpoints[];
extern const int n_endpoints;
extern const struct http_handler route_handler; /* its ctx is the server */

/* A request was answered: the log and the counts. c may be NULL. */
void server_note(struct server *s, const struct call *c, const struct http_head *head, int status);
/* The same of one that failed, c->status being what was sent: the error is what is counted, also in a stream that had begun with 200. */
void server_note_error(struct server *s, const struct call *c, const struct http_head *head, const struct api_error *e);
/* Which of the keys a request brings, -1: no right one; 0 when none is needed. */
int server_key(const struct server *s, const struct http_head *head);
/* An error as the whole reply. */
void server_reply_error(struct server *s, struct http_exchange *x, const struct api_error *e, enum dialect d);
void server_reply_json(struct server *s, struct http_exchange *x, int status, struct buf *body); /* a line feed is put behind it */
/* Header lines that browsers ask for, for the exchange's Origin; "" for none. Valid until the next call. */
const char *server_cors(struct server *s, const struct http_exchange *x);

/* The endpoints that answer at once. */
void health_reply(struct server *s, struct http_exchange *x);
void metrics_reply(struct server *s, struct http_exchange *x);
void state_reply(struct server *s, struct http_exchange *x);
void models_reply(struct server *s, struct http_exchange *x);
void web_reply(struct server *s, struct http_exchange *x);
/* Those with a body. */
void chat_prepare(struct call *c);
void completions_prepare(struct call *c);
void responses_prepare(struct call *c);
void messages_prepare(struct call *c);
void count_tokens_prepare(struct call *c);
void tokenize_prepare(struct call *c);
void detokenize_prepare(struct call *c);
void apply_template_prepare(struct call *c);
extern const struct dialect_ops chat_ops, completions_ops, responses_ops, messages_ops;

#endif
