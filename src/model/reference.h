/*
 * The slow reference: the whole forward pass in double, token by token and formula by formula, straight from the
 * checkpoint's own layout. It shares no code with any backend and is the yardstick of the golden tests.
 *
 * Threads: any; nothing is kept between calls. Lifetime: config and checkpoint are borrowed during the call.
 */
#ifndef LILY_MODEL_REFERENCE_H
#define LILY_MODEL_REFERENCE_H

#include "load/checkpoint.h"

struct reference_out {
    double *hidden; /* (n_layers + 1, n, hidden): embedding, then after every layer; may be NULL */
    double *logits; /* (n, vocab) of every position; may be NULL */
};

lily_status reference_forward(const struct model_config *config, const struct checkpoint *ck, const int32_t *ids, int n,
                              const struct reference_out *out, struct lily_err *err);

#endif
