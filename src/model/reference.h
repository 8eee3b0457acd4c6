/*
 * The slow reference: the whole forward pass in double, token by token and formula by formula, straight from the
 * checkpoint's own layout. It shares no code with any backend and is the yardstick of the golden tests.
 *
 * Threads: any; nothing is kept between calls. Lifetime: config and checkpoint are borrowed during the call.
 */
#ifndef LILY_MODEL_REFERENCE_H
#define LILY_MODEL_REFERENCE_H

#include "load/checkpoint.h"

/* What a backend rounds, so that a test can say what that alone changes: rows of n numbers, in place. NULL: nothing. */
struct reference_rounding {
    void (*input)(double *x, int n); /* of every product with a matrix */
    void (*kv)(double *x, int n);    /* a head's key or value, before its first use */
};

struct reference_out {
    double *hidden; /* (n_layers + 1, n, hidden): embedding, then after every layer; may be NULL */
    double *logits; /* (n, vocab) of every position; may be NULL */
    struct reference_rounding rounding; /* no output, but how it is made */
};

lily_status reference_forward(const struct model_config *config, const struct checkpoint *ck, const int32_t *ids, int n,
                              const struct reference_out *out, struct lily_err *err);

#endif
