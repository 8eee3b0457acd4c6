/* A loaded model: opening, closing, and the one forward pass of the family. */
#include "model/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "load/checkpoint.h"
#include "load/synth.h"
#include "model/device.h"
#include "model/packing.h"
#include "model/weights.h"

struct model {
    struct model_config config;   /* owned */
    struct checkpoint *ck;        /* owned; only while loading */
    struct backend *backend;      /* owned */
    struct packed *packed;        /* owned; outlives the backend; NULL: matrices were packed in memory */
    struct model_weights weights; /* owned */
    struct memory_plan plan;
    int threads;
    int kv_bytes;
    char key[65], identity[65];
    char device[sizeof ((struct device_choice *)0)->name];
    const struct pass *open; /* borrowed; the pass between whose layers we are; NULL: none */
};

void model_options_init(struct model_options *o)
{
    memset(o, 0, sizeof *o);
    o->tier = cpu_best_tier();
    o->device = DEVICE_CPU;
    o->card = -1;
    o->plan.n_seqs = 1;
}

static lily_status check_rows(const struct model_options *o, struct lily_err *err)
{
    if (o->max_rows < 0 || o->max_rows % GRID || o->max_rows > 65536)
        LILY_FAIL(err, LILY_ERR_USAGE, "prefill pieces of %d rows: expected a multiple of %d up to 65536", o->max_rows, GRID);
    return LILY_OK;
}

/* The device, and what it says about options that were left open. */
static lily_status settle(struct model *m, struct model_options *o, struct device_choice *device, struct lily_err *err)
{
    LILY_TRY(device_choose(o, &m->config.shape, device, err));
    memcpy(m->device, device->name, sizeof m->device);
    if (!o->max_rows) o->max_rows = device_rows(device);
    o->plan.max_rows = o->max_rows;
    if (!o->plan.limit) o->plan.limit = device->memory;
    return check_rows(o, err);
}

/* The packed file of a CPU run, if there is one. dir: the model's folder, or NULL. */
static lily_status open_packed(struct model *m, const char *dir, const struct model_options *o, struct device_choice *device,
                               struct lily_err *err)
{
    if (device->cuda) return LILY_OK;
    LILY_TRY(pool_create(m->threads, &device->pool, err));
    lily_status st = packing_open(m->ck, dir, o->packed, device->pool, &m->packed, err);
    if (st != LILY_OK) pool_free(device->pool);
    device->packed = m->packed;
    return st;
}

/* What of the configuration the bits depend on; a text, so that no padding is in it. */
static void identify_shape(const struct model_shape *s, struct sha256 *h)
{
    char text[256];
    int n = snprintf(text, sizeof text, "%d %d %d %d %d %d %d %d %d %d %a %a ", s->hidden, s->n_layers, s->vocab, s->n_q_heads, s->n_kv_heads,
                     s->n_gdn_k_heads, s->n_gdn_v_heads, s->n_experts, s->expert_dim, s->shared_dim, (double)s->rms_eps, s->rope_theta);
    sha256_add(h, text, (size_t)n);
    for (int i = 0; i < s->n_layers; i++) sha256_add(h, s->is_full[i] ? "f" : "l", 1);
}

static lily_status load_weights(struct model *m, const struct model_options *o, struct lily_err *err)
{
    struct weights_sum sum = {o->identify ? sha256_begin() : NULL, !m->packed};
    if (sum.hash) identify_shape(&m->config.shape, sum.hash);
    if (sum.hash && m->packed) sha256_add(sum.hash, packed_hash(m->packed), 64); /* it stands for the matrices: no second reading */
    lily_status st = weights_load(m->backend, m->ck, o->watch, sum.hash ? &sum : NULL, &m->weights, err);
    if (sum.hash) sha256_end(sum.hash, m->identity);
    return st;
}

/* Everything behind the checkpoint: check, plan, backend, weights. */
static lily_status load_checkpoint(struct model *m, const char *dir, const struct model_options *options, struct lily_err *err)
{
    struct model_options o = *options;
    struct device_choice device;
    LILY_TRY(settle(m, &o, &device, err));
    LILY_TRY(checkpoint_check(m->ck, &m->config, err));
    checkpoint_key(m->ck, false, m->key);
    LILY_TRY(plan_make(&m->config, &o.plan, &m->plan, err));
    o.max_rows = m->plan.rows;
    LILY_TRY(open_packed(m, dir, &o, &device, err));
    size_t states = m->plan.kv + m->plan.borders + (device.cuda ? 0 : m->plan.behind);
    LILY_TRY(device_backend(&device, &o, &m->config.shape, states, &m->backend, err));
    LILY_TRY(load_weights(m, &o, err));
    checkpoint_close(m->ck);
    m->ck = NULL;
    return LILY_OK;
}

static lily_status open_folder(struct model *m, const void *dir, const struct model_options *o, struct lily_err *err)
{
    LILY_TRY(config_load(dir, &m->config, err));
    LILY_TRY(checkpoint_open(dir, &m->config, &m->ck, err));
    return load_checkpoint(m, dir, o, err);
}

static lily_status open_synth(struct model *m, const void *plan, const struct model_options *o, struct lily_err *err)
{
    const struct synth_plan *p = plan;
    LILY_TRY(config_parse(p->config_text.data, p->config_text.len, "config.json", &m->config, err));
    checkpoint_of_synth(p, &m->ck);
    return load_checkpoint(m, NULL, o, err);
}

typedef lily_status (*open_fn)(struct model *m, const void *source, const struct model_options *o, struct lily_err *err);

