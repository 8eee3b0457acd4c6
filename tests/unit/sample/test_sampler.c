/* The pick: filters and their order, fixed draws, statistics, strange logits, log-probabilities, no allocation. */
#include "../testing.h"

#include <math.h>

#include "sample/sampler.h"

/* Counting allocations needs our own malloc, which a sanitizer has already replaced. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 1
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
static long allocations;
void *malloc(size_t n)
{
    allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    allocations++;
    return __libc_realloc(p, n);
}
#endif

enum { N = 1000 };

static void make_logits(float *l, int n, uint32_t x)
{
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        l[i] = (float)((int)((x >> 8) % 20001) - 10000) / 1024.0f;
    }
}

static struct sampler *new_sampler(const struct sampler_params *p, int n)
{
    struct sampler *s = NULL;
    struct lily_err err = {0};
    assert_ok(sampler_new(p, n, &s, &err));
    return s;
}

/* Expectations of an independent writing of the rules in another language (exact sums, its own exponential). */
static void test_fixed_draws(void **state)
{
    (void)state;
    static const struct {
        double temperature;
        int top_k;
        double top_p, min_p;
        int32_t want[24];
    } table[] = {
        {1.0, 20, 0.95, 0, {654, 900, 632, 778, 627, 872, 668, 900, 778, 478, 259, 553,
                            632, 668, 596, 872, 553, 596, 778, 654, 596, 778, 654, 251}},
        {1.0, 0, 1.0, 0, {157, 127, 83, 102, 156, 722, 95, 773, 579, 778, 248, 836,
                          465, 850, 153, 722, 758, 553, 162, 157, 153, 707, 836, 664}},
        {0.7, 0, 0.8, 0, {872, 340, 923, 979, 134, 453, 637, 702, 735, 627, 157, 900,
                          878, 334, 251, 453, 900, 153, 979, 872, 251, 520, 815, 478}},
        {1.5, 100, 1.0, 0.05, {157, 297, 999, 198, 453, 577, 521, 443, 870, 617, 979, 836,
                               232, 248, 478, 577, 836, 553, 298, 157, 153, 429, 330, 594}},
        {2.0, 0, 0.99, 0.01, {224, 574, 657, 131, 35, 807, 855, 150, 17, 396, 268, 923,
                              486, 990, 654, 807, 747, 626, 884, 187, 553, 467, 878, 872}},
    };
    float l[N];
    make_logits(l, N, 7);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sampler_params p;
        sampler_params_init(&p);
        p.temperature = table[i].temperature;
        p.top_k = table[i].top_k;
        p.top_p = table[i].top_p;
        p.min_p = table[i].min_p;
        p.seed = 1234567890123;
        struct sampler *s = new_sampler(&p, N);
        for (int j = 0; j < 24; j++) assert_int_equal(sampler_pick(s, l), table[i].want[j]);
        sampler_free(s);
    }
}

/* Which tokens can be drawn: a bit per token after many draws. */
static unsigned support(const struct sampler_params *p, const float *logits, int n)
{
    float l[16];
    unsigned seen = 0;
    memcpy(l, logits, (size_t)n * sizeof *l);
    struct sampler *s = new_sampler(p, n);
    for (int i = 0; i < 4000; i++) seen |= 1u << sampler_pick(s, l);
    sampler_free(s);
    return seen;
}

static void test_order_of_filters(void **state)
{
    (void)state;
    const float half[] = {logf(0.5f), logf(0.3f), logf(0.1f), logf(0.1f)};
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = 1;
    p.top_p = 0.6;
    assert_int_equal(support(&p, half, 4), 3); /* 0.5 is short of 0.6 */
    p.top_k = 2;
    assert_int_equal(support(&p, half, 4), 1); /* of the two that top_k leaves, the first has 0.625 */
    p.top_k = 0;
    p.temperature = 0.5; /* before top_p: 0.25 0.09 0.01 0.01 of 0.36, and 0.69 is enough */
    assert_int_equal(support(&p, half, 4), 1);
    p.temperature = 1;
    p.top_p = 1;
    p.min_p = 0.59; /* of the highest: 0.3 is 0.6 of 0.5 */
    assert_int_equal(support(&p, half, 4), 3);
    p.min_p = 0.61;
    assert_int_equal(support(&p, half, 4), 1);
    p.min_p = 0;
    p.top_k = 3; /* a tie at the border: the lower id stays */
    assert_int_equal(support(&p, half, 4), 7);
    p.top_k = 0;
    p.top_p = 0; /* keeps one */
    assert_int_equal(support(&p, half, 4), 1);
    p.top_p = 1;
    p.min_p = 1;
    assert_int_equal(support(&p, half, 4), 1);
}

