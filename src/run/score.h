/*
 * Teacher-forced reading: a model reads given tokens in the prefill path, and the logits of every row are looked at.
 *
 * The bits of a row depend on the tokens before it alone (ARCHITECTURE.md, State), so the same ids give the same numbers in
 * every run, on any number of threads. Threads: the engine thread. Lifetime: the model outlives the call.
 */
#ifndef LILY_RUN_SCORE_H
#define LILY_RUN_SCORE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "model/model.h"

/* Called with the logits after ids[row] (vocab of them, valid during the call), rows rising. A failure ends the reading. */
typedef lily_status (*score_fn)(void *ctx, int row, const float *logits, struct lily_err *err);

struct score_request {
    const int32_t *ids;        /* borrowed; (n) */
    int n;                     /* 1 to the plan's context */
    int first;                 /* rows before it are read without logits */
    const atomic_bool *cancel; /* polled between pieces; may be NULL. LILY_ERR_CANCELLED */
    score_fn row;
    void *ctx;
};

/* Reads ids as one sequence from its beginning. LILY_ERR_LIMIT when n passes the context, LILY_ERR_USAGE for an id that is none. */
lily_status score_sequence(struct model *m, const struct score_request *r, struct lily_err *err);

#endif
