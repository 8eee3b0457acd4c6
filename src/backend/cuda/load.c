/* Finding and loading the CUDA plug-in, and what can be refused without it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/plugin.h"
#include "base/buf.h"
#include "base/env.h"

static const char file_name[] = "liblily-cuda.so";
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct cuda_plugin *plugin; /* of the process; NULL when there is none */
static char why[640];                    /* then, the reason */

static void *open_at(const char *path)
{
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        const char *e = dlerror();
        snprintf(why, sizeof why, "%s", e ? e : path);
    }
    return h;
}

/* Beside the program, then where it is installed, then the linker's places. The first file that is there counts. */
static void *open_somewhere(void)
{
    static const char *const places[] = {"", "../lib/lily/", "../lib/"};
    const char *given = env_cuda_plugin();
    char exe[400], path[512];
    if (given) return open_at(given);
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    if (slash) {
        slash[1] = 0;
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            snprintf(path, sizeof path, "%s%s%s", exe, places[i], file_name);
            if (access(path, R_OK) == 0) return open_at(path);
        }
    }
    return open_at(file_name);
}

static void load_once(void)
{
    void *h = open_somewhere();
    if (!h) return;
    cuda_plugin_fn get = NULL;
    void *symbol = dlsym(h, "lily_cuda_plugin");
    memcpy(&get, &symbol, sizeof get);
    plugin = get ? get() : NULL;
    if (plugin && plugin->fingerprint == cuda_fingerprint()) return;
    snprintf(why, sizeof why, "%s is of another build of lily than this program (%s)", file_name, LILY_VERSION);
    plugin = NULL;
}

static lily_status need_plugin(struct lily_err *err)
{
    pthread_once(&once, load_once);
    if (plugin) return LILY_OK;
    err_set(err, LILY_ERR_UNSUPPORTED, "no CUDA backend: %s", why);
    err_hint(err, "build the plug-in where nvcc is (make NVCC=...), or leave --device out to run on the CPU");
    return LILY_ERR_UNSUPPORTED;
}

lily_status cuda_probe(int device, struct cuda_card *out, struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    LILY_TRY(need_plugin(err));
    return plugin->probe(device, out, err);
}

lily_status cuda_check_shape(const struct model_shape *s, struct lily_err *err)
{
    enum { GQA = 8, EXPERTS = 256 };
    if (s->n_q_heads != GQA * s->n_kv_heads)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "CUDA: %d query heads on %d key-value heads, expected %d for each", s->n_q_heads,
                  s->n_kv_heads, GQA);
    if (s->n_experts > EXPERTS)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "CUDA: %d experts, expected at most %d", s->n_experts, EXPERTS);
    return LILY_OK;
}

lily_status cuda_backend_new(const struct cuda_options *o, struct backend **out, struct lily_err *err)
{
    *out = NULL;
    LILY_TRY(cuda_check_shape(&o->shape, err));
    LILY_TRY(need_plugin(err));
    return plugin->open(o, out, err);
}

lily_status cuda_peek(struct backend *be, enum cuda_peek what, int row, float *out, size_t n, struct lily_err *err)
{
    return plugin->peek(be, what, row, out, n, err);
}