/* A top_k past the heap's size goes another way and must agree with it. */
static void test_big_top_k(void **state)
{
    (void)state;
    enum { BIG = 5000 };
    static float l[BIG];
    make_logits(l, BIG, 3);
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = 8;
    p.seed = 9;
    p.top_k = 1500;
    float sorted[BIG], floor_logit;
    memcpy(sorted, l, sizeof l);
    for (int i = 1; i < BIG; i++) {
        float x = sorted[i];
        int j = i;
        for (; j > 0 && sorted[j - 1] < x; j--) sorted[j] = sorted[j - 1];
        sorted[j] = x;
    }
    floor_logit = sorted[p.top_k - 1];
    struct sampler *s = new_sampler(&p, BIG);
    int low = 0;
    for (int i = 0; i < 3000; i++) {
        int32_t id = sampler_pick(s, l);
        assert_true(l[id] >= floor_logit);
        low += l[id] < sorted[1000];
    }
    assert_true(low > 100); /* the lower third of them is drawn, too */
    sampler_free(s);
}

static void test_greedy(void **state)
{
    (void)state;
    float l[] = {1, 5, 5, -2, 9};
    struct sampler_params p;
    sampler_params_init(&p);
    struct sampler *s = new_sampler(&p, 4); /* id 4 is padding */
    assert_int_equal(sampler_n_tokens(s), 4);
    for (int i = 0; i < 3; i++) assert_int_equal(sampler_pick(s, l), 1);
    sampler_free(s);
    p.temperature = 1e-300; /* as good as greedy */
    s = new_sampler(&p, 4);
    for (int i = 0; i < 100; i++) assert_in_range(sampler_pick(s, l), 1, 2);
    sampler_free(s);
}

static void test_padding_is_never_drawn(void **state)
{
    (void)state;
    float l[64];
    for (int i = 0; i < 64; i++) l[i] = i < 40 ? 0 : 50;
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = 1;
    for (int k = 0; k < 2; k++) {
        p.top_k = k ? 20 : 0;
        struct sampler *s = new_sampler(&p, 40);
        for (int i = 0; i < 2000; i++) assert_in_range(sampler_pick(s, l), 0, 39);
        sampler_free(s);
    }
}

static void test_strange_logits(void **state)
{
    (void)state;
    float none[] = {-INFINITY, NAN, -INFINITY}, one[] = {NAN, -INFINITY, -3e38f, NAN}, two[] = {0, INFINITY, NAN, INFINITY};
    struct sampler_params p;
    sampler_params_init(&p);
    for (int mode = 0; mode < 3; mode++) {
        p.temperature = mode > 0;
        p.top_k = mode == 2 ? 2 : 0;
        p.top_p = mode ? 0.9 : 1;
        struct sampler *s = new_sampler(&p, 3);
        assert_int_equal(sampler_pick(s, none), -1);
        assert_int_equal(sampler_pick(s, none), -1);
        sampler_free(s);
        s = new_sampler(&p, 4);
        int32_t only = sampler_pick(s, one);
        assert_int_equal(only, 2);
        for (int i = 0; i < 50; i++) assert_int_equal(sampler_pick(s, two) % 2, 1);
        sampler_free(s);
    }
}

/* 100,000 draws of five tokens; chi-square with 4 degrees of freedom is below 18.5 in 99.9% of cases; the seed is fixed. */
static void test_frequencies(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    const double share[5] = {0.4, 0.3, 0.2, 0.08, 0.02};
    float l[5];
    for (int i = 0; i < 5; i++) l[i] = (float)log(share[i]) + 3;
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = 1;
    for (int k = 0; k < 2; k++) {
        int count[5] = {0};
        p.top_k = k ? 4 : 0;
        p.seed = (uint64_t)(77 + k);
        struct sampler *s = new_sampler(&p, 5);
        for (int i = 0; i < DRAWS; i++) count[sampler_pick(s, l)]++;
        sampler_free(s);
        double chi = 0, sum = k ? 0.98 : 1;
        for (int i = 0; i < (k ? 4 : 5); i++) {
            double want = DRAWS * share[i] / sum;
            chi += (count[i] - want) * (count[i] - want) / want;
        }
        assert_true(chi < 18.5);
        if (k) assert_int_equal(count[4], 0);
    }
}

