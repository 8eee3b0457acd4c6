/* Holding a checkpoint against the inventory of its shape. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"
#include "load/entries.h"
#include "load/inventory.h"

struct checking {
    const struct checkpoint *c;
    const struct model_config *config;
    bool *used; /* per text tensor */
    int n_wanted, n_missing;
    char first[128]; /* name of the first missing tensor */
};

static void want_tensor(struct checking *k, const char *path, const char *suffix)
{
    const struct entry *e = suffix ? entries_find_part(k->c, path, suffix) : entries_find(k->c, path);
    k->n_wanted++;
    if (e)
        k->used[entries_index(k->c, e)] = true;
    else if (k->n_missing++ == 0)
        snprintf(k->first, sizeof k->first, "%s%s%s", path, suffix ? "." : "", suffix ? suffix : "");
}

/* Quantized by what is there, or, where nothing is there, by what config.json says. */
static bool looks_quantized(const struct checking *k, const char *path)
{
    const struct entry *weight = entries_find_part(k->c, path, "weight");
    if (entries_find_part(k->c, path, "scales") || entries_find_part(k->c, path, "biases")) return true;
    return weight ? weight->view.dtype == DTYPE_U32 : config_quant_rule(k->config, path).bits != 0;
}

static lily_status find_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct checking *k = arg;
    (void)err;
    want_tensor(k, item->path, item->is_module ? "weight" : NULL);
    if (item->is_module && looks_quantized(k, item->path)) {
        want_tensor(k, item->path, "scales");
        want_tensor(k, item->path, "biases");
    }
    return LILY_OK;
}

static lily_status check_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    const struct checking *k = arg;
    struct module_view m;
    struct module_want want = {item->path, item->experts, item->rows, item->cols};
    if (item->is_module) return checkpoint_module(k->c, &want, &m, err);
    return entry_check_vector(entries_find(k->c, item->path), (size_t)item->rows * (size_t)item->cols, err);
}

static lily_status refuse_leftovers(const struct checking *k, struct lily_err *err)
{
    int n = 0, first = 0;
    for (int i = checkpoint_n_tensors(k->c) - 1; i >= 0; i--)
        if (!k->used[i]) n++, first = i;
    if (n) {
        struct tensor_view t = checkpoint_tensor_at(k->c, first, NULL);
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: tensor %s is no part of this model (%s)", t.file, t.name, COUNT_TEXT(n, "such tensor"));
    }
    return LILY_OK;
}

static lily_status check_all(struct checking *k, struct lily_err *err)
{
    LILY_TRY(inventory_walk(&k->config->shape, find_item, k, err));
    if (k->n_missing)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %d of %d tensors are missing, the first is %s", entries_dir(k->c), k->n_missing,
                  k->n_wanted, k->first);
    LILY_TRY(inventory_walk(&k->config->shape, check_item, k, err));
    return refuse_leftovers(k, err);
}

lily_status checkpoint_check(const struct checkpoint *c, const struct model_config *config, struct lily_err *err)
{
    if (checkpoint_is_hf_form(c)) {
        err_set(err, LILY_ERR_UNSUPPORTED, "%s: tensors in Hugging Face form, expected the MLX layout", entries_dir(c));
        err_hint(err, "convert it with `lily quantize`, or use a converted model such as mlx-community/Qwen3.6-35B-A3B-4bit");
        return LILY_ERR_UNSUPPORTED;
    }
    struct checking k = {.c = c, .config = config};
    k.used = mem_try((size_t)checkpoint_n_tensors(c), sizeof *k.used);
    if (!k.used) LILY_FAIL(err, LILY_ERR_MEMORY, "%s: not enough memory to check the tensors", entries_dir(c));
    lily_status st = check_all(&k, err);
    free(k.used);
    return st;
}
