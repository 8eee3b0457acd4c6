/*
 * Whose states are these: a hash of everything that their bits depend on. The model's weights and shape, the program that runs
 * (its file, so that no change of a kernel or a compiler goes unseen), the device's code path and types. Any thread.
 */
#ifndef LILY_RUN_STATE_KEY_H
#define LILY_RUN_STATE_KEY_H

#include "model/model.h"

/* 64 hex digits and a NUL. The model was opened with identify. */
lily_status state_key(struct model *m, char key[65], struct lily_err *err);

#endif
