/*
 * The weights of a model on a backend, bound by name from a checkpoint.
 *
 * Owned by the model: weights_free. Immutable after weights_load.
 */
#ifndef LILY_MODEL_WEIGHTS_H
#define LILY_MODEL_WEIGHTS_H

#include "backend/backend.h"
#include <stdbool.h>

#include "load/checkpoint.h"

struct layer_weights {
    struct gdn_weights gdn;   /* of a linear layer; zero otherwise */
    struct attn_weights attn; /* of a full-attention layer; zero otherwise */
    struct moe_weights moe;
};

struct load_watch;

struct model_weights {
    struct matrix *embed; /* vocab x hidden */
    struct matrix *head;  /* vocab x hidden */
    struct vector *norm;  /* (hidden) */
    struct layer_weights *layers; /* owned; (n_layers) */
    int n_layers;
};

struct sha256;
struct weights_sum {
    struct sha256 *hash; /* borrowed; gets a sum of each tensor in the order of loading */
    bool matrices;       /* not only the small ones: their bytes are read for it */
};

/* Packs every tensor, with a progress bar, and lets go of the file's pages behind it. */
/* watch: may be NULL. sum: may be NULL. */
lily_status weights_load(struct backend *be, const struct checkpoint *ck, struct load_watch *watch, const struct weights_sum *sum, struct model_weights *out,
                         struct lily_err *err);
void weights_free(struct backend *be, struct model_weights *w);

#endif
