/*
 * The outer sizes of one model: read from config.json, checked once at load (load/config.h), never changed afterwards.
 * Plain value; immutable after load; any thread.
 */
#ifndef LILY_SPEC_SHAPE_H
#define LILY_SPEC_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "spec/family.h"

enum { MAX_LAYERS = 128, MAX_EXPERTS = 1024 };

struct model_shape {
    int hidden;        /* width of the residual stream; multiple of 64 */
    int n_layers;
    int vocab;         /* rows of embedding and head; ids past the tokenizer's last are padding */
    int n_q_heads;     /* full attention: query heads; n_q_heads % n_kv_heads == 0 */
    int n_kv_heads;
    int n_gdn_k_heads; /* gated delta rule: key heads; value heads are a multiple */
    int n_gdn_v_heads;
    int n_experts;
    int expert_dim;    /* intermediate width of a routed expert; multiple of 64 */
    int shared_dim;    /* intermediate width of the shared expert; multiple of 64 */
    int max_positions; /* context the model was trained for */
    float rms_eps;
    double rope_theta;
    int n_full;        /* full-attention layers */
    int n_linear;      /* gated-delta layers */
    bool is_full[MAX_LAYERS];
};

/* Rows of the convolution: q, k and v of all heads. */
static inline int shape_conv_dim(const struct model_shape *s)
{
    return (2 * s->n_gdn_k_heads + s->n_gdn_v_heads) * GDN_DIM;
}

static inline int shape_gdn_value_dim(const struct model_shape *s)
{
    return s->n_gdn_v_heads * GDN_DIM;
}

/* Floats from one row of logits to the next: vocab rounded up to 16. The first vocab are logits, the rest is padding. */
static inline int shape_logits_ld(const struct model_shape *s)
{
    return (s->vocab + 15) / 16 * 16;
}

/* fp32 elements of one sequence's recurrent state over all gated-delta layers: (n_linear, n_gdn_v_heads, v 128, k 128). */
static inline size_t shape_recurrent_floats(const struct model_shape *s)
{
    return (size_t)s->n_linear * (size_t)s->n_gdn_v_heads * GDN_DIM * GDN_DIM;
}

/* fp32 elements of one sequence's convolution history: (n_linear, 3, conv_dim), oldest row first. */
static inline size_t shape_conv_floats(const struct model_shape *s)
{
    return (size_t)s->n_linear * CONV_HISTORY * (size_t)shape_conv_dim(s);
}

/* Bytes of K and V of one token over all full-attention layers, with elements of elem_bytes (2: bf16, 4: fp32). */
static inline size_t shape_kv_bytes(const struct model_shape *s, size_t elem_bytes)
{
    return (size_t)s->n_full * 2 * (size_t)s->n_kv_heads * HEAD_DIM * elem_bytes;
}

#endif
