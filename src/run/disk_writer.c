/* The writer thread of the disk cache. */
#include "run/disk_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum { MAX_PARTS = 2 }; /* that wait */
enum task_kind { TASK_WRITE, TASK_REMOVE, TASK_TOUCH };

struct task {
    struct task *next;
    enum task_kind kind;
    char *path;    /* owned */
    struct state_file_id id;
    uint8_t *file; /* owned (mem_big) */
    size_t payload;
    bool last;
};

struct disk_writer {
    pthread_t thread;
    void (*wake)(void *);
    void *wake_ctx;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, done;
    struct task *first, **end;
    int n_parts;
    bool busy, stop;
    int outcome;
    struct lily_err err;
};

static void free_task(struct task *t)
{
    mem_big_free(t->file, state_file_bytes(&t->id, t->payload));
    free(t->path);
    free(t);
}

/* Without the lock. */
static lily_status carry_out(const struct task *t, struct lily_err *err)
{
    if (t->kind == TASK_WRITE) {
        state_file_seal(&t->id, t->payload, t->file);
        return file_write_atomic(t->path, t->file, state_file_bytes(&t->id, t->payload), err);
    }
    if (t->kind == TASK_REMOVE) (void)unlink(t->path);
    if (t->kind == TASK_TOUCH) (void)utimensat(AT_FDCWD, t->path, NULL, 0);
    return LILY_OK;
}

static void *writer_main(void *arg)
{
    struct disk_writer *w = arg;
    pthread_mutex_lock(&w->lock);
    while (w->first || !w->stop) {
        struct task *t = w->first;
        if (!t) {
            pthread_cond_wait(&w->work, &w->lock);
            continue;
        }
        w->first = t->next;
        if (!w->first) w->end = &w->first;
        bool skip = t->kind == TASK_WRITE && w->outcome < 0; /* the rest of a save that has failed */
        struct lily_err err = {0};
        w->busy = true;
        pthread_mutex_unlock(&w->lock);
        lily_status st = skip ? LILY_OK : carry_out(t, &err);
        pthread_mutex_lock(&w->lock);
        w->busy = false;
        if (t->kind == TASK_WRITE) {
            w->n_parts--;
            if (st != LILY_OK) w->outcome = -1, w->err = err;
            else if (t->last && w->outcome == 0) w->outcome = 1;
        }
        pthread_cond_broadcast(&w->done);
        bool wrote = t->kind == TASK_WRITE;
        pthread_mutex_unlock(&w->lock);
        free_task(t);
        if (wrote && w->wake) w->wake(w->wake_ctx);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

lily_status disk_writer_start(void (*wake)(void *), void *wake_ctx, struct disk_writer **out, struct lily_err *err)
{
    struct disk_writer *w = mem_new(sizeof *w);
    pthread_condattr_t attr;
    w->end = &w->first;
    w->wake = wake;
    w->wake_ctx = wake_ctx;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->done, &attr);
    pthread_condattr_destroy(&attr);
    int rc = pthread_create(&w->thread, NULL, writer_main, w);
    *out = rc == 0 ? w : NULL;
    if (rc == 0) return LILY_OK;
    free(w);
    LILY_FAIL(err, LILY_ERR_IO, "cannot start the thread that writes the disk cache: %s", strerror(rc));
}

void disk_writer_free(struct disk_writer *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static void add(struct disk_writer *w, enum task_kind kind, const char *path, struct task more)
{
    struct task *t = mem_new(sizeof *t);
    *t = more;
    t->kind = kind;
    t->path = mem_dupz(path);
    pthread_mutex_lock(&w->lock);
    *w->end = t;
    w->end = &t->next;
    w->n_parts += kind == TASK_WRITE;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

bool disk_writer_has_room(struct disk_writer *w)
{
    pthread_mutex_lock(&w->lock);
    bool room = w->n_parts < MAX_PARTS;
    pthread_mutex_unlock(&w->lock);
    return room;
}

void disk_writer_put(struct disk_writer *w, const char *path, const struct state_file_id *id, size_t payload, uint8_t *file, bool last)
{
    add(w, TASK_WRITE, path, (struct task){.id = *id, .file = file, .payload = payload, .last = last});
}

void disk_writer_remove(struct disk_writer *w, const char *path)
{
    add(w, TASK_REMOVE, path, (struct task){0});
}

void disk_writer_touch(struct disk_writer *w, const char *path)
{
    add(w, TASK_TOUCH, path, (struct task){0});
}

int disk_writer_outcome(struct disk_writer *w, struct lily_err *err)
{
    pthread_mutex_lock(&w->lock);
    int outcome = w->outcome;
    if (outcome < 0) *err = w->err;
    pthread_mutex_unlock(&w->lock);
    return outcome;
}

void disk_writer_begin(struct disk_writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->outcome = 0;
    pthread_mutex_unlock(&w->lock);
}

void disk_writer_wait(struct disk_writer *w, double ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(ms / 1e3) + 1;
    pthread_mutex_lock(&w->lock);
    while (w->first || w->busy)
        if (pthread_cond_timedwait(&w->done, &w->lock, &t) != 0) break;
    pthread_mutex_unlock(&w->lock);
}
