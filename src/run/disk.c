/* The disk cache: reading, saving, the value of states, the quota. disk_scan.c finds what a folder holds. */
#include "run/disk.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/disk_impl.h"

enum { HALF_LIFE = 64, MAX_HITS = 15 }; /* as in memory (run/borders.c) */
enum { NODE_BYTES = 512 };              /* of the tree, the list and the heap for each state, beside its tokens */
static const double pause_ms = 60e3;   /* after a save that failed */
static const double retry_ms = 5e3;    /* after a folder that could not be made: that costs nothing */

void disk_path(const struct disk *d, char kind, const char *chain, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "%s/%c-%s", d->folder, kind, chain);
}

/* The chain's hash after `length` tokens. */
static void chain_of(const int32_t *ids, int length, char chain[CHAIN_HEX])
{
    chain[0] = 0;
    for (int at = 0; at < length; at += GRID) state_chain(chain, ids + at);
}

static size_t state_bytes(const struct disk *d, int length)
{
    const struct state_file_id id = {.kind = STATE_FILE_STATE, .length = length};
    return state_file_bytes(&id, d->opt.fixed_bytes);
}

static size_t page_file_bytes(const struct disk *d)
{
    const struct state_file_id id = {.kind = STATE_FILE_PAGE, .length = GRID};
    return state_file_bytes(&id, d->opt.page_bytes);
}

void disk_note_size(struct disk *d)
{
    size_t bytes = d->foreign + d->set_aside;
    for (int i = 0; i < d->n; i++) bytes += state_bytes(d, prefix_length(d->list[i]->node));
    bytes += (size_t)(prefix_tokens(d->tree) / GRID) * page_file_bytes(d);
    d->bytes = bytes;
    atomic_store(&d->opt.counters->disk_bytes, bytes);
    atomic_store(&d->opt.counters->disk_states, d->n - d->saving.on);
    if (bytes > atomic_load(&d->opt.counters->disk_peak_bytes)) atomic_store(&d->opt.counters->disk_peak_bytes, bytes);
}

struct stored *disk_add(struct disk *d, const int32_t *ids, int length)
{
    struct stored *s = mem_new(sizeof *s);
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 16;
        d->list = mem_resize(d->list, sizeof(struct stored *) * (size_t)d->cap);
    }
    d->list[d->n++] = s;
    s->node = prefix_put(d->tree, ids, length, s);
    s->used = ++d->clock;
    return s;
}

/* Takes a state out of the index; with files, its own are removed: the state first, then the pages that no other one needs. */
static void drop(struct disk *d, struct stored *s, bool files)
{
    int length = prefix_length(s->node), own = prefix_own(s->node), i = 0;
    if (files && !d->read_only) {
        int32_t *ids = mem_new(sizeof *ids * (size_t)length);
        char chain[CHAIN_HEX];
        struct buf path = {0};
        prefix_ids(s->node, ids);
        chain_of(ids, length, chain);
        disk_path(d, 's', chain, &path);
        disk_writer_remove(d->writer, buf_str(&path));
        chain_of(ids, length - own, chain);
        for (int at = length - own; at < length; at += GRID) {
            state_chain(chain, ids + at);
            disk_path(d, 'p', chain, &path);
            disk_writer_remove(d->writer, buf_str(&path));
        }
        buf_free(&path);
        free(ids);
    }
    while (d->list[i] != s) i++;
    d->list[i] = d->list[--d->n];
    prefix_remove(d->tree, s->node);
    free(s);
    disk_note_size(d);
}

/* ---- value ---- */

static double value(const struct disk *d, const struct stored *s)
{
    const struct prefix_node *above = prefix_above(s->node);
    int length = prefix_length(s->node), hits = s->hits < MAX_HITS ? s->hits : MAX_HITS;
    double tokens = length - (above ? prefix_length(above) : 0);
    double bytes = (double)state_bytes(d, length) + (double)(prefix_own(s->node) / GRID) * (double)page_file_bytes(d);
    return tokens * (1 + hits) / (1 + (double)(d->clock - s->used) / HALF_LIFE) / bytes;
}

