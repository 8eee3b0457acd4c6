/* Sums of a comparison. */
#include "run/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sample/sampler.h"

enum { FIRST_BUCKET = 64 };
static const double least = 1e-12; /* of the class of all other tokens; it is a difference of near-equal numbers */

lily_status comparison_new(const struct reference *r, struct comparison *out, struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    out->kl = mem_try((size_t)r->n, sizeof *out->kl);
    if (!out->kl) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory to compare %d rows", r->n);
    for (int b = 0; b < COMPARE_BUCKETS; b++) {
        out->bucket[b].lo = b ? FIRST_BUCKET << (b - 1) : 0;
        out->bucket[b].hi = FIRST_BUCKET << b;
    }
    out->all.hi = r->n;
    return LILY_OK;
}

void comparison_free(struct comparison *c)
{
    free(c->kl);
    memset(c, 0, sizeof *c);
}

static void add_row(struct compare_bucket *b, bool same, double kl)
{
    b->n_top++;
    b->same += same;
    b->kl += kl;
}

static void add_next(struct compare_bucket *b, double ours, double theirs)
{
    b->n++;
    b->ours += ours;
    b->theirs += theirs;
}

/* Both sides' log-probabilities go through the same roundings, so that equal ones cancel exactly. */
static double divergence(const struct reference *r, int i, const float *logits, int n_tokens)
{
    const int32_t *ids = r->top_ids + (size_t)i * (size_t)r->k;
    const float *p = r->top_logprobs + (size_t)i * (size_t)r->k;
    float q[REFERENCE_MAX_TOP];
    double sum = 0, p_rest = 1, q_rest = 1;
    logits_logprobs_of(logits, n_tokens, ids, r->k, q);
    for (int k = 0; k < r->k; k++) {
        double prob = exp((double)p[k]);
        if (prob > 0) sum += prob * ((double)p[k] - fmax((double)q[k], -1e4));
        p_rest -= prob;
        q_rest -= exp((double)q[k]);
    }
    p_rest = fmax(p_rest, least);
    q_rest = fmax(q_rest, least);
    return fmax(sum + p_rest * log(p_rest / q_rest), 0.0); /* below 0 by rounding only */
}

void comparison_add(struct comparison *c, const struct reference *r, int i, int position, bool is_last, const float *logits,
                    int n_tokens)
{
    struct token_logprob top;
    float next;
    int b = 0;
    while (b + 1 < COMPARE_BUCKETS && position >= c->bucket[b].hi) b++;
    logits_logprobs(logits, n_tokens, is_last ? 0 : r->ids[i + 1], &next, &top, 1);
    bool same = top.id == r->top_ids[(size_t)i * (size_t)r->k];
    double kl = divergence(r, i, logits, n_tokens);
    c->kl[c->all.n_top] = (float)kl;
    add_row(&c->all, same, kl);
    add_row(&c->bucket[b], same, kl);
    if (is_last) return;
    add_next(&c->all, (double)next, (double)r->chosen[i]);
    add_next(&c->bucket[b], (double)next, (double)r->chosen[i]);
}

double compare_perplexity(const struct compare_bucket *b, bool ours)
{
    return b->n ? exp(-(ours ? b->ours : b->theirs) / b->n) : 1;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double compare_kl_percentile(struct comparison *c, double share)
{
    if (!c->all.n_top) return 0;
    qsort(c->kl, (size_t)c->all.n_top, sizeof *c->kl, by_value);
    return (double)c->kl[(int)(share * (c->all.n_top - 1) + 0.5)];
}
