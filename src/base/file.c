/* Files: mappings, bounded reads, atomic writes. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/* Opens a regular file for reading; *size gets its length. */
static lily_status open_regular(const char *path, int *fd, size_t *size, struct lily_err *err)
{
    /* O_NONBLOCK: a FIFO in place of a model file must not hang the open. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct stat sb;
    if (fstat(*fd, &sb) != 0 || !S_ISREG(sb.st_mode)) {
        close(*fd);
        LILY_FAIL(err, LILY_ERR_IO, "%s: not a regular file", path);
    }
    *size = (size_t)sb.st_size;
    return LILY_OK;
}

lily_status file_map_open(const char *path, struct file_map *out, struct lily_err *err)
{
    int fd;
    memset(out, 0, sizeof *out);
    LILY_TRY(open_regular(path, &fd, &out->size, err));
    if (out->size == 0) {
        close(fd);
        out->data = (const uint8_t *)""; /* so that no reader hands NULL to memcmp and its like */
        return LILY_OK;
    }
    void *p = mmap(NULL, out->size, PROT_READ, MAP_SHARED, fd, 0);
    int saved = errno;
    close(fd);
    if (p == MAP_FAILED) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot map: %s", path, strerror(saved));
    out->data = p;
    return LILY_OK;
}

void file_map_close(struct file_map *map)
{
    if (map->data && map->size) munmap((void *)(uintptr_t)map->data, map->size);
    memset(map, 0, sizeof *map);
}

void file_map_drop(const struct file_map *map, size_t offset, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t lo = (offset + page - 1) / page * page, hi = (offset + size) / page * page;
    if (map->data && hi > lo && hi <= map->size) madvise((void *)(uintptr_t)(map->data + lo), hi - lo, MADV_DONTNEED);
}

/* The next `size` bytes of a file, which is closed. */
static lily_status read_open(int fd, const char *path, size_t size, struct buf *out, struct lily_err *err)
{
    if (!buf_try_reserve(out, size)) {
        close(fd);
        LILY_FAIL(err, LILY_ERR_MEMORY, "%s: not enough memory for its %zu bytes", path, size);
    }
    size_t got = 0;
    while (got < size) {
        ssize_t n = read(fd, out->data + out->len, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int saved = errno;
            close(fd);
            LILY_FAIL(err, LILY_ERR_IO, "%s: cannot read: %s", path, strerror(saved));
        }
        if (n == 0) break;
        got += (size_t)n;
        out->len += (size_t)n;
    }
    out->data[out->len] = 0;
    close(fd);
    return LILY_OK;
}

lily_status file_read(const char *path, size_t max_bytes, struct buf *out, struct lily_err *err)
{
    int fd;
    size_t size;
    LILY_TRY(open_regular(path, &fd, &size, err));
    if (size > max_bytes) {
        close(fd);
        LILY_FAIL(err, LILY_ERR_LIMIT, "%s: %zu bytes, at most %zu are accepted", path, size, max_bytes);
    }
    return read_open(fd, path, size, out, err);
}

lily_status file_read_end(const char *path, size_t max_bytes, struct buf *out, struct lily_err *err)
{
    int fd;
    size_t size;
    LILY_TRY(open_regular(path, &fd, &size, err));
    if (size > max_bytes && lseek(fd, (off_t)(size - max_bytes), SEEK_SET) >= 0) size = max_bytes;
    return read_open(fd, path, size, out, err);
}

void file_hint_cut(struct lily_err *err, size_t n)
{
    err_hint(err, "the file is %s: copy or download it again", n ? "cut short" : "empty");
}

static lily_status write_all(int fd, const char *path, const void *data, size_t n, struct lily_err *err)
{
    const char *p = data;
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
        p += w;
        n -= (size_t)w;
    }
    return LILY_OK;
}

#define TMP_MARK ".lily-tmp-"
enum { TMP_LETTERS = 6, STALE_SECONDS = 3600 };

static bool is_tmp_name(const char *name)
{
    size_t n = strlen(name), end = sizeof TMP_MARK - 1 + TMP_LETTERS;
    return n > end && strncmp(name + n - end, TMP_MARK, sizeof TMP_MARK - 1) == 0;
}

char *file_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_dup(path, slash == path ? 1 : (size_t)(slash - path)) : mem_dupz(".");
}