static struct stored *least_valuable(const struct disk *d, double *lowest)
{
    struct stored *least = NULL;
    for (int i = 0; i < d->n; i++) {
        struct stored *s = d->list[i];
        double v = s->writing ? 0 : value(d, s);
        if (s->writing || (least && v >= *lowest)) continue;
        least = s;
        *lowest = v;
    }
    return least;
}

/* Room for so many bytes from what is worth less than `worth` each byte. */
static bool make_room(struct disk *d, size_t bytes, double worth)
{
    while (d->bytes + bytes > d->opt.quota) {
        double v = 0;
        if (d->foreign && disk_drop_foreign(d)) continue;
        struct stored *s = least_valuable(d, &v);
        if (!s || v >= worth) return false;
        drop(d, s, true);
        atomic_fetch_add(&d->opt.counters->disk_dropped, 1);
    }
    return true;
}

void disk_keep_quota(struct disk *d)
{
    (void)make_room(d, 0, 1e300);
}

size_t disk_memory(const struct disk *d)
{
    size_t tokens = (size_t)(prefix_tokens(d->tree) + d->saving.length) * sizeof(int32_t);
    /* While one part is written the next one is filled: of two, one at most is a state. */
    return (size_t)d->n * NODE_BYTES + tokens + (d->read_only ? 0 : d->opt.fixed_bytes + page_file_bytes(d));
}

/* ---- open, close ---- */

/* At the start: a folder that cannot be written may still be read. */
static lily_status open_folder(struct disk *d, struct lily_err *err)
{
    lily_status st = disk_take(d, err);
    if (st != LILY_OK && !file_is_dir(d->dir)) return st;
    if (d->read_only)
        log_warn("prompt cache: %s is %s: it is read, not written", d->folder,
                 st == LILY_OK ? "in use by another process" : "not writable");
    err_clear(err);
    return disk_scan(d, err);
}

lily_status disk_open(const struct disk_options *o, struct disk **out, struct lily_err *err)
{
    struct disk *d = mem_new(sizeof *d);
    struct buf folder = {0};
    d->opt = *o;
    memcpy(d->key, o->key, sizeof d->key - 1);
    d->opt.key = d->key;
    d->dir = mem_dupz(o->dir);
    d->lock_fd = -1;
    d->tree = prefix_new();
    buf_printf(&folder, "%s/%.32s", o->dir, o->key);
    d->folder = buf_take(&folder);
    *out = NULL;
    lily_status st = open_folder(d, err);
    if (st == LILY_OK) st = disk_writer_start(o->wake, o->wake_ctx, &d->writer, err);
    if (st != LILY_OK) {
        disk_close(d);
        return st;
    }
    atomic_store(&o->counters->disk_quota, o->quota);
    disk_note_size(d);
    if (!d->read_only) disk_keep_quota(d);
    *out = d;
    return LILY_OK;
}

/* What was in the folder is not there any more. */
static void forget_all(struct disk *d)
{
    while (d->n) drop(d, d->list[d->n - 1], false);
    if (d->lock_fd >= 0) close(d->lock_fd);
    d->lock_fd = -1;
    d->foreign = d->set_aside = 0;
    disk_note_size(d);
}

/* It cannot be made now, because of what lies in its place, say: told once, and tried again after a while. */
static void lose(struct disk *d, const char *why)
{
    if (!d->lost) log_warn("prompt cache: %s; nothing is written until the folder can be made again", why);
    forget_all(d);
    d->lost = d->read_only = true;
    d->paused_until_ms = clock_ms() + retry_ms;
}

bool disk_renew(struct disk *d)
{
    struct lily_err err = {0};
    if (!d->lost && !disk_is_removed(d)) return false;
    forget_all(d);
    lily_status st = disk_take(d, &err);
    if (st == LILY_OK) st = disk_scan(d, &err);
    if (st != LILY_OK) {
        lose(d, err.msg);
        return true;
    }
    log_note("prompt cache: %s was removed or moved: it is %s", d->folder,
             d->read_only ? "in use by another process now, and read, not written" : "made anew");
    d->lost = d->warned = false;
    disk_note_size(d);
    if (!d->read_only) disk_keep_quota(d);
    return true;
}

