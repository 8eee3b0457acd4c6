/* Penalties and bias: exact changes of the logits, what counts, and that the row comes back unchanged. */
#include "../testing.h"

#include <math.h>

#include "sample/penalty.h"

enum { N = 8 };

static struct penalties make(const struct sampler_params *p)
{
    struct penalties x;
    struct lily_err err = {0};
    assert_ok(penalties_init(&x, p, N, &err));
    return x;
}

static const float logits[N] = {2, -2, 1, 0, 4, -1, 3, 0.5f};

/* Applies, compares with want, takes back, compares with the original. */
static void check(struct penalties *p, const float want[N])
{
    float l[N];
    memcpy(l, logits, sizeof l);
    penalties_apply(p, l);
    for (int i = 0; i < N; i++)
        if (l[i] != want[i]) fail_msg("token %d: %g, expected %g", i, (double)l[i], (double)want[i]);
    penalties_undo(p, l);
    assert_memory_equal(l, logits, sizeof l);
}

static void test_repetition_counts_prompt_and_output(void **state)
{
    (void)state;
    struct sampler_params p;
    sampler_params_init(&p);
    p.repetition_penalty = 2;
    struct penalties x = make(&p);
    check(&x, logits);
    const int32_t prompt[] = {0, 1, 0, 99, -3};
    penalties_prompt(&x, prompt, 5); /* ids outside are ignored */
    penalties_output(&x, 4);
    penalties_output(&x, 4); /* once, however often */
    check(&x, (const float[N]){1, -4, 1, 0, 2, -1, 3, 0.5f});
    penalties_free(&x);
}

static void test_presence_and_frequency_count_output(void **state)
{
    (void)state;
    struct sampler_params p;
    sampler_params_init(&p);
    p.presence_penalty = 0.5;
    p.frequency_penalty = 0.25;
    struct penalties x = make(&p);
    const int32_t prompt[] = {0, 1, 2};
    penalties_prompt(&x, prompt, 3);
    for (int i = 0; i < 3; i++) penalties_output(&x, 6);
    penalties_output(&x, 1);
    check(&x, (const float[N]){2, -2.75f, 1, 0, 4, -1, 1.75f, 0.5f});
    penalties_free(&x);
}

static void test_repetition_comes_before_the_others(void **state)
{
    (void)state;
    struct sampler_params p;
    sampler_params_init(&p);
    p.repetition_penalty = 2;
    p.presence_penalty = 1;
    struct penalties x = make(&p);
    penalties_output(&x, 0);
    check(&x, (const float[N]){0, -2, 1, 0, 4, -1, 3, 0.5f}); /* 2/2 - 1, not (2-1)/2 */
    penalties_free(&x);
}

static void test_bias_is_added_last(void **state)
{
    (void)state;
    struct sampler_params p;
    struct logit_bias bias[] = {{1, 10}, {0, -100}, {1, 0.5f}};
    sampler_params_init(&p);
    p.repetition_penalty = 2;
    p.bias = bias;
    p.n_bias = 3;
    struct penalties x = make(&p);
    bias[0].value = 0; /* a copy was taken */
    penalties_output(&x, 1);
    check(&x, (const float[N]){-98, 6.5f, 1, 0, 4, -1, 3, 0.5f}); /* -2*2 + 10 + 0.5 */
    penalties_free(&x);
}

static void test_pick_uses_them(void **state)
{
    (void)state;
    struct sampler_params p;
    struct lily_err err = {0};
    struct sampler *s;
    float l[N];
    memcpy(l, logits, sizeof l);
    sampler_params_init(&p);
    p.frequency_penalty = 1.5;
    assert_ok(sampler_new(&p, N, &s, &err));
    /* 4 3 2 1 .5: each pick lowers its token by 1.5 */
    static const int32_t want[] = {4, 6, 4, 0, 6, 2, 4};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) assert_int_equal(sampler_pick(s, l), want[i]);
    assert_memory_equal(l, logits, sizeof l);
    sampler_free(s);
    sampler_params_init(&p);
    p.bias = &(struct logit_bias){5, 100};
    p.n_bias = 1;
    assert_ok(sampler_new(&p, N, &s, &err));
    assert_int_equal(sampler_pick(s, l), 5);
    sampler_free(s);
}

static void test_strange_logits_stay(void **state)
{
    (void)state;
    struct sampler_params p;
    sampler_params_init(&p);
    p.repetition_penalty = 1.5;
    p.presence_penalty = 2;
    struct penalties x = make(&p);
    float l[N] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 0, -0.0f, 1}, was[N];
    memcpy(was, l, sizeof l);
    for (int i = 0; i < N; i++) penalties_output(&x, i);
    penalties_apply(&x, l);
    assert_true(l[0] == INFINITY && l[1] == -INFINITY && isnan(l[2]) && l[4] == -INFINITY);
    penalties_undo(&x, l);
    assert_memory_equal(l, was, sizeof l);
    penalties_free(&x);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repetition_counts_prompt_and_output),
        cmocka_unit_test(test_presence_and_frequency_count_output),
        cmocka_unit_test(test_repetition_comes_before_the_others),
        cmocka_unit_test(test_bias_is_added_last),
        cmocka_unit_test(test_pick_uses_them),
        cmocka_unit_test(test_strange_logits_stay),
    };
    return RUN_TESTS(tests);
}
