/*
 * The options of every command that runs a model, and the bundle that they open (run/bundle.h). Thread: the main one.
 */
#ifndef LILY_CMD_MODEL_ARGS_H
#define LILY_CMD_MODEL_ARGS_H

#include "base/cpu.h"
#include "opt.h"
#include "run/bundle.h"

struct model_args {
    const char *dir;   /* NULL: search */
    int ctx;           /* 0: chosen by the plan */
    int threads;       /* 0: all */
    enum model_device device; /* auto by default */
    int card;          /* --device cuda:N */
    enum cpu_tier tier;
    bool kv_f32, fast;
    const char *packed;  /* NULL: what matches; "none"; or a file */
    bool identify;     /* the command keeps states (model_options.identify); no option */
    size_t memory_limit; /* 0: what the system has */
};
void model_args_init(struct model_args *a);
extern const struct opt_group opts_dir;   /* -m alone, for commands that load no weights */
extern const struct opt_group opts_model; /* all of them */

/*
 * The folder: -m, $LILY_MODEL, the newest pulled model, the demo model. Says which on stderr when -m was not given. Refuses what is no
 * model folder but leads to one (a packed file, a folder that holds model folders), and OWNER/NAME that was not pulled.
 */
lily_status model_find(const struct model_args *a, struct buf *dir, struct lily_err *err);
/* Whether a folder looks like a complete checkpoint that lily runs. */
bool model_is_checkpoint(const char *dir);
/* The demo model that belongs to this program; false when it is not there. */
bool model_find_demo(struct buf *dir);

/* Finds the folder and reads its texts. */
lily_status model_texts(const struct model_args *a, struct bundle *out, struct lily_err *err);
/* Loads the weights. borders: states that a session may keep besides the live one. */
lily_status model_weights(const struct model_args *a, int borders, struct bundle *b, struct lily_err *err);

/* Says on stderr what --fast costs, where it was asked for; model_weights does so itself. */
void model_tell_fast(const struct model_args *a);

/* The options of a run as far as these say them: device, threads, cache type, limit; the plan's context is left open. */
void model_args_options(const struct model_args *a, struct model_options *o);
/* What the plan asks of the model: for model_weights and for `lily info`. */
void model_plan_want(const struct model_args *a, const struct model_config *c, int borders, struct plan_want *want);

#endif
