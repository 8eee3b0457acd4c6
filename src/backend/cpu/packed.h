/*
 * The packed file: every matrix of a model in the tiles of cpu/kernels.h, written once and mapped from then on.
 *
 * Layout (little-endian): a header of 4096 bytes; the table, an entry a matrix; the hashes, one XXH3-128 for each 4 MiB of the
 * rest; padding to 2 MiB; the matrices, each at a multiple of 4096. The header has the layout's version, the key of the
 * checkpoint that the file was made from, the file's size, and a SHA-256 over the table and the hashes. PACKED_VERSION
 * changes with any change of the layout or of a tile: a file of another version is not read.
 *
 * Trust. Opening checks header, table and every place in the file, so that no content can make lily read outside of it. The
 * matrices themselves are held against their hashes by packed_verify (some seconds for 20 GB): after a writing that was
 * not ours, told by the file's times in a small stamp beside it (PATH.stamp), or when asked.
 *
 * Threads: a struct packed is immutable; any thread. A writer belongs to one thread; its pool helps. Lifetime: matrices found
 * in a file die with it.
 */
#ifndef LILY_BACKEND_CPU_PACKED_H
#define LILY_BACKEND_CPU_PACKED_H

#include "backend/cpu/matrix.h"

enum { PACKED_VERSION = 1 };
#define PACKED_MAGIC "lilypack"

struct packed;

/*
 * Maps the file. LILY_ERR_FORMAT: it is damaged, or not of this version; the message names it. LILY_ERR_USAGE: it was made from
 * another checkpoint than key says.
 */
lily_status packed_open(const char *path, const char key[65], struct packed **out, struct lily_err *err);
void packed_close(struct packed *p); /* NULL is fine */
const char *packed_hash(const struct packed *p); /* 64 hex digits of a hash of all that is in it */
size_t packed_bytes(const struct packed *p); /* of the whole file */

/* The matrix of that name with the geometry of want: *out views it. False: the file has no such matrix. */
bool packed_find(const struct packed *p, const char *name, const struct matrix *want, struct matrix *out);

/* Whether the file has been left alone since it was written or last verified. */
bool packed_is_stamped(const char *path);
/* Holds all matrices against their hashes, then stamps the file. LILY_ERR_FORMAT names the place of the damage. */
lily_status packed_verify(const struct packed *p, struct pool *pool, struct lily_err *err);
/* Brings all of the file into memory, with a progress bar, so that no first use waits for the disk. */
void packed_populate(const struct packed *p, struct pool *pool);

struct packed_writer;

/* Begins a file for n matrices beside path. The folder exists. */
lily_status packed_create(const char *path, const char key[65], int n, struct packed_writer **out, struct lily_err *err);
/* The next matrix; name is what packed_find is asked for (the name of its weight tensor). */
lily_status packed_add(struct packed_writer *w, const char *name, const struct module_view *src, struct pool *pool, struct lily_err *err);
/* Completes the file under its name and stamps it; frees the writer. On failure nothing is left behind. */
lily_status packed_finish(struct packed_writer *w, struct lily_err *err);
void packed_abandon(struct packed_writer *w); /* NULL is fine */

#endif
