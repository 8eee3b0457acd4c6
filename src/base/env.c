/* Reading the environment. */
#include "base/env.h"

#include <stdlib.h>

static const char *non_empty(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

const char *env_model(void)
{
    return non_empty("LILY_MODEL");
}

void env_cache_dir(const char *kind, struct buf *out)
{
    const char *cache = non_empty("XDG_CACHE_HOME"), *home = non_empty("HOME");
    buf_clear(out);
    if (cache && cache[0] == '/') buf_printf(out, "%s/lily/%s", cache, kind);
    else if (home) buf_printf(out, "%s/.cache/lily/%s", home, kind);
}
