/*
 * The frame of a cmocka test program: RUN_TESTS runs a table of tests and prints the closing line that tests/run.sh sums;
 * TEST_SKIP names a reason, TEST_ELSEWHERE another place. Include first.
 */
#ifndef LILY_TESTS_TESTING_H
#define LILY_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A sanitizer makes this build slow and its memory large. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

static int tests_skipped, tests_elsewhere;

#define TEST_SKIP(...)                                                                                                 \
    do {                                                                                                               \
        printf("SKIP %s: ", __func__);                                                                                 \
        printf(__VA_ARGS__);                                                                                           \
        printf("\n");                                                                                                  \
        tests_skipped++;                                                                                               \
        skip();                                                                                                        \
    } while (0)

/* For a test that another suite of the same `make check` runs in place of this one: neither passed nor skipped. */
#define TEST_ELSEWHERE(where)                                                                                          \
    do {                                                                                                               \
        printf("%s: %s\n", __func__, where);                                                                           \
        tests_elsewhere++;                                                                                             \
        skip();                                                                                                        \
    } while (0)

static inline int tests_finish(int n_tests, int n_failed)
{
    printf("%d passed, %d failed, %d skipped\n", n_tests - n_failed - tests_skipped - tests_elsewhere, n_failed, tests_skipped);
    return n_failed != 0;
}

#define RUN_TESTS(table)                                                                                               \
    tests_finish((int)(sizeof(table) / sizeof((table)[0])), cmocka_run_group_tests(table, NULL, NULL))

/* Asserts LILY_OK and shows the message otherwise. Needs `struct lily_err err` in scope. */
#define assert_ok(expr)                                                                                                \
    do {                                                                                                               \
        if ((expr) != LILY_OK) fail_msg("%s: %s", #expr, err.msg);                                                     \
    } while (0)

#endif
