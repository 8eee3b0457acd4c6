/* Penalties and bias over the tokens that were seen. */
#include "sample/penalty.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* By id; of one id in the order given. */
static void copy_bias(struct penalties *p, const struct logit_bias *bias)
{
    for (int i = 0; i < p->n_bias; i++) {
        int at = i;
        for (; at > 0 && p->bias[at - 1].id > bias[i].id; at--) p->bias[at] = p->bias[at - 1];
        p->bias[at] = bias[i];
    }
}

lily_status penalties_init(struct penalties *p, const struct sampler_params *params, int n_tokens, struct lily_err *err)
{
    memset(p, 0, sizeof *p);
    p->repetition = params->repetition_penalty;
    p->presence = params->presence_penalty;
    p->frequency = params->frequency_penalty;
    p->counting = p->repetition != 1 || p->presence != 0 || p->frequency != 0;
    p->n_tokens = n_tokens;
    p->n_bias = params->n_bias;
    size_t n = p->counting ? (size_t)n_tokens : 0, n_bias = (size_t)p->n_bias;
    if (n + n_bias == 0) return LILY_OK;
    p->bias = mem_try(n_bias + 1, sizeof *p->bias);
    p->count = mem_try(n + 1, sizeof *p->count);
    p->seen = mem_try(n + 1, sizeof *p->seen);
    p->known = mem_try(n + 1, sizeof *p->known);
    p->saved = mem_try(n + n_bias, sizeof *p->saved);
    if (!p->bias || !p->count || !p->seen || !p->known || !p->saved) {
        penalties_free(p);
        LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the token counts of a sampler (%d tokens)", n_tokens);
    }
    copy_bias(p, params->bias);
    return LILY_OK;
}

void penalties_free(struct penalties *p)
{
    free(p->bias);
    free(p->count);
    free(p->seen);
    free(p->known);
    free(p->saved);
    memset(p, 0, sizeof *p);
}

static void note(struct penalties *p, int32_t id)
{
    if (p->known[id]) return;
    p->known[id] = 1;
    p->seen[p->n_seen++] = id;
}

void penalties_prompt(struct penalties *p, const int32_t *ids, size_t n)
{
    if (p->repetition == 1 || !p->counting) return;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < p->n_tokens) note(p, ids[i]);
}

void penalties_output(struct penalties *p, int32_t id)
{
    if (!p->counting || id < 0 || id >= p->n_tokens) return;
    note(p, id);
    if (p->count[id] < UINT32_MAX) p->count[id]++;
}

void penalties_apply(struct penalties *p, float *logits)
{
    for (int i = 0; i < p->n_seen; i++) {
        int32_t id = p->seen[i];
        double x = logits[id];
        p->saved[i] = logits[id];
        x = x > 0 ? x / p->repetition : x * p->repetition;
        if (p->count[id]) x -= p->presence + p->frequency * p->count[id];
        logits[id] = (float)x;
    }
    for (int i = 0; i < p->n_bias; i++) {
        float *x = &logits[p->bias[i].id];
        p->saved[p->n_seen + i] = *x;
        *x += p->bias[i].value;
    }
}

void penalties_undo(const struct penalties *p, float *logits)
{
    for (int i = p->n_bias; i-- > 0;) logits[p->bias[i].id] = p->saved[p->n_seen + i];
    for (int i = p->n_seen; i-- > 0;) logits[p->seen[i]] = p->saved[i];
}

void penalties_rules(const struct penalties *p, struct pick_rules *out)
{
    out->count = p->counting ? p->count : NULL;
    out->known = p->counting ? p->known : NULL;
    out->bias = p->bias;
    out->n_bias = p->n_bias;
}
