/*
 * The slots of a runner and what happens in them, step by step: a step takes a token of every sequence that decodes, then feeds them
 * to the model in one batch and reads at most one piece of one prompt, or a slice of it. So a prompt stops the others for one
 * slice at a time. Prompts take turns; one that begins like another that is being read waits until that part is saved: two equal ones are read once.
 *
 * Threads: the engine thread, but for the counters. Owned: scheduler_free. Lifetime: the runner outlives it.
 */
#ifndef LILY_RUN_SCHEDULER_H
#define LILY_RUN_SCHEDULER_H

#include "run/runner.h"

struct scheduler;

/* Since the start, and now; atomics that any thread may read. */
struct engine_counters {
    _Atomic uint64_t jobs_done, jobs_failed, jobs_cancelled;
    _Atomic uint64_t prompt_tokens, reused_tokens, computed_tokens, generated_tokens, reasoning_tokens;
    _Atomic uint64_t decode_steps, decode_rows, prefill_pieces;
    _Atomic uint64_t decode_us, prefill_us, queue_us; /* time spent */
    _Atomic int active, queued;
};

/* wrote and at_once: of either half of a step; the others: of the whole. */
struct step_outcome {
    bool wrote;     /* records were put */
    bool at_once;   /* a job's first ones are among them, or its last: nobody should wait for these */
    bool worked;    /* something was computed, so the next step may find more to do */
    double wait_ms; /* if not: clock_ms at which there will be something to do; infinite: when a job comes or is read */
};

struct scheduler *scheduler_new(struct runner *r, struct engine_counters *counters);
void scheduler_free(struct scheduler *s); /* no job is in it */

int scheduler_n_free(const struct scheduler *s);
/* Takes a job into a free slot. */
void scheduler_admit(struct scheduler *s, struct job *moved);
/*
 * The halves of a step: records of what is there, which the askers may read while the other one computes what follows. They fail only
 * when the runner is broken for good; then scheduler_end_all follows.
 */
lily_status scheduler_tell(struct scheduler *s, struct step_outcome *out, struct lily_err *err);
lily_status scheduler_compute(struct scheduler *s, struct step_outcome *out, struct lily_err *err);
/* Ends every job: with an error, or as cancelled (err NULL). */
void scheduler_end_all(struct scheduler *s, const struct lily_err *err);

/* Ends a job that never came into a slot. */
void scheduler_refuse(struct job *moved, struct engine_counters *counters, const struct lily_err *err);

#endif
