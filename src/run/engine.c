/* The engine thread: queue, admission, sleeping, failing. */
#include "run/engine.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

/* How long a token may lie. Taking it out costs time of the engine's when that computes without a pause, none when it pauses anyway. */
static const double pausing_ms = 2, busy_ms = 4;

struct engine {
    struct engine_options opt;
    struct runner *runner;       /* owned */
    struct scheduler *scheduler; /* owned */
    struct engine_counters counters;
    pthread_t thread;
    bool joined;
    _Atomic int state; /* enum engine_state */
    _Atomic int ctx;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    struct job *first, **last; /* the queue */
    int n_queued;
    struct read_ahead *ahead; /* owned; for the runner, the newest first */
    bool kicked, stop;
    struct lily_err error;
};

/* ---- the engine thread ---- */

static void unlink_job(struct engine *e, struct job **at)
{
    struct job *j = *at;
    *at = j->next;
    if (e->last == &j->next) e->last = at;
    j->next = NULL;
    e->n_queued--;
    atomic_store(&e->counters.queued, e->n_queued);
}

/* Ends the jobs of the queue that were cancelled, or all of them. True when there were any. */
static bool drop_queued(struct engine *e, bool all, const struct lily_err *err)
{
    bool any = false;
    for (struct job **at = &e->first; *at;) {
        struct job *j = *at;
        if (!all && !atomic_load(&j->cancel)) {
            at = &j->next;
            continue;
        }
        unlink_job(e, at);
        scheduler_refuse(j, &e->counters, err);
        any = true;
    }
    return any;
}

static void admit(struct engine *e)
{
    int n = scheduler_n_free(e->scheduler), position = 0;
    while (n-- > 0 && e->first) {
        struct job *j = e->first;
        unlink_job(e, &e->first);
        scheduler_admit(e->scheduler, j);
    }
    for (struct job *j = e->first; j; j = j->next) atomic_store(&j->position, position++);
}

/* Hands over what may be read ahead, the oldest first. */
static void pass_ahead(struct engine *e)
{
    struct read_ahead *oldest = NULL;
    while (e->ahead) {
        struct read_ahead *a = e->ahead;
        e->ahead = a->next;
        a->next = oldest;
        oldest = a;
    }
    while (oldest) {
        struct read_ahead *a = oldest;
        oldest = a->next;
        e->runner->ops->read_ahead(e->runner, a);
    }
}

/* Sleeps until there is something to do; the lock is held. */
static void sleep_until(struct engine *e, double wait_ms)
{
    double now = clock_ms();
    struct timespec t;
    if (wait_ms <= now) return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double rest = wait_ms - now;
    if (isfinite(rest)) {
        long ns = t.tv_nsec + (long)(fmod(rest, 1000) * 1e6);
        t.tv_sec += (time_t)(rest / 1000) + ns / 1000000000;
        t.tv_nsec = ns % 1000000000;
    }
    while (!e->kicked && !e->stop)
        if (isinf(rest)) pthread_cond_wait(&e->work, &e->lock);
        else if (pthread_cond_timedwait(&e->work, &e->lock, &t) == ETIMEDOUT) return;
}

static void wake(struct engine *e, double patience_ms)
{
    if (e->opt.wake) e->opt.wake(e->opt.wake_ctx, patience_ms);
}

/* Nothing works any more: who waits is told. */
static void fail(struct engine *e, const struct lily_err *err)
{
    pthread_mutex_lock(&e->lock);
    e->error = *err;
    e->error.status = LILY_ERR_DEVICE;
    atomic_store(&e->state, ENGINE_FAILED);
    drop_queued(e, true, &e->error);
    pthread_mutex_unlock(&e->lock);
    if (e->scheduler) scheduler_end_all(e->scheduler, &e->error);
    wake(e, 0);
}

/* For what half a step wrote. */
static void wake_for(struct engine *e, const struct step_outcome *half, bool dropped, bool busy)
{
    if (half->wrote || dropped) wake(e, half->at_once || dropped ? 0 : busy ? busy_ms : pausing_ms);
}

/* One round: takes jobs in, makes a step. False when the thread is to end. */
static bool round_of_work(struct engine *e, struct step_outcome *last)
{
    struct lily_err err;
    pthread_mutex_lock(&e->lock);
    /* The step may have ended a job, so that the next one has its place. */
    bool waiting = e->first && scheduler_n_free(e->scheduler) > 0, busy = last->worked || waiting;
    if (!busy) sleep_until(e, last->wait_ms);
    e->kicked = false;
    atomic_store(&e->runner->hurry, false);
    pass_ahead(e);
    bool stop = e->stop, dropped = drop_queued(e, stop, NULL);
    if (!stop) admit(e);
    pthread_mutex_unlock(&e->lock);
    if (stop) {
        scheduler_end_all(e->scheduler, NULL);
        wake(e, 0);
        return false;
    }
    lily_status st = scheduler_tell(e->scheduler, last, &err);
    if (st == LILY_OK) {
        wake_for(e, last, dropped, busy);
        st = scheduler_compute(e->scheduler, last, &err);
    }
    if (st == LILY_OK) wake_for(e, last, false, busy);
    else fail(e, &err);
    return true;
}

