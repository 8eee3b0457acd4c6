/*
 * The sampling options of commands that generate, and the sampler's parameters that follow from them and from the model's
 * generation_config.json. Values that were not given are NaN or -1. Borrows argv; owned lists: sampling_args_free.
 */
#ifndef LILY_CMD_SAMPLING_ARGS_H
#define LILY_CMD_SAMPLING_ARGS_H

#include <stdint.h>

#include "load/config.h"
#include "opt.h"
#include "run/stops.h"
#include "sample/sampler.h"

struct sampling_args {
    double temperature, top_p, min_p;
    double repetition, presence, frequency;
    int top_k;
    int max_tokens; /* 0: as the model's folder says, else as many as the context holds */
    bool seed_given;
    uint64_t seed;
    const char *stop[MAX_STOP_STRINGS];
    int n_stop;
    struct logit_bias *bias; /* owned */
    int n_bias;
};
void sampling_args_init(struct sampling_args *a);
void sampling_args_free(struct sampling_args *a);
extern const struct opt_group opts_sampling;

/* Parameters for a model with n_tokens tokens, checked; without --seed the seed is drawn from the system. */
lily_status sampling_params(const struct sampling_args *a, const struct model_config *c, int n_tokens,
                            struct sampler_params *out, struct lily_err *err);
uint64_t random_seed(void);

#endif
