/*
 * One answer that the engine makes: what is asked, and how what comes of it travels to who asked.
 *
 * Life: made by the asker, handed to engine_submit, and the engine's until its JOB_END record is in the ring; from then on the
 * asker's again, who frees it. A cancelled job ends the same way. Inward there are two signals alone, both of which any thread
 * may give: `cancel`, and the reader's progress in the ring (a full ring makes the engine skip the job; nothing blocks it).
 *
 * Threads: the asker writes spec and seed before engine_submit; the ring is written by the engine thread and read by one
 * other. Lifetime: the spec is borrowed and outlives every job made from it.
 */
#ifndef LILY_RUN_JOB_H
#define LILY_RUN_JOB_H

#include <stdatomic.h>

#include "json/json.h"
#include "run/generate.h"
#include "run/recent.h"
#include "run/ring.h"
#include "sample/sampler.h"

/* What is asked; jobs of one request (n > 1) share it. */
struct job_spec {
    const int32_t *ids;   /* borrowed; (n_ids) the prompt */
    int n_ids;            /* >= 1 */
    const int *marks;     /* borrowed; (n_marks) positions before which state is worth saving */
    int n_marks;
    const char *text;     /* borrowed; the prompt's text, for engines that play a script; "" when there is none */
    size_t n_text;
    struct sampler_params sampling; /* its bias is borrowed; the seed is the job's */
    const char *const *stop; /* borrowed; checked before (run/stops.h); not applied inside thinking and tool calls */
    int n_stop;
    int max_tokens;       /* >= 1 */
    int thinking_budget;  /* tokens of thinking after which the block is closed; -1: no limit */
    int loop_guard;       /* times that a passage of thinking may repeat before the block is closed; 0: no guard */
    int n_logprobs;       /* most likely tokens to name at each place; -1: no log probabilities at all */
    bool raw;             /* the text is passed on as it is: no thinking, no calls */
    bool thinking_open;   /* the prompt ends inside <think> */
    bool no_calls;        /* calls are text */
    bool one_call;        /* the answer ends behind its first call */
    bool whole;           /* the asker waits for the end: wake it for that, and when the ring fills */
    int owner;            /* which client asks (its key): what was asked by one is not shown to another */
    const struct json *tools; /* borrowed; read by the engine thread alone from engine_submit on; may be NULL */
};

/* What became of it. */
enum job_detail { JOB_DETAIL_NONE, JOB_CLOSED_AT_END, JOB_CLOSED_BY_BUDGET, JOB_CLOSED_BY_GUARD };
const char *job_detail_name(enum job_detail d); /* NULL, "thinking_closed_at_end_of_turn", … */

struct job_result {
    lily_status status;        /* LILY_OK, also when cancelled; else err says why */
    struct lily_err err;
    enum finish_reason finish; /* when LILY_OK */
    enum job_detail detail;    /* how the thinking came to its end, when the model did not end it */
    int stop_index;            /* the stop string that ended it, -1 otherwise */
    int reused, computed;      /* prompt tokens taken from saved state, and read */
    struct cache_miss miss;    /* why not more was there */
    int completion_tokens;     /* generated, thinking included, the end-of-turn token not */
    int reasoning_tokens;
    double queue_ms, prefill_ms, decode_ms;
};

/* Kinds of records in the ring. Texts are whole characters of valid UTF-8. */
enum job_record {
    JOB_REASONING, JOB_CONTENT, /* text */
    JOB_CALL_START,             /* the function's name */
    JOB_CALL_ARGUMENTS,         /* a fragment of its arguments */
    JOB_CALL_END,
    JOB_CALL_TEXT,              /* a fragment of the call as the model wrote it, tags included; behind its end */
    JOB_LOGPROB,                /* struct job_logprob, then the token's bytes */
    JOB_END                     /* struct job_result; the last one */
};

/* A token of the content; comes before its text. */
struct job_logprob {
    int32_t id;
    float logprob;
    int n_top;
    struct token_logprob top[MAX_TOP_LOGPROBS];
};

enum job_state { JOB_PREP, JOB_QUEUED, JOB_PREFILL, JOB_DECODE, JOB_DONE };

struct job {
    const struct job_spec *spec; /* borrowed */
    uint64_t seed;
    void *user;                  /* the asker's */
    atomic_bool cancel;          /* set by anyone; followed by engine_kick */
    atomic_bool blocked;         /* the engine waits for room in the ring: engine_kick after reading */
    struct ring ring;            /* owned */
    /* For progress, written by the engine, read by any: */
    _Atomic int state;           /* enum job_state */
    _Atomic int position;        /* jobs in front of it while queued */
    _Atomic int done, total;     /* prompt tokens, while prefilling */
    /* The engine's own. */
    struct job *next;            /* in the queue */
    double submitted_ms;
};

/* Owned by the caller; job_free when it was never submitted or has ended. */
struct job *job_new(const struct job_spec *spec, uint64_t seed);
void job_free(struct job *j); /* NULL is fine */

#endif
