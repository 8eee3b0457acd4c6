/*
 * A pool of compute threads with one fork-join call.
 *
 * pool_run(pool, fn, arg) calls fn(arg, part, n) once for every part < n, n being the number of threads, and returns when
 * all are done; pool_run_parts does so for any n >= 1. The caller works too. Parts are begun in their order. The callee splits its work by part (pool_range), so results never depend on timing;
 * which thread does a part is open: a part may not rely on thread-local state. Workers spin briefly between runs, then
 * sleep. Thread rule: one caller at a time; fn must not call pool_run on the same pool.
 */
#ifndef LILY_BASE_POOL_H
#define LILY_BASE_POOL_H

#include "base/err.h"

struct pool;

typedef void (*pool_fn)(void *arg, int part, int n_parts);

/* n_threads in 1…256, the caller included. Owned by the caller of pool_create. */
lily_status pool_create(int n_threads, struct pool **out, struct lily_err *err);
void pool_free(struct pool *p);
int pool_size(const struct pool *p);
void pool_run(struct pool *p, pool_fn fn, void *arg);
void pool_run_parts(struct pool *p, int n_parts, pool_fn fn, void *arg);

/* The part [*lo, *hi) of 0…n-1 of one part; parts are contiguous, in order, and differ by at most one. */
static inline void pool_range(long n, int part, int n_parts, long *lo, long *hi)
{
    *lo = n * part / n_parts;
    *hi = n * (part + 1) / n_parts;
}

#endif
