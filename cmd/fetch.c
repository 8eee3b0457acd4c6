/* Fetching a large file: blocks and their state, connections, and the thread that hashes. */
#include "fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

enum { SEGMENT_BLOCKS = 16, POLL_MS = 100, SYNC_BLOCKS = 16 };

/* The head of a state file; a byte for every block follows. Another head: another file, and nothing is kept. */
struct state_head {
    char magic[16];
    char sha256[64];
    int64_t size, block;
};
static const char magic[16] = "lily pull 1";
enum { BLOCK_MISSING, BLOCK_DONE, BLOCK_BUSY };

struct connection {
    struct fetch *f;
    struct web_transfer t;
    bool active;
    int64_t at, end;   /* the next byte, and one past the last */
    double not_before; /* clock_ms of the next attempt */
};

struct fetch {
    const struct fetch_job *job;
    struct web *web;
    int fd;
    int64_t n_blocks;
    size_t map_bytes;
    struct state_head *head;  /* owned mapping of the state file */
    _Atomic uint8_t *blocks;  /* behind it: BLOCK_MISSING or BLOCK_DONE */
    uint8_t *busy;            /* owned; blocks that a connection is at */
    int64_t done, n_done;     /* bytes and blocks complete */
    bool kept;                /* something is of a run before */
    bool whole;               /* the server gives no ranges: one connection, from the beginning */
    int failures;             /* since the last complete block */
    lily_status failed;       /* what a callback met */
    struct lily_err why;
    struct connection connections[FETCH_MAX_CONNECTIONS];

    pthread_t thread;         /* hashes */
    pthread_mutex_t lock;
    pthread_cond_t grown;
    bool stop, hash_failed;
    char hash[65];
};

static int64_t block_end(const struct fetch *f, int64_t block)
{
    int64_t end = (block + 1) * FETCH_BLOCK;
    return end < f->job->size ? end : f->job->size;
}

static void fill_head(struct state_head *h, int64_t size, const char *sha256)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, magic, sizeof magic);
    memcpy(h->sha256, sha256, sizeof h->sha256);
    h->size = size;
    h->block = FETCH_BLOCK;
}

static char *state_path(const char *part)
{
    struct buf path = {0};
    buf_printf(&path, "%s.state", part);
    return buf_take(&path);
}

int64_t fetch_kept(const char *part, int64_t size, const char *sha256)
{
    struct state_head want, head;
    char *path = state_path(part);
    struct stat st;
    FILE *file = stat(part, &st) == 0 && st.st_size == size ? fopen(path, "rb") : NULL;
    int64_t kept = 0;
    fill_head(&want, size, sha256);
    if (file && fread(&head, sizeof head, 1, file) == 1 && memcmp(&head, &want, sizeof head) == 0)
        for (int c; (c = fgetc(file)) != EOF;) kept += c == BLOCK_DONE ? FETCH_BLOCK : 0;
    if (file) fclose(file);
    free(path);
    return kept < size ? kept : size;
}

