/* Choosing the device of a model. */
#include "model/device.h"

#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"

/* A card is fed best by long pieces; its rows do not depend on them. */
enum { CUDA_ROWS = 4096 };

bool model_device_parse(const char *text, enum model_device *device, int *card)
{
    static const char cuda[] = "cuda";
    size_t n = strlen(cuda);
    *card = CUDA_ANY;
    *device = strcmp(text, "auto") == 0 ? DEVICE_AUTO : strcmp(text, "cpu") == 0 ? DEVICE_CPU : DEVICE_CUDA;
    if (*device != DEVICE_CUDA || strcmp(text, cuda) == 0) return true;
    if (strncmp(text, cuda, n) != 0 || text[n] != ':' || !text[n + 1] || strlen(text + n + 1) > 4) return false;
    if (strspn(text + n + 1, "0123456789") != strlen(text + n + 1)) return false;
    *card = 0;
    for (const char *d = text + n + 1; *d; d++) *card = *card * 10 + (*d - '0');
    return true;
}

static lily_status choose_cuda(int card, const struct model_shape *s, struct device_choice *out, struct lily_err *err)
{
    struct cuda_card c;
    LILY_TRY(cuda_check_shape(s, err));
    LILY_TRY(cuda_probe(card, &c, err));
    out->cuda = true;
    out->card = c.device;
    out->memory = c.free;
    snprintf(out->name, sizeof out->name, "cuda %s", c.name);
    return LILY_OK;
}

lily_status device_choose(const struct model_options *o, const struct model_shape *s, struct device_choice *out, struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    if (o->device == DEVICE_CUDA) return choose_cuda(o->card, s, out, err);
    struct lily_err ignored = {0};
    if (o->device == DEVICE_AUTO && choose_cuda(CUDA_ANY, s, out, &ignored) == LILY_OK) return LILY_OK;
    if (!cpu_tier_runs(o->tier)) {
        err_set(err, LILY_ERR_USAGE, "the CPU tier %s does not run on this processor", cpu_tier_name(o->tier));
        err_hint(err, "the best one here is %s", cpu_tier_name(cpu_best_tier()));
        return LILY_ERR_USAGE;
    }
    snprintf(out->name, sizeof out->name, "cpu %s%s", cpu_tier_name(o->tier), o->fast ? " fast" : "");
    return LILY_OK;
}

int device_rows(const struct device_choice *d)
{
    return d->cuda ? CUDA_ROWS : 0;
}

lily_status device_backend(const struct device_choice *d, const struct model_options *o, const struct model_shape *s, size_t state_bytes,
                           struct backend **out, struct lily_err *err)
{
    if (d->cuda) {
        struct cuda_options c = {.shape = *s,
                                 .device = d->card,
                                 .max_rows = o->max_rows,
                                 .max_logits = o->max_rows,
                                 .kv_f32 = o->plan.kv_f32,
                                 .state_bytes = state_bytes};
        return cuda_backend_new(&c, out, err);
    }
    struct cpu_options c = {.shape = *s,
                            .threads = o->threads,
                            .tier = o->tier,
                            .fast = o->fast,
                            .max_rows = o->max_rows,
                            .max_logits = o->max_rows,
                            .kv_f32 = o->plan.kv_f32,
                            .state_bytes = state_bytes,
                            .pool = d->pool,
                            .packed = d->packed};
    return cpu_backend_new(&c, out, err);
}
