/* The sampler: parameters and the pick. */
#include "sample/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sample/penalty.h"
#include "base/rng.h"
#include "sample/select.h"
#include "base/weight.h"

/* Up to this k a heap over the logits is faster than selecting among all of them. */
enum { HEAP_MAX = 1024 };

struct sampler {
    struct sampler_params p; /* bias is not used after sampler_new */
    struct penalties penalties;
    struct candidate *candidates; /* owned; (top_k or n_tokens); NULL when greedy */
    int n_tokens;
    bool heap;     /* candidates hold top_k only */
    uint64_t step; /* picks made */
};

void sampler_params_init(struct sampler_params *p)
{
    *p = (struct sampler_params){.top_p = 1, .repetition_penalty = 1};
}

static lily_status check_range(const char *name, double v, double lo, double hi, struct lily_err *err)
{
    if (v >= lo && v <= hi) return LILY_OK; /* NaN fails */
    LILY_FAIL(err, LILY_ERR_USAGE, "%s is %g, expected %g to %g", name, v, lo, hi);
}

lily_status sampler_params_check(const struct sampler_params *p, int n_tokens, struct lily_err *err)
{
    LILY_TRY(check_range("temperature", p->temperature, 0, 100, err));
    LILY_TRY(check_range("top_k", p->top_k, 0, INT32_MAX, err));
    LILY_TRY(check_range("top_p", p->top_p, 0, 1, err));
    LILY_TRY(check_range("min_p", p->min_p, 0, 1, err));
    LILY_TRY(check_range("repetition_penalty", p->repetition_penalty, 0.01, 100, err));
    LILY_TRY(check_range("presence_penalty", p->presence_penalty, -2, 2, err));
    LILY_TRY(check_range("frequency_penalty", p->frequency_penalty, -2, 2, err));
    for (int i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || p->bias[i].id >= n_tokens)
            LILY_FAIL(err, LILY_ERR_USAGE, "logit_bias names token %d, but the model has tokens 0 to %d", (int)p->bias[i].id,
                      n_tokens - 1);
        LILY_TRY(check_range("logit_bias", p->bias[i].value, -100, 100, err));
    }
    return LILY_OK;
}

lily_status sampler_new(const struct sampler_params *p, int n_tokens, struct sampler **out, struct lily_err *err)
{
    LILY_TRY(sampler_params_check(p, n_tokens, err));
    struct sampler *s = mem_new(sizeof *s);
    s->p = *p;
    s->p.bias = NULL;
    s->n_tokens = n_tokens;
    s->heap = p->top_k > 0 && p->top_k <= HEAP_MAX && p->top_k < n_tokens;
    lily_status st = penalties_init(&s->penalties, p, n_tokens, err);
    if (st == LILY_OK && p->temperature > 0) {
        s->candidates = mem_try(s->heap ? (size_t)p->top_k : (size_t)n_tokens, sizeof *s->candidates);
        if (!s->candidates) st = err_set(err, LILY_ERR_MEMORY, "no memory for a sampler over %d tokens", n_tokens);
    }
    if (st != LILY_OK) {
        sampler_free(s);
        return st;
    }
    *out = s;
    return LILY_OK;
}

void sampler_free(struct sampler *s)
{
    if (!s) return;
    penalties_free(&s->penalties);
    free(s->candidates);
    free(s);
}

void sampler_prompt(struct sampler *s, const int32_t *ids, size_t n)
{
    penalties_prompt(&s->penalties, ids, n);
}

int sampler_n_tokens(const struct sampler *s)
{
    return s->n_tokens;
}

/* The candidates that top_k leaves, in no order. */
static size_t gather(struct sampler *s, const float *logits)
{
    struct candidate *c = s->candidates;
    size_t k = (size_t)s->p.top_k;
    if (s->heap) return select_top(logits, s->n_tokens, k, c);
    size_t n = select_all(logits, s->n_tokens, c);
    if (k == 0 || k >= n) return n;
    for (size_t i = 0; i < n; i++) c[i].mass = 1;
    return select_mass(c, n, k);
}

