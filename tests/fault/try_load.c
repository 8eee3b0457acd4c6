/* Loading a folder and reading every value of it. */
#include "try_load.h"

#include <stdlib.h>

#include "base/mem.h"
#include "load/checkpoint.h"
#include "load/inventory.h"

struct reading {
    const struct checkpoint *c;
    float sum; /* depends on every value, so that no read is optimised away */
};

static float sum_module(const struct module_view *m)
{
    float sum = 0, *row = mem_new((size_t)m->cols * sizeof *row);
    for (int e = 0; e < m->n_experts; e++)
        for (int r = 0; r < m->rows; r++) {
            module_row(m, e, r, row);
            for (int i = 0; i < m->cols; i++) sum += row[i];
        }
    free(row);
    return sum + module_element(m, m->n_experts - 1, m->rows - 1, m->cols - 1);
}

static lily_status read_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct reading *r = arg;
    if (item->is_module) {
        struct module_view m;
        LILY_TRY(checkpoint_module(r->c, &(struct module_want){item->path, item->experts, item->rows, item->cols}, &m, err));
        r->sum += sum_module(&m);
        checkpoint_drop(r->c, &m);
        return LILY_OK;
    }
    size_t n = (size_t)item->rows * (size_t)item->cols;
    float *v = mem_new(n * sizeof *v);
    lily_status st = checkpoint_vector(r->c, item->path, n, v, err);
    for (size_t i = 0; i < n && st == LILY_OK; i++) r->sum += v[i];
    free(v);
    return st;
}

lily_status try_load(const char *dir, struct lily_err *err)
{
    static volatile float sink;
    struct model_config config;
    struct checkpoint *c = NULL;
    LILY_TRY(config_load(dir, &config, err));
    lily_status st = checkpoint_open(dir, &config, &c, err);
    if (st == LILY_OK) st = checkpoint_check(c, &config, err);
    struct reading r = {c, 0};
    if (st == LILY_OK) st = inventory_walk(&config.shape, read_item, &r, err);
    sink = r.sum;
    (void)sink;
    checkpoint_close(c);
    config_free(&config);
    return st;
}
