/*
 * What one checkpoint folder gives: its configuration, tokenizer and template ("texts"), and the model.
 *
 * The texts load in no time and many mistakes show there; the weights come when the prompt is known to be good.
 * Threads: the texts are immutable after bundle_open and may be used by any thread; the model belongs to the engine thread.
 * Owned: bundle_close releases all of it.
 */
#ifndef LILY_RUN_BUNDLE_H
#define LILY_RUN_BUNDLE_H

#include "chat/template.h"
#include "load/config.h"
#include "model/model.h"
#include "text/tokenizer.h"

struct bundle {
    char *dir;                   /* owned */
    struct model_config config;  /* owned */
    struct tokenizer *tokenizer; /* owned */
    enum template_version version;
    struct model *model;         /* owned; NULL until bundle_load */
    int n_tokens;                /* ids that can be drawn */
    int32_t eos[MAX_EOS];        /* ids that end an answer: the configuration's, else the tokenizer's <|im_end|> and <|endoftext|> */
    int n_eos;
    double load_ms;              /* of bundle_load */
};

/* Reads the texts. Warns about an unknown chat template. On failure *out is empty. */
lily_status bundle_open(const char *dir, struct bundle *out, struct lily_err *err);
lily_status bundle_load(struct bundle *b, const struct model_options *o, struct lily_err *err);
void bundle_close(struct bundle *b);

/* Whether a token ends an answer. */
static inline bool bundle_is_eos(const struct bundle *b, int32_t id)
{
    for (int i = 0; i < b->n_eos; i++)
        if (b->eos[i] == id) return true;
    return false;
}

/* Memory for n saved borders of a model, for plan_want.border_bytes. */
size_t bundle_border_bytes(const struct model_config *c, int n);

#endif
