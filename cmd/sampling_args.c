/* Sampling options. */
#include "sampling_args.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/mem.h"

enum { MAX_BIAS = 4096 };

void sampling_args_init(struct sampling_args *a)
{
    memset(a, 0, sizeof *a);
    a->temperature = a->top_p = a->min_p = a->repetition = a->presence = a->frequency = NAN;
    a->top_k = -1;
}

void sampling_args_free(struct sampling_args *a)
{
    free(a->bias);
    a->bias = NULL;
}

static lily_status take_seed(void *values, const char *text, struct lily_err *err)
{
    struct sampling_args *a = values;
    char *end;
    errno = 0;
    a->seed = strtoull(text, &end, 10);
    a->seed_given = true;
    if (end == text || *end || errno || text[0] == '-')
        LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no whole number from 0 to %llu", text, (unsigned long long)UINT64_MAX);
    return LILY_OK;
}

static lily_status take_stop(void *values, const char *text, struct lily_err *err)
{
    struct sampling_args *a = values;
    struct stops *checked;
    if (a->n_stop == MAX_STOP_STRINGS) LILY_FAIL(err, LILY_ERR_USAGE, "more than %d stop strings", MAX_STOP_STRINGS);
    LILY_TRY(stops_new(&text, 1, &checked, err));
    stops_free(checked);
    a->stop[a->n_stop++] = text;
    return LILY_OK;
}

static lily_status take_bias(void *values, const char *text, struct lily_err *err)
{
    struct sampling_args *a = values;
    char *equals, *end;
    errno = 0;
    long id = strtol(text, &equals, 10);
    double v = *equals == '=' ? strtod(equals + 1, &end) : NAN;
    if (equals == text || errno || id < 0 || id > INT32_MAX || *equals != '=' || end == equals + 1 || *end ||
        !(v >= -100 && v <= 100))
        LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no ID=VALUE with a token id and a number from -100 to 100", text);
    if (a->n_bias == MAX_BIAS) LILY_FAIL(err, LILY_ERR_USAGE, "more than %d of them", MAX_BIAS);
    a->bias = mem_resize(a->bias, (size_t)(a->n_bias + 1) * sizeof *a->bias);
    a->bias[a->n_bias++] = (struct logit_bias){(int32_t)id, (float)v};
    return LILY_OK;
}

#define AT(field) offsetof(struct sampling_args, field)
static const struct opt options[] = {
    {"max-tokens", 'n', "N", "tokens of an answer, thinking included (default: what the model's folder recommends, else what the context holds)", OPT_INT, AT(max_tokens), 1,
     1 << 24, NULL},
    {"temp", 't', "T", "temperature; 0 always takes the most likely token (default: what the model's folder recommends, else 1.0)", OPT_REAL, AT(temperature), 0,
     100, NULL},
    {"top-k", 0, "K", "only the K most likely tokens; 0 is off (default: what the model's folder recommends, else 20)", OPT_INT, AT(top_k), 0, 1 << 24, NULL},
    {"top-p", 0, "P", "only the most likely tokens that together have probability P; 1 is off (default: what the model's folder recommends, else 0.95)", OPT_REAL,
     AT(top_p), 0, 1, NULL},
    {"min-p", 0, "P", "only tokens at least P times as likely as the most likely one; 0 is off (default: 0)", OPT_REAL, AT(min_p), 0, 1,
     NULL},
    {"seed", 0, "N", "the same seed gives the same text (default: another one each time)", OPT_TAKE, 0, 0, 0, take_seed},
    {"stop", 0, "TEXT", "end the answer before TEXT, outside thinking; may be repeated", OPT_TAKE, 0, 0, 0, take_stop},
    {"repetition-penalty", 0, "R", "divide the logits of tokens seen in prompt and answer by R; 1 is off (default: 1)", OPT_REAL,
     AT(repetition), 0.01, 100, NULL},
    {"presence-penalty", 0, "V", "subtract V from the logits of tokens seen in the answer; 0 is off (default: 0)", OPT_REAL, AT(presence),
     -2, 2, NULL},
    {"frequency-penalty", 0, "V", "subtract V for each time a token occurred in the answer; 0 is off (default: 0)", OPT_REAL,
     AT(frequency), -2, 2, NULL},
    {"logit-bias", 0, "ID=V", "add V, -100 to 100, to the logit of token ID; may be repeated", OPT_TAKE, 0, 0, 0, take_bias},
};
const struct opt_group opts_sampling = {"Sampling", options, (int)(sizeof options / sizeof options[0])};

static double given(double v, double otherwise)
{
    return isnan(v) ? otherwise : v;
}

lily_status sampling_params(const struct sampling_args *a, const struct model_config *c, int n_tokens,
                            struct sampler_params *out, struct lily_err *err)
{
    sampler_params_init(out);
    out->temperature = given(a->temperature, c->temperature);
    out->top_p = given(a->top_p, c->top_p);
    out->top_k = a->top_k >= 0 ? a->top_k : c->top_k;
    out->min_p = given(a->min_p, 0);
    out->repetition_penalty = given(a->repetition, 1);
    out->presence_penalty = given(a->presence, 0);
    out->frequency_penalty = given(a->frequency, 0);
    out->bias = a->bias;
    out->n_bias = a->n_bias;
    out->seed = a->seed_given ? a->seed : random_seed();
    return sampler_params_check(out, n_tokens, err);
}

uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed) return seed >> 11; /* exact in JSON numbers, too */
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