/* Computes masses and drops candidates without any. Returns the count. */
static size_t weigh(struct candidate *c, size_t n, double temperature)
{
    size_t kept = 0;
    float high = c[0].logit;
    for (size_t i = 1; i < n; i++)
        if (c[i].logit > high) high = c[i].logit;
    for (size_t i = 0; i < n; i++) {
        c[i].mass = mass_of(((double)c[i].logit - (double)high) / temperature);
        if (c[i].mass) c[kept++] = c[i];
    }
    return kept;
}

static uint64_t total_mass(const struct candidate *c, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += c[i].mass;
    return sum;
}

static int32_t draw(struct sampler *s, const float *logits)
{
    struct candidate *c = s->candidates;
    size_t n = gather(s, logits), kept = 0;
    uint64_t least = mass_share(s->p.min_p, (uint64_t)MASS_ONE);
    if (n == 0) return -1;
    n = weigh(c, n, s->p.temperature);
    if (s->p.top_p < 1) n = select_mass(c, n, mass_share(s->p.top_p, total_mass(c, n)));
    for (size_t i = 0; i < n; i++)
        if (c[i].mass >= least) c[kept++] = c[i];
    double u = rng_uniform(s->p.seed, s->step);
    return c[select_mass(c, kept, mass_share(u, total_mass(c, kept))) - 1].id;
}

static bool not_finite(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (bits & 0x7f800000) == 0x7f800000;
}

int32_t sampler_pick(struct sampler *s, float *logits)
{
    penalties_apply(&s->penalties, logits);
    int32_t id = s->p.temperature > 0 ? draw(s, logits) : select_first(logits, s->n_tokens);
    penalties_undo(&s->penalties, logits);
    s->step++;
    penalties_output(&s->penalties, id);
    return id;
}

/* The first that is not finite, or -1. */
static int32_t first_not_finite(const float *logits, int n)
{
    uint32_t any = 0;
    for (int i = 0; i < n; i++) any |= not_finite(logits[i]); /* without a way out, so that it is done by vectors */
    for (int i = 0; any && i < n; i++)
        if (not_finite(logits[i])) return i;
    return -1;
}

static lily_status unsound(const struct pick *p, int n_read, struct lily_err *err)
{
    if (p->bad_id >= 0)
        err_set(err, LILY_ERR_DEVICE, "the model's output after %d tokens is not finite: the logit of token %d is %g", n_read, (int)p->bad_id, (double)p->bad);
    else err_set(err, LILY_ERR_DEVICE, "no token is left to pick after %d tokens", n_read);
    err_hint(err, "the checkpoint may be damaged: compare its files with the published hashes");
    return LILY_ERR_DEVICE;
}

lily_status sampler_pick_sound(struct sampler *s, float *logits, int n_read, int32_t *id, struct lily_err *err)
{
    struct pick p = {.bad_id = first_not_finite(logits, s->n_tokens)};
    *id = p.bad_id < 0 ? sampler_pick(s, logits) : -1;
    if (*id >= 0) return LILY_OK;
    if (p.bad_id >= 0) p.bad = logits[p.bad_id];
    return unsound(&p, n_read, err);
}

void sampler_rules(const struct sampler *s, struct pick_rules *out)
{
    const struct sampler_params *p = &s->p;
    *out = (struct pick_rules){.temperature = p->temperature,
                               .top_p = p->top_p,
                               .min_p = p->min_p,
                               .repetition = p->repetition_penalty,
                               .presence = p->presence_penalty,
                               .frequency = p->frequency_penalty,
                               .top_k = p->top_k,
                               .seed = p->seed,
                               .step = s->step,
                               .n_tokens = s->n_tokens};
    penalties_rules(&s->penalties, out);
}

lily_status sampler_took(struct sampler *s, const struct pick *p, int n_read, struct lily_err *err)
{
    if (p->bad_id >= 0 || p->id < 0) return unsound(p, n_read, err);
    s->step++;
    penalties_output(&s->penalties, p->id);
    return LILY_OK;
}
