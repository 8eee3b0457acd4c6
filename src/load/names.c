/* Tensor names: wrappers taken off, vision and MTP told apart. */
#include "load/names.h"

#include <string.h>

static bool starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static const char mlx_wrapper[] = "language_model.";
static const char hf_wrapper[] = "model.language_model.";

bool name_of_text_model(const char *name, struct buf *out)
{
    static const char *const skipped[] = {"vision_tower.", "visual.", "model.visual.", "mtp.", "model.mtp."};
    buf_clear(out);
    if (starts(name, hf_wrapper)) {
        buf_addz(out, "model.");
        buf_addz(out, name + sizeof hf_wrapper - 1);
    } else {
        buf_addz(out, starts(name, mlx_wrapper) ? name + sizeof mlx_wrapper - 1 : name);
    }
    for (size_t i = 0; i < sizeof skipped / sizeof skipped[0]; i++)
        if (starts(buf_str(out), skipped[i])) return false;
    return true;
}

bool name_of_mtp(const char *name, struct buf *out)
{
    const char *own = starts(name, "model.mtp.") ? name + sizeof "model." - 1 : name;
    buf_clear(out);
    if (!starts(own, "mtp.")) return false;
    buf_addz(out, own);
    return true;
}

bool name_is_hf_form(const char *name)
{
    return starts(name, hf_wrapper) || strstr(name, ".mlp.experts.") != NULL;
}
