/* The cost of a pass, summed over the inventory. */
#include "model/cost.h"

#include <math.h>
#include <string.h>

#include "load/inventory.h"

struct summing {
    const struct model_config *config;
    double rows;           /* tokens of the pass */
    double bytes, ops;     /* of the pass */
};

static lily_status add_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct summing *s = arg;
    (void)err;
    double n = (double)item->rows * item->cols; /* of one expert */
    if (!item->is_module) {
        s->bytes += 2 * n;
        return LILY_OK;
    }
    int bits = config_quant_rule(s->config, item->path).bits;
    double bytes = bits ? n * bits / 8 + 4 * n / QUANT_GROUP : 2 * n;
    if (strcmp(item->path, "model.embed_tokens") == 0) {
        s->bytes += s->rows * bytes / item->rows; /* a row a token */
    } else if (item->experts) {
        double e = item->experts, touched = e * (1 - pow(1 - EXPERTS_PER_TOKEN / e, s->rows));
        s->bytes += touched * bytes;
        s->ops += 2 * n * EXPERTS_PER_TOKEN * s->rows;
    } else {
        s->bytes += bytes;
        s->ops += 2 * n * (strcmp(item->path, "lm_head") == 0 ? 1 : s->rows);
    }
    return LILY_OK;
}

/* rows tokens behind `before` others. */
static struct pass_cost cost_of(const struct model_config *c, double before, double rows, int kv_bytes)
{
    const struct model_shape *s = &c->shape;
    struct summing sum = {.config = c, .rows = rows};
    inventory_walk(s, add_item, &sum, NULL);
    double keys = rows * before + rows * (rows + 1) / 2; /* pairs of a query and a key, of one head */
    sum.ops += (double)s->n_full * s->n_q_heads * 4 * HEAD_DIM * keys;
    sum.ops += (double)s->n_linear * s->n_gdn_v_heads * 7 * GDN_DIM * GDN_DIM * rows;
    sum.bytes += (double)shape_kv_bytes(s, (size_t)kv_bytes) * (before + rows);
    sum.bytes += 2 * sizeof(float) * (double)(shape_recurrent_floats(s) + shape_conv_floats(s));
    return (struct pass_cost){sum.bytes, sum.ops};
}

struct pass_cost cost_decode(const struct model_config *c, int n, int kv_bytes)
{
    return cost_of(c, n, 1, kv_bytes);
}

struct pass_cost cost_prefill(const struct model_config *c, int n, int kv_bytes)
{
    return cost_of(c, 0, n, kv_bytes);
}
