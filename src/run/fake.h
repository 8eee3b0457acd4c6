/*
 * A runner that plays a script instead of a model (docs/fake-engine.md): token texts, delays, errors, slow prompts, crashes.
 * It needs the texts of a checkpoint, no weights. Owned: ops->free.
 */
#ifndef LILY_RUN_FAKE_H
#define LILY_RUN_FAKE_H

#include "run/runner.h"

/* texts is borrowed. Errors name the file and the field. */
lily_status fake_open(const char *path, const struct bundle *texts, int n_slots, int ctx, struct runner **out,
                      struct lily_err *err);

#endif
