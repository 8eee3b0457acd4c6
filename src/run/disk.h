/*
 * Saved states on disk: an index of one folder, its quota, and a save that goes on part by part while the engine works.
 *
 * The folder DIR/KEY holds "s-HASH" for each state (its tokens, its recurrent and convolution part) and "p-HASH" for each KV
 * page, where HASH is that of the chain of tokens up to its end (run/state_file.h). So a page that several states share
 * is one file, written once. A page is removed with the last state that needs it. Files appear and vanish whole; a state's
 * file is written after its pages and removed before them. What cannot be read is named once, renamed to NAME.damaged, and
 * never used; those files are removed at the next start. A folder that is removed meanwhile is made anew, at once
 * or as soon as that is possible.
 *
 * KEY is a hash of all that the bits depend on: model, build, device, types. Folders of other keys count against the quota and
 * go first, unless another process holds them. A folder that another process holds, or that cannot be written, is only read.
 *
 * Threads: the engine thread (a writer thread works below). Lifetime: the counters outlive it. Owned: disk_close.
 */
#ifndef LILY_RUN_DISK_H
#define LILY_RUN_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "run/cache_counters.h"

struct disk;
struct disk_read;

struct disk_options {
    const char *dir; /* made when it is not there */
    size_t quota;    /* bytes of all files below dir that are lily's */
    const char *key; /* 64 hex digits */
    size_t fixed_bytes, page_bytes; /* of a state's parts */
    struct cache_counters *counters;
    void (*wake)(void *); /* the writer has room again; on its thread; may be NULL */
    void *wake_ctx;
};

lily_status disk_open(const struct disk_options *o, struct disk **out, struct lily_err *err);
void disk_close(struct disk *d); /* NULL is fine; what was given for writing is written first */
size_t disk_memory(const struct disk *d); /* bytes: the index, and the parts that may be on their way to the writer */

/* The length of the deepest whole state that is a proper prefix of ids; 0: none. */
int disk_depth(const struct disk *d, const int32_t *ids, int n);

/* A state that is being read: ctx of disk_read_part, which any thread may call (backend.h, border_source). ids are borrowed until the end. */
struct disk_read *disk_read_begin(struct disk *d, const int32_t *ids, int length);
lily_status disk_read_part(void *ctx, int part, size_t at, size_t n, void *out, struct lily_err *err);
/*
 * Frees it. Where a part failed with LILY_ERR_FORMAT it was damaged and is set aside, with LILY_ERR_IO it is gone; in both cases
 * the states that need it are no longer there now.
 */
void disk_read_end(struct disk_read *r);
/* The state was used: it counts as newly used, also for the next process. */
void disk_used(struct disk *d, const int32_t *ids, int length);

/* ---- saving, one state at a time ---- */

/* Whether a save may begin now: the folder can be written, or made again, no save is going on, and neither failed a moment ago. */
bool disk_can_save(struct disk *d);
/*
 * Where somebody has removed the folder or moved it away since it was opened, makes it again: true, and what was there is forgotten. Where it
 * cannot be made, as when a file lies in its place, nothing is read nor written until a later call can. No save is going on.
 */
bool disk_renew(struct disk *d);
/*
 * Begins to save the state of ids[0 … length-1], making room under the quota from what is worth less. hits: uses so far.
 * False when it is there already, or is not worth what it would push out.
 */
bool disk_save_begin(struct disk *d, const int32_t *ids, int length, int hits);
enum { DISK_WAIT = -3, DISK_ALL_GIVEN = -2 };
/* The part that is wanted next (a page, or BORDER_FIXED as the last one), DISK_WAIT when the writer has no room, DISK_ALL_GIVEN. */
int disk_save_next(struct disk *d);
/* Memory for that part, to be filled, and then given with disk_save_put. NULL: there is none, and the save is given up. */
void *disk_save_buffer(struct disk *d);
void disk_save_put(struct disk *d);
/* The state cannot be read any more: what was written of it goes. */
void disk_save_abort(struct disk *d);
bool disk_is_saving(const struct disk *d);
/* Sees what the writer has done: 1 when a save has just come to its end, -1 when it has failed, else 0. Call now and then. */
int disk_poll(struct disk *d);
/* Waits for the writer. */
void disk_wait(struct disk *d, double ms);

#endif
