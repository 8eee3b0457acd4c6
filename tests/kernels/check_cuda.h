/* The checks of a CUDA card's decode kernels: what check_cuda.c (passes, weights, products) and its other files share. */
#ifndef LILY_TESTS_KERNELS_CHECK_CUDA_H
#define LILY_TESTS_KERNELS_CHECK_CUDA_H

#include "backend/cuda/cuda.h"
#include "check.h"

enum { RIG_SEQS = 8, RIG_ROWS = 8, RIG_TOKENS = 256, GQA = 8 };

/* A linear module with random codes, on the host and on the card. Owned by the rig. */
struct module {
    int experts, rows, cols, bits;
    uint8_t *codes;
    uint16_t *scales, *biases;
    struct matrix *device;
};
struct param {
    float *data;
    struct vector *device;
};

/* What a sequence should hold, in double, with the error that the card may have made so far. */
struct seq_oracle {
    struct seq *seq;
    int length;
    double *conv, *conv_tol;   /* (3, conv_dim) */
    double *state, *state_tol; /* (v_heads, v 128, k 128); of each column (v_heads, 128) the 2-norm of its possible error */
    double *kv, *kv_tol;       /* (RIG_TOKENS, 2, n_kv, 256): keys, values */
};

struct rig_form {
    int hidden, bits, vocab, q_heads, k_heads, v_heads, experts, expert_dim, shared_dim, n_seqs;
    bool kv_f32;
};

/* A backend with one layer of each kind. */
struct rig {
    struct rig_form form;
    struct model_shape shape;
    struct backend *be;
    struct seq_oracle seqs[RIG_SEQS];
    struct module modules[32];
    struct param params[16];
    int n_modules, n_params;
    struct module *embed, *head, *in_qkv, *in_z, *in_b, *in_a, *out, *q, *k, *v, *o;
    struct module *router, *gate, *up, *down, *shared_gate_proj, *shared_up, *shared_down, *shared_gate;
    struct param *head_norm, *norm, *conv, *a_log, *dt_bias, *out_norm, *q_norm, *k_norm, *moe_norm;
    struct gdn_weights gdn;
    struct attn_weights attn;
    struct moe_weights moe;
    int n_rows, rows_each; /* of the present pass; row r belongs to sequence r / rows_each */
    int32_t ids[RIG_ROWS];
};

/* A number and how far the card's may be off. */
struct close {
    double v, tol;
};
struct row {
    int n;
    double *v, *tol; /* owned */
};
struct weight {
    int q;
    double scale, bias;
};

struct weight module_weight(const struct module *m, int expert, int row, int k);
struct row row_new(const float *x, int n); /* x NULL: zeros */
void row_free(struct row *r);
void add_digits(struct row *x);
struct row normed_row(const struct rig *g, const float *x, const struct param *w, double *rms);
struct close product(const struct module *m, int expert, int row, const struct row *x, int from, int n);
struct close projected(const struct module *m, int expert, int row, const struct row *x, double rms);
struct close sigmoid_of(struct close x);
struct close silu_of(struct close x);
struct close times(struct close a, struct close b);
void expect_row(const char *what, long at, float got, struct close want);
float *peek(const struct rig *g, enum cuda_peek what, int row, int n); /* owned by the caller */

/* check_cuda_steps.c; x: the residual stream before the step, (n_rows, hidden) */
void seq_oracle_new(const struct rig *g, struct seq_oracle *s);
void seq_oracle_free(struct seq_oracle *s);
void check_attn_in(struct rig *g, const float *x);
void check_attn_mix(struct rig *g);
void check_gdn_in(struct rig *g, const float *x);
void check_gdn_mix(struct rig *g);
void check_out(const struct rig *g, bool linear, const float *before, const float *after);
void check_route(const struct rig *g, const float *x);
void check_experts(const struct rig *g, const float *before, const float *after);

void check_cuda_synth(struct random *r); /* check_cuda_synth.c */

#endif
