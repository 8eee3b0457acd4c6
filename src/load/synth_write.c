/* Streams the words of a synthetic checkpoint, making one block while another is written. */
#include "load/synth_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

enum { BLOCK_WORDS = 2 << 20, SLICE_WORDS = 32 << 10 };

/* Where bytes go: a file of the folder, or a descriptor. */
struct sink {
    struct safetensors_writer *file; /* NULL: fd */
    int fd;
    const char *name;
};

struct block {
    uint32_t *words; /* owned; (BLOCK_WORDS) */
    size_t n;
};

/* A place in the stream of a shard's words: the next one to make. */
struct cursor {
    const struct synth_plan *plan;
    int tensor, end; /* tensors of the shard */
    uint32_t word;   /* inside the tensor */
};

/* A stretch of a block that comes from one tensor. */
struct stretch {
    const struct synth_rule *rule;
    uint32_t first;
    uint32_t *out;
    size_t n;
};

enum { MAX_STRETCHES = 2048 }; /* more tensors than a preset has */

struct writing {
    struct block making, ready;
    struct stretch stretches[MAX_STRETCHES];
    int n_stretches;
    struct sink sink;
    struct progress bar;
    double done;
    lily_status status;
    struct lily_err *err;
};

/* Lays out the next block: which words of which tensors it holds. */
static void lay_out(struct writing *w, struct cursor *c)
{
    w->n_stretches = 0;
    w->making.n = 0;
    while (c->tensor < c->end && w->making.n < BLOCK_WORDS) {
        const struct synth_tensor *t = &c->plan->tensors[c->tensor];
        size_t left = (size_t)tensor_decl_bytes(&t->decl) / 4 - c->word, room = BLOCK_WORDS - w->making.n;
        size_t n = left < room ? left : room;
        w->stretches[w->n_stretches++] = (struct stretch){&t->rule, c->word, w->making.words + w->making.n, n};
        w->making.n += n;
        c->word += (uint32_t)n;
        if (n < left) break;
        c->tensor++;
        c->word = 0;
    }
}

/* Every n-th slice of the block is this part's. */
static void make_slices(const struct writing *w, int part, int n_parts)
{
    long slice = 0;
    for (int i = 0; i < w->n_stretches; i++) {
        const struct stretch *s = &w->stretches[i];
        for (size_t at = 0; at < s->n; at += SLICE_WORDS, slice++) {
            size_t n = s->n - at < SLICE_WORDS ? s->n - at : SLICE_WORDS;
            if (slice % n_parts == part) synth_fill(s->rule, s->first + (uint32_t)at, s->out + at, n);
        }
    }
}

static lily_status put_fd(const struct sink *s, const void *data, size_t n, struct lily_err *err)
{
    const char *p = data;
    while (n) {
        ssize_t done = write(s->fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write: %s", s->name, strerror(errno));
        p += done;
        n -= (size_t)done;
    }
    return LILY_OK;
}

static lily_status put(const struct sink *s, const void *data, size_t n, struct lily_err *err)
{
    return s->file ? safetensors_put(s->file, data, n, err) : put_fd(s, data, n, err);
}

/* Part 0 writes the block that is ready, the others make the next one; alone, one does both. */
static void turn(void *arg, int part, int n_parts)
{
    struct writing *w = arg;
    if (part == 0 && w->ready.n && w->status == LILY_OK) w->status = put(&w->sink, w->ready.words, 4 * w->ready.n, w->err);
    if (n_parts == 1) make_slices(w, 0, 1);
    else if (part > 0) make_slices(w, part - 1, n_parts - 1);
}

static lily_status write_words(struct writing *w, struct cursor *c, struct pool *pool)
{
    w->ready.n = 0;
    do {
        lay_out(w, c);
        pool_run(pool, turn, w);
        struct block made = w->making;
        w->making = w->ready;
        w->ready = made;
        w->done += 4.0 * (double)made.n;
        progress_at(&w->bar, w->done);
    } while (w->ready.n && w->status == LILY_OK);
    return w->status;
}

/* The tensors [first, *end) of a shard, and their declarations (owned by the caller). */
static struct tensor_decl *shard_decls(const struct synth_plan *p, int first, int *end)
{
    *end = first;
    while (*end < p->n_tensors && p->tensors[*end].shard == p->tensors[first].shard) (*end)++;
    struct tensor_decl *decls = mem_new(sizeof *decls * (size_t)(*end - first));
    for (int i = first; i < *end; i++) decls[i - first] = p->tensors[i].decl;
    return decls;
}

static lily_status write_to_stream(struct writing *w, const struct tensor_decl *decls, struct cursor c, struct pool *pool)
{
    struct buf header = {0};
    safetensors_header(decls, c.end - c.tensor, &header);
    lily_status st = put(&w->sink, header.data, header.len, w->err);
    buf_free(&header);
    return st == LILY_OK ? write_words(w, &c, pool) : st;
}

static lily_status write_to_file(struct writing *w, const char *dir, const struct tensor_decl *decls, struct cursor c, struct pool *pool)
{
    struct buf path = {0};
    char name[48];
    synth_shard_name(c.plan, c.plan->tensors[c.tensor].shard, name);
    file_join(&path, dir, name);
    lily_status st = safetensors_create(path.data, decls, c.end - c.tensor, &w->sink.file, w->err);
    buf_free(&path);
    if (st != LILY_OK) return st;
    st = write_words(w, &c, pool);
    if (st == LILY_OK) return safetensors_finish(w->sink.file, w->err);
    safetensors_abandon(w->sink.file);
    return st;
}

static lily_status write_all(const struct synth_plan *p, const char *dir, struct sink sink, struct pool *pool, struct lily_err *err)
{
    struct writing *w = mem_new(sizeof *w);
    w->sink = sink;
    w->err = err;
    w->making.words = mem_try(BLOCK_WORDS, 4);
    w->ready.words = mem_try(BLOCK_WORDS, 4);
    lily_status st = LILY_OK;
    if (!w->making.words || !w->ready.words) st = err_set(err, LILY_ERR_MEMORY, "not enough memory for two blocks of 8 MB");
    progress_begin(&w->bar, "writing", (double)p->bytes, "B");
    for (int first = 0, end; first < p->n_tensors && st == LILY_OK; first = end) {
        struct tensor_decl *decls = shard_decls(p, first, &end);
        struct cursor c = {p, first, end, 0};
        st = dir ? write_to_file(w, dir, decls, c, pool) : write_to_stream(w, decls, c, pool);
        free(decls);
    }
    progress_end(&w->bar);
    free(w->making.words);
    free(w->ready.words);
    free(w);
    return st;
}

lily_status synth_write_shards(const struct synth_plan *p, const char *dir, struct pool *pool, struct lily_err *err)
{
    return write_all(p, dir, (struct sink){.fd = -1}, pool, err);
}

lily_status synth_write_stream(const struct synth_plan *p, int fd, const char *name, struct pool *pool, struct lily_err *err)
{
    fcntl(fd, F_SETPIPE_SZ, 1 << 20); /* fewer switches between writer and reader; not everything is a pipe, nor must it be */
    return write_all(p, NULL, (struct sink){NULL, fd, name}, pool, err);
}
