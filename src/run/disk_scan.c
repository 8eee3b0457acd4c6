/* What a folder of the disk cache holds at the start: whole states, leftovers, damaged files, folders of other keys. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/disk_impl.h"

static const char lock_name[] = "lock"; /* in a folder: held by who writes there */

enum { CHAIN = CHAIN_HEX - 1, NAME = 2 + CHAIN, FOLDER = 32 };

/* A state as found, before it is known whether its pages are there. */
struct found {
    char name[NAME + 1];
    double used; /* seconds */
    struct buf ids; /* owned */
};

struct scan {
    struct disk *d;
    char (*pages)[NAME + 1]; /* owned; sorted */
    bool *needed;            /* owned; (n_pages) */
    int n_pages, cap_pages;
    struct found *states;    /* owned */
    int n_states, cap_states;
};

static bool is_hex(const char *s, size_t n)
{
    return strspn(s, "0123456789abcdef") == n && s[n] == 0;
}

static void join(struct buf *out, const char *dir, const char *name)
{
    buf_clear(out);
    buf_printf(out, "%s/%s", dir, name);
}

/* ---- one folder's files ---- */

static void take_page(struct scan *s, const char *name)
{
    if (s->n_pages == s->cap_pages) {
        s->cap_pages = s->cap_pages ? 2 * s->cap_pages : 256;
        s->pages = mem_resize(s->pages, sizeof *s->pages * (size_t)s->cap_pages);
    }
    memcpy(s->pages[s->n_pages++], name, NAME + 1);
}

static void take_state(struct scan *s, const char *name)
{
    struct disk *d = s->d;
    struct lily_err err;
    struct state_reader r;
    struct stat sb;
    struct found f = {.used = 0};
    char chain[CHAIN_HEX] = "";
    join(&d->path, d->folder, name);
    lily_status st = state_reader_open(buf_str(&d->path), d->key, &r, &f.ids, &err);
    if (st == LILY_OK) {
        for (int at = 0; at < r.id.length; at += GRID) state_chain(chain, (const int32_t *)(const void *)f.ids.data + at);
        if (fstat(r.fd, &sb) == 0) f.used = (double)sb.st_mtim.tv_sec + (double)sb.st_mtim.tv_nsec * 1e-9;
        if (r.payload != d->opt.fixed_bytes || strcmp(chain, name + 2) != 0 || strcmp(chain, r.id.chain) != 0)
            st = err_set(&err, LILY_ERR_FORMAT, "it holds other tokens than its name says");
        state_reader_close(&r);
    }
    if (st != LILY_OK) {
        if (st == LILY_ERR_FORMAT) disk_set_aside(d, buf_str(&d->path), err.msg);
        buf_free(&f.ids);
        return;
    }
    if (s->n_states == s->cap_states) {
        s->cap_states = s->cap_states ? 2 * s->cap_states : 64;
        s->states = mem_resize(s->states, sizeof *s->states * (size_t)s->cap_states);
    }
    memcpy(f.name, name, NAME + 1);
    s->states[s->n_states++] = f;
}

static void remove_file(struct disk *d, const char *name)
{
    if (d->read_only) return;
    join(&d->path, d->folder, name);
    (void)unlink(buf_str(&d->path));
}

/* Names of ours alone are touched: "s-" and "p-". What is more than the hash is a leftover, or was set aside by the last run. */
static void take_name(struct scan *s, const char *name)
{
    if ((name[0] != 's' && name[0] != 'p') || name[1] != '-') return;
    if (!is_hex(name + 2, CHAIN)) remove_file(s->d, name);
    else if (name[0] == 'p') take_page(s, name);
    else take_state(s, name);
}

