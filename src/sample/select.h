/*
 * Choosing among candidate tokens without sorting the vocabulary.
 *
 * One order everywhere: a higher logit comes first, the lower id first on a tie. Nothing allocates; the same input gives the same
 * bits everywhere (weights are whole numbers). Any thread; arrays belong to the caller.
 */
#ifndef LILY_SAMPLE_SELECT_H
#define LILY_SAMPLE_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct candidate {
    uint64_t mass; /* exp((logit - highest) / temperature) as base/weight.h counts it, once computed */
    float logit;
    int32_t id;
};

static inline bool candidate_before(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* Fills c with every id of 0 … n-1 whose logit is above -inf (NaN is not; +inf becomes the largest float). Returns the count. */
size_t select_all(const float *logits, int n, struct candidate *c);
/* The same for the first k in the order (k >= 1), in no particular order. */
size_t select_top(const float *logits, int n, size_t k, struct candidate *c);
/* The first in the order, or -1. */
int32_t select_first(const float *logits, int n);

/*
 * The smallest number of candidates, taken in the order, whose masses sum to at least target; at least one, at most n (n >= 1).
 * They are c[0 … result-1] afterwards, the last of them at the end. Expected time O(n).
 */
size_t select_mass(struct candidate *c, size_t n, uint64_t target);

void select_sort(struct candidate *c, size_t n); /* into the order; for short arrays */

#endif