void disk_close(struct disk *d)
{
    if (!d) return;
    if (d->saving.on) disk_save_abort(d);
    disk_writer_free(d->writer);
    while (d->n) free(d->list[--d->n]);
    free(d->list);
    prefix_free(d->tree);
    if (d->lock_fd >= 0) close(d->lock_fd);
    buf_free(&d->path);
    free(d->folder);
    free(d->dir);
    free(d);
}

/* ---- reading ---- */

static const struct prefix_node *readable(const struct prefix_node *n)
{
    while (n && ((const struct stored *)prefix_value(n))->writing) n = prefix_above(n);
    return n;
}

int disk_depth(const struct disk *d, const int32_t *ids, int n)
{
    const struct prefix_node *node = readable(prefix_deepest(d->tree, ids, n));
    return node ? prefix_length(node) : 0;
}

static bool goes_through(const struct stored *s, const int32_t *ids, int n)
{
    if (prefix_length(s->node) < n) return false;
    int32_t *own = mem_new(sizeof *own * (size_t)prefix_length(s->node));
    prefix_ids(s->node, own);
    bool same = memcmp(own, ids, sizeof *own * (size_t)n) == 0;
    free(own);
    return same;
}

/* A file that cannot be used: it is named, set aside, and what needs it goes. */
void disk_set_aside(struct disk *d, const char *path, const char *why)
{
    struct buf to = {0};
    struct stat sb;
    if (lstat(path, &sb) == 0) d->set_aside += (size_t)sb.st_size;
    atomic_fetch_add(&d->opt.counters->disk_damaged, 1);
    log_warn("prompt cache: %s: %s; it is set aside and not used", path, why);
    buf_printf(&to, "%s.damaged", path);
    if (!d->read_only && rename(path, buf_str(&to)) != 0) (void)unlink(path);
    buf_free(&to);
}

/* The states of these tokens that need a part. */
static void drop_users(struct disk *d, const int32_t *ids, int length, int part)
{
    int through = part == BORDER_FIXED ? length : (part + 1) * GRID;
    for (int i = d->n - 1; i >= 0; i--) {
        struct stored *s = d->list[i];
        bool user = part == BORDER_FIXED ? prefix_length(s->node) == through && goes_through(s, ids, through)
                                         : goes_through(s, ids, through);
        if (!user || s->writing) continue;
        drop(d, s, true);
        if (i > d->n) i = d->n;
    }
}

/* One part's file, while its blocks are read. */
struct part_read {
    struct state_reader reader;
    bool open;
    size_t left; /* bytes */
};

struct disk_read {
    struct disk *disk;
    const int32_t *ids; /* borrowed */
    int length;
    char (*chains)[CHAIN_HEX]; /* owned; (pages) up to the end of each */
    pthread_mutex_t lock;      /* of what follows */
    struct part_read *parts;   /* owned; (pages, and the fixed one) */
    lily_status failed;        /* what happened first, and to which part */
    int failed_part;
    struct lily_err err;
};

struct disk_read *disk_read_begin(struct disk *d, const int32_t *ids, int length)
{
    struct disk_read *r = mem_new(sizeof *r);
    int pages = length / GRID;
    char chain[CHAIN_HEX] = "";
    r->disk = d;
    r->ids = ids;
    r->length = length;
    r->failed = LILY_OK;
    r->chains = mem_new(sizeof *r->chains * (size_t)(pages + 1));
    r->parts = mem_new(sizeof *r->parts * (size_t)(pages + 1));
    pthread_mutex_init(&r->lock, NULL);
    for (int i = 0; i < pages; i++) {
        state_chain(chain, ids + i * GRID);
        memcpy(r->chains[i], chain, sizeof chain);
    }
    return r;
}

/* The name of a part's file. */
static void part_path(const struct disk_read *r, int part, struct buf *out)
{
    bool fixed = part == BORDER_FIXED;
    disk_path(r->disk, fixed ? 's' : 'p', r->chains[fixed ? r->length / GRID - 1 : part], out);
}

