/* Number formats, over all 65,536 halves: against plain arithmetic, and back. */
#include "../testing.h"

#include <math.h>
#include <stdbool.h>

#include "base/num.h"

/* The value of a half format with e exponent bits and m fraction bits, by its definition. */
static double by_definition(uint16_t h, int e_bits, int m_bits)
{
    int e = h >> m_bits & ((1 << e_bits) - 1), m = h & ((1 << m_bits) - 1), bias = (1 << (e_bits - 1)) - 1;
    double sign = h >> 15 ? -1.0 : 1.0;
    if (e == (1 << e_bits) - 1) return m ? (double)NAN : sign * (double)INFINITY;
    if (e == 0) return sign * ldexp(m, 1 - bias - m_bits);
    return sign * ldexp((1 << m_bits) + m, e - bias - m_bits);
}

static bool same(double a, float b)
{
    if (isnan(a)) return isnan(b);
    return a == (double)b && !signbit(a) == !signbit(b);
}

static void every_bf16_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++)
        if (!same(by_definition((uint16_t)h, 8, 7), bf16_to_f32((uint16_t)h))) fail_msg("bf16 0x%04x", h);
}

static void every_f16_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++)
        if (!same(by_definition((uint16_t)h, 5, 10), f16_to_f32((uint16_t)h))) fail_msg("f16 0x%04x", h);
}

static void every_bf16_comes_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t back = bf16_from_f32(bf16_to_f32((uint16_t)h));
        bool is_nan = (h & 0x7fff) > 0x7f80;
        if (is_nan ? (back & 0x7fff) <= 0x7f80 : back != h) fail_msg("bf16 0x%04x came back as 0x%04x", h, back);
    }
}

/* For every pair of neighbours: the values around the midpoint go to the nearer one, the midpoint to the even one. */
static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            uint32_t low = (h | sign) << 16, even = h & 1 ? h + 1 : h;
            assert_int_equal(bf16_from_f32(f32_from_bits(low | 0x7fff)), h | sign);
            assert_int_equal(bf16_from_f32(f32_from_bits(low | 0x8000)), even | sign);
            assert_int_equal(bf16_from_f32(f32_from_bits(low | 0x8001)), (h + 1) | sign);
        }
    }
    assert_int_equal(bf16_from_f32(3.4028235e38f), 0x7f80); /* the greatest float rounds up to infinity */
}

static void nan_never_becomes_infinity(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x7f800001, 0x7f80ffff, 0x7fffffff, 0xff800001, 0xffffffff, 0x7fc00000};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        uint16_t h = bf16_from_f32(f32_from_bits(bits[i]));
        assert_true((h & 0x7fff) > 0x7f80);
        assert_int_equal(h >> 15, bits[i] >> 31);
    }
}

static void little_endian_reads_at_any_address(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0xee, 0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0x88};
    assert_int_equal(load_u16(bytes + 1), 0x8201);
    assert_true(load_u32(bytes + 1) == 0x84038201u);
    assert_true(load_u64(bytes + 1) == 0x8807860584038201u);
    assert_true(f32_bits(f32_from_bits(0x12345678)) == 0x12345678u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_widens_exactly),   cmocka_unit_test(every_f16_widens_exactly),
        cmocka_unit_test(every_bf16_comes_back),       cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(nan_never_becomes_infinity),  cmocka_unit_test(little_endian_reads_at_any_address),
    };
    return RUN_TESTS(tests);
}
