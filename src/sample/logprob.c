/* Log-probabilities of the raw logits. */
#include <math.h>

#include "sample/sampler.h"
#include "sample/select.h"
#include "base/weight.h"

/* log(sum(exp(logits))) without overflow, given the highest; what adds nothing to the sum counts as 0, as in the draw. */
static double log_sum_exp(const float *logits, int n, double high)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double x = logits[i] - high;
        sum += weight_of(x > 0 ? 0 : x);
    }
    return high + log(sum);
}

void logits_logprobs(const float *logits, int n_tokens, int32_t id, float *logprob, struct token_logprob *top, int n)
{
    struct candidate c[MAX_TOP_LOGPROBS];
    size_t found = select_top(logits, n_tokens, MAX_TOP_LOGPROBS, c);
    select_sort(c, found);
    double lse = found ? log_sum_exp(logits, n_tokens, c[0].logit) : 0;
    bool known = found && id >= 0 && id < n_tokens && logits[id] > -INFINITY;
    *logprob = known ? (float)(fmin(logits[id], c[0].logit) - lse) : -INFINITY;
    for (int i = 0; i < n; i++) {
        bool have = (size_t)i < found;
        top[i].id = have ? c[i].id : -1;
        top[i].logprob = have ? (float)(c[i].logit - lse) : -INFINITY;
    }
}

void logits_logprobs_of(const float *logits, int n_tokens, const int32_t *ids, int k, float *logprobs)
{
    struct candidate high;
    bool found = select_top(logits, n_tokens, 1, &high) > 0;
    double lse = found ? log_sum_exp(logits, n_tokens, high.logit) : 0;
    for (int i = 0; i < k; i++) {
        bool known = found && ids[i] >= 0 && ids[i] < n_tokens && logits[ids[i]] > -INFINITY;
        logprobs[i] = known ? (float)(fmin(logits[ids[i]], high.logit) - lse) : -INFINITY;
    }
}