static lily_status open_with(open_fn open, const void *source, const struct model_options *options, struct model **out,
                             struct lily_err *err)
{
    *out = NULL;
    struct model_options o = *options;
    struct model *m = mem_new(sizeof *m);
    m->threads = o.threads = o.threads > 0 ? o.threads : cpu_count();
    m->kv_bytes = o.plan.kv_f32 ? 4 : 2;
    lily_status st = open(m, source, &o, err);
    if (st == LILY_OK) *out = m;
    else model_close(m);
    return st;
}

lily_status model_open(const char *dir, const struct model_options *o, struct model **out, struct lily_err *err)
{
    return open_with(open_folder, dir, o, out, err);
}

lily_status model_open_synth(const struct synth_plan *plan, const struct model_options *o, struct model **out, struct lily_err *err)
{
    return open_with(open_synth, plan, o, out, err);
}

void model_close(struct model *m)
{
    if (!m) return;
    if (m->backend) {
        weights_free(m->backend, &m->weights);
        m->backend->ops->destroy(m->backend);
    }
    packed_close(m->packed);
    checkpoint_close(m->ck);
    config_free(&m->config);
    free(m);
}

const struct model_config *model_config(const struct model *m)
{
    return &m->config;
}

const struct model_shape *model_shape(const struct model *m)
{
    return &m->config.shape;
}

const struct memory_plan *model_plan(const struct model *m)
{
    return &m->plan;
}

struct backend *model_backend(struct model *m)
{
    return m->backend;
}

int model_threads(const struct model *m)
{
    return m->threads;
}

int model_kv_bytes(const struct model *m)
{
    return m->kv_bytes;
}

bool model_is_packed(const struct model *m)
{
    return m->packed != NULL;
}

const char *model_key(const struct model *m)
{
    return m->key;
}

const char *model_identity(const struct model *m)
{
    return m->identity;
}

const char *model_device(const struct model *m)
{
    return m->device;
}

static void begin(struct model *m, struct pass *p)
{
    const struct step_table *step = &m->backend->ops->step;
    p->layer = p->n_full = p->n_linear = 0;
    step->begin(m->backend, &p->batch);
    step->embed(m->backend, m->weights.embed);
}

/* Of one layer; index: among those of its kind. */
static void mix(struct backend *be, const struct layer_weights *l, bool full, int index)
{
    const struct step_table *step = &be->ops->step;
    if (full) {
        step->attn_in(be, &l->attn, index);
        step->attn_mix(be, index);
        step->attn_out(be, &l->attn);
    } else {
        step->gdn_in(be, &l->gdn);
        step->gdn_mix(be, &l->gdn, index);
        step->gdn_out(be, &l->gdn);
    }
}

static int take_rows(struct backend *be, const struct batch *batch, int from)
{
    return be->ops->take_rows ? be->ops->take_rows(be, from) : batch->n_rows - from;
}

static void next_layer(struct model *m, struct pass *p)
{
    struct backend *be = m->backend;
    const struct step_table *step = &be->ops->step;
    const struct layer_weights *l = &m->weights.layers[p->layer];
    const bool full = m->config.shape.is_full[p->layer++];
    const int index = full ? p->n_full++ : p->n_linear++;
    for (int from = 0, n; (n = take_rows(be, &p->batch, from)); from += n) mix(be, l, full, index);
    step->moe_route(be, &l->moe);
    step->moe_experts(be, &l->moe);
}

static lily_status end(struct model *m, struct lily_err *err)
{
    const struct step_table *step = &m->backend->ops->step;
    step->head(m->backend, m->weights.norm, m->weights.head);
    return step->end(m->backend, err);
}

static lily_status forward(struct model *m, struct pass *p, const struct forward_observer *observe, struct lily_err *err)
{
    struct backend *be = m->backend;
    be->watched = observe && observe->after;
    begin(m, p);
    if (be->watched) observe->after(observe->ctx, be, -1);
    for (int i = 0; i < m->config.shape.n_layers; i++) {
        next_layer(m, p);
        if (be->watched) observe->after(observe->ctx, be, i);
        if (observe && observe->stop && atomic_load(observe->stop)) LILY_FAIL(err, LILY_ERR_CANCELLED, "stopped after layer %d", i);
    }
    return end(m, err);
}

lily_status model_forward(struct model *m, const struct batch *batch, const struct forward_observer *observe,
                          struct lily_err *err)
{
    struct backend *be = m->backend;
    struct pass p = {.batch = *batch};
    const bool aside = m->open != NULL;
    assert(batch->n_rows <= model_rows(m));
    if (aside) be->ops->set_aside(be);
    lily_status st = forward(m, &p, observe, err);
    if (aside) be->ops->set_aside(be);
    return st;
}

void model_pass_begin(struct model *m, struct pass *p)
{
    assert(!m->open && m->backend->ops->set_aside);
    m->open = p;
    m->backend->watched = false;
    begin(m, p);
}

lily_status model_pass_go_on(struct model *m, struct pass *p, bool *done, struct lily_err *err)
{
    assert(m->open == p);
    *done = p->layer == m->config.shape.n_layers;
    if (!*done) {
        next_layer(m, p);
        return LILY_OK;
    }
    m->open = NULL;
    return end(m, err);
}

void model_pass_drop(struct model *m, const struct pass *p)
{
    if (m->open == p) m->open = NULL;
}

bool model_pass_is_open(const struct model *m)
{
    return m->open != NULL;
}

int model_rows(const struct model *m)
{
    const struct backend_limits *l = &m->backend->limits;
    return m->open ? l->short_rows : l->max_rows;
}
