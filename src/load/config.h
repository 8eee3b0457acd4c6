/*
 * config.json and generation_config.json of a checkpoint: the shape, the quantization block, the generation defaults.
 *
 * Everything in these files is untrusted: types, ranges and sums are checked, and a model outside the family is refused
 * with the key, what was found and what was expected. Plain values after load; any thread.
 */
#ifndef LILY_LOAD_CONFIG_H
#define LILY_LOAD_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "spec/shape.h"

enum { MAX_EOS = 8, MAX_CONFIG_BYTES = 8 << 20 };

/* Quantization of one module path. bits 0: stored as plain bf16/f16/f32. */
struct quant_rule {
    int bits; /* 4 or 8 */
    int group_size;
};

struct quant_override {
    char *path; /* owned; module path without "language_model." and ".weight" */
    struct quant_rule rule;
};

struct model_config {
    struct model_shape shape;
    struct quant_rule quant_default; /* bits 0 when the checkpoint is not quantized */
    struct quant_override *overrides; /* owned; sorted by path */
    int n_overrides;
    int n_mtp_layers;
    char model_type[32]; /* "qwen3_5_moe" */
    int32_t eos[MAX_EOS]; /* generation_config.json wins over config.json; distinct, below shape.vocab */
    int n_eos;            /* 0 when neither file names one */
    double temperature, top_p; /* defaults of generation_config.json; 1.0, 0.95, 20 when absent */
    int top_k;                 /* 0: all; temperature is 0 when do_sample is false */
    int max_new_tokens;        /* of an answer for which nothing else is asked; 0: none is recommended */
};

/* Reads both files of a folder; generation_config.json may be absent. On failure *out needs no freeing. */
lily_status config_load(const char *dir, struct model_config *out, struct lily_err *err);
void config_free(struct model_config *c);
/* The rule of a module: its override, else the default. path as in the file, with or without "language_model.". */
struct quant_rule config_quant_rule(const struct model_config *c, const char *path);

/* The two halves of config_load on texts in memory; `what` names the text in errors. config_parse comes first. */
lily_status config_parse(const char *text, size_t n, const char *what, struct model_config *out, struct lily_err *err);
lily_status config_parse_generation(const char *text, size_t n, const char *what, struct model_config *c,
                                    struct lily_err *err);

#endif
