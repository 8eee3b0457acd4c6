/* Reading packed files. */
#include "backend/cpu/packed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "backend/cpu/packed_form.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

struct packed {
    char *path; /* owned */
    struct file_map map;
    struct packed_header head;
    const struct packed_entry *entries; /* view of the mapping */
    const struct hash128 *hashes;       /* view of the mapping */
};

/* ---- opening ---- */

static lily_status damaged(const struct packed *p, const char *what, struct lily_err *err)
{
    LILY_FAIL(err, LILY_ERR_FORMAT, "%s: the packed file is damaged: %s", p->path, what);
}

static lily_status check_header(struct packed *p, const char key[65], struct lily_err *err)
{
    struct packed_header *h = &p->head;
    char hex[65];
    if (p->map.size < PACKED_HEADER) return damaged(p, "it is shorter than its header", err);
    memcpy(h, p->map.data, sizeof *h);
    if (memcmp(h->magic, PACKED_MAGIC, 8) != 0) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: not a packed file: it does not begin as one", p->path);
    if (h->version != PACKED_VERSION)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: a packed file of version %u, expected %d", p->path, h->version, PACKED_VERSION);
    sha256_of(h, offsetof(struct packed_header, self), hex);
    if (memcmp(hex, h->self, 65) != 0) return damaged(p, "its header has another hash", err);
    if (memcmp(h->key, key, 65) != 0) LILY_FAIL(err, LILY_ERR_USAGE, "%s: made from another checkpoint, or from this one before it changed", p->path);
    if (h->file_bytes != p->map.size)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: the packed file is damaged: it has %zu bytes, expected %llu", p->path, p->map.size,
                  (unsigned long long)h->file_bytes);
    return LILY_OK;
}

static lily_status check_places(const struct packed *p, struct lily_err *err)
{
    const struct packed_header *h = &p->head;
    for (uint32_t i = 0; i < h->n_matrices; i++) {
        const struct packed_entry *e = &p->entries[i];
        if (!memchr(e->name, 0, sizeof e->name)) return damaged(p, "a name in its table does not end", err);
        if (e->at % 64 || e->at < h->data_at || e->at > h->file_bytes || e->bytes > h->file_bytes - e->at)
            return damaged(p, "its table points outside of it", err);
    }
    return LILY_OK;
}

static lily_status check_front(struct packed *p, struct lily_err *err)
{
    const struct packed_header *h = &p->head;
    char hex[65];
    if (h->n_matrices > PACKED_MAX || h->data_at % PACKED_DATA_ALIGN || h->data_at > h->file_bytes)
        return damaged(p, "its header has impossible numbers", err);
    uint64_t hashes_at = packed_hashes_at(h->n_matrices), chunks = packed_round(h->file_bytes - h->data_at, PACKED_CHUNK) / PACKED_CHUNK;
    if (h->n_chunks != chunks || hashes_at + chunks * sizeof(struct hash128) > h->data_at)
        return damaged(p, "its header has impossible numbers", err);
    sha256_of(p->map.data + PACKED_HEADER, hashes_at + chunks * sizeof(struct hash128) - PACKED_HEADER, hex);
    if (memcmp(hex, h->front, 65) != 0) return damaged(p, "its table has another hash", err);
    p->entries = (const void *)(p->map.data + PACKED_HEADER); /* mappings are page aligned */
    p->hashes = (const void *)(p->map.data + hashes_at);
    return check_places(p, err);
}

lily_status packed_open(const char *path, const char key[65], struct packed **out, struct lily_err *err)
{
    struct packed *p = mem_new(sizeof *p);
    *out = NULL;
    p->path = mem_dupz(path);
    lily_status st = file_map_open(path, &p->map, err);
    if (st == LILY_OK) st = check_header(p, key, err);
    if (st == LILY_OK) st = check_front(p, err);
    if (st == LILY_OK) *out = p;
    else packed_close(p);
    return st;
}

void packed_close(struct packed *p)
{
    if (!p) return;
    file_map_close(&p->map);
    free(p->path);
    free(p);
}

const char *packed_hash(const struct packed *p)
{
    return p->head.front;
}

size_t packed_bytes(const struct packed *p)
{
    return p->map.size;
}

bool packed_find(const struct packed *p, const char *name, const struct matrix *want, struct matrix *out)
{
    for (uint32_t i = 0; i < p->head.n_matrices; i++) {
        const struct packed_entry *e = &p->entries[i];
        if (strcmp(e->name, name) != 0) continue;
        if (e->kind != (uint32_t)want->kind || e->n_experts != (uint32_t)want->n_experts || e->rows != (uint32_t)want->rows ||
            e->cols != (uint32_t)want->cols || e->bytes != want->bytes)
            return false;
        *out = *want;
        out->data = p->map.data + e->at;
        return true;
    }
    return false;
}

/* ---- the stamp: what the system says of a file that was written or verified ---- */

