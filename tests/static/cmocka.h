/*
 * The part of cmocka that tests/golden uses, for programs that are linked without any library (STATIC=1, tests/neon.sh):
 * the same names, so that a test is built either way. Include through unit/testing.h, from programs of one source file and
 * helpers: every file has its own copy of the functions, the jump is shared.
 */
#ifndef LILY_TESTS_STATIC_CMOCKA_H
#define LILY_TESTS_STATIC_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(f) {#f, f}

enum { TEST_PASSED, TEST_FAILED, TEST_SKIPPED };
__attribute__((common)) jmp_buf test_end; /* one for the program, however many files include this */

#define skip() longjmp(test_end, TEST_SKIPPED)
#define fail_msg(...)                                                                                                  \
    do {                                                                                                               \
        printf("%s:%d: ", __FILE__, __LINE__);                                                                         \
        printf(__VA_ARGS__);                                                                                           \
        printf("\n");                                                                                                  \
        longjmp(test_end, TEST_FAILED);                                                                                \
    } while (0)
#define assert_true(x)                                                                                                 \
    do {                                                                                                               \
        if (!(x)) fail_msg("not true: %s", #x);                                                                        \
    } while (0)
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_int_equal(a, b) assert_true((a) == (b))

static inline int run_one(const struct CMUnitTest *test)
{
    void *state = NULL;
    switch (setjmp(test_end)) {
    case TEST_PASSED: test->run(&state); return TEST_PASSED;
    case TEST_SKIPPED: return TEST_SKIPPED;
    default: printf("FAIL %s\n", test->name); return TEST_FAILED;
    }
}

static inline int run_group(const struct CMUnitTest *tests, size_t n)
{
    int failed = 0;
    for (size_t i = 0; i < n; i++) failed += run_one(&tests[i]) == TEST_FAILED;
    return failed;
}
#define cmocka_run_group_tests(tests, setup, teardown) run_group(tests, sizeof(tests) / sizeof((tests)[0]))

#endif
