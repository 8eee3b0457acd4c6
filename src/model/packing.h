/*
 * Packed files of a model: where they lie, which one a run takes, and making one (backend/cpu/packed.h has the format).
 *
 * A run without a wish looks for a file of the checkpoint's key in the cache folder, then for packed.lily in the model's own
 * folder. A file of another checkpoint or version is passed over; a damaged one is set aside (renamed to NAME.damaged) with a
 * warning, and the run packs in memory. Threads: the main one.
 */
#ifndef LILY_MODEL_PACKING_H
#define LILY_MODEL_PACKING_H

#include "backend/cpu/packed.h"
#include "base/buf.h"
#include "load/checkpoint.h"

/* Where `lily pack` puts the file of this checkpoint unless told: in the cache folder; "" if there is no home. */
void packing_path(const struct checkpoint *ck, struct buf *out);
/* The file that a run of this checkpoint would take, by its name and key alone; "" if none is there. dir: NULL, or the model's. */
void packing_find(const struct checkpoint *ck, const char *dir, struct buf *out);

/*
 * Opens the file for a run: wish NULL, as packing_find says; "none", no file; else that file, which must fit (its errors come
 * through). *out is NULL when the run has to pack in memory. Owned. The pool checks the file where that is due.
 */
lily_status packing_open(const struct checkpoint *ck, const char *dir, const char *wish, struct pool *pool, struct packed **out,
                         struct lily_err *err);

/* That a packed file of that name replaces no file of another kind (LILY_ERR_USAGE). */
lily_status packing_may_write(const char *path, struct lily_err *err);
/* Packs a whole checkpoint into a file, with a progress bar; memory is some 40 MB. The folder of path is made. */
lily_status packing_write(const struct checkpoint *ck, const struct model_config *config, const char *path, struct pool *pool,
                          struct lily_err *err);

#endif
