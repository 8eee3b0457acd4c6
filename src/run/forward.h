/* One pass of the model over rows of one sequence, for those who drive a single one. Engine thread. */
#ifndef LILY_RUN_FORWARD_H
#define LILY_RUN_FORWARD_H

#include <stdatomic.h>

#include "model/model.h"

struct rows {
    enum phase phase;
    struct seq *seq; /* borrowed; has room for n more tokens */
    const int32_t *ids;
    int n;
    float *logits;           /* (shape_logits_ld) of the last row; NULL: not wanted */
    const atomic_bool *stop; /* polled inside the pass; then LILY_ERR_CANCELLED, and the sequence must be reset. May be NULL */
};
lily_status forward_rows(struct model *m, const struct rows *r, struct lily_err *err);

#endif
