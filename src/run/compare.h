/*
 * How far a model is from a reference (run/reference.h), row by row: perplexities, most likely tokens, Kullback-Leibler
 * divergence, by position in the context.
 *
 * The divergence of a row is taken over the reference's k most likely tokens and one class for all others. The same model,
 * ids and reference give exactly 0. One thread at a time. Owned: comparison_free.
 */
#ifndef LILY_RUN_COMPARE_H
#define LILY_RUN_COMPARE_H

#include <stdbool.h>

#include "run/reference.h"

enum { COMPARE_BUCKETS = 20 };

/* Rows at positions lo … hi-1 of their sequence. */
struct compare_bucket {
    int lo, hi;
    int n, n_top, same;   /* rows with a next token; rows; those of n_top whose most likely token is the reference's */
    double ours, theirs;  /* sums of the next tokens' log-probabilities over n */
    double kl;            /* sum over n_top */
};

struct comparison {
    struct compare_bucket all, bucket[COMPARE_BUCKETS]; /* 0-63, 64-127, 128-255, … */
    float *kl;                                          /* owned; (all.n_top) of each row */
};

lily_status comparison_new(const struct reference *r, struct comparison *out, struct lily_err *err);
void comparison_free(struct comparison *c);
/* Row i of the reference, which is at `position` in its sequence; is_last: no token follows. logits: (n_tokens) */
void comparison_add(struct comparison *c, const struct reference *r, int i, int position, bool is_last, const float *logits,
                    int n_tokens);
/* Of one bucket; 1 and 0 where it has no rows. */
double compare_perplexity(const struct compare_bucket *b, bool ours);
double compare_kl_percentile(struct comparison *c, double share); /* sorts c->kl */

#endif
