/* The loop: libevent's, with an eventfd for wake-ups. */
#include "serve/loop.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/mem.h"

enum { MAX_SIGNALS = 4 };
/*
 * The rest after what loop_wake_soon asked for: the next call ends it whose patience has passed since. So the loop runs when a step of
 * the engine ends and its helpers are idle; from the timer, which is late by this, it would run in the middle of one, and hold all of
 * them up.
 */
static const double spare_ms = 1;

struct caller {
    void (*call)(void *);
    void *ctx;
};

struct loop {
    struct event_base *base; /* owned */
    struct event *wake;      /* owned */
    int wake_fd;             /* owned */
    struct caller woken;
    struct event *rested;    /* owned; ends a rest */
    atomic_bool due;         /* loop_wake_soon was called, and woken was not yet */
    atomic_bool resting;
    _Atomic double rests_ms; /* since when */
    _Atomic double patience_ms; /* of the latest call */
    struct event *signals[MAX_SIGNALS]; /* owned */
    struct caller on_signal[MAX_SIGNALS];
    int n_signals;
};

struct loop_timer {
    struct event *event; /* owned */
    struct caller fire;
};

static void see_to(struct loop *l)
{
    if (atomic_exchange(&l->due, false)) {
        atomic_store(&l->rests_ms, clock_ms());
        atomic_store(&l->resting, true);
        struct timeval longest = {0, (suseconds_t)(1e3 * (atomic_load(&l->patience_ms) + spare_ms))};
        event_add(l->rested, &longest);
    }
    l->woken.call(l->woken.ctx);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    uint64_t n;
    (void)what;
    if (read(fd, &n, sizeof n) == (ssize_t)sizeof n) see_to(arg);
}

/* A call that still finds a rest has made itself due before. */
static void on_rested(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;
    (void)fd;
    (void)what;
    atomic_store(&l->resting, false);
    if (atomic_load(&l->due)) see_to(l);
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    const struct caller *c = arg;
    (void)fd;
    (void)what;
    c->call(c->ctx);
}

lily_status loop_new(void (*woken)(void *), void *ctx, struct loop **out, struct lily_err *err)
{
    struct loop *l = mem_new(sizeof *l);
    l->woken = (struct caller){woken, ctx};
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    l->base = event_base_new();
    if (l->base) l->rested = event_new(l->base, -1, 0, on_rested, l);
    if (l->rested && l->wake_fd >= 0) l->wake = event_new(l->base, l->wake_fd, EV_READ | EV_PERSIST, on_wake, l);
    if (!l->wake || event_add(l->wake, NULL) != 0) {
        loop_free(l);
        *out = NULL;
        LILY_FAIL(err, LILY_ERR_IO, "cannot make an event loop: %s", strerror(errno));
    }
    *out = l;
    return LILY_OK;
}

void loop_release_signals(struct loop *l)
{
    while (l->n_signals) event_free(l->signals[--l->n_signals]);
}

void loop_free(struct loop *l)
{
    if (!l) return;
    loop_release_signals(l);
    if (l->wake) event_free(l->wake);
    if (l->rested) event_free(l->rested);
    if (l->base) event_base_free(l->base);
    if (l->wake_fd >= 0) close(l->wake_fd);
    free(l);
}

void loop_run(struct loop *l)
{
    event_base_loop(l->base, EVLOOP_NO_EXIT_ON_EMPTY);
}

void loop_stop(struct loop *l)
{
    event_base_loopbreak(l->base);
}

void loop_wake(struct loop *l)
{
    uint64_t one = 1;
    ssize_t n = write(l->wake_fd, &one, sizeof one); /* fails only when a wake-up is due anyway */
    (void)n;
}

void loop_wake_soon(struct loop *l, double patience_ms)
{
    atomic_store(&l->patience_ms, patience_ms);
    atomic_store(&l->due, true);
    if (!atomic_load(&l->resting) || clock_ms() - atomic_load(&l->rests_ms) >= patience_ms) loop_wake(l);
}

lily_status loop_signal(struct loop *l, int number, void (*on_signal)(void *), void *ctx, struct lily_err *err)
{
    int i = l->n_signals;
    l->on_signal[i] = (struct caller){on_signal, ctx};
    l->signals[i] = event_new(l->base, number, EV_SIGNAL | EV_PERSIST, on_event, &l->on_signal[i]);
    if (!l->signals[i] || event_add(l->signals[i], NULL) != 0)
        LILY_FAIL(err, LILY_ERR_IO, "cannot wait for signal %d", number);
    l->n_signals++;
    return LILY_OK;
}

struct loop_timer *loop_timer_new(struct loop *l, double ms, void (*fire)(void *), void *ctx)
{
    struct loop_timer *t = mem_new(sizeof *t);
    struct timeval every = {(time_t)(ms / 1e3), (suseconds_t)((ms - 1e3 * (double)(time_t)(ms / 1e3)) * 1e3)};
    t->fire = (struct caller){fire, ctx};
    t->event = event_new(l->base, -1, EV_PERSIST, on_event, &t->fire);
    event_add(t->event, &every);
    return t;
}

void loop_timer_free(struct loop_timer *t)
{
    if (!t) return;
    event_free(t->event);
    free(t);
}

struct event_base *loop_base(struct loop *l)
{
    return l->base;
}
