/*
 * Golden data for tests: arrays of a golden.safetensors, error measures, and a model run that records every hidden state.
 *
 * Everything here fails the running cmocka test on trouble.
 */
#ifndef LILY_TESTS_SUPPORT_GOLDEN_H
#define LILY_TESTS_SUPPORT_GOLDEN_H

#include <stdint.h>

#include "base/file.h"
#include "load/safetensors.h"
#include "model/model.h"

struct golden {
    struct file_map map;     /* owned */
    struct safetensors file; /* owned */
};

void golden_open(struct golden *g, const char *path);
void golden_close(struct golden *g);
/* An array by name, copied (owned, free()); *n gets its elements. I32 and F32. NULL when it is not there. */
int32_t *golden_ints(const struct golden *g, const char *name, int *n);
float *golden_floats(const struct golden *g, const char *name, int *n);

/* max |got - want| over the rms of want, for one row. */
double relative_error(const float *got, const float *want, int n);

/* A run over n ids in pieces of `piece` rows of one phase. */
struct traced_run {
    int piece;
    enum phase phase;
};
struct trace {
    float *hidden; /* owned; (n_layers + 1, n, hidden) */
    float *logits; /* owned; (n, shape_logits_ld) */
    int n;
};
void trace_model(struct model *m, const int32_t *ids, int n, struct traced_run run, struct trace *out);
void trace_free(struct trace *t);
const float *trace_hidden(const struct trace *t, const struct model *m, int layer, int row); /* layer 0: embedding */
const float *trace_logits(const struct trace *t, const struct model *m, int row);

/* On the CPU, or on the device that $LILY_TEST_DEVICE names. */
struct model *open_model(const char *dir, enum cpu_tier tier, int threads, bool kv_f32);

#endif
