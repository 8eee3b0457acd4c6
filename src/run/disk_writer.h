/*
 * The thread that writes and removes the files of the disk cache, in the order of the calls, so that a state is there only
 * when its pages are. At most a few parts wait for it, so that their memory is bounded.
 *
 * Threads: one owner calls; `wake` runs on the writer's thread. Owned: disk_writer_free, which first does what is left to do.
 */
#ifndef LILY_RUN_DISK_WRITER_H
#define LILY_RUN_DISK_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/state_file.h"

struct disk_writer;

lily_status disk_writer_start(void (*wake)(void *), void *wake_ctx, struct disk_writer **out, struct lily_err *err);
void disk_writer_free(struct disk_writer *w); /* NULL is fine */

/* Whether one more part may be given to it. */
bool disk_writer_has_room(struct disk_writer *w);
/* Seals a file (state_file_seal) and writes it atomically. It is moved (mem_big). `last`: the save is complete with it. */
void disk_writer_put(struct disk_writer *w, const char *path, const struct state_file_id *id, size_t payload, uint8_t *file, bool last);
void disk_writer_remove(struct disk_writer *w, const char *path);
/* Sets the file's time of change to now: that of its last use. */
void disk_writer_touch(struct disk_writer *w, const char *path);

/* What became of the present save: 0 still going on, 1 done, -1 failed (err is filled; what follows of it is not written). */
int disk_writer_outcome(struct disk_writer *w, struct lily_err *err);
/* A new save begins: the outcome of the last one is forgotten. */
void disk_writer_begin(struct disk_writer *w);
/* Waits until nothing is left to do, at most that long. */
void disk_writer_wait(struct disk_writer *w, double ms);

#endif
