/* Planning a conversion: the inventory held against the source, names and shapes of what will be written, files. */
#include "load/convert_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "load/entries.h"
#include "load/safetensors.h"

enum { GATE_BITS = 8, OTHER_BITS = 4 };
static const int64_t shard_bytes = 5ll << 30; /* where mlx-lm begins a new file */

struct planning {
    const struct convert_want *want;
    struct convert_plan *plan;
    bool *used; /* per tensor of the source */
    int cap_jobs, cap_tensors;
};

static bool ends(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

bool convert_is_gate(const char *path)
{
    return ends(path, ".mlp.gate") || ends(path, ".mlp.shared_expert_gate");
}

/* Vectors that Hugging Face stores as w and uses as 1+w. */
static bool is_shifted_norm(const char *path)
{
    static const char *const names[] = {"layernorm.weight", ".q_norm.weight", ".k_norm.weight", "pre_fc_norm_embedding.weight",
                                        "pre_fc_norm_hidden.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (ends(path, names[i])) return true;
    return strcmp(path, "model.norm.weight") == 0 || strcmp(path, "mtp.norm.weight") == 0;
}

static void add_tensor(struct planning *p, const struct inventory_item *item, const char *suffix, struct tensor_decl d)
{
    struct convert_plan *plan = p->plan;
    struct buf name = {0};
    if (plan->n_tensors == p->cap_tensors) {
        p->cap_tensors = p->cap_tensors * 2 + 64;
        plan->tensors = mem_resize(plan->tensors, (size_t)p->cap_tensors * sizeof *plan->tensors);
        plan->shard = mem_resize(plan->shard, (size_t)p->cap_tensors * sizeof *plan->shard);
    }
    buf_printf(&name, "%s%s%s", p->want->prefix, item->path, suffix);
    d.name = buf_take(&name);
    plan->tensors[plan->n_tensors++] = d;
    plan->bytes_out += tensor_decl_bytes(&d);
}

static struct tensor_decl matrix(const struct inventory_item *item, enum dtype dtype, int64_t cols)
{
    struct tensor_decl d = {.dtype = dtype};
    if (item->experts) d.dim[d.n_dims++] = item->experts;
    d.dim[d.n_dims++] = item->rows;
    d.dim[d.n_dims++] = cols;
    return d;
}

static struct convert_job *add_job(struct planning *p, const struct entry *e)
{
    struct convert_plan *plan = p->plan;
    if (plan->n_jobs == p->cap_jobs) {
        p->cap_jobs = p->cap_jobs * 2 + 64;
        plan->jobs = mem_resize(plan->jobs, (size_t)p->cap_jobs * sizeof *plan->jobs);
    }
    struct convert_job *j = &plan->jobs[plan->n_jobs++];
    memset(j, 0, sizeof *j);
    j->source = e->view;
    j->tensor = plan->n_tensors;
    p->used[entries_index(p->want->source, e)] = true;
    return j;
}

/* Where a module's weights lie: in a tensor of their own, or as one half of gate_up_proj. */
struct place {
    const struct entry *entry;
    int half, halves; /* of each expert's rows */
};

static bool find_place(const struct checkpoint *c, const char *path, struct place *out)
{
    static const struct {
        const char *end, *source;
        int half, halves;
    } fused[] = {{".switch_mlp.gate_proj", ".experts.gate_up_proj", 0, 2},
                 {".switch_mlp.up_proj", ".experts.gate_up_proj", 1, 2},
                 {".switch_mlp.down_proj", ".experts.down_proj", 0, 1}};
    char name[128];
    *out = (struct place){entries_find_part(c, path, "weight"), 0, 1};
    for (size_t i = 0; i < sizeof fused / sizeof fused[0] && !out->entry; i++) {
        if (!ends(path, fused[i].end)) continue;
        snprintf(name, sizeof name, "%.*s%s", (int)(strlen(path) - strlen(fused[i].end)), path, fused[i].source);
        *out = (struct place){entries_find(c, name), fused[i].half, fused[i].halves};
    }
    return out->entry != NULL;
}

static lily_status check_shape(const struct tensor_view *t, const struct inventory_item *item, int halves, struct lily_err *err)
{
    struct tensor_view want = {.n_dims = 0};
    char found[SHAPE_TEXT], expected[SHAPE_TEXT];
    if (item->experts) want.dim[want.n_dims++] = item->experts;
    want.dim[want.n_dims++] = (int64_t)item->rows * halves;
    want.dim[want.n_dims++] = item->cols;
    if (t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_F32)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: tensor %s: dtype %s, expected BF16, F16 or F32", t->file, t->name,
                  dtype_name(t->dtype));
    if (t->n_dims != want.n_dims || memcmp(t->dim, want.dim, sizeof want.dim) != 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: shape %s, expected %s", t->file, t->name, shape_text(t, found),
                  shape_text(&want, expected));
    return LILY_OK;
}

static lily_status plan_module(struct planning *p, const struct inventory_item *item, struct lily_err *err)
{
    struct place place;
    if (!find_place(p->want->source, item->path, &place))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s.weight is missing", entries_dir(p->want->source), item->path);
    LILY_TRY(check_shape(&place.entry->view, item, place.halves, err));
    struct convert_job *j = add_job(p, place.entry);
    int64_t per_expert = (int64_t)item->rows * item->cols, experts = item->experts ? item->experts : 1;
    j->bits = !p->want->mtp && convert_is_gate(item->path) ? GATE_BITS : OTHER_BITS;
    j->run = place.halves > 1 ? per_expert : per_expert * experts;
    j->n_runs = place.halves > 1 ? experts : 1;
    j->stride = per_expert * place.halves;
    j->first = per_expert * place.half;
    j->groups = per_expert * experts / QUANT_GROUP;
    p->plan->bytes_in += per_expert * experts * (int64_t)dtype_bytes(j->source.dtype);
    add_tensor(p, item, ".weight", matrix(item, DTYPE_U32, item->cols / (32 / j->bits)));
    add_tensor(p, item, ".scales", matrix(item, DTYPE_BF16, item->cols / QUANT_GROUP));
    add_tensor(p, item, ".biases", matrix(item, DTYPE_BF16, item->cols / QUANT_GROUP));
    return LILY_OK;
}

static lily_status plan_vector(struct planning *p, const struct inventory_item *item, struct lily_err *err)
{
    const struct checkpoint *c = p->want->source;
    const struct entry *e = entries_find(c, item->path);
    int64_t n = (int64_t)item->rows * item->cols;
    if (!e) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s is missing", entries_dir(c), item->path);
    LILY_TRY(entry_check_vector(e, (size_t)n, err));
    struct convert_job *j = add_job(p, e);
    j->add_one = checkpoint_is_hf_form(c) && is_shifted_norm(item->path);
    j->n_runs = 1;
    j->run = n;
    p->plan->bytes_in += (int64_t)e->view.bytes;
    struct tensor_decl d = {.dtype = ends(item->path, ".A_log") ? e->view.dtype : DTYPE_BF16, .n_dims = 1, .dim = {n}};
    if (item->cols > 1) d = (struct tensor_decl){.dtype = d.dtype, .n_dims = 3, .dim = {item->rows, item->cols, 1}};
    add_tensor(p, item, "", d);
    return LILY_OK;
}

static lily_status plan_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    return item->is_module ? plan_module(arg, item, err) : plan_vector(arg, item, err);
}

