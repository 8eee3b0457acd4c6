/*
 * From logits to a token: penalties, logit bias, temperature, top-k, top-p, min-p, in this order, and a seeded draw.
 *
 * The kept tokens stand in one order, the higher logit first and the lower id first on a tie; the draw takes the first at which the
 * running sum of weights exp((logit - highest) / temperature) reaches u times their total, u in (0, 1] from base/rng.h.
 * The draw of step n depends on (seed, n) and the logits alone, so a seed gives the same text cached or cold, alone or in
 * a batch, on every platform: random numbers are integers, the exponential is our own, sums are of whole numbers.
 *
 * Logits that are NaN or -inf are never drawn; +inf counts as the largest float.
 * Threads: a struct sampler belongs to one thread. Lifetime: nothing given to it is kept. Picking allocates nothing.
 */
#ifndef LILY_SAMPLE_SAMPLER_H
#define LILY_SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"

struct sampler_params {
    double temperature; /* 0: greedy (the highest logit, the lower id on a tie) */
    int top_k;          /* 0: off */
    double top_p;       /* 1: off; of the tokens that top_k left */
    double min_p;       /* 0: off; share of the most likely token's probability */
    double repetition_penalty; /* 1: off; over prompt and output */
    double presence_penalty, frequency_penalty; /* 0: off; over the output alone */
    const struct logit_bias *bias; /* borrowed during sampler_new */
    int n_bias;
    uint64_t seed;
};

/* Greedy without penalties. */
void sampler_params_init(struct sampler_params *p);
/* Checks ranges; LILY_ERR_USAGE names the parameter by its request-field name ("top_p"). */
lily_status sampler_params_check(const struct sampler_params *p, int n_tokens, struct lily_err *err);

struct sampler;

/*
 * Checks the parameters, too. n_tokens: ids that have a token, at most the model's vocabulary (rows past them are padding and
 * never drawn). Owned by the caller.
 */
lily_status sampler_new(const struct sampler_params *p, int n_tokens, struct sampler **out, struct lily_err *err);
void sampler_free(struct sampler *s); /* NULL is fine */
/* The prompt's ids matter for the repetition penalty. */
void sampler_prompt(struct sampler *s, const int32_t *ids, size_t n);
/*
 * Picks the next token from logits (at least n_tokens fp32) and counts it as output. The row is changed meanwhile and is the
 * same again on return. -1 when no logit is above -inf: the model's output is broken.
 */
int32_t sampler_pick(struct sampler *s, float *logits);
/*
 * The same for logits that a model computed after n_read tokens: fails when one of them is no finite number, since what a damaged
 * checkpoint says must not be taken for an answer.
 */
lily_status sampler_pick_sound(struct sampler *s, float *logits, int n_read, int32_t *id, struct lily_err *err);
int sampler_n_tokens(const struct sampler *s);

/*
 * For a device that picks in the sampler's place: its parameters and present state (views, valid until the next call; no
 * stops), and the note of what was picked there.
 */
void sampler_rules(const struct sampler *s, struct pick_rules *out);
lily_status sampler_took(struct sampler *s, const struct pick *p, int n_read, struct lily_err *err);

struct token_logprob {
    int32_t id;
    float logprob;
};
/*
 * Natural-log probabilities of the raw logits (no penalty, temperature 1, padding masked): of id, and the n most likely in falling
 * order (n <= MAX_TOP_LOGPROBS; past the number of tokens with a probability: id -1, -inf).
 */
enum { MAX_TOP_LOGPROBS = 20 };
void logits_logprobs(const float *logits, int n_tokens, int32_t id, float *logprob, struct token_logprob *top, int n);
/* The same numbers, bit for bit, of k given tokens. */
void logits_logprobs_of(const float *logits, int n_tokens, const int32_t *ids, int k, float *logprobs);

#endif
