/*
 * Views of checkpoint data as they pass from load/ to a backend: a tensor, and a linear module (quantized or not).
 *
 * Plain values; the bytes belong to whoever mapped the file and may begin at any address: never cast them, use base/num.h.
 * A synthetic checkpoint that was never written has rules in place of bytes; then all tensors of a module have them.
 */
#ifndef LILY_SPEC_TENSOR_H
#define LILY_SPEC_TENSOR_H

#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_U32, DTYPE_I32, DTYPE_I64, DTYPE_U8, DTYPE_OTHER };

struct synth_rule; /* spec/synth.h */

enum { MAX_DIMS = 8 }; /* tensors of the text model have at most 3, skipped vision ones 5 */

struct tensor_view {
    const char *name; /* view; as in the file */
    const char *file; /* view; path of the shard */
    enum dtype dtype;
    int n_dims;
    int64_t dim[MAX_DIMS]; /* row-major */
    const uint8_t *data;   /* view into the mapping, any alignment; NULL: there are no bytes, every word is what synth says */
    size_t bytes;
    const struct synth_rule *synth; /* view; word i of the tensor is synth_word(synth, i); NULL: the bytes are at data */
};

/*
 * A linear module or an embedding, quantized or not, or a stack of experts of one: rows x cols weights per expert.
 * bits 4 or 8: weight (n_experts, rows, cols*bits/32) U32, scales and biases (n_experts, rows, cols/64) in BF16; element
 * w = q*scale + bias (MODEL.md, Packing). bits 0: weight (n_experts, rows, cols) in BF16, F16 or F32; scales, biases empty.
 */
struct module_view {
    int n_experts; /* 1 for a plain module */
    int rows, cols;
    int bits;
    struct tensor_view weight, scales, biases;
};

#endif
