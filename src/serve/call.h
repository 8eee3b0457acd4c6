/*
 * One API request from its head to its last byte, for all endpoints that generate or that only compute on P.
 *
 * Life: made on L when the body is there; P's from prep_add until it comes back through prep_take; L's from then on, while its
 * jobs are the engine's. It is freed when the exchange is over and every job has ended: a client that leaves does not free
 * it, it only cancels the jobs.
 */
#ifndef LILY_SERVE_CALL_H
#define LILY_SERVE_CALL_H

#include "chat/request.h"
#include "run/engine.h"
#include "run/prompt.h"
#include "serve/api_error.h"
#include "serve/http.h"

struct server;
struct call;

enum { MAX_CHOICES = 8, ID_BYTES = 48 };

/* A tool call of an answer. */
struct tool_call {
    char id[ID_BYTES];
    struct buf name, arguments; /* owned; the arguments are one JSON object */
    struct buf text;            /* owned; as the model wrote it */
};

/* One answer as collected so far. */
struct choice {
    struct job *job; /* owned; NULL before it is submitted */
    bool ended;
    struct buf reasoning, content; /* owned */
    struct tool_call *calls;       /* owned; (n_calls) */
    int n_calls;
    struct buf logprobs; /* owned; JSON objects with commas between, in the form of chat completions */
    size_t logprobs_sent; /* bytes of them that a stream has had */
    int n_logprobs;      /* tokens in logprobs */
    size_t logprob_offset; /* completions: bytes of the text in front of the next token */
    struct job_result result; /* when ended */
};

/* What was asked, in no dialect. P fills it; fields are read in serve/fields.c. */
struct ask {
    bool stream, include_usage;
    bool progress;       /* progress deltas are wanted */
    bool alias;          /* reasoning goes by its other name, too */
    bool tags;           /* reasoning stays in the content, with its tags */
    bool echo;           /* completions: the prompt comes back in front */
    bool seeded;
    int n;
    uint64_t seed;
    struct job_spec spec;
    struct logit_bias *bias; /* owned */
    const char **stop;       /* owned array of views */
};

struct endpoint;

/* How a dialect writes what comes from the jobs; on L. out: bytes for the client. */
struct dialect_ops {
    void (*begin)(struct call *c, struct buf *out); /* a stream begins */
    void (*record)(struct call *c, int choice, enum job_record kind, const char *data, size_t n, struct buf *out);
    void (*choice_end)(struct call *c, int choice, struct buf *out); /* may be NULL */
    void (*end)(struct call *c, struct buf *out);  /* the stream ends well */
    void (*whole)(struct call *c, struct buf *out); /* the body of a reply that is no stream */
    void (*error)(struct call *c, const struct api_error *e, struct buf *out); /* inside a stream; ends it */
    void (*keepalive)(struct call *c, struct buf *out);
    void (*progress)(struct call *c, const char *state, struct buf *out); /* may be NULL */
};

struct call {
    struct server *server;      /* borrowed */
    const struct endpoint *endpoint;
    struct http_exchange *x;    /* borrowed; NULL once the reply is over or the client is gone */
    struct call *prev, *next;   /* all calls, on L */
    struct call *next_prep;     /* in a queue of P */
    char id[ID_BYTES];          /* of the reply, with the dialect's prefix */
    long created;               /* Unix time */
    double arrived_ms, heard_ms; /* clock: the request came; the client was last sent something */
    double progress_ms;
    char path[64], method[8];   /* for the log */

    struct buf body;            /* owned */
    struct json *json;          /* owned; the parsed body */
    struct json *converted;     /* owned; a chat body made from another dialect's */
    struct chat_request chat;   /* owned */
    struct prompt prompt;       /* owned */
    struct ids ids;             /* owned; prompts given as ids */
    struct ask ask;             /* owned parts */
    struct api_error error;     /* of P; http 0: none */
    struct buf reply;           /* owned; what P has computed, when the endpoint has no jobs */
    struct choice choices[MAX_CHOICES];
    int n_choices;
    /* Several prompts in one call: each has its own spec and the same number of choices; n_prompts 0: ask.spec is the only one. */
    struct job_spec *prompts[MAX_CHOICES]; /* borrowed from the dialect's state */
    int n_prompts;
    void *dialect;              /* owned by dialect_free; more state of the endpoint */
    void (*dialect_free)(void *dialect);

    atomic_bool gone;           /* the client left; P looks at it, too */
    bool preparing;             /* it is P's */
    bool streaming;             /* the head of a stream was sent */
    bool fin;                   /* the client's sending side is closed */
    bool ended;                 /* the reply is complete, or given up */
    int status;                 /* as sent, for the log; 0: not noted yet */
};

struct call *call_new(struct server *s, const struct endpoint *e, struct http_exchange *x);
void call_free(struct call *c);

/* Back from P: the reply begins, or is complete. */
void call_prepared(struct call *c);
/* Takes what the engine has written. True when the call is over and freed. */
bool call_pump(struct call *c);
/* The clock ticks: keepalives and progress. */
void call_tick(struct call *c, double now);
void call_client_gone(struct call *c);
void call_client_fin(struct call *c);
/* The server gives up waiting: cancels the jobs; their ends complete the reply. */
void call_cancel(struct call *c);
bool call_has_jobs(const struct call *c); /* some of its jobs are still the engine's; not while P has the call */

/* "stop", "length", "tool_calls" of an ended choice. */
const char *choice_finish(const struct choice *ch);
/* Sums over the choices. */
struct call_usage {
    int prompt, cached, completion, reasoning;
};
struct call_usage call_usage(const struct call *c);

#endif
