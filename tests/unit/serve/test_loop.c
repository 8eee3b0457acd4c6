/* The loop: no wake-up is lost, those that come thick and fast are seen to together, and none waits for another thread. */
#include "unit/testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "serve/loop.h"

enum { CALLS = 20000 };

struct told {
    struct loop *loop;
    atomic_int said; /* by the other thread, before each wake-up */
    int seen, times, last;
    bool pause;      /* the other thread pauses now and then, so that rests begin and end in between */
};

/* What was said last was seen: the loop has done its part. */
static void see(void *ctx)
{
    struct told *t = ctx;
    t->times++;
    t->seen = atomic_load(&t->said);
    if (t->seen == t->last) loop_stop(t->loop);
}

static void give_up(void *ctx)
{
    loop_stop(((struct told *)ctx)->loop);
}

static void *say(void *ctx)
{
    struct told *t = ctx;
    for (int i = 1; i <= t->last; i++) {
        atomic_store(&t->said, i);
        loop_wake_soon(t->loop, i % 3 ? 2 : 4);
        for (double until = clock_ms() + (i % 7 ? 0.3 : 5.5); t->pause && clock_ms() < until;) sched_yield();
    }
    return NULL;
}

static void run(struct told *t)
{
    struct lily_err err;
    pthread_t thread;
    assert_ok(loop_new(see, t, &t->loop, &err));
    struct loop_timer *limit = loop_timer_new(t->loop, 60e3, give_up, t);
    assert_int_equal(pthread_create(&thread, NULL, say, t), 0);
    loop_run(t->loop);
    pthread_join(thread, NULL);
    loop_timer_free(limit);
    loop_free(t->loop);
    assert_int_equal(t->seen, t->last);
}

static void the_last_of_many_is_seen(void **state)
{
    (void)state;
    struct told t = {.last = CALLS};
    run(&t);
    assert_true(t.times < CALLS / 4); /* they take some 20 ms, or as long as the machine wants: a rest is 2 ms at least */
}

static void none_is_lost_at_the_end_of_a_rest(void **state)
{
    (void)state;
    struct told t = {.last = 400, .pause = true};
    run(&t);
}

/* One that is alone is not kept for the rest's end, nor is loop_wake within a rest. */
static void see_both(void *ctx)
{
    struct told *t = ctx;
    if (++t->times == 1) loop_wake(t->loop);
    else loop_stop(t->loop);
}

static void a_prompt_one_ends_no_rest_and_waits_for_none(void **state)
{
    (void)state;
    struct lily_err err;
    double fastest = 1e3;
    for (int i = 0; i < 50; i++) { /* the fastest of many: the machine may be busy */
        struct told t = {0};
        assert_ok(loop_new(see_both, &t, &t.loop, &err));
        double start = clock_ms();
        loop_wake_soon(t.loop, 2);
        loop_run(t.loop);
        double took = clock_ms() - start;
        if (took < fastest) fastest = took;
        loop_free(t.loop);
        assert_int_equal(t.times, 2);
    }
    assert_true(fastest < 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_last_of_many_is_seen), cmocka_unit_test(none_is_lost_at_the_end_of_a_rest),
                                       cmocka_unit_test(a_prompt_one_ends_no_rest_and_waits_for_none)};
    return RUN_TESTS(tests);
}
