/* What the parts of lily eval share. Thread: the main one. */
#ifndef LILY_CMD_EVAL_H
#define LILY_CMD_EVAL_H

#include "commands.h"
#include "model_args.h"

struct eval_args {
    struct common_args common;
    struct model_args model;
    int window;       /* tokens read as one sequence; 0: 2048, or less where the model or --ctx allows less */
    int stride;       /* tokens from one window of a perplexity to the next; 0: half a window */
    int max_tokens;   /* of the text; 0: all */
    int top;          /* tokens a row of a recorded reference keeps */
    int limit;        /* questions; 0: all */
    const char *out;  /* the reference that is recorded */
    bool quick;
};

/* Loads the model with room for sequences of the window, which is settled here. bundle_close in any case of success. */
lily_status eval_open(struct eval_args *a, struct bundle *b, struct lily_err *err);
/* The tokens of a file ("-": stdin), at most --max-tokens. LILY_ERR_USAGE for less than two. */
lily_status eval_text(const struct eval_args *a, const struct bundle *b, const char *file, struct ids *out, struct lily_err *err);

lily_status eval_compare(struct eval_args *a, const char *reference, struct lily_err *err);
lily_status eval_quick(struct eval_args *a, struct lily_err *err);
lily_status eval_choice(struct eval_args *a, const char *file, struct lily_err *err);

#endif