/* ---- which states are whole ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int by_use(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

static int page_index(const struct scan *s, const char *chain)
{
    char name[NAME + 1] = "p-";
    memcpy(name + 2, chain, CHAIN_HEX);
    const char *at = s->n_pages ? bsearch(name, s->pages, (size_t)s->n_pages, sizeof *s->pages, by_name) : NULL;
    return at ? (int)((at - s->pages[0]) / (long)sizeof *s->pages) : -1;
}

static bool is_whole(struct scan *s, const struct found *f, bool mark)
{
    const int32_t *ids = (const int32_t *)(const void *)f->ids.data;
    int length = (int)(f->ids.len / sizeof *ids);
    char chain[CHAIN_HEX] = "";
    for (int at = 0; at < length; at += GRID) {
        state_chain(chain, ids + at);
        int i = page_index(s, chain);
        if (i < 0) return false;
        if (mark) s->needed[i] = true;
    }
    return true;
}

/* States in the order of their use, so that the clock goes on; then the pages that none of them needs go. */
static void index_states(struct scan *s)
{
    s->needed = mem_new(sizeof *s->needed * (size_t)(s->n_pages + 1));
    if (s->n_pages) qsort(s->pages, (size_t)s->n_pages, sizeof *s->pages, by_name);
    if (s->n_states) qsort(s->states, (size_t)s->n_states, sizeof *s->states, by_use);
    for (int i = 0; i < s->n_states; i++) {
        const struct found *f = &s->states[i];
        if (!is_whole(s, f, false)) {
            remove_file(s->d, f->name);
            continue;
        }
        (void)is_whole(s, f, true);
        disk_add(s->d, (const int32_t *)(const void *)f->ids.data, (int)(f->ids.len / sizeof(int32_t)));
    }
    for (int i = 0; i < s->n_pages; i++)
        if (!s->needed[i]) remove_file(s->d, s->pages[i]);
}

static lily_status scan_folder(struct disk *d, struct lily_err *err)
{
    struct scan s = {.d = d};
    DIR *dir = opendir(d->folder);
    if (!dir) {
        if (d->read_only) return LILY_OK; /* there is nothing to read */
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot read the folder: %s", d->folder, strerror(errno));
    }
    for (const struct dirent *e; (e = readdir(dir));) take_name(&s, e->d_name);
    closedir(dir);
    index_states(&s);
    for (int i = 0; i < s.n_states; i++) buf_free(&s.states[i].ids);
    free(s.states);
    free(s.pages);
    free(s.needed);
    return LILY_OK;
}

/* ---- other keys ---- */

/* The names that lily gives to files of a key's folder. */
static bool is_ours(const char *name)
{
    const char *end = name + 2 + CHAIN;
    if (strcmp(name, lock_name) == 0) return true;
    if ((name[0] != 's' && name[0] != 'p') || name[1] != '-' || strspn(name + 2, "0123456789abcdef") != CHAIN) return false;
    return !*end || strcmp(end, ".damaged") == 0 || strncmp(end, ".lily-tmp-", 10) == 0;
}

/* A folder that lily has made: a link, or one without a lock file, is somebody else's, whatever its name. */
static bool is_key_folder(const char *path)
{
    struct buf lock = {0};
    struct stat sb;
    join(&lock, path, lock_name);
    bool made = lstat(path, &sb) == 0 && S_ISDIR(sb.st_mode) && lstat(buf_str(&lock), &sb) == 0 && S_ISREG(sb.st_mode);
    buf_free(&lock);
    return made;
}

/* Calls each for every folder of another key. */
static void each_foreign(struct disk *d, void (*each)(void *ctx, const char *path), void *ctx)
{
    DIR *dir = opendir(d->dir);
    struct buf path = {0};
    if (!dir) return;
    for (const struct dirent *e; (e = readdir(dir));) {
        if (!is_hex(e->d_name, FOLDER) || strncmp(e->d_name, d->key, FOLDER) == 0) continue;
        join(&path, d->dir, e->d_name);
        if (is_key_folder(buf_str(&path))) each(ctx, buf_str(&path));
    }
    closedir(dir);
    buf_free(&path);
}

