/* Fork-join pool: a generation counter starts the workers, a countdown ends the call; both spin, then sleep. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

enum { SPIN_ROUNDS = 4000, MAX_THREADS = 256 };

struct worker {
    struct pool *pool; /* borrowed */
    pthread_t thread;
    int index;
};

struct pool {
    int n_threads;
    struct worker *workers; /* owned, n_threads - 1 */
    int n_started;
    pool_fn fn;
    void *arg; /* borrowed during a run */
    bool quit;
    atomic_uint generation; /* grows by one per run; workers wait for a change */
    atomic_int pending;     /* workers still running */
    pthread_mutex_t lock;   /* guards sleeping only */
    pthread_cond_t start, done;
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_for_start(struct pool *p, unsigned seen)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen) return;
        cpu_relax();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->generation, memory_order_acquire) == seen) pthread_cond_wait(&p->start, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        wait_for_start(p, seen);
        seen++;
        if (p->quit) return NULL;
        p->fn(p->arg, w->index, p->n_threads);
        if (atomic_fetch_sub_explicit(&p->pending, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void start_generation(struct pool *p)
{
    atomic_store_explicit(&p->pending, p->n_threads - 1, memory_order_relaxed);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_release);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

lily_status pool_create(int n_threads, struct pool **out, struct lily_err *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > MAX_THREADS)
        LILY_FAIL(err, LILY_ERR_USAGE, "%d threads: expected 1 to %d", n_threads, MAX_THREADS);
    struct pool *p = mem_new(sizeof *p);
    p->n_threads = n_threads;
    p->workers = mem_new(sizeof *p->workers * (size_t)n_threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 1; i < n_threads; i++) {
        struct worker *w = &p->workers[i - 1];
        w->pool = p;
        w->index = i;
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            pool_free(p);
            LILY_FAIL(err, LILY_ERR_MEMORY, "thread %d of %d could not be started", i, n_threads);
        }
        p->n_started++;
    }
    *out = p;
    return LILY_OK;
}

void pool_free(struct pool *p)
{
    if (!p) return;
    p->quit = true;
    start_generation(p);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}

int pool_size(const struct pool *p)
{
    return p->n_threads;
}

void pool_run(struct pool *p, pool_fn fn, void *arg)
{
    if (p->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    start_generation(p);
    fn(arg, 0, p->n_threads);
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&p->pending, memory_order_acquire) == 0) return;
        cpu_relax();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->pending, memory_order_acquire) != 0) pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
