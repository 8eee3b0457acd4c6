/*
 * What the engine does beside its jobs: it reads ahead the beginnings of prompts that will probably come, and it reads a
 * share of the prompts that were served from saved state again, cold, and compares the last logits bit for bit.
 *
 * Work is done piece by piece, in steps. Reading ahead happens only while there is nothing else to do; it stops inside a
 * piece when a job comes (the flag `hurry`) and goes on later from what it has saved.
 * Threads: the engine thread. Lifetime: the model and the borders outlive it. Owned: aside_free.
 */
#ifndef LILY_RUN_ASIDE_H
#define LILY_RUN_ASIDE_H

#include "run/borders.h"
#include "text/tokenizer.h"

/* The beginning of a prompt that will probably come. Owned: read_ahead_free. */
struct read_ahead {
    struct ids ids; /* owned */
    struct read_ahead *next; /* in the engine's queue */
};
void read_ahead_free(struct read_ahead *a); /* NULL is fine */

struct aside;

/* verify: the share of prompts to verify, 0 to 1; above 0 a sequence is kept for it. */
lily_status aside_new(struct model *m, struct borders *b, double verify, struct aside **out, struct lily_err *err);
void aside_free(struct aside *a); /* NULL is fine */

/* Whether the next prompt with saved state is one of those that are verified; counts them. */
bool aside_chooses(struct aside *a);
/* The prompt and the logits of its last token as they were served; copied. Dropped when too many wait. */
void aside_verify(struct aside *a, const int32_t *ids, int n, const float *logits);
void aside_read_ahead(struct aside *a, struct read_ahead *moved);

struct aside_step {
    struct seq *spare;       /* borrowed; an empty sequence for reading ahead, and so again after it; NULL: not idle */
    const atomic_bool *hurry;
    bool more;               /* out: there is more to do */
};
lily_status aside_step(struct aside *a, struct aside_step *s, struct lily_err *err);
/* Gives the spare sequence back, empty, before a job may use it: what was read ahead in it is saved. */
lily_status aside_pause(struct aside *a, struct seq *spare, struct lily_err *err);

#endif
