/*
 * The environment: the only place that reads it. Everything else is an option of a command. Call early, from one thread;
 * returned strings are views of the environment.
 */
#ifndef LILY_BASE_ENV_H
#define LILY_BASE_ENV_H

#include "base/buf.h"

const char *env_model(void); /* LILY_MODEL, or NULL */
/* The cache folder for `kind` ("tokenizer", "packed", …): $XDG_CACHE_HOME/lily/kind or ~/.cache/lily/kind; "" if there is no home. */
void env_cache_dir(const char *kind, struct buf *out);

#endif
