/*
 * What a conversion will write: which tensors, from which parts of the source, into which file. Internal to load/.
 *
 * Plain values after convert_plan_make; sources are views that die with the checkpoint. Owned: convert_plan_free.
 */
#ifndef LILY_LOAD_CONVERT_PLAN_H
#define LILY_LOAD_CONVERT_PLAN_H

#include "load/checkpoint.h"
#include "load/inventory.h"
#include "load/safetensors_write.h"

/* One weight of the model: a vector, or a module, which becomes codes, scales and biases. */
struct convert_job {
    struct tensor_view source;
    int bits;                /* 0: a vector, kept as it is but for add_one */
    bool add_one;            /* a norm that the source stores as w of (1+w) */
    /* The module's rows lie in n_runs pieces of run elements, stride elements apart, the first at `first`. */
    int64_t first, run, stride, n_runs;
    int64_t groups;          /* of 64 weights, all runs together */
    int tensor;              /* its first one in convert_plan.tensors */
};

struct convert_plan {
    struct convert_job *jobs;    /* owned */
    struct tensor_decl *tensors; /* owned, names too; in the order of writing */
    int *shard;                  /* owned; of each tensor, from 0 */
    int n_jobs, n_tensors, n_shards;
    int64_t bytes_in, bytes_out;
};

/* Which inventory, and how. */
struct convert_want {
    const struct checkpoint *source;
    const struct model_config *config;
    bool mtp;          /* the tensors of multi-token prediction; all of them get 4 bits, routers too, as MLX does */
    const char *prefix; /* in front of the names that are written */
};

/* LILY_ERR_FORMAT, _UNSUPPORTED when the source is not what its config.json says. */
lily_status convert_plan_make(const struct convert_want *want, struct convert_plan *out, struct lily_err *err);
void convert_plan_free(struct convert_plan *p);

/* True for the modules that keep 8 bits: routers and the gates of shared experts. */
bool convert_is_gate(const char *path);

#endif
