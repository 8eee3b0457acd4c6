/*
 * The one symbol of the plug-in, lily_cuda_plugin, and the table behind it. Program and plug-in must come from one build:
 * the fingerprint covers the version and the sizes of the structures that cross.
 */
#ifndef LILY_BACKEND_CUDA_PLUGIN_H
#define LILY_BACKEND_CUDA_PLUGIN_H

#include "backend/cuda/cuda.h"

struct cuda_plugin {
    size_t fingerprint;
    lily_status (*probe)(int device, struct cuda_card *out, struct lily_err *err);
    lily_status (*open)(const struct cuda_options *o, struct backend **out, struct lily_err *err);
    lily_status (*peek)(struct backend *be, enum cuda_peek what, int row, float *out, size_t n, struct lily_err *err);
};

typedef const struct cuda_plugin *(*cuda_plugin_fn)(void);

static inline size_t cuda_fingerprint(void)
{
    size_t h = 1;
    const size_t sizes[] = {sizeof(struct backend_ops), sizeof(struct batch), sizeof(struct cuda_options), sizeof(struct backend),
                            sizeof(struct module_view), sizeof(struct cuda_card), sizeof(struct cuda_plugin)};
    const char version[] = LILY_VERSION;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) h = h * 1000003u + sizes[i];
    for (size_t i = 0; i < sizeof version; i++) h = h * 1000003u + (size_t)version[i];
    return h;
}

#endif