struct measure {
    size_t bytes;
    double used; /* of the newest file */
    bool remove;
};

static void go_through(const char *folder, struct measure *m)
{
    DIR *dir = opendir(folder);
    struct buf path = {0};
    struct stat sb;
    if (!dir) return;
    for (const struct dirent *e; (e = readdir(dir));) {
        join(&path, folder, e->d_name);
        if (!is_ours(e->d_name) || lstat(buf_str(&path), &sb) != 0 || !S_ISREG(sb.st_mode)) continue;
        m->bytes += (size_t)sb.st_size;
        if ((double)sb.st_mtim.tv_sec > m->used) m->used = (double)sb.st_mtim.tv_sec;
        if (m->remove && strcmp(e->d_name, lock_name) != 0) (void)unlink(buf_str(&path));
    }
    closedir(dir);
    if (m->remove) { /* the lock last: while it is there, nobody else takes the folder */
        join(&path, folder, lock_name);
        (void)unlink(buf_str(&path));
        (void)rmdir(folder);
    }
    buf_free(&path);
}

static void add_foreign(void *ctx, const char *path)
{
    struct measure m = {0};
    go_through(path, &m);
    *(size_t *)ctx += m.bytes;
}

/* Opens and locks a folder's lock file; -1: another process holds it, or it cannot be written. */
static int lock_folder(const char *folder)
{
    struct buf path = {0};
    join(&path, folder, lock_name);
    int fd = open(buf_str(&path), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    buf_free(&path);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        errno = EWOULDBLOCK;
        return -1;
    }
    return fd;
}

bool disk_is_removed(const struct disk *d)
{
    struct stat ours, there;
    struct buf path = {0};
    if (d->lock_fd < 0 || fstat(d->lock_fd, &ours) != 0) return false;
    join(&path, d->folder, lock_name);
    const bool found = lstat(buf_str(&path), &there) == 0, gone = !found && (errno == ENOENT || errno == ENOTDIR);
    buf_free(&path);
    return found ? ours.st_ino != there.st_ino || ours.st_dev != there.st_dev : gone;
}

struct oldest {
    char *path; /* owned */
    double used;
};

static void find_oldest(void *ctx, const char *path)
{
    struct oldest *o = ctx;
    struct measure m = {0};
    int fd = lock_folder(path);
    if (fd < 0) return; /* in use */
    close(fd);
    go_through(path, &m);
    if (o->path && m.used >= o->used) return;
    free(o->path);
    *o = (struct oldest){mem_dupz(path), m.used};
}

bool disk_drop_foreign(struct disk *d)
{
    struct oldest o = {0};
    size_t left = 0;
    each_foreign(d, find_oldest, &o);
    int fd = o.path ? lock_folder(o.path) : -1;
    if (fd >= 0) {
        struct measure m = {.remove = true};
        go_through(o.path, &m);
        close(fd); /* not before: nobody begins to write into what is being removed */
    }
    each_foreign(d, add_foreign, &left);
    bool less = left < d->foreign;
    if (less) log_note("prompt cache: %s belonged to another model, build or device, and made room", o.path ? o.path : d->dir);
    d->foreign = left;
    disk_note_size(d);
    free(o.path);
    return less;
}

lily_status disk_take(struct disk *d, struct lily_err *err)
{
    lily_status st = file_make_dirs(d->folder, err);
    if (st == LILY_OK) d->lock_fd = lock_folder(d->folder);
    d->read_only = d->lock_fd < 0;
    if (st == LILY_OK && d->read_only && errno != EWOULDBLOCK)
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write into the folder: %s", d->folder, strerror(errno));
    return st;
}

lily_status disk_scan(struct disk *d, struct lily_err *err)
{
    LILY_TRY(scan_folder(d, err));
    each_foreign(d, add_foreign, &d->foreign);
    return LILY_OK;
}
