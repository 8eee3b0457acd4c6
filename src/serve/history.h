/* How many tokens were written and read in each of the last seconds. Thread: the owner's. */
#ifndef LILY_SERVE_HISTORY_H
#define LILY_SERVE_HISTORY_H

#include "base/buf.h"

#include <stdint.h>

enum { HISTORY_STEPS = 300, HISTORY_STEP_MS = 1000 };

/* Zero-initialised is empty. */
struct history {
    double until_ms;                 /* the end of the present step; 0: not begun */
    uint64_t generated, read;        /* the counters at its beginning */
    uint32_t written_in[HISTORY_STEPS], read_in[HISTORY_STEPS]; /* rings */
    int n, next;                     /* steps that are there; where the next one goes */
};

/* Takes the counters, which only grow, at a time. Steps in which nobody looked get nothing but the last, which gets it all. */
void history_note(struct history *h, double now_ms, uint64_t generated, uint64_t read);
/* Appends {"step_s":…,"generated":[…],"read":[…]}, the oldest step first. */
void history_put(const struct history *h, struct buf *out);

#endif
