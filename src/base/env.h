/*
 * The environment: the only place that reads it. Everything else is an option of a command. Call early, from one thread;
 * returned strings are views of the environment.
 */
#ifndef LILY_BASE_ENV_H
#define LILY_BASE_ENV_H

#include <stdbool.h>

#include "base/buf.h"

const char *env_model(void); /* LILY_MODEL, or NULL */
const char *env_cuda_plugin(void); /* LILY_CUDA_PLUGIN, a file, or NULL */
/* The cache folder for `kind` ("tokenizer", "packed", …): $XDG_CACHE_HOME/lily/kind or ~/.cache/lily/kind; "" if there is no home. */
void env_cache_dir(const char *kind, struct buf *out);

/* The state folder for what should outlive caches (chat history): $XDG_STATE_HOME/lily or ~/.local/state/lily; "" if there is no home. */
void env_state_dir(struct buf *out);
/* The hub cache: $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub; "" if there is no home. */
void env_hub_dir(struct buf *out);
const char *env_hub_endpoint(void); /* HF_ENDPOINT, or https://huggingface.co */
const char *env_hub_token(void);    /* HF_TOKEN, or NULL */
bool env_color(void); /* terminal styles are welcome: TERM is set and not "dumb", and NO_COLOR is not set */

#endif
