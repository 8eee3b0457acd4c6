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

/*
 * What a decode step left for the next one, for tests of the kernels: the first n floats of a row. Between the steps of a pass that
 * is watched.
 */
enum cuda_peek {
    PEEK_U,       /* gdn_in: conv_dim after convolution, z; attn_in: heads of 256 queries and 256 gates, keys, values */
    PEEK_GATES,   /* gdn_in: n_gdn_v_heads of beta, then of decay */
    PEEK_MIX,     /* gdn_mix, attn_mix: input of the output projection, for gdn before the norm of heads */
    PEEK_SQUARES, /* gdn_mix: (n_gdn_v_heads, 4) sums of squares that make that norm */
    PEEK_ROUTER,  /* moe_route: logits of the experts */
    PEEK_SHARED,  /* moe_route: (shared_dim) inner numbers of the shared expert */
    PEEK_GATE,    /* moe_route: 1, its gate */
    PEEK_INNER    /* moe_experts: (8, expert_dim padded to 128) inner numbers of the chosen experts, best first */
};
lily_status cuda_peek(struct backend *be, enum cuda_peek what, int row, float *out, size_t n, struct lily_err *err);

#endif
