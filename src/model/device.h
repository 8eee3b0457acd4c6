/*
 * Which device a model runs on: the choice, and the backend made for it. Any thread.
 */
#ifndef LILY_MODEL_DEVICE_H
#define LILY_MODEL_DEVICE_H

#include "base/pool.h"
#include "model/model.h"

struct packed; /* backend/cpu/packed.h */

/* The device of one model, as chosen. */
struct device_choice {
    bool cuda;
    int card;        /* its number */
    size_t memory;   /* bytes that are free on it */
    char name[128];  /* "cpu avx2", "cuda NVIDIA H200" */
    /* For the CPU, set by the caller before device_backend: */
    struct pool *pool;           /* moved into the backend, also on failure; NULL: made there */
    const struct packed *packed; /* borrowed by the backend; NULL: matrices are packed in memory */
};

/* auto: the first card that serves and whose kernels take this shape, else the CPU. A device that was asked for by name
 * and cannot be had is LILY_ERR_UNSUPPORTED with the reason. */
lily_status device_choose(const struct model_options *o, const struct model_shape *s, struct device_choice *out, struct lily_err *err);

/* Rows of a prefill piece when nobody says; 0: the plan does. */
int device_rows(const struct device_choice *d);

/* state_bytes: memory for all states. Owned: backend->ops->destroy. */
lily_status device_backend(const struct device_choice *d, const struct model_options *o, const struct model_shape *s, size_t state_bytes,
                           struct backend **out, struct lily_err *err);

#endif
