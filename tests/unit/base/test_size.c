/* Sizes and counts as people read them, with the unit that leaves one to four digits in front, and as they write them. */
#include "../testing.h"

#include "base/size.h"

static void sizes_have_the_unit_that_fits(void **state)
{
    (void)state;
    assert_string_equal(SIZE_TEXT(0), "0 B");
    assert_string_equal(SIZE_TEXT(1023), "1023 B");
    assert_string_equal(SIZE_TEXT(1024), "1.0 KiB");
    assert_string_equal(SIZE_TEXT(8909), "8.7 KiB");
    assert_string_equal(SIZE_TEXT(2 << 20), "2.0 MiB");
    assert_string_equal(SIZE_TEXT(99.9 * MIB), "99.9 MiB");
    assert_string_equal(SIZE_TEXT(845 * MIB), "845 MiB");
    assert_string_equal(SIZE_TEXT(19507e6), "18.17 GiB");
    assert_string_equal(SIZE_TEXT(0x1p50), "1048576.00 GiB");
}

static void two_sizes_may_stand_in_one_expression(void **state)
{
    (void)state;
    char text[100];
    snprintf(text, sizeof text, "%s of %s", SIZE_TEXT(MIB), SIZE_TEXT(2 * GIB));
    assert_string_equal(text, "1.0 MiB of 2.00 GiB");
}

static void counts_know_the_singular(void **state)
{
    (void)state;
    assert_string_equal(COUNT_TEXT(0, "token"), "0 tokens");
    assert_string_equal(COUNT_TEXT(1, "token"), "1 token");
    assert_string_equal(COUNT_TEXT((size_t)2, "file"), "2 files");
}

static void sizes_are_read_in_every_unit(void **state)
{
    static const struct {
        const char *text;
        double bytes;
    } good[] = {
        {"0", 0}, {"24G", 24 * GIB}, {"24g", 24 * GIB}, {"24GiB", 24 * GIB}, {"24gib", 24 * GIB}, {"24 G", 24 * GIB}, {"20GB", 20e9},
        {"20gb", 20e9}, {"20 GB", 20e9}, {"1.5G", 1.5 * GIB}, {"1.5MB", 1.5e6}, {"64M", 64 * MIB}, {"64MiB", 64 * MIB}, {"8K", 8 * KIB},
        {"8KiB", 8 * KIB}, {"8KB", 8e3}, {"2T", 2048 * GIB}, {"2TiB", 2048 * GIB}, {"2TB", 2e12}, {"20B", 20}, {"0G", 0},
        {"1048576", MIB}, {"26000000000", 26e9}, {"1152921504606846976", 0x1p60},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct lily_err err = {0};
        size_t n = 1;
        if (size_parse(good[i].text, &n, &err) != LILY_OK || n != (size_t)good[i].bytes) fail_msg("%s: %zu %s", good[i].text, n, err.msg);
    }
}

static void what_is_no_size_is_refused(void **state)
{
    static const char *const bad[] = {"", " ", "G", "lots", "1.G", "1.", ".5G", "-5G", "+5G", "5X", "5GG", "5Gi", "5iB", "5BB", "5G ", "5  G", " 5G",
                                      "1e9", "0x10", "1.5.5G", "1,5G", "nan", "inf", "1152921504606846977000", "2000000T"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct lily_err err = {0};
        size_t n = 7;
        if (size_parse(bad[i], &n, &err) != LILY_ERR_USAGE || !strstr(err.msg, "is no size") || n != 7) fail_msg("%s: %zu %s", bad[i], n, err.msg);
    }
}

static void a_small_size_needs_its_unit(void **state)
{
    static const char *const bare[] = {"1", "20", "1.5", "1048575"};
    (void)state;
    for (size_t i = 0; i < sizeof bare / sizeof bare[0]; i++) {
        struct lily_err err = {0};
        size_t n;
        char want[64];
        assert_int_equal(size_parse(bare[i], &n, &err), LILY_ERR_USAGE);
        snprintf(want, sizeof want, "write %sG for GiB, %sM for MiB", bare[i], bare[i]);
        assert_non_null(strstr(err.msg, want));
    }
}

static void counts_are_read(void **state)
{
    static const struct {
        const char *text;
        long long n;
    } good[] = {{"0", 0}, {"512", 512}, {"16K", 16384}, {"16k", 16384}, {"1M", 1 << 20}, {"2G", 2ll << 30}, {"1152921504606846976", 1ll << 60}};
    static const char *const bad[] = {"", "K", "ten", "-1", "+1", " 1", "1.5K", "1KB", "1KiB", "1T", "1 K", "1e3", "99999999999999999999", "9999999999999G"};
    long long n;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(count_parse(good[i].text, &n));
        assert_true(n == good[i].n);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (count_parse(bad[i], &n)) fail_msg("%s: %lld", bad[i], n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_the_unit_that_fits),
        cmocka_unit_test(two_sizes_may_stand_in_one_expression),
        cmocka_unit_test(counts_know_the_singular),
        cmocka_unit_test(sizes_are_read_in_every_unit),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(a_small_size_needs_its_unit),
        cmocka_unit_test(counts_are_read),
    };
    return RUN_TESTS(tests);
}
