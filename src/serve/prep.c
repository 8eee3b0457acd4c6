/* The preparation threads: a queue and a loop for each, and one queue of what is ready. */
#include "serve/prep.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/followup.h"
#include "serve/server_impl.h"

enum { MAX_AHEAD = 8, LONG_BODY = 256 << 10 }; /* bytes: the worst of texts takes a tenth of a second */

struct queue {
    struct call *first, **last;
};

enum { LANE_SHORT, LANE_LONG, LANES };
struct lane {
    struct prep *prep; /* borrowed */
    pthread_t thread;
    bool started;
    pthread_cond_t work;
    struct queue in;        /* under the lock, as all below */
    struct followup *ahead; /* owned; the newest first; on the long lane only */
};

struct prep {
    struct loop *loop; /* borrowed */
    struct lane lanes[LANES];
    pthread_mutex_t lock; /* of all below */
    struct queue out;
    bool stop;
};

static void push(struct queue *q, struct call *c)
{
    c->next_prep = NULL;
    *q->last = c;
    q->last = &c->next_prep;
}

static struct call *pop(struct queue *q)
{
    struct call *c = q->first;
    if (!c) return NULL;
    q->first = c->next_prep;
    if (!q->first) q->last = &q->first;
    return c;
}

static void *prep_main(void *arg)
{
    struct lane *lane = arg;
    struct prep *p = lane->prep;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        struct call *c = pop(&lane->in);
        struct followup *f = c ? NULL : lane->ahead;
        if (f) {
            lane->ahead = *followup_next(f);
            pthread_mutex_unlock(&p->lock);
            followup_run(f);
            pthread_mutex_lock(&p->lock);
            continue;
        }
        if (!c) {
            pthread_cond_wait(&lane->work, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        if (!atomic_load(&c->gone)) c->endpoint->prepare(c);
        pthread_mutex_lock(&p->lock);
        push(&p->out, c);
        loop_wake(p->loop);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

lily_status prep_start(struct loop *l, struct prep **out, struct lily_err *err)
{
    struct prep *p = mem_new(sizeof *p);
    int rc = 0;
    p->loop = l;
    p->out.last = &p->out.first;
    pthread_mutex_init(&p->lock, NULL);
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &p->lanes[i];
        lane->prep = p;
        lane->in.last = &lane->in.first;
        pthread_cond_init(&lane->work, NULL);
        if (rc == 0) rc = pthread_create(&lane->thread, NULL, prep_main, lane);
        lane->started = rc == 0;
    }
    *out = p;
    if (rc == 0) return LILY_OK;
    prep_free(p);
    *out = NULL;
    LILY_FAIL(err, LILY_ERR_IO, "cannot start the preparation thread: %s", strerror(rc));
}

/* Frees a list from there on. */
static void drop_ahead(struct followup **from)
{
    while (*from) {
        struct followup *f = *from;
        *from = *followup_next(f);
        followup_free(f);
    }
}

void prep_free(struct prep *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    for (int i = 0; i < LANES; i++) pthread_cond_signal(&p->lanes[i].work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &p->lanes[i];
        if (lane->started) pthread_join(lane->thread, NULL);
        drop_ahead(&lane->ahead);
        pthread_cond_destroy(&lane->work);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void prep_add(struct prep *p, struct call *c)
{
    struct lane *lane = &p->lanes[c->body.len > LONG_BODY ? LANE_LONG : LANE_SHORT];
    pthread_mutex_lock(&p->lock);
    push(&lane->in, c);
    pthread_cond_signal(&lane->work);
    pthread_mutex_unlock(&p->lock);
}

void prep_add_followup(struct prep *p, struct followup *f)
{
    struct lane *lane = &p->lanes[LANE_LONG];
    pthread_mutex_lock(&p->lock);
    *followup_next(f) = lane->ahead;
    lane->ahead = f;
    int n = 0;
    struct followup **at = &lane->ahead;
    while (*at && n++ < MAX_AHEAD) at = followup_next(*at);
    drop_ahead(at);
    pthread_cond_signal(&lane->work);
    pthread_mutex_unlock(&p->lock);
}

struct call *prep_take(struct prep *p)
{
    pthread_mutex_lock(&p->lock);
    struct call *c = pop(&p->out);
    pthread_mutex_unlock(&p->lock);
    return c;
}
