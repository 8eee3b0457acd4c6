/*
 * Every tensor of the text model, from its shape alone, in the order in which converters write them. Any thread.
 */
#ifndef LILY_LOAD_INVENTORY_H
#define LILY_LOAD_INVENTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "load/config.h"

/* One weight: a module (PATH.weight, with PATH.scales and PATH.biases when quantized) or a vector (the tensor PATH). */
struct inventory_item {
    char path[96]; /* without "language_model." */
    bool is_module;
    int experts, rows, cols; /* module: experts 0 for a plain one. vector: rows x cols elements */
};

/* Called once per item; a failure ends the walk and is returned. */
typedef lily_status (*inventory_fn)(void *arg, const struct inventory_item *item, struct lily_err *err);
lily_status inventory_walk(const struct model_shape *shape, inventory_fn fn, void *arg, struct lily_err *err);

/* The same for n_layers layers of multi-token prediction: paths begin with "mtp.". */
lily_status inventory_walk_mtp(const struct model_shape *shape, int n_layers, inventory_fn fn, void *arg, struct lily_err *err);

/* Tensors and bytes of a checkpoint whose modules are all quantized by the rules of config, everything else BF16. */
struct inventory_sum {
    int n_tensors;
    int64_t bytes;
};
struct inventory_sum inventory_sum(const struct model_config *config);

#endif
