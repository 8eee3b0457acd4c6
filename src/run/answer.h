/*
 * One answer of a session: the prompt is read, tokens are generated, parsed into thinking, text and tool calls, handed on as
 * they come, collected and counted.
 *
 * Threads: the engine thread; callbacks run on it. Lifetime: the job is borrowed during the call. Owned: answer_free.
 */
#ifndef LILY_RUN_ANSWER_H
#define LILY_RUN_ANSWER_H

#include "json/json.h"
#include "run/generate.h"
#include "run/prompt.h"

enum answer_part { ANSWER_REASONING, ANSWER_TEXT };

struct answer_job {
    const struct bundle *bundle;
    struct session *session;
    const struct prompt *prompt;
    const struct json *tools;             /* what the model was offered: types of arguments; may be NULL */
    const struct sampler_params *sampling;
    const char *const *stop;
    int n_stop;
    int max_tokens;            /* 0: what the model recommends (max_new_tokens), else as many as the context holds */
    bool raw;                  /* nothing is parsed: all is ANSWER_TEXT, special tokens are written */
    const atomic_bool *cancel; /* may be NULL */
    /* All may be NULL. on_text: n bytes of whole characters; false stops the answer. arguments: JSON text. */
    bool (*on_text)(void *ctx, enum answer_part part, const char *text, size_t n);
    void (*on_call)(void *ctx, const char *name, const char *arguments);
    void (*on_progress)(void *ctx, int done, int total); /* prompt tokens computed of those to compute */
    void *ctx;
};

struct answer {
    struct buf text, reasoning; /* owned */
    struct json *calls;         /* owned; array of {id, type, function: {name, arguments}} as chat completions have it */
    struct ids ids;             /* owned; generated tokens */
    enum finish_reason finish;
    bool closed_thinking;       /* the model ended its turn inside its thoughts; they were closed for it, and it went on */
    struct sync_result read;    /* tokens of the prompt taken from saved state, and computed */
    int prompt_tokens, reasoning_tokens, steps;
    double prefill_ms, decode_ms;
};

/* A cancel ends it with LILY_OK and FINISH_CANCELLED, also while the prompt is read. On failure *out is empty. */
lily_status answer_make(const struct answer_job *job, struct answer *out, struct lily_err *err);
void answer_free(struct answer *a);

const char *answer_finish(const struct answer *a);       /* "stop", "length", "tool_calls", "cancelled" */
double answer_prefill_speed(const struct answer *a);     /* tokens computed per second */
double answer_decode_speed(const struct answer *a);      /* decode steps per second */

#endif