static lily_status open_part(const struct disk_read *r, int part, struct part_read *p, struct lily_err *err)
{
    const struct disk_options *o = &r->disk->opt;
    size_t bytes = part == BORDER_FIXED ? o->fixed_bytes : o->page_bytes;
    struct buf path = {0};
    part_path(r, part, &path);
    lily_status st = state_reader_open(buf_str(&path), r->disk->key, &p->reader, NULL, err);
    buf_free(&path);
    LILY_TRY(st);
    p->open = true;
    p->left = bytes;
    if (strcmp(p->reader.id.chain, r->chains[part == BORDER_FIXED ? r->length / GRID - 1 : part]) != 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "it holds other tokens than its name says");
    if (p->reader.payload != bytes) LILY_FAIL(err, LILY_ERR_FORMAT, "its payload has %zu bytes, expected %zu", p->reader.payload, bytes);
    return LILY_OK;
}

static void close_part(struct part_read *p)
{
    if (p->open) state_reader_close(&p->reader);
    p->open = false;
}

/* A block was read, or could not be. */
static lily_status end_block(struct disk_read *r, int part, struct part_read *p, size_t n, lily_status st, struct lily_err *err)
{
    if (st == LILY_OK && (p->left -= n) == 0) {
        st = state_reader_check(&p->reader, err);
        close_part(p);
    }
    if (st != LILY_OK && r->failed == LILY_OK) {
        r->failed = st;
        r->failed_part = part;
        r->err = *err;
    }
    return st;
}

lily_status disk_read_part(void *ctx, int part, size_t at, size_t n, void *out, struct lily_err *err)
{
    struct disk_read *r = ctx;
    struct part_read *p = &r->parts[part == BORDER_FIXED ? r->length / GRID : part];
    pthread_mutex_lock(&r->lock);
    lily_status st = p->open ? LILY_OK : open_part(r, part, p, err);
    pthread_mutex_unlock(&r->lock);
    if (st == LILY_OK) st = state_reader_block(&p->reader, at, n, out, err);
    pthread_mutex_lock(&r->lock);
    st = end_block(r, part, p, n, st, err);
    pthread_mutex_unlock(&r->lock);
    return st;
}

static void give_up_part(struct disk_read *r)
{
    struct disk *d = r->disk;
    struct buf path = {0};
    part_path(r, r->failed_part, &path);
    atomic_fetch_add(&d->opt.counters->disk_errors, 1);
    if (r->failed == LILY_ERR_FORMAT) disk_set_aside(d, buf_str(&path), r->err.msg);
    drop_users(d, r->ids, r->length, r->failed_part);
    buf_free(&path);
}

void disk_read_end(struct disk_read *r)
{
    for (int i = 0; i <= r->length / GRID; i++) close_part(&r->parts[i]);
    if (r->failed != LILY_OK) give_up_part(r);
    pthread_mutex_destroy(&r->lock);
    free(r->parts);
    free(r->chains);
    free(r);
}

void disk_used(struct disk *d, const int32_t *ids, int length)
{
    const struct prefix_node *node = prefix_find(d->tree, ids, length);
    char chain[CHAIN_HEX];
    if (!node) return;
    struct stored *s = prefix_value(node);
    s->hits++;
    s->used = ++d->clock;
    if (d->read_only) return;
    chain_of(ids, length, chain);
    disk_path(d, 's', chain, &d->path);
    disk_writer_touch(d->writer, buf_str(&d->path));
}

/* ---- saving ---- */

bool disk_is_saving(const struct disk *d)
{
    return d->saving.on;
}

bool disk_can_save(struct disk *d)
{
    return (d->lost || !d->read_only) && !d->saving.on && clock_ms() >= d->paused_until_ms;
}

bool disk_save_begin(struct disk *d, const int32_t *ids, int length, int hits)
{
    struct prefix_node *through;
    if (prefix_find(d->tree, ids, length)) return false;
    const struct prefix_node *above = prefix_deepest(d->tree, ids, length);
    int known = prefix_common(d->tree, ids, length, &through), tokens = length - (above ? prefix_length(above) : 0);
    size_t bytes = state_bytes(d, length) + (size_t)((length - known) / GRID) * page_file_bytes(d);
    double worth = (double)tokens * (1 + (hits < MAX_HITS ? hits : MAX_HITS)) / (double)bytes;
    if (!make_room(d, bytes, worth)) return false;
    /* What made room may have held pages that were known. */
    int still = prefix_common(d->tree, ids, length, &through);
    if (still < known && d->bytes + bytes + (size_t)((known - still) / GRID) * page_file_bytes(d) > d->opt.quota) return false;
    struct saving *v = &d->saving;
    *v = (struct saving){.on = true, .ids = mem_new(sizeof *ids * (size_t)length), .length = length, .at = still};
    memcpy(v->ids, ids, sizeof *ids * (size_t)length);
    chain_of(ids, v->at, v->chain);
    v->state = disk_add(d, ids, length);
    v->state->writing = true;
    v->state->hits = hits;
    disk_writer_begin(d->writer);
    disk_note_size(d);
    return true;
}

