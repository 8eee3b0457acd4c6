/*
 * What the engine drives: something that reads prompts and produces tokens in a number of slots. There are two: the model
 * (run/runner_model.c) and a script (run/fake.h), so that everything above is tested exactly and without weights.
 *
 * A slot holds one sequence. The order of calls: begin, prefill until *done, then rounds of pick and decode, then end. The
 * token that pick gives need not be the one that is fed: the caller may feed another one (it closes the thinking), or none.
 * Threads: the engine thread; text() also by none else while it runs. Lifetime: the runner outlives the engine's thread.
 *
 * A failure with LILY_ERR_DEVICE means that the runner is broken for good; any other concerns the slots of that call alone.
 */
#ifndef LILY_RUN_RUNNER_H
#define LILY_RUN_RUNNER_H

#include "run/aside.h"
#include "run/borders.h"
#include "run/bundle.h"
#include "run/job.h"

struct runner;

struct picked {
    int32_t id;
    bool ready;   /* false: the token is not there yet; ask again at ready_ms */
    double ready_ms; /* clock_ms */
    struct job_logprob logprob; /* when the spec wants them */
};

struct feed {
    int slot;
    int32_t id;
    bool goes_on; /* what pick gives next will be fed, unless it ends the turn */
};

struct runner_ops {
    lily_status (*load)(struct runner *r, struct lily_err *err); /* once, first; may take long */
    void (*free)(struct runner *r);
    /* Binds a job to a free slot and takes from saved state what it can: result->reused prompt tokens, and why not more. */
    lily_status (*begin)(struct runner *r, int slot, struct job *job, struct job_result *result, struct lily_err *err);
    /*
     * Reads the next piece of the prompt, or a slice of it, of which job->done may tell; *read: prompt tokens in the state now, as many
     * as before when the piece has not ended. *goes_on: then the rest of it should come before any other slot's. Returns soon when
     * `hurry` or the job's `cancel` becomes true.
     */
    lily_status (*prefill)(struct runner *r, int slot, int *read, bool *goes_on, struct lily_err *err);
    lily_status (*pick)(struct runner *r, int slot, struct picked *out, struct lily_err *err);
    /* One more token for each of n different slots. */
    lily_status (*decode)(struct runner *r, const struct feed *feeds, int n, struct lily_err *err);
    /* The bytes of a token as they belong to the answer; special tokens have none. May be part of a character. View. */
    const char *(*text)(struct runner *r, int slot, int32_t id, size_t *n);
    void (*thinking_closed)(struct runner *r, int slot); /* the caller closes the block; may be NULL */
    void (*end)(struct runner *r, int slot);
    /*
     * Once a step, after all else: what is to be done beside the jobs. idle: no slot is in use, and what is begun here stops
     * when `hurry` becomes true. *more: it wants to be called again soon. May be NULL.
     */
    lily_status (*tend)(struct runner *r, bool idle, bool *more, struct lily_err *err);
    void (*read_ahead)(struct runner *r, struct read_ahead *moved); /* a prompt that will probably come; may be NULL */
    int (*states)(struct runner *r, struct border_info *out, int max); /* borders_list; any thread, after load; may be NULL */
};

struct runner {
    const struct runner_ops *ops;
    const struct bundle *texts; /* borrowed; tokenizer and eos */
    int n_slots;
    int ctx; /* tokens of a sequence; known after load */
    const struct cache_counters *cache; /* borrowed; NULL: it has none, or load() has not ended */
    void (*kick)(void *ctx); /* wakes the engine; from any thread; set by the engine before load() */
    void *kick_ctx;
    atomic_bool hurry; /* set by any thread when a job comes, cleared by the engine */
    struct load_watch loading; /* any thread, while load() runs */
};

struct runner_model_options {
    struct model_options model;
    int n_slots;
    const char *cache_dir; /* borrowed; folder for states on disk; NULL: none */
    size_t cache_disk;     /* bytes that they may take there */
    double verify;      /* share of the prompts with saved state that are read again cold, to compare */
    size_t cache_bytes; /* memory for saved states, shared by all slots */
};
/* For tests: the logits of a slot's last token, (vocab), and the saved states. */
struct borders *runner_model_borders(struct runner *r);
const float *runner_model_logits(const struct runner *r, int slot);
/* b is borrowed; its weights are loaded by load(). Owned: ops->free. */
struct runner *runner_model_new(struct bundle *b, const struct runner_model_options *o);

#endif
