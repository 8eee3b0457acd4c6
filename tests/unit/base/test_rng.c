/* The random generator against its published vectors, and the exponential against the C library and fixed bits. */
#include "../testing.h"

#include <math.h>

#include "base/rng.h"
#include "base/weight.h"

/* Known-answer vectors of Philox4x32-10, as its authors publish them. */
static void test_philox_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof kat[0]; i++) {
        uint32_t out[4];
        philox4x32_10(kat[i].counter, kat[i].key, out);
        assert_memory_equal(out, kat[i].want, sizeof out);
    }
}

static void test_uniform_is_fixed(void **state)
{
    (void)state;
    assert_true(rng_uniform(0, 0) == 0x1.c2d38b1acc4fep-1);
    assert_true(rng_uniform(0, 1) == 0x1.72c8036fe3934p-2);
    assert_true(rng_uniform(42, 7) == 0x1.a1e132156ef62p-2);
    assert_true(rng_uniform(UINT64_MAX, 1ull << 40) == 0x1.cf0a1b368e052p-1);
}

/* 64 cells, 64,000 numbers: chi-square with 63 degrees of freedom is below 103.4 in 99.9% of cases; the seed is fixed. */
static void test_uniform_is_even(void **state)
{
    (void)state;
    int cell[64] = {0};
    for (uint64_t i = 0; i < 64000; i++) {
        double u = rng_uniform(2024, i);
        assert_true(u > 0 && u <= 1);
        cell[u == 1 ? 63 : (int)(u * 64)]++;
    }
    double chi = 0;
    for (int i = 0; i < 64; i++) chi += (cell[i] - 1000.0) * (cell[i] - 1000.0) / 1000.0;
    assert_true(chi < 103.4);
    assert_true(chi > 34); /* as unlikely on the other side: too even is not random */
}

static void test_weight_is_close_to_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 640000; i++) {
        double x = -i * 1e-4, e = exp(x), ulp = nextafter(e, INFINITY) - e;
        worst = fmax(worst, fabs(weight_of(x) - e) / ulp);
    }
    assert_true(worst <= 2);
}

static void test_weight_has_fixed_bits(void **state)
{
    (void)state;
    assert_true(weight_of(0) == 1);
    assert_true(weight_of(-0.0) == 1);
    assert_true(weight_of(-1.0) == 0x1.78b56362cef38p-2);
    assert_true(weight_of(-0.5) == 0x1.368b2fc6f960ap-1);
    assert_true(weight_of(-10.25) == 0x1.2899a7a835446p-15);
    assert_true(weight_of(-63.75) == 0x1.050d351816eaep-92);
    assert_true(weight_of(WEIGHT_CUT) > 0);
    assert_true(weight_of(-64.001) == 0);
    assert_true(weight_of(-INFINITY) == 0);
    assert_true(weight_of(NAN) == 0);
}

static void test_mass_is_whole(void **state)
{
    (void)state;
    assert_true(mass_of(0) == (uint64_t)MASS_ONE && mass_of(-29.2) == 0 && mass_of(-29) > 0 && mass_of(NAN) == 0);
    for (double x = 0; x > -40; x -= 0.013) assert_true(mass_of(x) >= mass_of(x - 0.013));
    assert_true(mass_share(0.5, 3) == 2 && mass_share(0.5, 4) == 2 && mass_share(1, 7) == 7 && mass_share(0, 7) == 1);
    /* One of 2^62 is beyond what a double holds: the share is still no more than the whole. */
    assert_true(mass_share(1, (1ull << 62) - 1) == (1ull << 62) - 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_vectors),         cmocka_unit_test(test_uniform_is_fixed),
        cmocka_unit_test(test_uniform_is_even),        cmocka_unit_test(test_weight_is_close_to_exp),
        cmocka_unit_test(test_weight_has_fixed_bits),  cmocka_unit_test(test_mass_is_whole),
    };
    return RUN_TESTS(tests);
}
