/*
 * Memory: 100 decode steps allocate nothing, and what a run of the demo model keeps resident stays within its plan.
 */
#include "unit/testing.h"

#include <stdatomic.h>

#include "run/session.h"
#include "support/golden.h"

static atomic_long n_allocations;

#ifndef SANITIZED
/* Counting stand-ins in front of the C library's own allocator. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_memalign(align, n);
}
#endif

static struct session *start(struct model *m, int ctx, int prompt)
{
    struct lily_err err = {0};
    struct session *s;
    struct session_options o = {.ctx = ctx, .max_borders = 4};
    struct sync_result result;
    int32_t *ids = malloc(sizeof *ids * (size_t)prompt);
    assert_non_null(ids);
    for (int i = 0; i < prompt; i++) ids[i] = i * 7 % 300;
    struct sync_request r = {.ids = ids, .n = prompt};
    assert_ok(session_new(m, &o, &s, &err));
    assert_ok(session_sync(s, &r, &result, &err));
    free(ids);
    return s;
}

static void test_decode_allocates_nothing(void **state)
{
    (void)state;
#ifdef SANITIZED
    TEST_SKIP("a sanitizer's allocator is in place");
#else
    struct lily_err err = {0};
    struct model *m = open_model("tests/data/tiny", cpu_best_tier(), 2, false);
    struct session *s = start(m, 512, 60);
    long before = atomic_load(&n_allocations);
    assert_true(before > 0); /* the counter is in place */
    for (int i = 0; i < 100; i++) assert_ok(session_step(s, i, &err));
    assert_int_equal(atomic_load(&n_allocations) - before, 0);
    session_free(s);
    model_close(m);
#endif
}

static size_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long size, resident;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
    fclose(f);
    return (size_t)resident * 4096;
}

static void test_resident_within_plan(void **state)
{
    (void)state;
#ifdef SANITIZED
    TEST_SKIP("a sanitizer's shadow memory would be counted");
#else
    struct lily_err err = {0};
    struct model_options o;
    struct model *m;
    enum { CTX = 8192 };
    model_options_init(&o);
    o.plan.ctx = CTX;
    o.plan.border_bytes = 16 << 20;
    assert_ok(model_open("models/demo", &o, &m, &err));
    struct session *s = start(m, CTX, CTX - 10);
    for (int i = 0; i < 8; i++) assert_ok(session_step(s, i, &err));
    size_t resident = resident_bytes(), total = model_plan(m)->total;
    printf("resident %zu bytes, planned %zu\n", resident, total);
    assert_true(resident <= total + total / 50);
    session_free(s);
    model_close(m);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode_allocates_nothing),
                                       cmocka_unit_test(test_resident_within_plan)};
    return RUN_TESTS(tests);
}
