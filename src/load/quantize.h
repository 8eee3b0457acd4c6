/*
 * MLX's affine quantizer, bit for bit (MODEL.md, Packing): groups of 64 weights to codes of 4 or 8 bits, a scale and a bias.
 *
 * MLX rounds in two ways. Its GPU kernels round halves away from zero and let a group's range begin at 0; its CPU code
 * rounds halves to even. The published checkpoints were made on GPUs. Pure functions; any thread.
 */
#ifndef LILY_LOAD_QUANTIZE_H
#define LILY_LOAD_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spec/tensor.h"

enum quant_rounding { ROUNDING_GPU, ROUNDING_CPU };

struct quant_form {
    enum dtype dtype; /* of the weights: BF16, F16 or F32; scales and biases are stored in the same */
    int bits;         /* 4 or 8 */
    enum quant_rounding rounding;
};

/* Where n groups come from and go to; borrowed. No alignment is asked for. */
struct quant_groups {
    const uint8_t *weights; /* (n, 64) of dtype */
    size_t n;
    uint8_t *codes;         /* (n, 64*bits/8) bytes, lowest bits first */
    uint8_t *scales, *biases; /* (n) of dtype */
};

/* False when a weight is infinite or no number; what was written then has no meaning. */
bool quantize_groups(const struct quant_form *form, const struct quant_groups *g);

#endif
