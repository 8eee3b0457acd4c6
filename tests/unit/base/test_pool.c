/* The pool: every index once, all writes seen, sizes 1 to 8 and the limits, many short runs. */
#include "../testing.h"

#include <stdatomic.h>
#include <time.h>

#include "base/pool.h"

enum { MOST = 8 };

static void ranges_tile_the_whole(void **state)
{
    (void)state;
    static const long sizes[] = {0, 1, 2, 7, 8, 9, 63, 64, 1000, 35000000000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int n = 1; n <= 256; n = n < 9 ? n + 1 : n * 2) {
            long at = 0, least = sizes[s], most = 0;
            for (int i = 0; i < n; i++) {
                long lo, hi;
                pool_range(sizes[s], i, n, &lo, &hi);
                assert_true(lo == at && hi >= lo);
                if (hi - lo < least) least = hi - lo;
                if (hi - lo > most) most = hi - lo;
                at = hi;
            }
            assert_true(at == sizes[s]);
            assert_true(most - least <= 1);
        }
    }
}

struct count_job {
    atomic_int calls[MOST];
    atomic_int wrong;
    int n;
};

static void count_call(void *arg, int thread, int n_threads)
{
    struct count_job *j = arg;
    if (n_threads != j->n || thread < 0 || thread >= n_threads) atomic_fetch_add(&j->wrong, 1);
    else atomic_fetch_add(&j->calls[thread], 1);
}

static void every_index_is_called_once_per_run(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        struct lily_err err;
        struct pool *p = NULL;
        assert_ok(pool_create(n, &p, &err));
        assert_int_equal(pool_size(p), n);
        struct count_job j = {.n = n};
        for (int run = 1; run <= 100; run++) {
            pool_run(p, count_call, &j);
            for (int i = 0; i < MOST; i++) assert_int_equal(atomic_load(&j.calls[i]), i < n ? run : 0);
        }
        assert_int_equal(atomic_load(&j.wrong), 0);
        pool_free(p);
    }
}

/* Runs of more and of fewer parts than threads, in turns: a late worker takes none of another run's. */
static void any_number_of_parts(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        struct lily_err err;
        struct pool *p = NULL;
        assert_ok(pool_create(n, &p, &err));
        for (int run = 0; run < 2000; run++) {
            struct count_job j = {.n = run % MOST + 1};
            pool_run_parts(p, j.n, count_call, &j);
            for (int i = 0; i < MOST; i++) assert_int_equal(atomic_load(&j.calls[i]), i < j.n);
            assert_int_equal(atomic_load(&j.wrong), 0);
        }
        pool_free(p);
    }
}

struct sum_job {
    const long *in;
    long *out; /* plain memory: a run must order it before the caller's reads */
    long n;
};

static void sum_part(void *arg, int thread, int n_threads)
{
    struct sum_job *j = arg;
    long lo, hi, sum = 0;
    pool_range(j->n, thread, n_threads, &lo, &hi);
    for (long i = lo; i < hi; i++) sum += j->in[i];
    j->out[thread] = sum;
}

/* Each run reads what the run before it wrote, so that a missing barrier shows as a wrong sum (and under TSan). */
static void runs_are_ordered_against_each_other(void **state)
{
    (void)state;
    enum { N = 1003, RUNS = 3000 };
    for (int n = 1; n <= MOST; n += n < 4 ? 1 : 2) {
        struct lily_err err;
        struct pool *p = NULL;
        assert_ok(pool_create(n, &p, &err));
        long in[N], out[MOST];
        for (long i = 0; i < N; i++) in[i] = i;
        struct sum_job j = {in, out, N};
        long want = (long)N * (N - 1) / 2;
        for (int run = 0; run < RUNS / n; run++) {
            pool_run(p, sum_part, &j);
            long sum = 0;
            for (int i = 0; i < n; i++) sum += out[i];
            assert_int_equal(sum, want);
            in[run % N] += run;
            want += run;
        }
        pool_free(p);
    }
}

static void sleepers_wake_up(void **state)
{
    (void)state;
    struct lily_err err;
    struct pool *p = NULL;
    assert_ok(pool_create(4, &p, &err));
    struct count_job j = {.n = 4};
    for (int run = 0; run < 5; run++) {
        struct timespec pause = {0, 20000000}; /* far longer than the spinning */
        nanosleep(&pause, NULL);
        pool_run(p, count_call, &j);
    }
    for (int i = 0; i < 4; i++) assert_int_equal(atomic_load(&j.calls[i]), 5);
    pool_free(p);
}

static void free_follows_create_and_run_at_once(void **state)
{
    (void)state;
    struct lily_err err;
    struct pool *p = NULL;
    assert_ok(pool_create(3, &p, &err));
    struct count_job j = {.n = 3};
    pool_run(p, count_call, &j);
    pool_free(p); /* right after a run, and without one below */
    assert_ok(pool_create(3, &p, &err));
    pool_free(p);
    pool_free(NULL);
}

static void sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    static const int wrong[] = {0, -1, 257, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct lily_err err;
        struct pool *p = (void *)&err;
        assert_int_equal(pool_create(wrong[i], &p, &err), LILY_ERR_USAGE);
        assert_null(p);
        assert_non_null(strstr(err.msg, "1 to 256"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_tile_the_whole),
        cmocka_unit_test(every_index_is_called_once_per_run),
        cmocka_unit_test(any_number_of_parts),
        cmocka_unit_test(runs_are_ordered_against_each_other),
        cmocka_unit_test(sleepers_wake_up),
        cmocka_unit_test(free_follows_create_and_run_at_once),
        cmocka_unit_test(sizes_out_of_range_are_refused),
    };
    return RUN_TESTS(tests);
}
