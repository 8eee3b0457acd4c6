/* The environment and the clock. */
#include "../testing.h"

#include <time.h>

#include "base/clock.h"
#include "base/env.h"

static void the_model_variable(void **state)
{
    (void)state;
    unsetenv("LILY_MODEL");
    assert_null(env_model());
    setenv("LILY_MODEL", "", 1);
    assert_null(env_model());
    setenv("LILY_MODEL", "some/folder", 1);
    assert_string_equal(env_model(), "some/folder");
}

static void the_cache_folder(void **state)
{
    (void)state;
    static const struct {
        const char *xdg, *home, *want;
    } cases[] = {
        {"/x/cache", "/home/u", "/x/cache/lily/packed"},
        {NULL, "/home/u", "/home/u/.cache/lily/packed"},
        {"", "/home/u", "/home/u/.cache/lily/packed"},
        {"relative", "/home/u", "/home/u/.cache/lily/packed"}, /* the XDG rule: relative paths are ignored */
        {NULL, NULL, ""},
        {NULL, "", ""},
        {"/x", NULL, "/x/lily/packed"},
    };
    struct buf b = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsetenv("XDG_CACHE_HOME");
        unsetenv("HOME");
        if (cases[i].xdg) setenv("XDG_CACHE_HOME", cases[i].xdg, 1);
        if (cases[i].home) setenv("HOME", cases[i].home, 1);
        env_cache_dir("packed", &b);
        assert_string_equal(buf_str(&b), cases[i].want);
    }
    buf_free(&b);
}

static void the_clock_goes_on_in_milliseconds(void **state)
{
    (void)state;
    double start = clock_ms(), last = start;
    for (int i = 0; i < 10000; i++) {
        double now = clock_ms();
        assert_true(now >= last);
        last = now;
    }
    struct timespec pause = {0, 30000000};
    nanosleep(&pause, NULL);
    double passed = clock_ms() - last;
    assert_true(passed >= 30 && passed < 30000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_variable),
        cmocka_unit_test(the_cache_folder),
        cmocka_unit_test(the_clock_goes_on_in_milliseconds),
    };
    return RUN_TESTS(tests);
}
