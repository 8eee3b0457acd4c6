/*
 * The generation loop of one answer: pick, detokenize, stop checks before a token is fed, events to the caller.
 *
 * Threads: the engine thread; the callbacks run on it. Lifetime: everything in the request is borrowed during the call.
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
    const int32_t *eos; /* ids that end the answer; not part of its text */
    int n_eos;
    int max_tokens; /* >= 1; lowered to what the context holds */
    const char *const *stop; /* stop strings over the text, outside thinking; never shown, not even in part */
    int n_stop;
    bool thinking_open; /* the prompt ends inside <think>: stop strings wait for </think> */
    bool show_special;  /* write tokens with special: true as text (raw mode) */
    const atomic_bool *cancel; /* may be NULL */
    /* New text (whole characters, n bytes) and the token it came with; n may be 0. false stops the answer. */
    bool (*on_text)(void *ctx, int32_t id, const char *text, size_t n);
    void *ctx;
};

struct generate_result {
    enum finish_reason finish;
    struct ids ids; /* owned by the caller (ids_free); the generated tokens, the ending eos not included */
    double decode_ms;
};

/* Generates after session_sync: the session's logits are those of the prompt's last token. */
lily_status generate(struct session *s, struct sampler *sampler, const struct generate_request *r,
                     struct generate_result *out, struct lily_err *err);

#endif
