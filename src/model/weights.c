/* Binding and packing the weights of a checkpoint (MODEL.md, Tensors). */
#include "model/weights.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/model.h"
#include "spec/synth.h"

struct loader {
    struct backend *be;          /* borrowed */
    const struct checkpoint *ck; /* borrowed */
    const struct model_shape *s;
    char prefix[64]; /* "model.layers.3." or "model." */
    struct progress progress;
    size_t total;
    struct load_watch *watch; /* borrowed; or NULL */
    const struct weights_sum *sum; /* borrowed; or NULL */
    size_t done;
};

struct matrix_want {
    const char *name; /* behind the prefix */
    int experts, rows, cols;
    struct matrix **out;
};

struct vector_want {
    const char *name;
    size_t n;
    struct vector **out;
};

/* The tensor's bytes, or the rule that stands for them, by their sum: trust is not at stake, and SHA-256 would take longer than packing. */
static void identify(struct loader *l, const struct tensor_view *t)
{
    if (!l->sum || !l->sum->matrices || !t->bytes) return;
    struct hash128 sum = t->data ? hash128_of(t->data, t->bytes) : (struct hash128){0};
    if (t->synth) sum = hash128_of(t->synth, sizeof *t->synth);
    sha256_add(l->sum->hash, &sum, sizeof sum);
}

static lily_status find_module(const struct loader *l, const struct matrix_want *w, struct module_view *out, struct lily_err *err)
{
    char path[160];
    snprintf(path, sizeof path, "%s%s", l->prefix, w->name);
    return checkpoint_module(l->ck, &(struct module_want){path, w->experts, w->rows, w->cols}, out, err);
}

static lily_status load_one_matrix(struct loader *l, const struct matrix_want *w, struct lily_err *err)
{
    struct module_view m;
    if (l->watch && atomic_load(&l->watch->stop)) LILY_FAIL(err, LILY_ERR_CANCELLED, "loading was stopped before %s%s", l->prefix, w->name);
    LILY_TRY(find_module(l, w, &m, err));
    identify(l, &m.weight);
    identify(l, &m.scales);
    identify(l, &m.biases);
    LILY_TRY(l->be->ops->load_matrix(l->be, &m, w->out, err));
    checkpoint_drop(l->ck, &m);
    l->done += m.weight.bytes + m.scales.bytes + m.biases.bytes;
    progress_at(&l->progress, (double)l->done);
    if (l->watch && l->total) atomic_store(&l->watch->thousandths, (int)(1000 * (double)l->done / (double)l->total));
    return LILY_OK;
}

static lily_status load_one_vector(struct loader *l, const struct vector_want *w, struct lily_err *err)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s", l->prefix, w->name);
    float *data = mem_try(w->n, sizeof *data);
    if (!data) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for %s", name);
    lily_status st = checkpoint_vector(l->ck, name, w->n, data, err);
    if (st == LILY_OK && l->sum) sha256_add(l->sum->hash, data, w->n * sizeof *data);
    if (st == LILY_OK) st = l->be->ops->load_vector(l->be, data, w->n, w->out, err);
    free(data);
    return st;
}

static lily_status load_all(struct loader *l, const struct matrix_want *m, int n_m, const struct vector_want *v, int n_v,
                            struct lily_err *err)
{
    for (int i = 0; i < n_m; i++) LILY_TRY(load_one_matrix(l, &m[i], err));
    for (int i = 0; i < n_v; i++) LILY_TRY(load_one_vector(l, &v[i], err));
    return LILY_OK;
}

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static lily_status load_gdn(struct loader *l, struct gdn_weights *w, struct lily_err *err)
{
    const struct model_shape *s = l->s;
    int conv = shape_conv_dim(s), value = shape_gdn_value_dim(s), heads = s->n_gdn_v_heads;
    const struct matrix_want m[] = {{"linear_attn.in_proj_qkv", 0, conv, s->hidden, &w->in_qkv},
                                    {"linear_attn.in_proj_z", 0, value, s->hidden, &w->in_z},
                                    {"linear_attn.in_proj_b", 0, heads, s->hidden, &w->in_b},
                                    {"linear_attn.in_proj_a", 0, heads, s->hidden, &w->in_a},
                                    {"linear_attn.out_proj", 0, s->hidden, value, &w->out}};
    const struct vector_want v[] = {{"input_layernorm.weight", (size_t)s->hidden, &w->norm},
                                    {"linear_attn.conv1d.weight", (size_t)conv * CONV_WIDTH, &w->conv},
                                    {"linear_attn.A_log", (size_t)heads, &w->a_log},
                                    {"linear_attn.dt_bias", (size_t)heads, &w->dt_bias},
                                    {"linear_attn.norm.weight", GDN_DIM, &w->out_norm}};
    return load_all(l, m, COUNT(m), v, COUNT(v), err);
}

static lily_status load_attn(struct loader *l, struct attn_weights *w, struct lily_err *err)
{
    const struct model_shape *s = l->s;
    int q = s->n_q_heads * HEAD_DIM, kv = s->n_kv_heads * HEAD_DIM;
    const struct matrix_want m[] = {{"self_attn.q_proj", 0, 2 * q, s->hidden, &w->q},
                                    {"self_attn.k_proj", 0, kv, s->hidden, &w->k},
                                    {"self_attn.v_proj", 0, kv, s->hidden, &w->v},
                                    {"self_attn.o_proj", 0, s->hidden, q, &w->o}};
    const struct vector_want v[] = {{"input_layernorm.weight", (size_t)s->hidden, &w->norm},
                                    {"self_attn.q_norm.weight", HEAD_DIM, &w->q_norm},
                                    {"self_attn.k_norm.weight", HEAD_DIM, &w->k_norm}};
    return load_all(l, m, COUNT(m), v, COUNT(v), err);
}