static lily_status map_state(struct fetch *f, const char *path, struct lily_err *err)
{
    struct state_head want;
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    f->map_bytes = sizeof want + (size_t)f->n_blocks;
    bool grown = fstat(fd, &st) == 0 && st.st_size == (off_t)f->map_bytes;
    if (!grown && (ftruncate(fd, 0) != 0 || ftruncate(fd, (off_t)f->map_bytes) != 0)) {
        close(fd);
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    }
    void *map = mmap(NULL, f->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot map: %s", path, strerror(errno));
    f->head = map;
    f->blocks = (_Atomic uint8_t *)((char *)map + sizeof want);
    fill_head(&want, f->job->size, f->job->sha256);
    if (memcmp(f->head, &want, sizeof want) != 0) {
        memset(map, 0, f->map_bytes);
        *f->head = want;
    }
    return LILY_OK;
}

/* Opens the part and what is known about it. */
static lily_status open_part(struct fetch *f, struct lily_err *err)
{
    struct stat st;
    char *path = state_path(f->job->part);
    f->fd = open(f->job->part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    bool fits = f->fd >= 0 && fstat(f->fd, &st) == 0 && st.st_size == f->job->size;
    lily_status s = LILY_OK;
    if (f->fd < 0 || (!fits && ftruncate(f->fd, f->job->size) != 0))
        s = err_set(err, LILY_ERR_IO, "%s: cannot create: %s", f->job->part, strerror(errno));
    if (s == LILY_OK && !fits) unlink(path);
    if (s == LILY_OK) s = map_state(f, path, err);
    free(path);
    LILY_TRY(s);
    for (int64_t i = 0; i < f->n_blocks; i++) {
        if (atomic_load(&f->blocks[i]) != BLOCK_DONE) continue;
        f->done += block_end(f, i) - i * FETCH_BLOCK;
        f->n_done++;
        f->kept = true;
    }
    return LILY_OK;
}

/* ---- hashing ---- */

/* Waits until a block is complete; false when the fetch is given up. */
static bool wait_for_block(struct fetch *f, int64_t i)
{
    pthread_mutex_lock(&f->lock);
    while (!f->stop && atomic_load(&f->blocks[i]) != BLOCK_DONE) pthread_cond_wait(&f->grown, &f->lock);
    bool go = !f->stop;
    pthread_mutex_unlock(&f->lock);
    return go;
}

static bool hash_block(const struct fetch *f, int64_t i, struct sha256 *h, char *buffer)
{
    size_t n = (size_t)(block_end(f, i) - i * FETCH_BLOCK), got = 0;
    while (got < n) {
        ssize_t k = pread(f->fd, buffer + got, n - got, i * FETCH_BLOCK + (off_t)got);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        got += (size_t)k;
    }
    sha256_add(h, buffer, n);
    return true;
}

static void *hash_main(void *arg)
{
    struct fetch *f = arg;
    struct sha256 *h = sha256_begin();
    char *buffer = mem_new(FETCH_BLOCK);
    bool good = true;
    for (int64_t i = 0; i < f->n_blocks && good; i++) {
        if (!wait_for_block(f, i)) break;
        good = hash_block(f, i, h, buffer);
        /* What is behind goes to the disk meanwhile, so that little is left to wait for at the end. */
        if (i % SYNC_BLOCKS == SYNC_BLOCKS - 1)
            sync_file_range(f->fd, (i + 1 - SYNC_BLOCKS) * FETCH_BLOCK, (off_t)SYNC_BLOCKS * FETCH_BLOCK, SYNC_FILE_RANGE_WRITE);
    }
    f->hash_failed = !good;
    sha256_end(h, f->hash);
    free(buffer);
    return NULL;
}

/* ---- connections ---- */

static void mark_done(struct fetch *f, int64_t block)
{
    f->busy[block] = 0;
    if (atomic_load(&f->blocks[block]) == BLOCK_DONE) return;
    pthread_mutex_lock(&f->lock);
    atomic_store(&f->blocks[block], BLOCK_DONE);
    pthread_cond_signal(&f->grown);
    pthread_mutex_unlock(&f->lock);
    f->done += block_end(f, block) - block * FETCH_BLOCK;
    f->n_done++;
    f->failures = 0;
}

static bool refuse(struct fetch *f, lily_status st)
{
    f->failed = st;
    return false;
}

/* Holds the head of an answer against what was asked; called before its first byte is taken. */
static bool check_head(struct connection *c)
{
    struct fetch *f = c->f;
    const struct web_transfer *t = &c->t;
    if (t->status == 200 && t->to && (t->from > 0 || f->job->size > t->to + 1)) {
        f->whole = true; /* the server knows no ranges */
        return false;
    }
    if (t->status == 206 && t->first != t->from)
        return refuse(f, err_set(&f->why, LILY_ERR_FORMAT, "%s: asked from byte %" PRId64 ", the server gives from %" PRId64, f->job->name,
                                 t->from, t->first));
    if (t->total >= 0 && t->total != f->job->size) {
        err_set(&f->why, LILY_ERR_FORMAT, "%s: the server gives a file of %" PRId64 " bytes, the hub lists %" PRId64, f->job->name, t->total,
                f->job->size);
        err_hint(&f->why, "it was changed meanwhile, or a proxy answers instead: run the command again");
        return refuse(f, LILY_ERR_FORMAT);
    }
    return true;
}

static bool write_all(struct fetch *f, const char *bytes, size_t n, int64_t at)
{
    while (n) {
        ssize_t k = pwrite(f->fd, bytes, n, at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return refuse(f, err_set(&f->why, LILY_ERR_IO, "%s: cannot write: %s", f->job->part, strerror(errno)));
        bytes += k;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool take_bytes(struct web_transfer *t, const char *bytes, size_t n)
{
    struct connection *c = t->ctx;
    struct fetch *f = c->f;
    if (c->at == t->from && !check_head(c)) return false;
    if ((int64_t)n > c->end - c->at)
        return refuse(f, err_set(&f->why, LILY_ERR_FORMAT, "%s: the server gives more bytes than were asked for", f->job->name));
    while (n) {
        int64_t block = c->at / FETCH_BLOCK, end = block_end(f, block);
        size_t part = (int64_t)n < end - c->at ? n : (size_t)(end - c->at);
        /* A complete block may be being hashed: without ranges it comes again and is passed over. */
        if (atomic_load(&f->blocks[block]) != BLOCK_DONE && !write_all(f, bytes, part, c->at)) return false;
        c->at += (int64_t)part;
        bytes += part;
        n -= part;
        if (c->at == end) mark_done(f, block);
    }
    return true;
}

/* The next run of missing blocks into c; false when there is none. */
static bool claim(struct fetch *f, struct connection *c)
{
    int64_t first = 0, n = 0;
    if (f->whole) {
        c->at = 0;
        c->end = f->job->size;
        return true;
    }
    while (first < f->n_blocks && (f->busy[first] || atomic_load(&f->blocks[first]) == BLOCK_DONE)) first++;
    while (n < SEGMENT_BLOCKS && first + n < f->n_blocks && !f->busy[first + n] && atomic_load(&f->blocks[first + n]) != BLOCK_DONE)
        f->busy[first + n++] = 1;
    c->at = first * FETCH_BLOCK;
    c->end = n ? block_end(f, first + n - 1) : c->at;
    return n > 0;
}

static lily_status start_idle(struct fetch *f, struct lily_err *err)
{
    double now = clock_ms();
    int n = f->whole ? 1 : f->job->connections;
    for (int i = 0; i < n; i++) {
        struct connection *c = &f->connections[i];
        if (c->active || now < c->not_before || !claim(f, c)) continue;
        c->f = f;
        c->t = (struct web_transfer){.url = f->job->url, .bearer = f->job->bearer, .from = c->at, .data = take_bytes, .ctx = c};
        c->t.to = f->whole ? 0 : c->end - 1;
        c->active = true;
        LILY_TRY(web_start(f->web, &c->t, err));
    }
    return LILY_OK;
}

/* Gives up the blocks that a connection did not complete. */
static void release(struct fetch *f, struct connection *c)
{
    c->active = false;
    if (!f->whole)
        for (int64_t i = c->at / FETCH_BLOCK; i * FETCH_BLOCK < c->end; i++) f->busy[i] = 0;
}

static lily_status finish_transfer(struct fetch *f, struct connection *c, struct lily_err *err)
{
    bool was_whole = c->t.to == 0;
    for (int64_t i = c->t.from / FETCH_BLOCK; !was_whole && i * FETCH_BLOCK < c->end; i++) f->busy[i] = 0;
    c->active = false;
    if (f->failed != LILY_OK) {
        if (err) *err = f->why;
        return f->failed;
    }
    if (f->whole && !was_whole) return LILY_OK; /* to be asked again, without a range */
    if (c->t.complete && c->at == c->end) return LILY_OK;
    bool short_body = c->t.complete && c->t.status >= 200 && c->t.status < 300;
    if (short_body) snprintf(c->t.error, sizeof c->t.error, "fewer bytes than were asked for");
    if ((!short_body && !fetch_may_retry(&c->t)) || ++f->failures >= FETCH_ATTEMPTS * f->job->connections)
        return fetch_status_error(&c->t, f->job->name, err);
    int attempt = 1 + f->failures / f->job->connections;
    c->not_before = clock_ms() + fetch_delay_ms(&c->t, attempt);
    return LILY_OK;
}

static void cancel_all(struct fetch *f)
{
    for (int i = 0; i < FETCH_MAX_CONNECTIONS; i++) {
        if (!f->connections[i].active) continue;
        web_cancel(f->web, &f->connections[i].t);
        release(f, &f->connections[i]);
    }
}

static lily_status transfer_all(struct fetch *f, struct lily_err *err)
{
    while (f->n_done < f->n_blocks) {
        if (f->job->cancel && atomic_load(f->job->cancel)) return err_set(err, LILY_ERR_CANCELLED, "%s", "");
        bool ranges = !f->whole;
        LILY_TRY(start_idle(f, err));
        struct web_transfer *t = web_poll(f->web, POLL_MS);
        if (t) LILY_TRY(finish_transfer(f, t->ctx, err));
        if (ranges && f->whole) cancel_all(f);
        if (f->job->progress) f->job->progress(f->job->ctx, f->done);
    }
    return LILY_OK;
}

/* ---- the whole ---- */

static void close_part(struct fetch *f)
{
    if (f->head) munmap(f->head, f->map_bytes);
    if (f->fd >= 0) close(f->fd);
    free(f->busy);
}

static void remove_part(const struct fetch_job *job, bool part)
{
    char *path = state_path(job->part);
    unlink(path);
    if (part) unlink(job->part);
    free(path);
}

/* Fetches and hashes; *match tells whether the hash is right. */
static lily_status fetch_and_hash(struct fetch *f, bool *match, struct lily_err *err)
{
    if (pthread_create(&f->thread, NULL, hash_main, f) != 0) LILY_FAIL(err, LILY_ERR_MEMORY, "a thread could not be started");
    lily_status st = transfer_all(f, err);
    cancel_all(f);
    pthread_mutex_lock(&f->lock);
    f->stop = st != LILY_OK;
    pthread_cond_signal(&f->grown);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    LILY_TRY(st);
    if (f->hash_failed || fdatasync(f->fd) != 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot read back or flush: %s", f->job->part, strerror(errno));
    *match = strcmp(f->hash, f->job->sha256) == 0;
    return LILY_OK;
}

static lily_status run_once(struct web *w, const struct fetch_job *job, bool *match, bool *kept, struct lily_err *err)
{
    struct fetch *f = mem_new(sizeof *f);
    f->job = job;
    f->web = w;
    f->fd = -1;
    f->n_blocks = (job->size + FETCH_BLOCK - 1) / FETCH_BLOCK;
    f->busy = mem_new((size_t)f->n_blocks + 1);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->grown, NULL);
    lily_status st = open_part(f, err);
    if (st == LILY_OK) st = fetch_and_hash(f, match, err);
    *kept = f->kept;
    if (st == LILY_OK && !*match)
        err_set(err, LILY_ERR_FORMAT, "%s: its SHA-256 is %s, the hub lists %s", job->name, f->hash, job->sha256);
    close_part(f);
    pthread_cond_destroy(&f->grown);
    pthread_mutex_destroy(&f->lock);
    free(f);
    return st;
}

lily_status fetch_file(struct web *w, const struct fetch_job *job, struct lily_err *err)
{
    bool match = false, kept = false;
    LILY_TRY(run_once(w, job, &match, &kept, err));
    if (!match) remove_part(job, true);
    if (!match && kept) { /* what a run before left may have been damaged by a power cut: once from the beginning */
        LILY_TRY(run_once(w, job, &match, &kept, err));
        if (!match) remove_part(job, true);
    }
    if (!match) {
        err_hint(err, "the server gave other bytes than it lists; they are thrown away. Run the command again");
        return LILY_ERR_FORMAT;
    }
    remove_part(job, false);
    return LILY_OK;
}
