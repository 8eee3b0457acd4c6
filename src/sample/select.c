/* Selections over logits: a heap for the first few, quickselect by mass for the rest. */
#include "sample/select.h"

#include <float.h>
#include <math.h>

enum { SHORT = 16, BLOCK = 64 };

static inline float finite_or_max(float logit)
{
    return logit > FLT_MAX ? FLT_MAX : logit;
}

static inline void swap(struct candidate *a, struct candidate *b)
{
    struct candidate t = *a;
    *a = *b;
    *b = t;
}

size_t select_all(const float *logits, int n, struct candidate *c)
{
    size_t m = 0;
    for (int32_t id = 0; id < n; id++)
        if (logits[id] > -INFINITY) c[m++] = (struct candidate){.logit = finite_or_max(logits[id]), .id = id};
    return m;
}

/* Whether any of n logits is above the floor; a loop that compilers turn into vector code. */
static inline bool any_above(const float *logits, int n, float floor)
{
    int any = 0;
    for (int i = 0; i < n; i++) any |= logits[i] > floor;
    return any;
}

/* Moves c[i] down a heap whose root is the last in the order. */
static void sift(struct candidate *c, size_t n, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) return;
        if (child + 1 < n && candidate_before(&c[child], &c[child + 1])) child++;
        if (!candidate_before(&c[i], &c[child])) return;
        swap(&c[i], &c[child]);
        i = child;
    }
}

/* Lets the logits of ids from … end-1 into a full heap of n. */
static void offer(const float *logits, int32_t from, int32_t end, struct candidate *c, size_t n)
{
    for (int32_t id = from; id < end; id++) {
        float logit = finite_or_max(logits[id]);
        if (!(logit > c[0].logit)) continue;
        c[0] = (struct candidate){.logit = logit, .id = id};
        sift(c, n, 0);
    }
}

size_t select_top(const float *logits, int n, size_t k, struct candidate *c)
{
    size_t m = 0;
    int32_t id = 0;
    for (; id < n && m < k; id++)
        if (logits[id] > -INFINITY) c[m++] = (struct candidate){.logit = finite_or_max(logits[id]), .id = id};
    for (size_t i = m / 2; i-- > 0;) sift(c, m, i);
    /* A later id loses a tie, so only a strictly higher logit gets in; NaN never does. Most blocks have none. */
    while (id < n) {
        int32_t end = n - id > BLOCK ? id + BLOCK : n;
        if (any_above(logits + id, end - id, c[0].logit)) offer(logits, id, end, c, m);
        id = end;
    }
    return m;
}

int32_t select_first(const float *logits, int n)
{
    int32_t best = -1;
    float high = -INFINITY;
    for (int32_t from = 0; from < n; from += BLOCK) {
        int32_t end = n - from > BLOCK ? from + BLOCK : n;
        if (!any_above(logits + from, end - from, high)) continue;
        for (int32_t id = from; id < end; id++) {
            float logit = finite_or_max(logits[id]);
            if (!(logit > high)) continue;
            high = logit;
            best = id;
        }
    }
    return best;
}

void select_sort(struct candidate *c, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct candidate x = c[i];
        size_t j = i;
        for (; j > 0 && candidate_before(&x, &c[j - 1]); j--) c[j] = c[j - 1];
        c[j] = x;
    }
}

/* Puts what comes before the pivot c[p] to the left of it; returns its new place and the mass of what lies there. */
static size_t partition(struct candidate *c, size_t lo, size_t hi, size_t p, uint64_t *left)
{
    uint64_t sum = 0;
    size_t to = lo;
    swap(&c[p], &c[hi - 1]);
    for (size_t i = lo; i < hi - 1; i++) {
        if (!candidate_before(&c[i], &c[hi - 1])) continue;
        sum += c[i].mass;
        swap(&c[i], &c[to++]);
    }
    swap(&c[to], &c[hi - 1]);
    *left = sum;
    return to;
}

size_t select_mass(struct candidate *c, size_t n, uint64_t target)
{
    size_t lo = 0, hi = n;
    uint64_t before = 0;    /* mass of c[0 … lo-1], which all come before the rest */
    uint32_t mix = 1;       /* pivots that no input can foresee by its order alone */
    while (hi - lo > SHORT) {
        uint64_t left;
        mix = mix * 1664525u + 1013904223u;
        size_t p = partition(c, lo, hi, lo + (size_t)((uint64_t)mix * (hi - lo) >> 32), &left);
        if (before + left >= target) {
            hi = p > lo ? p : lo + 1;
        } else if (before + left + c[p].mass >= target) {
            return p + 1;
        } else {
            before += left + c[p].mass;
            lo = p + 1;
        }
    }
    select_sort(c + lo, hi - lo);
    for (size_t i = lo; i < hi; i++) {
        before += c[i].mass;
        if (before >= target) return i + 1;
    }
    return hi;
}