static lily_status need_same_bits(const struct loader *l, const struct matrix_want *a, const struct matrix_want *b, struct lily_err *err)
{
    struct module_view x, y;
    LILY_TRY(find_module(l, a, &x, err));
    LILY_TRY(find_module(l, b, &y, err));
    if (x.bits == y.bits) return LILY_OK;
    err_set(err, LILY_ERR_UNSUPPORTED, "%s%s has %d bits and %s %d: this device multiplies the two together and needs the same", l->prefix, a->name, x.bits,
            b->name, y.bits);
    err_hint(err, "run with --device cpu");
    return LILY_ERR_UNSUPPORTED;
}

static lily_status load_moe(struct loader *l, struct moe_weights *w, struct lily_err *err)
{
    const struct model_shape *s = l->s;
    int h = s->hidden, e = s->n_experts, i = s->expert_dim, si = s->shared_dim;
    const struct matrix_want m[] = {{"mlp.gate", 0, e, h, &w->router},
                                    {"mlp.switch_mlp.gate_proj", e, i, h, &w->gate},
                                    {"mlp.switch_mlp.up_proj", e, i, h, &w->up},
                                    {"mlp.switch_mlp.down_proj", e, h, i, &w->down},
                                    {"mlp.shared_expert.gate_proj", 0, si, h, &w->shared_gate_proj},
                                    {"mlp.shared_expert.up_proj", 0, si, h, &w->shared_up},
                                    {"mlp.shared_expert.down_proj", 0, h, si, &w->shared_down},
                                    {"mlp.shared_expert_gate", 0, 1, h, &w->shared_gate}};
    const struct vector_want v[] = {{"post_attention_layernorm.weight", (size_t)h, &w->norm}};
    const int pairs[][2] = {{1, 2}, {4, 5}, {0, 7}};
    for (int p = 0; l->be->limits.pairs_alike && p < COUNT(pairs); p++) LILY_TRY(need_same_bits(l, &m[pairs[p][0]], &m[pairs[p][1]], err));
    return load_all(l, m, COUNT(m), v, COUNT(v), err);
}

static lily_status load_everything(struct loader *l, struct model_weights *w, struct lily_err *err)
{
    const struct model_shape *s = l->s;
    snprintf(l->prefix, sizeof l->prefix, "model.");
    const struct matrix_want embed = {"embed_tokens", 0, s->vocab, s->hidden, &w->embed};
    const struct vector_want norm = {"norm.weight", (size_t)s->hidden, &w->norm};
    LILY_TRY(load_all(l, &embed, 1, &norm, 1, err));
    for (int i = 0; i < s->n_layers; i++) {
        snprintf(l->prefix, sizeof l->prefix, "model.layers.%d.", i);
        if (s->is_full[i]) LILY_TRY(load_attn(l, &w->layers[i].attn, err));
        else LILY_TRY(load_gdn(l, &w->layers[i].gdn, err));
        LILY_TRY(load_moe(l, &w->layers[i].moe, err));
    }
    l->prefix[0] = 0;
    const struct matrix_want head = {"lm_head", 0, s->vocab, s->hidden, &w->head};
    return load_one_matrix(l, &head, err);
}

lily_status weights_load(struct backend *be, const struct checkpoint *ck, struct load_watch *watch, const struct weights_sum *sum, struct model_weights *out,
                         struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    out->n_layers = be->shape.n_layers;
    out->layers = mem_new(sizeof *out->layers * (size_t)out->n_layers);
    struct loader l = {.be = be, .ck = ck, .s = &be->shape, .total = checkpoint_text_bytes(ck), .watch = watch, .sum = sum};
    progress_begin(&l.progress, "loading", (double)l.total, "B");
    lily_status st = load_everything(&l, out, err);
    progress_end(&l.progress);
    if (st != LILY_OK) weights_free(be, out);
    return st;
}

/* A struct of nothing but matrix and vector pointers, in the order of its members. */
static void free_matrices(struct backend *be, struct matrix *const *m, int n)
{
    for (int i = 0; i < n; i++) be->ops->free_matrix(be, m[i]);
}

static void free_vectors(struct backend *be, struct vector *const *v, int n)
{
    for (int i = 0; i < n; i++) be->ops->free_vector(be, v[i]);
}

static void free_layer(struct backend *be, struct layer_weights *l)
{
    struct gdn_weights *g = &l->gdn;
    struct attn_weights *a = &l->attn;
    struct moe_weights *e = &l->moe;
    struct matrix *const m[] = {g->in_qkv, g->in_z, g->in_b, g->in_a,  g->out, a->q, a->k,
                                a->v,      a->o,    e->router, e->gate, e->up,  e->down,
                                e->shared_gate_proj, e->shared_up, e->shared_down, e->shared_gate};
    struct vector *const v[] = {g->norm, g->conv,   g->a_log,  g->dt_bias, g->out_norm,
                                a->norm, a->q_norm, a->k_norm, e->norm};
    free_matrices(be, m, COUNT(m));
    free_vectors(be, v, COUNT(v));
}

void weights_free(struct backend *be, struct model_weights *w)
{
    for (int i = 0; w->layers && i < w->n_layers; i++) free_layer(be, &w->layers[i]);
    struct matrix *const m[] = {w->embed, w->head};
    free_matrices(be, m, COUNT(m));
    free_vectors(be, &w->norm, 1);
    free(w->layers);
    memset(w, 0, sizeof *w);
}
