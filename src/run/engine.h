/*
 * The engine: one thread that owns a runner and serves jobs from a queue, several at a time.
 *
 * Nouns: a runner computes (run/runner.h), a job is one answer (run/job.h), the queue holds jobs until a slot is free, first
 * come first served. `wake` is called when something was put into a ring, and before what follows it is computed.
 *
 * States: loading, ok, failed (the runner is broken for good: every job ends with the error, none is taken any more).
 *
 * Threads: every function here may be called from any thread; wake runs on the engine thread and must not block. Lifetime:
 * engine_stop ends every job and joins the thread; the rings may still be read after it; engine_free then.
 */
#ifndef LILY_RUN_ENGINE_H
#define LILY_RUN_ENGINE_H

#include "run/runner.h"
#include "run/scheduler.h"

struct engine;

struct engine_options {
    int queue;            /* jobs that may wait */
    /* Something can be read, and may lie for so long: more of an answer; or 0: its begin or end, or another state. */
    void (*wake)(void *ctx, double patience_ms);
    void *wake_ctx;
};

enum engine_state { ENGINE_LOADING, ENGINE_OK, ENGINE_FAILED };

/* Starts the thread, which loads the runner. Owned: engine_free. */
lily_status engine_start(struct runner *moved, const struct engine_options *o, struct engine **out, struct lily_err *err);
/*
 * Hands n jobs over, all or none. LILY_ERR_LIMIT: the queue is full; LILY_ERR_DEVICE: the engine is not (or no longer) there.
 */
lily_status engine_submit(struct engine *e, struct job *const *jobs, int n, struct lily_err *err);
/* A prompt that will probably come: read while nothing else is to do. Dropped when the engine does no such thing. */
void engine_read_ahead(struct engine *e, struct read_ahead *moved);
/* After setting a job's cancel, or after reading from the ring of a job that is blocked. */
void engine_kick(struct engine *e);

enum engine_state engine_state(const struct engine *e);
void engine_error(struct engine *e, struct lily_err *out); /* why it failed */
const struct engine_counters *engine_counters(const struct engine *e);
const struct cache_counters *engine_cache(const struct engine *e); /* NULL: it has none, or is loading */
int engine_states(struct engine *e, struct border_info *out, int max); /* the saved states (borders_list); 0 while loading */
int engine_ctx(const struct engine *e); /* tokens of a sequence; 0 while loading */
int engine_loaded(const struct engine *e); /* thousandths of the weights */

void engine_stop(struct engine *e); /* every job ends as cancelled */
void engine_free(struct engine *e); /* NULL is fine; stops, too */

#endif
