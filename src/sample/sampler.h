/*
 * From logits to a token: penalties, logit bias, temperature, top-k, top-p, min-p, in this order, and a seeded draw.
 *
 * The random generator is counter-based: the draw of step n depends on (seed, n) alone, so a seed gives the same text
 * cached or cold, alone or in a batch, on every platform. Threads: a struct sampler belongs to one thread.
 */
#ifndef LILY_SAMPLE_SAMPLER_H
#define LILY_SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct logit_bias {
    int32_t id;
    float value; /* added to the logit; -100…100 */
};

struct sampler_params {
    double temperature; /* 0: greedy (the highest logit, the lower id on a tie) */
    int top_k;          /* 0: off */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    double repetition_penalty; /* 1: off; over prompt and output */
    double presence_penalty, frequency_penalty; /* 0: off; over the output alone */
    const struct logit_bias *bias; /* borrowed for the sampler's life */
    int n_bias;
    uint64_t seed;
};

/* Greedy without penalties. */
void sampler_params_init(struct sampler_params *p);
/* Checks ranges; LILY_ERR_USAGE names the parameter by its request-field name ("top_p"). */
lily_status sampler_params_check(const struct sampler_params *p, int n_tokens, struct lily_err *err);

struct sampler;

/* n_tokens: ids that have a token (rows past it are padding and never drawn). prompt ids matter for the repetition penalty. */
struct sampler *sampler_new(const struct sampler_params *p, int n_tokens);
void sampler_free(struct sampler *s);
void sampler_prompt(struct sampler *s, const int32_t *ids, size_t n);
/* Picks the next token from logits (vocab fp32; may be changed in place) and counts it as output. */
int32_t sampler_pick(struct sampler *s, float *logits, int vocab);

struct token_logprob {
    int32_t id;
    float logprob;
};
/* Natural-log probabilities of the raw logits (no penalty, temperature 1, padding masked): of id, and the n most likely. */
void logits_logprobs(const float *logits, int n_tokens, int32_t id, float *logprob, struct token_logprob *top, int n);

#endif
