/*
 * From a Hugging Face checkpoint in BF16 to the MLX 4-bit layout (MODEL.md): names, (1+w) norms, split experts, codes, files
 * and configuration as mlx-lm writes them. Streams: never more than a module's scales and one piece of its codes in memory.
 *
 * A checkpoint in MLX names that is not quantized is taken, too. Tensors of multi-token prediction go to mtp.safetensors;
 * those of the vision tower are left out. Threads: one conversion at a time per destination.
 */
#ifndef LILY_LOAD_CONVERT_H
#define LILY_LOAD_CONVERT_H

#include <stdatomic.h>

#include "base/err.h"
#include "load/quantize.h"

struct convert_options {
    enum quant_rounding rounding;
    int threads;               /* 1 to 256 */
    const atomic_bool *cancel; /* borrowed; may be NULL */
    void (*progress)(void *ctx, double done, double total); /* bytes read; may be NULL */
    void *ctx;
};

struct convert_result {
    int n_tensors, n_mtp, n_files;
    int64_t bytes_in, bytes_out; /* of tensor data */
};

/*
 * Writes the folder dst, which must not hold a model yet; config.json comes last, so what is left of a killed conversion is
 * never taken for a model. On failure the files written so far are removed. LILY_ERR_CANCELLED when *cancel became true.
 */
lily_status convert_checkpoint(const char *src, const char *dst, const struct convert_options *o, struct convert_result *out,
                               struct lily_err *err);

#endif
