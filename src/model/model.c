/* A loaded model: opening, closing, and the one forward pass of the family. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "load/checkpoint.h"
#include "model/weights.h"

enum { DEFAULT_ROWS = 512 };

struct model {
    struct model_config config;   /* owned */
    struct checkpoint *ck;        /* owned; only while loading */
    struct backend *backend;      /* owned */
    struct model_weights weights; /* owned */
    struct memory_plan plan;
    int threads;
    char device[32];
};

void model_options_init(struct model_options *o)
{
    memset(o, 0, sizeof *o);
    o->tier = cpu_best_tier();
    o->max_rows = DEFAULT_ROWS;
    o->plan.n_seqs = 1;
}

static lily_status make_backend(struct model *m, const struct model_options *o, struct lily_err *err)
{
    struct cpu_options c = {.shape = m->config.shape,
                            .threads = m->threads,
                            .tier = o->tier,
                            .max_rows = o->max_rows,
                            .max_logits = o->max_rows,
                            .kv_f32 = o->plan.kv_f32,
                            .state_bytes = m->plan.kv + m->plan.borders};
    snprintf(m->device, sizeof m->device, "cpu %s", cpu_tier_name(o->tier));
    return cpu_backend_new(&c, &m->backend, err);
}

static lily_status check_options(const struct model_options *o, struct lily_err *err)
{
    if (o->max_rows < GRID || o->max_rows % GRID || o->max_rows > 65536)
        LILY_FAIL(err, LILY_ERR_USAGE, "prefill pieces of %d rows: expected a multiple of %d up to 65536", o->max_rows, GRID);
    if (!cpu_tier_runs(o->tier)) {
        err_set(err, LILY_ERR_USAGE, "the CPU tier %s does not run on this processor", cpu_tier_name(o->tier));
        err_hint(err, "the best one here is %s", cpu_tier_name(cpu_best_tier()));
        return LILY_ERR_USAGE;
    }
    return LILY_OK;
}

lily_status model_open(const char *dir, const struct model_options *options, struct model **out, struct lily_err *err)
{
    *out = NULL;
    struct model_options o = *options;
    if (!o.max_rows) o.max_rows = DEFAULT_ROWS;
    o.plan.max_rows = o.max_rows;
    LILY_TRY(check_options(&o, err));
    struct model *m = mem_new(sizeof *m);
    m->threads = o.threads > 0 ? o.threads : cpu_count();
    lily_status st;
    LILY_TRY_GOTO(config_load(dir, &m->config, err), out);
    LILY_TRY_GOTO(checkpoint_open(dir, &m->config, &m->ck, err), out);
    LILY_TRY_GOTO(checkpoint_check(m->ck, &m->config, err), out);
    LILY_TRY_GOTO(plan_make(&m->config, &o.plan, &m->plan, err), out);
    LILY_TRY_GOTO(make_backend(m, &o, err), out);
    LILY_TRY_GOTO(weights_load(m->backend, m->ck, o.loaded, &m->weights, err), out);
    checkpoint_close(m->ck);
    m->ck = NULL;
    *out = m;
out:
    if (st != LILY_OK) model_close(m);
    return st;
}

void model_close(struct model *m)
{
    if (!m) return;
    if (m->backend) {
        weights_free(m->backend, &m->weights);
        m->backend->ops->destroy(m->backend);
    }
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

const char *model_device(const struct model *m)
{
    return m->device;
}

lily_status model_forward(struct model *m, const struct batch *batch, const struct forward_observer *observe,
                          struct lily_err *err)
{
    struct backend *be = m->backend;
    const struct step_table *step = &be->ops->step;
    const struct model_shape *s = &m->config.shape;
    int n_full = 0, n_linear = 0;
    step->begin(be, batch);
    step->embed(be, m->weights.embed);
    if (observe) observe->after(observe->ctx, be, -1);
    for (int i = 0; i < s->n_layers; i++) {
        const struct layer_weights *l = &m->weights.layers[i];
        if (s->is_full[i]) {
            step->attn_in(be, &l->attn, n_full);
            step->attn_mix(be, n_full++);
            step->attn_out(be, &l->attn);
        } else {
            step->gdn_in(be, &l->gdn);
            step->gdn_mix(be, &l->gdn, n_linear++);
            step->gdn_out(be, &l->gdn);
        }
        step->moe_route(be, &l->moe);
        step->moe_experts(be, &l->moe);
        if (observe) observe->after(observe->ctx, be, i);
    }
    step->head(be, m->weights.norm, m->weights.head);
    return step->end(be, err);
}
