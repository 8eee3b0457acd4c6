/*
 * Penalties on tokens that were seen, and logit bias: applied to a row of logits and taken back after the pick, so that the row
 * stays what the model said.
 *
 * Repetition counts prompt and output: a logit above 0 is divided by the penalty, another is multiplied. Presence and frequency
 * count the output alone: presence is subtracted once from a token that occurred, frequency once per occurrence. Then bias is added.
 * Cost: the number of distinct tokens seen. Thread: one at a time. Lifetime: owned by the sampler.
 */
#ifndef LILY_SAMPLE_PENALTY_H
#define LILY_SAMPLE_PENALTY_H

#include "sample/sampler.h"

struct penalties {
    double repetition, presence, frequency;
    struct logit_bias *bias; /* owned copy, by id; of one id in the order given */
    int n_bias;
    bool counting;   /* any of the three penalties is on */
    int n_tokens;
    uint32_t *count; /* owned; (n_tokens) occurrences in the output */
    int32_t *seen;   /* owned; (n_tokens) distinct ids seen, n_seen in use */
    uint8_t *known;  /* owned; (n_tokens) 1: in seen */
    int n_seen;
    float *saved;    /* owned; (n_tokens + n_bias) logits before the change */
};

lily_status penalties_init(struct penalties *p, const struct sampler_params *params, int n_tokens, struct lily_err *err);
void penalties_free(struct penalties *p);
void penalties_prompt(struct penalties *p, const int32_t *ids, size_t n);
void penalties_output(struct penalties *p, int32_t id);
void penalties_apply(struct penalties *p, float *logits);
void penalties_rules(const struct penalties *p, struct pick_rules *out); /* bias and counts, for a device */
void penalties_undo(const struct penalties *p, float *logits); /* right after penalties_apply */

#endif