/* The draw of step n depends on the seed and n, not on what came before. */
static void test_seed_and_step(void **state)
{
    (void)state;
    float l[N], other[N];
    make_logits(l, N, 7);
    make_logits(other, N, 8);
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = 2;
    p.seed = 7;
    struct sampler *a = new_sampler(&p, N), *b = new_sampler(&p, N);
    p.seed = 8;
    struct sampler *c = new_sampler(&p, N);
    int same = 0;
    for (int i = 0; i < 50; i++) {
        int32_t x = sampler_pick(a, i < 25 ? l : other), y = sampler_pick(b, other), z = sampler_pick(c, other);
        if (i >= 25) assert_int_equal(x, y);
        same += y == z;
    }
    assert_true(same < 10);
    sampler_free(a);
    sampler_free(b);
    sampler_free(c);
}

static void test_params_are_checked(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t offset;
        double bad;
    } table[] = {
        {"temperature", offsetof(struct sampler_params, temperature), -0.1},
        {"temperature", offsetof(struct sampler_params, temperature), NAN},
        {"temperature", offsetof(struct sampler_params, temperature), INFINITY},
        {"top_p", offsetof(struct sampler_params, top_p), 1.01},
        {"min_p", offsetof(struct sampler_params, min_p), -1},
        {"repetition_penalty", offsetof(struct sampler_params, repetition_penalty), 0},
        {"presence_penalty", offsetof(struct sampler_params, presence_penalty), 2.5},
        {"frequency_penalty", offsetof(struct sampler_params, frequency_penalty), NAN},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sampler_params p;
        struct lily_err err;
        sampler_params_init(&p);
        assert_int_equal(sampler_params_check(&p, 10, &err), LILY_OK);
        memcpy((char *)&p + table[i].offset, &table[i].bad, sizeof(double));
        assert_int_equal(sampler_params_check(&p, 10, &err), LILY_ERR_USAGE);
        assert_non_null(strstr(err.msg, table[i].name));
    }
    struct sampler_params p;
    struct lily_err err;
    sampler_params_init(&p);
    p.top_k = -1;
    assert_int_equal(sampler_params_check(&p, 10, &err), LILY_ERR_USAGE);
    p.top_k = 0;
    struct logit_bias bias[] = {{3, 1}, {10, 1}};
    p.bias = bias;
    p.n_bias = 2;
    assert_int_equal(sampler_params_check(&p, 10, &err), LILY_ERR_USAGE);
    assert_non_null(strstr(err.msg, "token 10"));
    bias[1] = (struct logit_bias){9, 101};
    struct sampler *s = NULL;
    assert_int_equal(sampler_new(&p, 10, &s, &err), LILY_ERR_USAGE);
    assert_non_null(strstr(err.msg, "logit_bias"));
    assert_null(s);
}

static void test_logprobs(void **state)
{
    (void)state;
    const float l[] = {logf(0.5f) + 2, logf(0.3f) + 2, logf(0.2f) + 2, -INFINITY, 9};
    struct token_logprob top[6];
    float lp;
    logits_logprobs(l, 4, 1, &lp, top, 6);
    assert_true(fabsf(lp - logf(0.3f)) < 1e-6f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(top[i].id, i);
        assert_true(fabsf(top[i].logprob - logf((float[]){0.5f, 0.3f, 0.2f}[i])) < 1e-6f);
    }
    for (int i = 3; i < 6; i++) assert_true(top[i].id == -1 && top[i].logprob == -INFINITY);
    logits_logprobs(l, 4, 3, &lp, NULL, 0);
    assert_true(lp == -INFINITY);
    logits_logprobs(l, 4, 4, &lp, NULL, 0); /* padding */
    assert_true(lp == -INFINITY);
    const float broken[] = {NAN, INFINITY, 1};
    logits_logprobs(broken, 3, 1, &lp, top, 2);
    assert_true(lp == 0 && top[0].id == 1 && top[1].id == 2 && top[1].logprob < -1e38f);
    logits_logprobs(broken, 1, 0, &lp, top, 1);
    assert_true(lp == -INFINITY && top[0].id == -1);
}

