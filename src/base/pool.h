/*
 * A pool of compute threads with one fork-join call.
 *
 * pool_run(pool, fn, arg) calls fn(arg, i, n) once for every thread index i < n, the caller being index 0, and returns
 * when all are done. Work is split statically by the callee (pool_range), so results never depend on timing. Workers spin
 * briefly between calls and then sleep. Thread rule: one caller at a time; fn must not call pool_run on the same pool.
 */
#ifndef LILY_BASE_POOL_H
#define LILY_BASE_POOL_H

#include "base/err.h"

struct pool;

typedef void (*pool_fn)(void *arg, int thread, int n_threads);

/* n_threads in 1…256, the caller included. Owned by the caller of pool_create. */
lily_status pool_create(int n_threads, struct pool **out, struct lily_err *err);
void pool_free(struct pool *p);
int pool_size(const struct pool *p);
void pool_run(struct pool *p, pool_fn fn, void *arg);

/* The part [*lo, *hi) of 0…n-1 of one thread; parts are contiguous, in order, and differ by at most one. */
static inline void pool_range(long n, int thread, int n_threads, long *lo, long *hi)
{
    *lo = n * thread / n_threads;
    *hi = n * (thread + 1) / n_threads;
}

#endif
