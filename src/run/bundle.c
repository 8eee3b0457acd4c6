/* Opening a checkpoint folder. */
#include "run/bundle.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/mem.h"

static lily_status load_tokenizer(struct bundle *b, struct lily_err *err)
{
    struct buf cache = {0};
    env_cache_dir("tokenizer", &cache);
    struct tokenizer_options opt = {.cache_dir = buf_str(&cache)};
    lily_status st = tokenizer_load(b->dir, &opt, &b->tokenizer, err);
    buf_free(&cache);
    return st;
}

/* Ids past the vocabulary or the tokenizer can neither be drawn nor end anything. */
static void find_eos(struct bundle *b)
{
    static const char *const names[] = {"<|im_end|>", "<|endoftext|>"};
    for (int i = 0; i < b->config.n_eos; i++) b->eos[b->n_eos++] = b->config.eos[i];
    for (size_t i = 0; b->config.n_eos == 0 && i < sizeof names / sizeof names[0]; i++) {
        int32_t id = tokenizer_added(b->tokenizer, names[i]);
        if (id >= 0) b->eos[b->n_eos++] = id;
    }
}

lily_status bundle_open(const char *dir, struct bundle *out, struct lily_err *err)
{
    bool known = true;
    lily_status st;
    memset(out, 0, sizeof *out);
    out->dir = mem_dupz(dir);
    LILY_TRY_GOTO(config_load(dir, &out->config, err), out);
    LILY_TRY_GOTO(load_tokenizer(out, err), out);
    LILY_TRY_GOTO(template_detect(dir, &out->version, &known, err), out);
    int n = tokenizer_size(out->tokenizer);
    out->n_tokens = n < out->config.shape.vocab ? n : out->config.shape.vocab;
    find_eos(out);
    if (!known) log_warn("%s: unknown chat template; messages are rendered in the form of Qwen3.6", dir);
out:
    if (st != LILY_OK) bundle_close(out);
    return st;
}

lily_status bundle_load(struct bundle *b, const struct model_options *o, struct lily_err *err)
{
    double start = clock_ms();
    LILY_TRY(model_open(b->dir, o, &b->model, err));
    b->load_ms = clock_ms() - start;
    return LILY_OK;
}

void bundle_close(struct bundle *b)
{
    model_close(b->model);
    if (b->tokenizer) tokenizer_free(b->tokenizer);
    config_free(&b->config);
    free(b->dir);
    memset(b, 0, sizeof *b);
}

size_t bundle_border_bytes(const struct model_config *c, int n)
{
    return (size_t)n * (shape_recurrent_floats(&c->shape) + shape_conv_floats(&c->shape)) * sizeof(float);
}
