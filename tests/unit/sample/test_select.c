/* Selections against plain sorting. */
#include "../testing.h"

#include <float.h>
#include <math.h>

#include "sample/select.h"

static uint32_t lcg_state;
static uint32_t lcg(void)
{
    return lcg_state = lcg_state * 1664525u + 1013904223u;
}

static int by_order(const void *a, const void *b)
{
    return candidate_before(a, b) ? -1 : 1;
}

/* n logits with many ties when coarse. */
static void fill_logits(float *l, int n, bool coarse)
{
    for (int i = 0; i < n; i++) {
        int v = (int)(lcg() >> 8);
        l[i] = coarse ? (float)(v % 7) : (float)(v % 20001 - 10000) / 1024.0f;
    }
}

static void test_top_equals_sorting(void **state)
{
    (void)state;
    enum { N = 3000 };
    static float l[N];
    static struct candidate all[N], top[N];
    static const size_t sizes[] = {1, 2, 3, 15, 16, 17, 20, 100, 1000, N - 1, N, N + 5};
    lcg_state = 1;
    for (int coarse = 0; coarse < 2; coarse++) {
        fill_logits(l, N, coarse);
        assert_int_equal(select_all(l, N, all), N);
        qsort(all, N, sizeof *all, by_order);
        assert_int_equal(select_first(l, N), all[0].id);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t want = sizes[i] < N ? sizes[i] : N;
            static struct candidate room[N + 8];
            assert_int_equal(select_top(l, N, sizes[i], room), want);
            memcpy(top, room, want * sizeof *top);
            qsort(top, want, sizeof *top, by_order);
            for (size_t j = 0; j < want; j++) assert_int_equal(top[j].id, all[j].id);
        }
    }
}

static void test_strange_logits(void **state)
{
    (void)state;
    static const float l[] = {NAN, 1, INFINITY, -INFINITY, 3, FLT_MAX, INFINITY, NAN};
    struct candidate c[8];
    assert_int_equal(select_all(l, 8, c), 5);
    assert_int_equal(select_first(l, 8), 2);
    assert_int_equal(select_top(l, 8, 3, c), 3);
    select_sort(c, 3);
    assert_int_equal(c[0].id, 2); /* +inf and the largest float are equal: the lower id first */
    assert_int_equal(c[1].id, 5);
    assert_int_equal(c[2].id, 6);
    static const float none[] = {NAN, -INFINITY, NAN};
    assert_int_equal(select_all(none, 3, c), 0);
    assert_int_equal(select_top(none, 3, 2, c), 0);
    assert_int_equal(select_first(none, 3), -1);
}

static void test_mass_equals_walking(void **state)
{
    (void)state;
    enum { N = 2000 };
    static struct candidate c[N], sorted[N];
    lcg_state = 5;
    for (int round = 0; round < 400; round++) {
        size_t n = 1 + lcg() % (round % 2 ? 40 : N);
        uint64_t total = 0;
        for (size_t i = 0; i < n; i++) {
            c[i] = (struct candidate){.mass = lcg() >> 24, .logit = (float)(lcg() >> (round % 3 ? 8 : 29)), .id = (int32_t)i};
            total += c[i].mass;
        }
        for (size_t i = n; i-- > 1;) {
            size_t j = lcg() % (i + 1);
            struct candidate t = c[i];
            c[i] = c[j];
            c[j] = t;
        }
        memcpy(sorted, c, n * sizeof *c);
        qsort(sorted, n, sizeof *sorted, by_order);
        uint64_t target = total * (lcg() >> 8) >> 24, sum = 0;
        size_t want = 0;
        do sum += sorted[want++].mass;
        while (sum < target && want < n);
        size_t got = select_mass(c, n, target);
        assert_int_equal(got, want);
        assert_int_equal(c[got - 1].id, sorted[got - 1].id); /* the last is at the end */
        qsort(c, got, sizeof *c, by_order);
        for (size_t i = 0; i < got; i++) assert_int_equal(c[i].id, sorted[i].id);
    }
}

static void test_mass_limits(void **state)
{
    (void)state;
    enum { N = 100 };
    struct candidate c[N];
    for (int i = 0; i < N; i++) c[i] = (struct candidate){.mass = 1, .logit = (float)i, .id = i};
    assert_int_equal(select_mass(c, N, 0), 1); /* never none */
    assert_int_equal(c[0].id, N - 1);
    assert_int_equal(select_mass(c, N, 1000000000), N); /* never more than there are */
    assert_int_equal(select_mass(c, 1, 1000000000), 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_equals_sorting),
        cmocka_unit_test(test_strange_logits),
        cmocka_unit_test(test_mass_equals_walking),
        cmocka_unit_test(test_mass_limits),
    };
    return RUN_TESTS(tests);
}
