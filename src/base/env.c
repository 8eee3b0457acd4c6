/* Reading the environment. */
#include "base/env.h"

#include <stdlib.h>
#include <string.h>

static const char *non_empty(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

const char *env_model(void)
{
    return non_empty("LILY_MODEL");
}

const char *env_cuda_plugin(void)
{
    return non_empty("LILY_CUDA_PLUGIN");
}

void env_cache_dir(const char *kind, struct buf *out)
{
    const char *cache = non_empty("XDG_CACHE_HOME"), *home = non_empty("HOME");
    buf_clear(out);
    if (cache && cache[0] == '/') buf_printf(out, "%s/lily/%s", cache, kind);
    else if (home) buf_printf(out, "%s/.cache/lily/%s", home, kind);
}

void env_state_dir(struct buf *out)
{
    const char *state = non_empty("XDG_STATE_HOME"), *home = non_empty("HOME");
    buf_clear(out);
    if (state && state[0] == '/') buf_printf(out, "%s/lily", state);
    else if (home) buf_printf(out, "%s/.local/state/lily", home);
}

void env_hub_dir(struct buf *out)
{
    const char *hub = non_empty("HF_HUB_CACHE"), *hf = non_empty("HF_HOME"), *cache = non_empty("XDG_CACHE_HOME");
    const char *home = non_empty("HOME");
    buf_clear(out);
    if (hub) buf_addz(out, hub);
    else if (hf) buf_printf(out, "%s/hub", hf);
    else if (cache && cache[0] == '/') buf_printf(out, "%s/huggingface/hub", cache);
    else if (home) buf_printf(out, "%s/.cache/huggingface/hub", home);
}

const char *env_hub_endpoint(void)
{
    const char *endpoint = non_empty("HF_ENDPOINT");
    return endpoint ? endpoint : "https://huggingface.co";
}

const char *env_hub_token(void)
{
    return non_empty("HF_TOKEN");
}

bool env_color(void)
{
    const char *term = non_empty("TERM");
    return term && strcmp(term, "dumb") != 0 && !non_empty("NO_COLOR");
}
