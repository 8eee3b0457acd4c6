/*
 * The constants of the model family (Qwen3.5/3.6 MoE, text part): inner sizes that every checkpoint shares and that the
 * kernels are compiled for. Outer sizes are in spec/shape.h. Immutable.
 */
#ifndef LILY_SPEC_FAMILY_H
#define LILY_SPEC_FAMILY_H

enum {
    HEAD_DIM = 256,     /* full attention: width of a query, key, value head */
    ROTARY_DIM = 64,    /* of which the first 64 are rotated */
    GDN_DIM = 128,      /* gated delta rule: width of a key and of a value head */
    CONV_WIDTH = 4,     /* causal depthwise convolution */
    CONV_HISTORY = CONV_WIDTH - 1,
    QUANT_GROUP = 64,   /* weights that share a scale and a bias, along the input dimension */
    EXPERTS_PER_TOKEN = 8,
    GRID = 64           /* prefill pieces, GDN chunks, KV pages and borders lie on multiples of it (ARCHITECTURE.md, State) */
};

#endif