static bool stamp_text(const char *path, char out[128])
{
    struct stat sb;
    if (stat(path, &sb) != 0) return false;
    snprintf(out, 128, "%d %llu %lld %lld.%09ld %lld.%09ld\n", PACKED_VERSION, (unsigned long long)sb.st_ino, (long long)sb.st_size,
             (long long)sb.st_mtim.tv_sec, sb.st_mtim.tv_nsec, (long long)sb.st_ctim.tv_sec, sb.st_ctim.tv_nsec);
    return true;
}

static void stamp_path(const char *path, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "%s.stamp", path);
}

bool packed_is_stamped(const char *path)
{
    struct buf name = {0}, text = {0};
    char want[128];
    stamp_path(path, &name);
    bool same = stamp_text(path, want) && file_read(buf_str(&name), 4096, &text, NULL) == LILY_OK && strcmp(buf_str(&text), want) == 0;
    buf_free(&name);
    buf_free(&text);
    return same;
}

/* Without a stamp the next opening verifies again: failing to write it is no error. */
void packed_stamp(const char *path)
{
    struct buf name = {0};
    char text[128];
    stamp_path(path, &name);
    if (stamp_text(path, text)) file_write_atomic(buf_str(&name), text, strlen(text), NULL);
    buf_free(&name);
}


/* ---- passes over the whole file ---- */

struct pass {
    const struct packed *p;
    bool verify;
    atomic_long next;   /* chunk */
    atomic_long bad;    /* least damaged chunk, or n_chunks */
    long stop;          /* chunks of this stretch end here */
};

static void touch(const uint8_t *data, size_t n)
{
#ifdef MADV_POPULATE_READ
    if (madvise((void *)(uintptr_t)data, n, MADV_POPULATE_READ) == 0) return;
#endif
    unsigned sum = 0;
    for (size_t i = 0; i < n; i += 4096) sum += *(const volatile uint8_t *)(data + i);
    (void)sum;
}

static void check_chunk(struct pass *s, long chunk, const uint8_t *data, size_t n)
{
    struct hash128 h = hash128_of(data, n), want = s->p->hashes[chunk];
    if (h.lo == want.lo && h.hi == want.hi) return;
    long bad = atomic_load(&s->bad);
    while (chunk < bad && !atomic_compare_exchange_weak(&s->bad, &bad, chunk)) continue;
}

/* Chunks are taken in order by whoever is free, so that a disk is read in order. */
static void pass_part(void *arg, int part, int n_parts)
{
    struct pass *s = arg;
    const struct packed_header *h = &s->p->head;
    (void)part;
    (void)n_parts;
    for (long i; (i = atomic_fetch_add(&s->next, 1)) < s->stop;) {
        uint64_t at = h->data_at + (uint64_t)i * PACKED_CHUNK, left = h->file_bytes - at;
        size_t n = left < PACKED_CHUNK ? (size_t)left : PACKED_CHUNK;
        touch(s->p->map.data + at, n);
        if (s->verify) check_chunk(s, i, s->p->map.data + at, n);
    }
}

enum { STRETCH = 64 }; /* chunks between two looks at the bar */

static void run_pass(struct pass *s, struct pool *pool, const char *label)
{
    struct progress bar;
    long n = (long)s->p->head.n_chunks;
    madvise((void *)(uintptr_t)s->p->map.data, s->p->map.size, MADV_HUGEPAGE); /* where the file system has huge pages */
    atomic_store(&s->bad, n);
    progress_begin(&bar, label, (double)s->p->map.size, "B");
    for (long at = 0; at < n; at = s->stop) {
        s->stop = n - at < STRETCH ? n : at + STRETCH;
        atomic_store(&s->next, at);
        pool_run(pool, pass_part, s);
        progress_at(&bar, (double)s->stop * PACKED_CHUNK);
    }
    progress_end(&bar);
}

void packed_populate(const struct packed *p, struct pool *pool)
{
    struct pass s = {.p = p};
    run_pass(&s, pool, "loading");
}

static const char *matrix_at(const struct packed *p, uint64_t at)
{
    for (uint32_t i = 0; i < p->head.n_matrices; i++) {
        const struct packed_entry *e = &p->entries[i];
        if (e->at + e->bytes > at) return e->name;
    }
    return "its end";
}

lily_status packed_verify(const struct packed *p, struct pool *pool, struct lily_err *err)
{
    struct pass s = {.p = p, .verify = true};
    run_pass(&s, pool, "checking");
    long bad = atomic_load(&s.bad);
    if (bad < (long)p->head.n_chunks) {
        uint64_t at = p->head.data_at + (uint64_t)bad * PACKED_CHUNK;
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: the packed file is damaged between bytes %llu and %llu (%s)", p->path,
                  (unsigned long long)at, (unsigned long long)(at + PACKED_CHUNK), matrix_at(p, at));
    }
    packed_stamp(p->path);
    return LILY_OK;
}
