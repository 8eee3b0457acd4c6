/*
 * Memory: 100 decode steps allocate nothing, what a run of the demo model keeps resident stays within its plan, and saved states take
 * what they are counted for. Not for sanitizers and emulators, which have memory of their own.
 */
#include "unit/testing.h"

#include <stdatomic.h>

#include "run/borders.h"
#include "run/session.h"
#include "support/golden.h"

static atomic_long n_allocations;

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
    struct lily_err err = {0};
    struct model *m = open_model("tests/data/tiny", cpu_best_tier(), 2, false);
    struct session *s = start(m, 512, 60);
    long before = atomic_load(&n_allocations);
    assert_true(before > 0); /* the counter is in place */
    for (int i = 0; i < 100; i++) assert_ok(session_step(s, i, &err));
    assert_int_equal(atomic_load(&n_allocations) - before, 0);
    session_free(s);
    model_close(m);
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
}

/* Of this process, from its page tables; the counters of statm lag behind. */
static long anonymous_bytes(void)
{
    char line[256];
    long kb = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && kb < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, "Anonymous:", 10) == 0) kb = strtol(line + 10, NULL, 10);
    if (f) fclose(f);
    return kb < 0 ? -1 : kb * 1024;
}

enum { BUDGET = 16 << 20, SLACK = BUDGET / 100, LONGEST = 16 * GRID };

/* Saves states of many lengths, some with a common beginning, until most of them were dropped again. True numbers all the way. */
static void fill(struct model *m, struct borders *b, struct seq *seq, long base)
{
    static int32_t ids[LONGEST];
    struct lily_err err = {0};
    struct backend *be = model_backend(m);
    long real = 0;
    for (int k = 0; k < 48; k++) {
        int length = GRID * (1 + k * 7 % 16), common = k % 3 ? 0 : GRID * 4;
        for (int i = 0; i < LONGEST; i++) ids[i] = i < common ? i : (i * 31 + k * 7) % 8000;
        assert_ok(be->ops->seq_fill(be, seq, length, (uint64_t)k, &err));
        assert_ok(borders_save(b, seq, ids, length, &err));
        be->ops->seq_reset(be, seq);
        real = anonymous_bytes() - base;
        assert_true(borders_bytes(b) <= BUDGET);
        if (base) assert_true(real <= (long)borders_bytes(b) + SLACK);
    }
    assert_true(borders_counters(b)->dropped > 20);
    if (base) assert_true(real >= (long)borders_bytes(b) * 97 / 100);
    printf("saved states: %zu bytes counted, %ld resident\n", borders_bytes(b), base ? real : 0);
}

static void test_saved_states_take_what_is_counted(void **state)
{
    (void)state;
    if (anonymous_bytes() < 0) TEST_SKIP("the system does not say what is resident (smaps_rollup)");
    struct lily_err err = {0};
    struct model_options o;
    struct model *m;
    struct seq *seq;
    model_options_init(&o);
    o.plan.ctx = LONGEST;
    o.plan.border_bytes = BUDGET;
    assert_ok(model_open("models/demo", &o, &m, &err));
    struct backend *be = model_backend(m);
    struct borders *b = borders_new(m, BUDGET);
    assert_ok(be->ops->seq_new(be, &seq, &err));
    fill(m, b, seq, 0);
    borders_clear(b);
    long base = anonymous_bytes();
    fill(m, b, seq, base);
    borders_clear(b);
    assert_true(anonymous_bytes() - base <= SLACK); /* all of it went back */
    borders_free(b);
    be->ops->seq_free(be, seq);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode_allocates_nothing),
                                       cmocka_unit_test(test_resident_within_plan),
                                       cmocka_unit_test(test_saved_states_take_what_is_counted)};
    return RUN_TESTS(tests);
}
