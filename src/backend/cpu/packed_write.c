/* Writing packed files: blocks are packed by all threads but one, which hashes and writes the blocks before them. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/packed.h"
#include "backend/cpu/packed_form.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

enum { BATCH = 16 << 20 }; /* bytes packed at a time, at most one row block more */

struct packed_writer {
    char *path, *tmp; /* owned; tmp NULL: the file has no name yet */
    int fd;           /* owned; -1: closed */
    int cap;          /* matrices promised */
    struct packed_header head;
    struct packed_entry *entries; /* owned; (cap) */
    struct hash128 *hashes;       /* owned; (cap_hashes) */
    size_t cap_hashes;
    struct hash128_run *hash; /* owned; of the chunk being filled */
    uint64_t at;              /* bytes of the file so far */
};

static lily_status write_at(const struct packed_writer *w, const void *data, size_t n, uint64_t at, struct lily_err *err)
{
    const char *p = data;
    while (n) {
        ssize_t done = pwrite(w->fd, p, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write: %s", w->path, strerror(errno));
        p += done;
        n -= (size_t)done;
        at += (uint64_t)done;
    }
    return LILY_OK;
}

static void end_chunk(struct packed_writer *w)
{
    if (w->head.n_chunks == w->cap_hashes) {
        w->cap_hashes = w->cap_hashes ? 2 * w->cap_hashes : 1024;
        w->hashes = mem_resize(w->hashes, w->cap_hashes * sizeof *w->hashes);
    }
    w->hashes[w->head.n_chunks++] = hash128_take(w->hash);
}

/* Appends to the data, hashing chunk by chunk. */
static lily_status append(struct packed_writer *w, const void *data, size_t n, struct lily_err *err)
{
    LILY_TRY(write_at(w, data, n, w->at, err));
    for (const uint8_t *p = data; n;) {
        size_t left = PACKED_CHUNK - (size_t)((w->at - w->head.data_at) % PACKED_CHUNK), part = n < left ? n : left;
        hash128_add(w->hash, p, part);
        w->at += part;
        p += part;
        n -= part;
        if (part == left) end_chunk(w);
    }
    return LILY_OK;
}

static lily_status pad(struct packed_writer *w, struct lily_err *err)
{
    static const uint8_t zeros[PACKED_ALIGN] = {0};
    return append(w, zeros, (size_t)(packed_round(w->at, PACKED_ALIGN) - w->at), err);
}

/* A file without a name where the system has such: whatever ends lily, nothing of 20 GB is left behind. */
static bool open_unnamed(struct packed_writer *w)
{
    char *dir = file_folder(w->path);
    w->fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    free(dir);
    return w->fd >= 0;
}

/* Gives it one, beside its place. */
static lily_status name_file(struct packed_writer *w, struct lily_err *err)
{
    struct buf name = {0};
    char self[40];
    if (w->tmp) return LILY_OK;
    buf_printf(&name, "%s.%ld", w->path, (long)getpid());
    snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
    w->tmp = buf_take(&name);
    unlink(w->tmp); /* of an earlier process of that number */
    if (linkat(AT_FDCWD, self, AT_FDCWD, w->tmp, AT_SYMLINK_FOLLOW) != 0)
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot create: %s", w->tmp, strerror(errno));
    return LILY_OK;
}

static lily_status open_tmp(struct packed_writer *w, struct lily_err *err)
{
    if (open_unnamed(w)) return LILY_OK;
    struct buf tmp = {0};
    buf_printf(&tmp, "%s.XXXXXX", w->path);
    w->fd = mkostemp(tmp.data, O_CLOEXEC);
    if (w->fd < 0) {
        err_set(err, LILY_ERR_IO, "%s: cannot create: %s", w->path, strerror(errno));
        buf_free(&tmp);
        return LILY_ERR_IO;
    }
    w->tmp = buf_take(&tmp);
    file_share(w->fd);
    return LILY_OK;
}

lily_status packed_create(const char *path, const char key[65], int n, struct packed_writer **out, struct lily_err *err)
{
    struct packed_writer *w = mem_new(sizeof *w);
    *out = NULL;
    w->fd = -1;
    w->path = mem_dupz(path);
    w->cap = n;
    w->hash = hash128_begin();
    lily_status st = n > PACKED_MAX ? err_set(err, LILY_ERR_LIMIT, "%s: %d matrices, at most %d are supported", path, n, PACKED_MAX) : LILY_OK;
    if (st == LILY_OK) {
        w->entries = mem_new(sizeof *w->entries * (size_t)n);
        memcpy(w->head.magic, PACKED_MAGIC, 8);
        memcpy(w->head.key, key, 65);
        w->head.version = PACKED_VERSION;
        w->head.data_at = PACKED_DATA_ALIGN; /* 4096 entries and the hashes of 300 GB fit in front */
        w->at = w->head.data_at;
        st = open_tmp(w, err);
    }
    if (st == LILY_OK) *out = w;
    else packed_abandon(w);
    return st;
}

/* ---- a matrix ---- */

struct batch {
    uint8_t *data; /* owned (mem_big) */
    size_t n;      /* bytes to write */
};

struct adding {
    struct packed_writer *w;
    const struct module_view *src;
    struct matrix m;
    long lo, hi; /* row blocks to pack now */
    struct batch making, ready;
    lily_status written;
    struct lily_err *err;
    atomic_bool failed;
};

static void pack_share(struct adding *a, int part, int n_parts)
{
    long lo, hi;
    pool_range(a->hi - a->lo, part, n_parts, &lo, &hi);
    if (matrix_pack_blocks(&a->m, a->src, a->lo + lo, a->lo + hi, a->making.data + (size_t)lo * a->m.block_bytes) != LILY_OK)
        atomic_store(&a->failed, true);
}

/* Part 0 writes what is ready, the others pack; alone, one does both. */
static void turn(void *arg, int part, int n_parts)
{
    struct adding *a = arg;
    if (part == 0 && a->ready.n && a->written == LILY_OK) a->written = append(a->w, a->ready.data, a->ready.n, a->err);
    if (n_parts == 1) pack_share(a, 0, 1);
    else if (part > 0) pack_share(a, part - 1, n_parts - 1);
}

static lily_status add_blocks(struct adding *a, struct pool *pool)
{
    long total = (long)a->m.n_experts * a->m.n_blocks, step = (long)(BATCH / a->m.block_bytes) + 1;
    for (long at = 0; at < total || a->ready.n; at = a->hi) {
        a->lo = at;
        a->hi = total - at < step ? total : at + step;
        pool_run(pool, turn, a);
        if (a->written != LILY_OK) return a->written;
        if (atomic_load(&a->failed)) LILY_FAIL(a->err, LILY_ERR_MEMORY, "%s: not enough memory for one row", a->src->weight.name);
        struct batch made = a->making;
        made.n = (size_t)(a->hi - a->lo) * a->m.block_bytes;
        a->making = a->ready;
        a->ready = made;
    }
    return LILY_OK;
}

lily_status packed_add(struct packed_writer *w, const char *name, const struct module_view *src, struct pool *pool, struct lily_err *err)
{
    struct adding a = {.w = w, .src = src, .err = err};
    LILY_TRY(matrix_describe(src, &a.m, err));
    if ((int)w->head.n_matrices == w->cap || strlen(name) >= PACKED_NAME)
        LILY_FAIL(err, LILY_ERR_LIMIT, "%s: no place for matrix %u (%.100s)", w->path, w->head.n_matrices, name);
    struct packed_entry *e = &w->entries[w->head.n_matrices++];
    *e = (struct packed_entry){.kind = a.m.kind,
                               .n_experts = (uint32_t)a.m.n_experts,
                               .rows = (uint32_t)a.m.rows,
                               .cols = (uint32_t)a.m.cols,
                               .at = w->at,
                               .bytes = a.m.bytes};
    memcpy(e->name, name, strlen(name));
    size_t room = BATCH + a.m.block_bytes;
    void *one = NULL, *two = NULL;
    lily_status st = mem_big(room, name, &one, err);
    if (st == LILY_OK) st = mem_big(room, name, &two, err);
    a.making.data = one;
    a.ready.data = two;
    if (st == LILY_OK) st = add_blocks(&a, pool);
    mem_big_free(one, room);
    mem_big_free(two, room);
    return st == LILY_OK ? pad(w, err) : st;
}

/* ---- the front ---- */

static lily_status write_front(struct packed_writer *w, struct lily_err *err)
{
    struct packed_header *h = &w->head;
    if ((w->at - h->data_at) % PACKED_CHUNK) end_chunk(w);
    uint64_t hashes_at = packed_hashes_at(h->n_matrices);
    size_t n_entries = h->n_matrices * sizeof *w->entries, n_hashes = h->n_chunks * sizeof *w->hashes;
    if (hashes_at + n_hashes > h->data_at) LILY_FAIL(err, LILY_ERR_LIMIT, "%s: too large to be packed", w->path);
    h->file_bytes = w->at;
    struct sha256 *sha = sha256_begin();
    sha256_add(sha, w->entries, n_entries);
    sha256_add(sha, w->hashes, n_hashes);
    sha256_end(sha, h->front);
    sha256_of(h, offsetof(struct packed_header, self), h->self);
    LILY_TRY(write_at(w, w->entries, n_entries, PACKED_HEADER, err));
    LILY_TRY(write_at(w, w->hashes, n_hashes, hashes_at, err));
    return write_at(w, h, sizeof *h, 0, err);
}

static lily_status complete(struct packed_writer *w, struct lily_err *err)
{
    LILY_TRY(write_front(w, err));
    if (fsync(w->fd) != 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot flush: %s", w->path, strerror(errno));
    LILY_TRY(name_file(w, err));
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 || rename(w->tmp, w->path) != 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write: %s", w->path, strerror(errno));
    free(w->tmp);
    w->tmp = NULL;
    packed_stamp(w->path);
    return LILY_OK;
}

lily_status packed_finish(struct packed_writer *w, struct lily_err *err)
{
    lily_status st = complete(w, err);
    packed_abandon(w);
    return st;
}

void packed_abandon(struct packed_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->tmp) unlink(w->tmp);
    hash128_free(w->hash);
    free(w->entries);
    free(w->hashes);
    free(w->path);
    free(w->tmp);
    free(w);
}
