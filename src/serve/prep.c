/* The preparation thread: two queues and a loop. */
#include "serve/prep.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/followup.h"
#include "serve/server_impl.h"

enum { MAX_AHEAD = 8 };

struct queue {
    struct call *first, **last;
};

struct prep {
    struct loop *loop; /* borrowed */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    struct queue in, out;
    struct followup *ahead; /* owned; the newest first */
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
    struct prep *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        struct call *c = pop(&p->in);
        struct followup *f = c ? NULL : p->ahead;
        if (f) {
            p->ahead = *followup_next(f);
            pthread_mutex_unlock(&p->lock);
            followup_run(f);
            pthread_mutex_lock(&p->lock);
            continue;
        }
        if (!c) {
            pthread_cond_wait(&p->work, &p->lock);
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
    p->loop = l;
    p->in.last = &p->in.first;
    p->out.last = &p->out.first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    int rc = pthread_create(&p->thread, NULL, prep_main, p);
    p->started = rc == 0;
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
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    if (p->started) pthread_join(p->thread, NULL);
    drop_ahead(&p->ahead);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void prep_add(struct prep *p, struct call *c)
{
    pthread_mutex_lock(&p->lock);
    push(&p->in, c);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

void prep_add_followup(struct prep *p, struct followup *f)
{
    pthread_mutex_lock(&p->lock);
    *followup_next(f) = p->ahead;
    p->ahead = f;
    int n = 0;
    struct followup **at = &p->ahead;
    while (*at && n++ < MAX_AHEAD) at = followup_next(*at);
    drop_ahead(at);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

struct call *prep_take(struct prep *p)
{
    pthread_mutex_lock(&p->lock);
    struct call *c = pop(&p->out);
    pthread_mutex_unlock(&p->lock);
    return c;
}