static void *engine_main(void *arg)
{
    struct engine *e = arg;
    struct lily_err err = {0};
    struct step_outcome last = {.wait_ms = INFINITY};
    lily_status st = e->runner->ops->load(e->runner, &err);
    if (st != LILY_OK) {
        fail(e, &err);
        return NULL;
    }
    e->scheduler = scheduler_new(e->runner, &e->counters);
    atomic_store(&e->ctx, e->runner->ctx);
    atomic_store(&e->state, ENGINE_OK);
    wake(e, 0);
    while (round_of_work(e, &last)) {}
    return NULL;
}

/* ---- any thread ---- */

static void kick(void *engine)
{
    engine_kick(engine);
}

lily_status engine_start(struct runner *r, const struct engine_options *o, struct engine **out, struct lily_err *err)
{
    struct engine *e = mem_new(sizeof *e);
    pthread_condattr_t attr;
    e->opt = *o;
    e->runner = r;
    e->last = &e->first;
    r->kick = kick;
    r->kick_ctx = e;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, &attr);
    pthread_condattr_destroy(&attr);
    int rc = thread_start(&e->thread, engine_main, e);
    *out = NULL;
    if (rc != 0) {
        e->joined = true;
        engine_free(e);
        LILY_FAIL(err, LILY_ERR_IO, "cannot start the engine thread: %s", strerror(rc));
    }
    *out = e;
    return LILY_OK;
}

static lily_status check_submit(const struct engine *e, int n, struct lily_err *err)
{
    int state = atomic_load(&e->state);
    if (state == ENGINE_LOADING) LILY_FAIL(err, LILY_ERR_DEVICE, "the model is still loading");
    if (state == ENGINE_FAILED) LILY_FAIL(err, LILY_ERR_DEVICE, "the engine has failed: %s", e->error.msg);
    if (e->stop) LILY_FAIL(err, LILY_ERR_DEVICE, "the server is shutting down");
    /* A free slot takes a job at once, so those do not count as waiting. */
    int idle = e->runner->n_slots - atomic_load(&e->counters.active);
    if (e->n_queued + n > e->opt.queue + (idle > 0 ? idle : 0))
        LILY_FAIL(err, LILY_ERR_LIMIT, "the queue is full: %d running, %d waiting",
                  atomic_load(&e->counters.active), e->n_queued);
    return LILY_OK;
}

lily_status engine_submit(struct engine *e, struct job *const *jobs, int n, struct lily_err *err)
{
    pthread_mutex_lock(&e->lock);
    bool dropped = drop_queued(e, false, NULL); /* whoever left takes nobody's place, also while the engine is busy */
    lily_status st = check_submit(e, n, err);
    for (int i = 0; i < n && st == LILY_OK; i++) {
        struct job *j = jobs[i];
        atomic_store(&j->state, JOB_QUEUED);
        atomic_store(&j->position, e->n_queued);
        j->submitted_ms = clock_ms();
        j->next = NULL;
        *e->last = j;
        e->last = &j->next;
        e->n_queued++;
    }
    atomic_store(&e->counters.queued, e->n_queued);
    e->kicked = true;
    atomic_store(&e->runner->hurry, true);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (dropped) wake(e, 0);
    return st;
}

void engine_read_ahead(struct engine *e, struct read_ahead *a)
{
    pthread_mutex_lock(&e->lock);
    bool takes = atomic_load(&e->state) == ENGINE_OK && !e->stop && e->runner->ops->read_ahead;
    if (takes) {
        a->next = e->ahead;
        e->ahead = a;
        e->kicked = true;
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    if (!takes) read_ahead_free(a);
}

void engine_kick(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->kicked = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

enum engine_state engine_state(const struct engine *e)
{
    return (enum engine_state)atomic_load(&e->state);
}

void engine_error(struct engine *e, struct lily_err *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->error;
    pthread_mutex_unlock(&e->lock);
}

const struct engine_counters *engine_counters(const struct engine *e)
{
    return &e->counters;
}

const struct cache_counters *engine_cache(const struct engine *e)
{
    return atomic_load(&e->state) == ENGINE_OK ? e->runner->cache : NULL;
}

int engine_states(struct engine *e, struct border_info *out, int max)
{
    if (atomic_load(&e->state) != ENGINE_OK || !e->runner->ops->states) return 0;
    return e->runner->ops->states(e->runner, out, max);
}

int engine_ctx(const struct engine *e)
{
    return atomic_load(&e->ctx);
}

int engine_loaded(const struct engine *e)
{
    return atomic_load(&e->runner->loading.thousandths);
}

void engine_stop(struct engine *e)
{
    if (e->joined) return;
    atomic_store(&e->runner->loading.stop, true);
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    atomic_store(&e->runner->hurry, true);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    e->joined = true;
}

void engine_free(struct engine *e)
{
    if (!e) return;
    engine_stop(e);
    scheduler_free(e->scheduler);
    while (e->ahead) {
        struct read_ahead *a = e->ahead;
        e->ahead = a->next;
        read_ahead_free(a);
    }
    e->runner->ops->free(e->runner);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
