/*
 * A clock for the steps of a forward pass: while it is on, the backend's table of steps is one that times the real ones. Of a
 * backend that computes after a step has returned (CUDA) it says nothing. Engine thread.
 */
#ifndef LILY_RUN_STEP_CLOCK_H
#define LILY_RUN_STEP_CLOCK_H

#include "backend/backend.h"

enum step_kind { STEP_EMBED, STEP_GDN_IN, STEP_GDN_MIX, STEP_GDN_OUT, STEP_ATTN_IN, STEP_ATTN_MIX, STEP_ATTN_OUT, STEP_ROUTE, STEP_EXPERTS,
                 STEP_HEAD, STEP_KINDS };

struct step_clock {
    struct backend_ops ops;          /* first: the backend points to it while the clock is on */
    const struct backend_ops *inner; /* borrowed; NULL: off */
    double ms[STEP_KINDS];           /* since step_clock_on */
};

void step_clock_on(struct step_clock *c, struct backend *be);
/* Gives the backend its own table back. */
void step_clock_off(struct step_clock *c, struct backend *be);
const char *step_name(enum step_kind kind);

#endif
