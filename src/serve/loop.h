/*
 * The event loop of thread L: wake-ups from other threads, timers, signals. Everything but loop_wake belongs to the thread
 * that runs it. Owned: loop_free, after all that was made on it.
 */
#ifndef LILY_SERVE_LOOP_H
#define LILY_SERVE_LOOP_H

#include "base/err.h"

struct loop;
struct loop_timer;
struct event_base;

lily_status loop_new(void (*woken)(void *ctx), void *ctx, struct loop **out, struct lily_err *err);
void loop_free(struct loop *l); /* NULL is fine */
void loop_release_signals(struct loop *l); /* they do again what they did before */
void loop_run(struct loop *l);  /* until loop_stop */
void loop_stop(struct loop *l);
/* Any thread: calls woken on the loop at once; several wake-ups may become one. */
void loop_wake(struct loop *l);
/*
 * The same for what comes thick and fast, as tokens do: at once for the first one, then together for all that come within the next
 * patience_ms or so (1 ms more at most), since each waking takes a processor away from the threads that compute.
 */
void loop_wake_soon(struct loop *l, double patience_ms);
/* Calls on_signal on the loop for a signal of the process. */
lily_status loop_signal(struct loop *l, int number, void (*on_signal)(void *ctx), void *ctx, struct lily_err *err);

/* Calls fire every `ms` milliseconds from now on. Owned: loop_timer_free. */
struct loop_timer *loop_timer_new(struct loop *l, double ms, void (*fire)(void *ctx), void *ctx);
void loop_timer_free(struct loop_timer *t); /* NULL is fine */

struct event_base *loop_base(struct loop *l); /* for serve/http.c */

#endif
