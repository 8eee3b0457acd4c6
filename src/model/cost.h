/*
 * What a pass over a model costs at least: bytes that must be read and operations that must be done, from config.json alone.
 * The floor of a measurement is these, divided by what the device reaches. Plain values; any thread.
 */
#ifndef LILY_MODEL_COST_H
#define LILY_MODEL_COST_H

#include "load/config.h"

struct pass_cost {
    double bytes; /* weights as the checkpoint stores them, states read and written, keys and values read (kv_bytes a number) */
    double ops;   /* matrix products, attention and delta rule; a multiply-add is two */
};

/* One decode step with n tokens of context. */
struct pass_cost cost_decode(const struct model_config *c, int n, int kv_bytes);
/* A prompt of n tokens, its weights read once (experts as far as uniform routing touches them), and one row of logits. */
struct pass_cost cost_prefill(const struct model_config *c, int n, int kv_bytes);

#endif
