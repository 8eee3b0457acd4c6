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

#include "run/job.h"
#include "run/bundle.h"

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
};

struct runner_ops {
    lily_status (*load)(struct runner *r, struct lily_err *err); /* once, first; may take long */
    void (*free)(struct runner *r);
    /* Binds a job to a free slot and takes from saved state what it can: *reused prompt tokens. */
    lily_status (*begin)(struct runner *r, int slot, const struct job *job, int *reused, struct lily_err *err);
    /* Reads the next piece of the prompt; *read: prompt tokens in the state now. */
    lily_status (*prefill)(struct runner *r, int slot, int *read, struct lily_err *err);
    lily_status (*pick)(struct runner *r, int slot, struct picked *out, struct lily_err *err);
    /* One more token for each of n different slots. */
    lily_status (*decode)(struct runner *r, const struct feed *feeds, int n, struct lily_err *err);
    /* The bytes of a token as they belong to the answer; special tokens have none. May be part of a character. View. */
    const char *(*text)(struct runner *r, int slot, int32_t id, size_t *n);
    void (*thinking_closed)(struct runner *r, int slot); /* the caller closes the block; may be NULL */
    void (*end)(struct runner *r, int slot);
};

struct runner {
    const struct runner_ops *ops;
    const struct bundle *texts; /* borrowed; tokenizer and eos */
    int n_slots;
    int ctx; /* tokens of a sequence; known after load */
    struct load_watch loading; /* any thread, while load() runs */
};

struct runner_model_options {
    struct model_options model;
    int n_slots;
    int max_borders; /* saved states, shared by all slots */
};
/* b is borrowed; its weights are loaded by load(). Owned: ops->free. */
struct runner *runner_model_new(struct bundle *b, const struct runner_model_options *o);

#endif
