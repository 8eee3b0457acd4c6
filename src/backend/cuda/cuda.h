/*
 * The CUDA backend seen from outside: it lives in a plug-in, liblily-cuda.so, which is loaded when it is asked for, so that
 * the same program runs where there is no driver.
 *
 * Searched: $LILY_CUDA_PLUGIN (then nothing else), the program's folder, ../lib/lily and ../lib beside it, the dynamic
 * linker's own places. Threads: any for cuda_probe; one thread drives a backend. The plug-in is never unloaded.
 */
#ifndef LILY_BACKEND_CUDA_CUDA_H
#define LILY_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"

enum { CUDA_ANY = -1 };

struct cuda_options {
    struct model_shape shape;
    int device;         /* number, or CUDA_ANY: the first one that serves */
    int max_rows, max_logits;
    bool kv_f32;
    size_t state_bytes; /* memory for the states of all sequences and borders */
};

/* A card that the backend can use. */
struct cuda_card {
    int device;
    char name[96];
    int major, minor;   /* compute capability */
    size_t total, free; /* bytes */
};

/* LILY_ERR_UNSUPPORTED with the reason when there is no plug-in, driver, card, or none that is new enough. */
lily_status cuda_probe(int device, struct cuda_card *out, struct lily_err *err);

/* What the kernels ask of a model beyond the family's rules. LILY_ERR_UNSUPPORTED names it. */
lily_status cuda_check_shape(const struct model_shape *s, struct lily_err *err);

/* Owned by the caller: backend->ops->destroy. */
lily_status cuda_backend_new(const struct cuda_options *o, struct backend **out, struct lily_err *err);

#endif
