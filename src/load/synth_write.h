/*
 * Writing a synthetic checkpoint: into a folder, or as one stream (its shards one after another, nothing between).
 *
 * Words are made in blocks by all threads of the pool but one, which writes the block before; memory is a few blocks.
 * Threads: one caller at a time per pool.
 */
#ifndef LILY_LOAD_SYNTH_WRITE_H
#define LILY_LOAD_SYNTH_WRITE_H

#include "base/pool.h"
#include "load/synth.h"

/* The shards, each atomically, with a progress bar. DIR exists. */
lily_status synth_write_shards(const struct synth_plan *p, const char *dir, struct pool *pool, struct lily_err *err);
/* All shards to a descriptor (borrowed). `name` is for messages. */
lily_status synth_write_stream(const struct synth_plan *p, int fd, const char *name, struct pool *pool, struct lily_err *err);

#endif
