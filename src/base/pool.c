/*
 * Fork-join pool. The parts of a run are fixed, but whoever is free takes the next one: a worker that the system has put
 * aside never holds up the caller, who then does its part too. One 64-bit word holds the run's generation and the parts
 * left to take, so that a late worker cannot take a part of a run that it has not seen begin.
 */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

enum { MAX_THREADS = 256, LOOK_ROUNDS = 64 /* of spinning between two looks at the clock */ };
/*
 * How long to spin before sleeping. To wake a thread takes the waker 20 us and the woken one 50 on a virtual machine, so the time is
 * longer than the visits of other threads that borrow a processor in the middle of a run (some 70 us for a server's token on its way out).
 */
static const double spin_ms = 0.2;

/*
 * What a run touches lies on one cache line: each further one would cost every run, some hundred for a token, its way between the
 * processors once more.
 */
struct pool {
    _Alignas(64) _Atomic uint64_t claim; /* generation << 32 | parts left; changes start a run and hand out its parts */
    pool_fn fn;
    void *arg;                /* borrowed during a run */
    int n_parts, n_threads;
    atomic_int pending;       /* parts not yet finished */
    atomic_int sleepers;      /* workers asleep or about to be */
    atomic_bool caller_sleeps;
    atomic_bool quit;
    _Alignas(64) pthread_mutex_t lock; /* for sleeping only */
    pthread_cond_t start, done;
    pthread_t *threads; /* owned; n_threads - 1 workers */
    int n_started;
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

struct spin {
    int rounds;
    double end_ms;
};

/* One round of spinning. False when it is time to sleep. */
static bool spin_on(struct spin *s)
{
    cpu_relax();
    if (++s->rounds % LOOK_ROUNDS) return true;
    double now = clock_ms();
    if (s->rounds == LOOK_ROUNDS) s->end_ms = now + spin_ms;
    return now < s->end_ms;
}

static uint32_t generation_of(uint64_t claim)
{
    return (uint32_t)(claim >> 32);
}

/* The next part of run `generation`, or -1 when they are all taken or the run is over. */
static int take_part(struct pool *p, uint32_t generation)
{
    uint64_t c = atomic_load(&p->claim);
    while (generation_of(c) == generation && (uint32_t)c > 0)
        if (atomic_compare_exchange_weak(&p->claim, &c, c - 1)) return p->n_parts - (int)(uint32_t)c;
    return -1;
}

/* fn, arg and n_parts are stable while a taken part is unfinished. */
static void run_parts(struct pool *p, uint32_t generation)
{
    int part;
    while ((part = take_part(p, generation)) >= 0) {
        p->fn(p->arg, part, p->n_parts);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

/* Waits for a run other than `seen`; returns its generation. */
static uint32_t wait_for_start(struct pool *p, uint32_t seen)
{
    struct spin spin = {0};
    uint32_t now;
    do {
        if ((now = generation_of(atomic_load(&p->claim))) != seen) return now;
    } while (spin_on(&spin));
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while ((now = generation_of(atomic_load(&p->claim))) == seen) pthread_cond_wait(&p->start, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    return now;
}

static void *worker_main(void *arg)
{
    struct pool *p = arg;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_for_start(p, seen);
        if (atomic_load(&p->quit)) return NULL;
        run_parts(p, seen);
    }
}

/* Begins a new generation and wakes who sleeps. */
static uint32_t start_run(struct pool *p)
{
    uint32_t generation = generation_of(atomic_load(&p->claim)) + 1;
    atomic_store(&p->claim, (uint64_t)generation << 32 | (uint32_t)p->n_parts);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock); /* who counts as a sleeper either sleeps by now or has seen the new generation */
        pthread_mutex_unlock(&p->lock);
        pthread_cond_broadcast(&p->start); /* without the lock, on which the woken would sleep once more */
    }
    return generation;
}

lily_status pool_create(int n_threads, struct pool **out, struct lily_err *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > MAX_THREADS)
        LILY_FAIL(err, LILY_ERR_USAGE, "%d threads: expected 1 to %d", n_threads, MAX_THREADS);
    struct pool *p = mem_new_lines(sizeof *p);
    p->n_threads = n_threads;
    p->threads = mem_new(sizeof *p->threads * (size_t)n_threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 1; i < n_threads; i++) {
        if (thread_start(&p->threads[i - 1], worker_main, p) != 0) {
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
    atomic_store(&p->quit, true);
    start_run(p);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p);
}

int pool_size(const struct pool *p)
{
    return p->n_threads;
}

static void wait_for_end(struct pool *p)
{
    struct spin spin = {0};
    do {
        if (atomic_load(&p->pending) == 0) return;
    } while (spin_on(&spin));
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->pending) != 0) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void pool_run(struct pool *p, pool_fn fn, void *arg)
{
    pool_run_parts(p, p->n_threads, fn, arg);
}

void pool_run_parts(struct pool *p, int n_parts, pool_fn fn, void *arg)
{
    if (p->n_threads == 1) {
        for (int i = 0; i < n_parts; i++) fn(arg, i, n_parts);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_parts = n_parts;
    atomic_store(&p->pending, n_parts);
    run_parts(p, start_run(p));
    wait_for_end(p);
}
