/*
 * Files: read-only mappings, bounded whole-file reads, atomic writes, directory helpers. Any thread; each struct
 * file_map belongs to one owner.
 */
#ifndef LILY_BASE_FILE_H
#define LILY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct file_map {
    const uint8_t *data; /* owned mapping, read-only; any alignment inside; readable, too, where size is 0; NULL: closed */
    size_t size;
};

/* Maps a regular file. A file that shrinks while mapped raises SIGBUS, which the program makes an error. */
lily_status file_map_open(const char *path, struct file_map *out, struct lily_err *err);
void file_map_close(struct file_map *map);
/* Tells the system that a range of the mapping is no longer needed (whole pages inside it are dropped). */
void file_map_drop(const struct file_map *map, size_t offset, size_t size);

/* Reads a whole regular file of at most max_bytes into out (appended). */
lily_status file_read(const char *path, size_t max_bytes, struct buf *out, struct lily_err *err);

/* The same, but only the last max_bytes of a longer file. */
lily_status file_read_end(const char *path, size_t max_bytes, struct buf *out, struct lily_err *err);

/* Sets the hint about a file of n bytes whose text ends too early. */
void file_hint_cut(struct lily_err *err, size_t n);

/*
 * A new temporary file beside path, PATH.lily-tmp-XXXXXX; its descriptor, or -1 with errno; its name is appended. Temporary files
 * that nobody has written to for an hour are removed from the folder first: their writers were killed.
 */
int file_make_tmp(const char *path, struct buf *name);
/*
 * Writes through one, fsync, rename: readers see the old file or the new one. The file is its owner's alone (0600), as is what holds or
 * was made of prompts; file_write_shared leaves that to the umask: models.
 */
lily_status file_write_atomic(const char *path, const void *data, size_t n, struct lily_err *err);
lily_status file_write_shared(const char *path, const void *data, size_t n, struct lily_err *err);
/* Lets those read a new file whom the umask lets, as if open had made it: mkostemp makes it its owner's. */
void file_share(int fd);

/* The same (shared or not) for a file that a user has named: through a link, and into a device or a pipe, neither of which is replaced. */
lily_status file_write_named(const char *path, const void *data, size_t n, bool shared, struct lily_err *err);
/*
 * That nothing of a user's is lost by writing path anew: nothing is there, or an empty regular file, or one that begins with magic (at
 * most 16 bytes). Else LILY_ERR_USAGE, which says that the file is no `what`, or a link; LILY_ERR_IO when it is no regular one.
 */
lily_status file_may_replace(const char *path, const char *magic, const char *what, struct lily_err *err);

/* Whether the name is taken. A link that leads nowhere takes it too, so that opening it says what is wrong. */
bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* mkdir -p with mode 0700 for what is created, or as the umask has it. */
lily_status file_make_dirs(const char *path, struct lily_err *err);
/* The folder that holds path, "." where it names none; owned. */
char *file_folder(const char *path);
lily_status file_make_shared_dirs(const char *path, struct lily_err *err);
/* "dir/name" into out (cleared first). */
void file_join(struct buf *out, const char *dir, const char *name);

#endif
