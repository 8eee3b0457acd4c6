/*
 * What is made of the tokens of one answer: characters, stop strings, thinking and tool calls, and the decision whether and
 * with what the answer goes on. It knows no model and no queue: tokens go in, records of run/job.h come out.
 *
 * The end of the turn inside the thinking would leave no answer, so the block is closed in the model's own form and the
 * model goes on; a budget or the loop guard close it the same way. The closing text is forced on the model, token by token.
 *
 * Threads: the engine thread. Owned: reply_free. Lifetime: spec and texts outlive it.
 */
#ifndef LILY_RUN_REPLY_H
#define LILY_RUN_REPLY_H

#include "chat/output.h"
#include "run/bundle.h"
#include "run/job.h"
#include "run/repeat.h"
#include "run/stops.h"

typedef void (*reply_put)(void *ctx, enum job_record kind, const void *data, size_t n);

struct reply {
    const struct job_spec *spec; /* borrowed */
    const struct bundle *texts;  /* borrowed */
    reply_put put;
    void *ctx;
    struct detokenizer chars;
    struct stops *stops;          /* owned; NULL while none applies */
    struct output_parser *parser; /* owned; NULL for raw text */
    struct buf whole, shown;      /* owned; scratch */
    struct buf ready;             /* owned; text of one kind that goes out as one record */
    enum job_record ready_kind;
    bool content_begun;
    bool second_call;             /* one began where only one is wanted */
    struct ids closing;           /* owned; closing text that is still to be forced */
    size_t forced;                /* tokens of it that were */
    struct repeat repeat;
    int completion_tokens, reasoning_tokens;
    enum finish_reason finish;
    enum job_detail detail;
    int stop_index;
};

lily_status reply_open(struct reply *r, const struct job_spec *spec, const struct bundle *texts, struct lily_err *err);
void reply_free(struct reply *r);

/* The token that comes next whatever the model says, or -1. *closes: with it the thinking begins to be closed. */
int32_t reply_forced(struct reply *r, bool *closes);
/* Behind the token that was taken last: the next one is the model's own and will be fed, as far as can be known. */
bool reply_goes_on(const struct reply *r);
/* The model ended its turn. false: so does the answer. */
bool reply_end_of_turn(struct reply *r);
/* Takes a token and its bytes; lp is NULL when there is none. false: the answer ends with it, and it is not to be fed. */
bool reply_token(struct reply *r, int32_t id, const char *bytes, size_t n, const struct job_logprob *lp);
/* The answer is over: what was held back comes out. */
void reply_finish(struct reply *r);

#endif
