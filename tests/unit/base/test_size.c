/* Sizes as people read them: the unit that leaves one to four digits in front. */
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
    char text[80];
    snprintf(text, sizeof text, "%s of %s", SIZE_TEXT(MIB), SIZE_TEXT(2 * GIB));
    assert_string_equal(text, "1.0 MiB of 2.00 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_the_unit_that_fits),
        cmocka_unit_test(two_sizes_may_stand_in_one_expression),
    };
    return RUN_TESTS(tests);
}