static void test_no_allocation(void **state)
{
    (void)state;
#ifdef COUNTS_ALLOCATIONS
    float l[N];
    make_logits(l, N, 7);
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = 1;
    p.repetition_penalty = 1.1;
    p.presence_penalty = 1;
    for (int k = 0; k < 2; k++) {
        p.top_k = k ? 20 : 0;
        p.top_p = 0.9;
        struct sampler *s = new_sampler(&p, N);
        long before = allocations;
        for (int i = 0; i < 500; i++) sampler_pick(s, l);
        assert_int_equal(allocations - before, 0);
        sampler_free(s);
        assert_true(allocations > 0); /* the counter counts */
    }
#else
    TEST_ELSEWHERE("the build without sanitizers counts its allocations");
#endif
}

/* What a damaged checkpoint computes is refused and named. */
static void test_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct sampler_params p;
    sampler_params_init(&p);
    struct lily_err err = {0};
    float l[N];
    int32_t id;
    make_logits(l, N, 3);
    l[7] = 50;
    struct sampler *s = new_sampler(&p, N);
    assert_ok(sampler_pick_sound(s, l, 12, &id, &err));
    assert_int_equal(id, 7);
    for (int i = 0; i < 3; i++) {
        l[N - 1] = bad[i];
        assert_int_equal(sampler_pick_sound(s, l, 12, &id, &err), LILY_ERR_DEVICE);
        assert_non_null(strstr(err.msg, "after 12 tokens is not finite: the logit of token 999"));
    }
    sampler_free(s);
    s = new_sampler(&p, N - 1); /* padding behind the tokens is not looked at */
    assert_ok(sampler_pick_sound(s, l, 12, &id, &err));
    sampler_free(s);
}

/* A device picks for a while, then the host again: the same tokens as by the host alone. */
static void test_taking_turns(void **state)
{
    (void)state;
    static const struct logit_bias bias[] = {{9, 1}, {4, 2}, {9, -3}};
    struct sampler_params p = {.temperature = 3, .top_p = 1, .repetition_penalty = 1.5, .presence_penalty = 1, .bias = bias, .n_bias = 3, .seed = 8};
    struct sampler *a = new_sampler(&p, N), *b = new_sampler(&p, N);
    struct lily_err err = {0};
    struct pick_rules r;
    float l[N];
    sampler_prompt(b, (const int32_t[]){3, 5}, 2);
    sampler_prompt(a, (const int32_t[]){3, 5}, 2);
    for (int i = 0; i < 60; i++) {
        make_logits(l, N, (uint32_t)i);
        struct pick pick = {.id = sampler_pick(a, l), .bad_id = -1};
        if (i % 3 == 0) assert_int_equal(sampler_pick(b, l), pick.id);
        else assert_ok(sampler_took(b, &pick, i, &err));
    }
    sampler_rules(b, &r);
    assert_true(r.step == 60 && r.seed == 8 && r.known[3] && r.known[5] && r.count[3] + r.count[5] < 60 && r.n_tokens == N);
    assert_true(r.n_bias == 3 && r.bias[0].id == 4 && r.bias[1].value == 1 && r.bias[2].value == -3); /* by id, else in the order given */
    struct pick bad = {.id = -1, .bad_id = 7, .bad = INFINITY};
    assert_int_equal(sampler_took(b, &bad, 12, &err), LILY_ERR_DEVICE);
    assert_non_null(strstr(err.msg, "after 12 tokens is not finite: the logit of token 7 is inf"));
    sampler_free(a);
    sampler_free(b);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taking_turns),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_fixed_draws),        cmocka_unit_test(test_order_of_filters),
        cmocka_unit_test(test_big_top_k),          cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_padding_is_never_drawn), cmocka_unit_test(test_strange_logits),
        cmocka_unit_test(test_frequencies),        cmocka_unit_test(test_seed_and_step),
        cmocka_unit_test(test_params_are_checked), cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_no_allocation),
    };
    return RUN_TESTS(tests);
}
