/* Sizes as people read them: the unit that leaves one to three digits in front. */
#include "../testing.h"

#include "base/size.h"

static void sizes_have_the_unit_that_fits(void **state)
{
    (void)state;
    assert_string_equal(SIZE_TEXT(0), "0 B");
    assert_string_equal(SIZE_TEXT(999), "999 B");
    assert_string_equal(SIZE_TEXT(1000), "1.0 kB");
    assert_string_equal(SIZE_TEXT(8676), "8.7 kB");
    assert_string_equal(SIZE_TEXT(2025400), "2.0 MB");
    assert_string_equal(SIZE_TEXT(99.9e6), "99.9 MB");
    assert_string_equal(SIZE_TEXT(845e6), "845 MB");
    assert_string_equal(SIZE_TEXT(19507e6), "19.51 GB");
    assert_string_equal(SIZE_TEXT(1e15), "1000000.00 GB");
}

static void two_sizes_may_stand_in_one_expression(void **state)
{
    (void)state;
    char text[80];
    snprintf(text, sizeof text, "%s of %s", SIZE_TEXT(1e6), SIZE_TEXT(2e9));
    assert_string_equal(text, "1.0 MB of 2.00 GB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_the_unit_that_fits),
        cmocka_unit_test(two_sizes_may_stand_in_one_expression),
    };
    return RUN_TESTS(tests);
}