static void free_buffer(struct saving *v)
{
    mem_big_free(v->buffer, v->buffer_bytes);
    v->buffer = NULL;
}

static void end_save(struct disk *d)
{
    free(d->saving.ids);
    free_buffer(&d->saving);
    memset(&d->saving, 0, sizeof d->saving);
    disk_note_size(d);
}

void disk_save_abort(struct disk *d)
{
    if (!d->saving.on) return;
    drop(d, d->saving.state, true);
    end_save(d);
}

int disk_save_next(struct disk *d)
{
    struct saving *v = &d->saving;
    if (v->all_given) return DISK_ALL_GIVEN;
    if (!disk_writer_has_room(d->writer)) return DISK_WAIT;
    return v->at < v->length ? v->at / GRID : BORDER_FIXED;
}

/* The file of the part that is wanted next. */
static struct state_file_id next_file(const struct disk *d)
{
    const struct saving *v = &d->saving;
    bool page = v->at < v->length;
    struct state_file_id id = {.kind = page ? STATE_FILE_PAGE : STATE_FILE_STATE, .length = page ? v->at + GRID : v->length};
    memcpy(id.key, d->key, sizeof id.key);
    memcpy(id.chain, v->chain, sizeof id.chain);
    return id;
}

void *disk_save_buffer(struct disk *d)
{
    struct saving *v = &d->saving;
    struct state_file_id id = next_file(d);
    size_t payload = id.kind == STATE_FILE_PAGE ? d->opt.page_bytes : d->opt.fixed_bytes;
    void *buffer;
    free_buffer(v);
    if (mem_big(state_file_bytes(&id, payload), "a part of a saved state", &buffer, NULL) == LILY_OK) {
        v->buffer = buffer;
        v->buffer_bytes = state_file_bytes(&id, payload);
        return v->buffer + state_file_payload_at(&id);
    }
    disk_save_abort(d);
    return NULL;
}

void disk_save_put(struct disk *d)
{
    struct saving *v = &d->saving;
    bool page = v->at < v->length;
    if (page) state_chain(v->chain, v->ids + v->at);
    struct state_file_id id = next_file(d);
    size_t payload = page ? d->opt.page_bytes : d->opt.fixed_bytes;
    if (!page) state_file_put_ids(&id, v->ids, v->buffer);
    disk_path(d, page ? 'p' : 's', v->chain, &d->path);
    disk_writer_put(d->writer, buf_str(&d->path), &id, payload, v->buffer, !page);
    v->buffer = NULL;
    if (page) v->at += GRID;
    else v->all_given = true;
}

int disk_poll(struct disk *d)
{
    struct lily_err err = {0};
    if (!d->saving.on) return 0;
    int outcome = disk_writer_outcome(d->writer, &err);
    if (outcome > 0 && d->saving.all_given) {
        d->saving.state->writing = false;
        atomic_fetch_add(&d->opt.counters->disk_written, 1);
        end_save(d);
        return 1;
    }
    if (outcome >= 0) return 0;
    atomic_fetch_add(&d->opt.counters->disk_errors, 1);
    if (!disk_is_removed(d)) { /* that is mended by disk_renew */
        if (!d->warned) log_warn("prompt cache: a state could not be saved; the next try is in a minute at the earliest: %s", err.msg);
        d->warned = true;
        d->paused_until_ms = clock_ms() + pause_ms;
    }
    disk_save_abort(d);
    return -1;
}

void disk_wait(struct disk *d, double ms)
{
    disk_writer_wait(d->writer, ms);
}
