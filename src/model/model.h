/*
 * A loaded model: config, weights on a backend, and the forward pass over a batch.
 *
 * Threads: one thread (the engine thread) at a time after model_open; model_config, model_shape and model_plan are
 * immutable and may be read by any. Lifetime: the model outlives its sequences and borders.
 */
#ifndef LILY_MODEL_MODEL_H
#define LILY_MODEL_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "backend/backend.h"
#include "base/cpu.h"
#include "load/config.h"
#include "model/plan.h"

struct model;

enum model_device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct model_options {
    enum model_device device; /* DEVICE_CPU by default */
    int card;           /* DEVICE_CUDA: number of the card, -1: the first that serves */
    int threads;        /* 0: every processor this process may use */
    enum cpu_tier tier; /* highest tier to use; cpu_best_tier() by default */
    bool fast;          /* CPU: prompts faster and less exact: routed experts read 8-bit activations (SPEED.md) */
    int max_rows;       /* rows of a prefill piece, multiple of 64; 0: what suits device and memory */
    struct plan_want plan;
    const char *packed; /* borrowed during opening; NULL: a packed file that matches, if there is one; "none"; or this file */
    bool identify;      /* model_identity is wanted: every tensor is summed while it loads */
    struct load_watch *watch; /* borrowed; NULL: nobody looks */
};

/* How another thread follows a model_open, and ends it. */
struct load_watch {
    _Atomic int thousandths; /* of the weights, that are loaded */
    atomic_bool stop;        /* LILY_ERR_CANCELLED soon after it is set */
};

/* Reads "auto", "cpu", "cuda" or "cuda:N"; false: it is none of these. */
bool model_device_parse(const char *text, enum model_device *device, int *card);

/* Fills the defaults. */
void model_options_init(struct model_options *o);

/* Loads DIR with a progress bar on a terminal. The plan is made first; LILY_ERR_MEMORY when it does not fit. Owned. */
lily_status model_open(const char *dir, const struct model_options *o, struct model **out, struct lily_err *err);
/* The same for a synthetic model, whose weights the backend makes itself; the plan is borrowed during the call. */
struct synth_plan; /* load/synth.h */
lily_status model_open_synth(const struct synth_plan *plan, const struct model_options *o, struct model **out, struct lily_err *err);
void model_close(struct model *m);

const struct model_config *model_config(const struct model *m);
const struct model_shape *model_shape(const struct model *m);
const struct memory_plan *model_plan(const struct model *m);
struct backend *model_backend(struct model *m); /* borrowed */
int model_threads(const struct model *m);
int model_kv_bytes(const struct model *m); /* bytes of a number in the attention cache: 2 or 4 */
bool model_is_packed(const struct model *m);     /* the weights lie in a mapped packed file */
const char *model_key(const struct model *m);    /* names the checkpoint's layout and files (checkpoint_key without times) */
/* 64 hex digits of a hash of the shape and of all weights; "" when it was not asked for. */
const char *model_identity(const struct model *m);
const char *model_device(const struct model *m); /* "cpu avx2", "cpu avx2 fast", "cuda NVIDIA H200" */

/* One pass over a batch (backend.h). The sequences must have room (seq_reserve). observe: NULL, or called after the
 * embedding (layer -1) and after every layer, when backend read_hidden may be used. */
struct forward_observer {
    void (*after)(void *ctx, struct backend *be, int layer); /* may be NULL */
    void *ctx;
    const atomic_bool *stop; /* once it is true, the pass ends after a layer with LILY_ERR_CANCELLED, and the sequences of the
                                batch must be reset; may be NULL */
};
lily_status model_forward(struct model *m, const struct batch *batch, const struct forward_observer *observe,
                          struct lily_err *err);

/*
 * A pass made layer by layer, between which the model takes other passes: where backend_limits.short_rows is not 0, one at a time.
 * In place until it has ended or is dropped.
 */
struct pass {
    struct batch batch; /* what it points to is borrowed */
    int layer, n_full, n_linear; /* made so far */
};
void model_pass_begin(struct model *m, struct pass *p); /* p->batch is set */
/* Makes the next layer, and behind the last one the head: then *done. */
lily_status model_pass_go_on(struct model *m, struct pass *p, bool *done, struct lily_err *err);
/* Forgets a pass that has not ended. Its sequences are broken: each must be reset or restored. */
void model_pass_drop(struct model *m, const struct pass *p);
/* Whether a pass has begun that has neither ended nor been dropped. */
bool model_pass_is_open(const struct model *m);
/* Rows that a batch may have now. */
int model_rows(const struct model *m);

#endif
