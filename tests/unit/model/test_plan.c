/* The memory plan: pieces are as long as memory and context allow, and what does not fit is refused. */
#include "unit/testing.h"

#include "backend/cpu/cpu.h"
#include "load/synth.h"
#include "model/plan.h"

static struct memory_plan plan_of(const struct model_config *c, int ctx, size_t limit, lily_status expected)
{
    struct lily_err err = {0};
    struct memory_plan p;
    const struct plan_want want = {.ctx = ctx, .limit = limit};
    assert_int_equal(plan_make(c, &want, &p, &err), expected);
    return p;
}

static void test_rows_follow_the_memory(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct synth_plan s;
    assert_ok(synth_plan_make(SYNTH_35B, 1, &s, &err));
    const struct memory_plan most = plan_of(&s.config, 4096, (size_t)30e9, LILY_OK);
    assert_int_equal(most.rows, CPU_MAX_ROWS);
    assert_true(most.total < 22e9);
    size_t limit = most.total;
    for (int rows = CPU_MAX_ROWS; rows >= CPU_SHORT_ROWS; rows /= 2) {
        struct memory_plan p = plan_of(&s.config, 4096, limit, LILY_OK);
        assert_int_equal(p.rows, rows);
        assert_true(p.total <= limit && p.scratch >= cpu_workspace_bytes(&s.config.shape, rows));
        assert_true((p.behind > 0) == (rows > CPU_SHORT_ROWS));
        limit = p.total - 1;
    }
    plan_of(&s.config, 4096, limit, LILY_ERR_MEMORY);
    /* The context is not lowered for the sake of longer pieces. */
    const struct memory_plan full = plan_of(&s.config, 0, (size_t)30e9, LILY_OK);
    const struct plan_want few = {.max_rows = CPU_SHORT_ROWS, .limit = (size_t)30e9};
    struct memory_plan p;
    assert_ok(plan_make(&s.config, &few, &p, &err));
    assert_int_equal(p.ctx, full.ctx);
    assert_int_equal(plan_of(&s.config, 0, p.total, LILY_OK).ctx, full.ctx);
    synth_plan_free(&s);
}

/* No rows that the context cannot fill. */
static void test_rows_follow_the_context(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct synth_plan s;
    assert_ok(synth_plan_make(SYNTH_TINY, 1, &s, &err));
    assert_int_equal(plan_of(&s.config, 300, 0, LILY_OK).rows, CPU_SHORT_ROWS);
    assert_int_equal(plan_of(&s.config, 512, 0, LILY_OK).rows, CPU_SHORT_ROWS);
    assert_int_equal(plan_of(&s.config, 513, 0, LILY_OK).rows, 2 * CPU_SHORT_ROWS);
    assert_int_equal(plan_of(&s.config, 2048, 0, LILY_OK).rows, 2048);
    assert_int_equal(plan_of(&s.config, 4096, 0, LILY_OK).rows, CPU_MAX_ROWS);
    synth_plan_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_follow_the_memory), cmocka_unit_test(test_rows_follow_the_context)};
    return RUN_TESTS(tests);
}
