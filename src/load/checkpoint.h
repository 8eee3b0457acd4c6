/*
 * A checkpoint folder: safetensors files mapped read-only, every header checked, tensors found by name.
 *
 * A folder holds model.safetensors, or shards named by model.safetensors.index.json. Names may carry the prefix
 * "language_model." or not; lookups are written without it ("model.layers.0.mlp.gate"). Vision and MTP tensors are skipped.
 * Tensor data may begin at any byte address: never cast it, use base/num.h.
 *
 * Threads: immutable after open; any thread. Lifetime: views die with checkpoint_close.
 */
#ifndef LILY_LOAD_CHECKPOINT_H
#define LILY_LOAD_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "load/config.h"
#include "spec/tensor.h"

struct checkpoint;

/*
 * Opens and checks all headers: offsets inside the file, no overlap, sizes that match shapes. Only the shards that hold
 * text tensors are opened. config (borrowed, only during the call) tells the bits of quantized modules. A folder in
 * Hugging Face form opens, too (its tensors can be read by checkpoint_tensor); checkpoint_check refuses it.
 */
lily_status checkpoint_open(const char *dir, const struct model_config *config, struct checkpoint **out,
                            struct lily_err *err);
/* The same for the tensors of multi-token prediction alone ("mtp.norm.weight"), which may be none. */
lily_status checkpoint_open_mtp(const char *dir, const struct model_config *config, struct checkpoint **out,
                                struct lily_err *err);
void checkpoint_close(struct checkpoint *c);

size_t checkpoint_text_bytes(const struct checkpoint *c); /* bytes of the text model's tensors */
int checkpoint_n_tensors(const struct checkpoint *c);     /* text tensors */

/*
 * Holds the folder against everything that a model of this shape needs (load/inventory.h): nothing missing, nothing of the
 * text model left over, every dtype and shape as expected. Call it before building anything from the tensors.
 */
lily_status checkpoint_check(const struct checkpoint *c, const struct model_config *config, struct lily_err *err);
/*
 * Names what is in the folder without reading the weights: SHA-256 over the tensors' names, types, shapes, bits and places
 * and the files' names and sizes; with `times` also over the moments of the files' last changes, so that files that were
 * written again get another key. Of a synthetic checkpoint: over the rules.
 */
void checkpoint_key(const struct checkpoint *c, bool times, char hex[65]);
/* True when tensors have the names or shapes of the unconverted Hugging Face form. */
bool checkpoint_is_hf_form(const struct checkpoint *c);

/* The i-th text tensor, 0 <= i < checkpoint_n_tensors, in the order of names; *name (may be NULL) as lookups write it. */
struct tensor_view checkpoint_tensor_at(const struct checkpoint *c, int i, const char **name);

/* A tensor by name (without "language_model."); LILY_ERR_FORMAT naming the folder when it is missing. */
lily_status checkpoint_tensor(const struct checkpoint *c, const char *name, struct tensor_view *out,
                              struct lily_err *err);

/*
 * A module by path. experts 0: a plain module (two-dimensional tensors); else the leading dimension. It is quantized if
 * and only if PATH.scales exists; the bits come from config.json and are held against the shapes. cols of a quantized
 * module is a multiple of 64.
 */
struct module_want {
    const char *path; /* "model.layers.3.mlp.switch_mlp.up_proj" */
    int experts, rows, cols;
};
lily_status checkpoint_module(const struct checkpoint *c, const struct module_want *want, struct module_view *out,
                              struct lily_err *err);

/* A vector of n numbers (BF16, F16 or F32, any shape of n elements) widened to fp32 into out. */
lily_status checkpoint_vector(const struct checkpoint *c, const char *name, size_t n, float *out, struct lily_err *err);

/* Hints that a module's bytes have been repacked and need not stay in memory. */
void checkpoint_drop(const struct checkpoint *c, const struct module_view *m);

/* One element of a module, dequantized in fp32 as scale*q + bias (slow; for references and checks). */
float module_element(const struct module_view *m, int expert, int row, int col);
/* One row, dequantized the same way, cols floats. */
void module_row(const struct module_view *m, int expert, int row, float *out);

#endif