/* As mlx-lm does: a new file where the next tensor would pass 5 GiB. */
static void assign_shards(struct convert_plan *plan)
{
    int64_t filled = 0;
    for (int i = 0; i < plan->n_tensors; i++) {
        int64_t bytes = tensor_decl_bytes(&plan->tensors[i]);
        if (i && filled + bytes > shard_bytes) {
            plan->n_shards++;
            filled = 0;
        }
        plan->shard[i] = plan->n_shards;
        filled += bytes;
    }
    plan->n_shards += plan->n_tensors > 0;
}

static lily_status refuse_leftovers(const struct planning *p, struct lily_err *err)
{
    for (int i = 0; i < checkpoint_n_tensors(p->want->source); i++) {
        struct tensor_view t = checkpoint_tensor_at(p->want->source, i, NULL);
        if (!p->used[i]) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: tensor %s is no part of this model", t.file, t.name);
    }
    return LILY_OK;
}

lily_status convert_plan_make(const struct convert_want *want, struct convert_plan *out, struct lily_err *err)
{
    struct planning p = {.want = want, .plan = out};
    memset(out, 0, sizeof *out);
    p.used = mem_new((size_t)checkpoint_n_tensors(want->source) * sizeof *p.used);
    lily_status st = want->mtp ? inventory_walk_mtp(&want->config->shape, want->config->n_mtp_layers, plan_item, &p, err)
                               : inventory_walk(&want->config->shape, plan_item, &p, err);
    if (st == LILY_OK) st = refuse_leftovers(&p, err);
    free(p.used);
    if (st == LILY_OK) assign_shards(out);
    else convert_plan_free(out);
    return st;
}

void convert_plan_free(struct convert_plan *p)
{
    for (int i = 0; i < p->n_tensors; i++) free((void *)(uintptr_t)p->tensors[i].name);
    free(p->jobs);
    free(p->tensors);
    free(p->shard);
    memset(p, 0, sizeof *p);
}