/* Removes what writers that were killed have left in the folder of path; a living one does not take an hour. */
static void remove_stale(const char *path)
{
    char *dir = file_folder(path);
    DIR *d = opendir(dir);
    free(dir);
    if (!d) return;
    time_t now = time(NULL);
    struct stat sb;
    for (struct dirent *e; (e = readdir(d));)
        if (is_tmp_name(e->d_name) && fstatat(dirfd(d), e->d_name, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(sb.st_mode) &&
            sb.st_mtime < now - STALE_SECONDS)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

int file_make_tmp(const char *path, struct buf *name)
{
    remove_stale(path);
    buf_printf(name, "%s" TMP_MARK "XXXXXX", path);
    return mkostemp(name->data, O_CLOEXEC);
}

void file_share(int fd)
{
    mode_t mask = umask(077); /* it can be asked for only by setting it */
    umask(mask);
    if (fchmod(fd, 0666 & ~mask) != 0) return; /* a file system without modes */
}

static lily_status write_atomic(const char *path, const void *data, size_t n, bool shared, struct lily_err *err)
{
    struct buf tmp = {0};
    int fd = file_make_tmp(path, &tmp);
    lily_status st;
    if (fd < 0) {
        st = err_set(err, LILY_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
        goto out;
    }
    if (shared) file_share(fd);
    st = write_all(fd, path, data, n, err);
    if (st == LILY_OK && fsync(fd) != 0) st = err_set(err, LILY_ERR_IO, "%s: cannot flush: %s", path, strerror(errno));
    if (close(fd) != 0 && st == LILY_OK) st = err_set(err, LILY_ERR_IO, "%s: cannot close: %s", path, strerror(errno));
    if (st == LILY_OK && rename(tmp.data, path) != 0)
        st = err_set(err, LILY_ERR_IO, "%s: cannot rename into place: %s", path, strerror(errno));
    if (st != LILY_OK) unlink(tmp.data);
out:
    buf_free(&tmp);
    return st;
}

lily_status file_write_atomic(const char *path, const void *data, size_t n, struct lily_err *err)
{
    return write_atomic(path, data, n, false, err);
}

lily_status file_write_shared(const char *path, const void *data, size_t n, struct lily_err *err)
{
    return write_atomic(path, data, n, true, err);
}

/* A device, a pipe: written to as it is. */
static lily_status write_through(const char *path, const void *data, size_t n, struct lily_err *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    lily_status st = write_all(fd, path, data, n, err);
    if (close(fd) != 0 && st == LILY_OK) st = err_set(err, LILY_ERR_IO, "%s: cannot close: %s", path, strerror(errno));
    return st;
}

lily_status file_write_named(const char *path, const void *data, size_t n, bool shared, struct lily_err *err)
{
    struct stat sb;
    if (stat(path, &sb) == 0 && !S_ISREG(sb.st_mode) && !S_ISDIR(sb.st_mode)) return write_through(path, data, n, err);
    char *real = realpath(path, NULL); /* NULL: nothing is there, or a link to nothing */
    if (!real && file_exists(path)) LILY_FAIL(err, LILY_ERR_IO, "%s: a link that leads nowhere", path);
    lily_status st = write_atomic(real ? real : path, data, n, shared, err);
    free(real);
    return st;
}

lily_status file_may_replace(const char *path, const char *magic, const char *what, struct lily_err *err)
{
    int fd;
    size_t size, n = strlen(magic);
    char head[16];
    struct stat sb;
    if (lstat(path, &sb) != 0) return LILY_OK;
    if (S_ISLNK(sb.st_mode)) LILY_FAIL(err, LILY_ERR_USAGE, "%s: a link; name the file itself", path);
    LILY_TRY(open_regular(path, &fd, &size, err));
    bool ours = size == 0 || (n <= sizeof head && read(fd, head, n) == (ssize_t)n && memcmp(head, magic, n) == 0);
    close(fd);
    if (ours) return LILY_OK;
    err_set(err, LILY_ERR_USAGE, "%s: there is a file already that is no %s: it is not replaced", path, what);
    err_hint(err, "give another name, or remove it");
    return LILY_ERR_USAGE;
}

bool file_exists(const char *path)
{
    struct stat sb;
    return lstat(path, &sb) == 0 || (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG);
}

bool file_is_dir(const char *path)
{
    struct stat sb;
    return stat(path, &sb) == 0 && S_ISDIR(sb.st_mode);
}

static lily_status make_dirs(const char *path, mode_t mode, struct lily_err *err)
{
    if (!*path) LILY_FAIL(err, LILY_ERR_USAGE, "an empty path names no folder");
    char *copy = mem_dupz(path);
    lily_status st = LILY_OK;
    for (char *p = copy + 1;; p++) {
        if (*p && *p != '/') continue;
        char saved = *p;
        *p = 0;
        if (mkdir(copy, mode) != 0 && errno != EEXIST) {
            st = err_set(err, LILY_ERR_IO, "%s: cannot create the folder: %s", copy, strerror(errno));
            break;
        }
        *p = saved;
        if (!saved) break;
    }
    free(copy);
    if (st == LILY_OK && !file_is_dir(path)) LILY_FAIL(err, LILY_ERR_IO, "%s: exists and is not a folder", path);
    return st;
}

lily_status file_make_dirs(const char *path, struct lily_err *err)
{
    return make_dirs(path, 0700, err);
}

lily_status file_make_shared_dirs(const char *path, struct lily_err *err)
{
    return make_dirs(path, 0777, err);
}

void file_join(struct buf *out, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    buf_clear(out);
    buf_printf(out, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}
