/*
 * The generation loop of one answer: pick, detokenize, stop checks before a token is fed, events to the caller.
 *
 * Threads: the engine thread; the callback runs on it. Lifetime: everything in the request is borrowed during the call.
 */
#ifndef LILY_RUN_GENERATE_H
#define LILY_RUN_GENERATE_H

#include <stdatomic.h>

#include "run/session.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

enum finish_reason { FINISH_STOP, FINISH_STOP_STRING, FINISH_LENGTH, FINISH_CANCELLED };
const char *finish_reason_name(enum finish_reason r); /* "stop", "stop", "length", "cancelled" */

struct generate_request {
    const struct tokenizer *tokenizer;
    const int32_t *eos; /* ids that end the answer; neither fed nor shown */
    int n_eos;
    int max_tokens; /* >= 1; a full context ends the answer earlier (FINISH_LENGTH) */
    const char *const *stop; /* stop strings over the text, outside thinking (run/stops.h); never shown, not even in part */
    int n_stop;
    bool thinking_open; /* the prompt ends inside <think>: stop strings wait for the token </think> */
    bool show_special;  /* write tokens with special: true as text (raw mode) */
    const atomic_bool *cancel; /* polled before each token; may be NULL */
    /*
     * New text (n bytes of whole characters, not NUL-terminated) and the token it came with; n may be 0. At the end, text that had been
     * held back comes once more with id -1. false stops the answer. A character that the end cuts in two is dropped.
     */
    bool (*on_text)(void *ctx, int32_t id, const char *text, size_t n);
    void *ctx;
};

struct generate_result {
    enum finish_reason finish;
    struct ids ids;   /* owned by the caller (ids_free), also on failure; the generated tokens without the ending eos */
    int steps;        /* decode steps made: the first token needs none */
    double decode_ms; /* from the first pick to the end */
};

/*
 * Generates after session_sync: the session's logits are those of the prompt's last token. The sampler is fresh and knows
 * the prompt. *out is filled also when it fails: what was generated until then has been shown.
 */
lily_status generate(struct session *s, struct sampler *sampler, const struct generate_request *r,
                     struct generate_result *out, struct lily_err *err);

#endif
