/* The model as a runner: sequences, shared borders, batches, one sampler per slot. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/borders.h"
#include "run/runner.h"

struct lane {
    struct seq *seq;         /* owned */
    struct sampler *sampler; /* owned; of the job */
    const struct job_spec *spec;
    int length;              /* tokens in the state */
};

struct model_runner {
    struct runner base;
    struct runner_model_options opt;
    struct bundle *bundle;   /* borrowed */
    struct borders *borders; /* owned */
    struct lane *lanes;      /* owned; (n_slots) */
    float *logits;           /* owned; (n_slots, ld) of each slot's last token */
    float *batch_logits;     /* owned; (n_slots, ld) what a batch writes */
    size_t ld;
    struct batch_seq *seqs;  /* owned; (n_slots) */
    int32_t *ids, *rows;     /* owned; (n_slots) */
};

static struct model_runner *of(struct runner *r)
{
    return (struct model_runner *)r;
}

static const struct backend_ops *ops_of(struct model_runner *m)
{
    return model_backend(m->bundle->model)->ops;
}

static float *logits_of(struct model_runner *m, int slot)
{
    return m->logits + (size_t)slot * m->ld;
}

static lily_status load(struct runner *r, struct lily_err *err)
{
    struct model_runner *m = of(r);
    m->opt.model.watch = &r->loading;
    LILY_TRY(bundle_load(m->bundle, &m->opt.model, err));
    struct backend *be = model_backend(m->bundle->model);
    size_t n = (size_t)r->n_slots;
    m->ld = (size_t)shape_logits_ld(model_shape(m->bundle->model));
    m->borders = borders_new(m->bundle->model, m->opt.max_borders);
    m->logits = mem_try(n * m->ld, sizeof *m->logits);
    m->batch_logits = mem_try(n * m->ld, sizeof *m->batch_logits);
    if (!m->logits || !m->batch_logits) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the logits of %zu sequences", n);
    for (size_t i = 0; i < n; i++) LILY_TRY(be->ops->seq_new(be, &m->lanes[i].seq, err));
    r->ctx = model_plan(m->bundle->model)->ctx;
    return LILY_OK;
}

static void free_runner(struct runner *r)
{
    struct model_runner *m = of(r);
    for (int i = 0; i < r->n_slots; i++) {
        sampler_free(m->lanes[i].sampler);
        if (m->lanes[i].seq) ops_of(m)->seq_free(model_backend(m->bundle->model), m->lanes[i].seq);
    }
    borders_free(m->borders);
    free(m->lanes);
    free(m->logits);
    free(m->batch_logits);
    free(m->seqs);
    free(m->ids);
    free(m->rows);
    free(m);
}

static lily_status check_ids(const struct model_runner *m, const struct job_spec *spec, struct lily_err *err)
{
    int vocab = model_shape(m->bundle->model)->vocab;
    for (int i = 0; i < spec->n_ids; i++)
        if (spec->ids[i] < 0 || spec->ids[i] >= vocab)
            LILY_FAIL(err, LILY_ERR_USAGE, "token %d is %d: expected 0 to %d", i, spec->ids[i], vocab - 1);
    return LILY_OK;
}

static lily_status begin(struct runner *r, int slot, const struct job *job, int *reused, struct lily_err *err)
{
    struct model_runner *m = of(r);
    struct lane *lane = &m->lanes[slot];
    struct sampler_params params = job->spec->sampling;
    params.seed = job->seed;
    LILY_TRY(check_ids(m, job->spec, err));
    LILY_TRY(sampler_new(&params, m->bundle->n_tokens, &lane->sampler, err));
    sampler_prompt(lane->sampler, job->spec->ids, (size_t)job->spec->n_ids);
    lane->spec = job->spec;
    lane->length = borders_restore(m->borders, lane->seq, job->spec->ids, job->spec->n_ids, 0);
    *reused = lane->length;
    return LILY_OK;
}

static lily_status prefill(struct runner *r, int slot, int *read, struct lily_err *err)
{
    struct model_runner *m = of(r);
    struct lane *lane = &m->lanes[slot];
    const struct job_spec *spec = lane->spec;
    struct backend *be = model_backend(m->bundle->model);
    struct prompt_plan plan = {spec->n_ids, spec->marks, spec->n_marks, be->limits.max_rows};
    int end = plan_piece_end(&plan, lane->length), n = end - lane->length;
    int32_t last = n - 1;
    struct batch_seq one = {lane->seq, n};
    LILY_TRY(borders_reserve(m->borders, lane->seq, n, err));
    struct batch batch = {.phase = PHASE_PREFILL,
                          .n_seqs = 1,
                          .seqs = &one,
                          .n_rows = n,
                          .ids = spec->ids + lane->length,
                          .n_logits = end == spec->n_ids,
                          .logit_rows = &last,
                          .logits = logits_of(m, slot)};
    LILY_TRY(model_forward(m->bundle->model, &batch, NULL, err));
    lane->length = end;
    if (plan_saves(&plan, end)) LILY_TRY(borders_save(m->borders, lane->seq, spec->ids, end, err));
    *read = end;
    return LILY_OK;
}

static lily_status pick(struct runner *r, int slot, struct picked *out, struct lily_err *err)
{
    struct model_runner *m = of(r);
    struct lane *lane = &m->lanes[slot];
    out->ready = true;
    LILY_TRY(sampler_pick_sound(lane->sampler, logits_of(m, slot), lane->length, &out->id, err));
    if (lane->spec->n_logprobs < 0) return LILY_OK;
    out->logprob.id = out->id;
    out->logprob.n_top = lane->spec->n_logprobs;
    logits_logprobs(logits_of(m, slot), m->bundle->n_tokens, out->id, &out->logprob.logprob, out->logprob.top,
                    out->logprob.n_top);
    return LILY_OK;
}

static lily_status decode(struct runner *r, const struct feed *feeds, int n, struct lily_err *err)
{
    struct model_runner *m = of(r);
    for (int i = 0; i < n; i++) {
        struct lane *lane = &m->lanes[feeds[i].slot];
        LILY_TRY(borders_reserve(m->borders, lane->seq, 1, err));
        m->seqs[i] = (struct batch_seq){lane->seq, 1};
        m->ids[i] = feeds[i].id;
        m->rows[i] = i;
    }
    struct batch batch = {.phase = PHASE_DECODE,
                          .n_seqs = n,
                          .seqs = m->seqs,
                          .n_rows = n,
                          .ids = m->ids,
                          .n_logits = n,
                          .logit_rows = m->rows,
                          .logits = m->batch_logits};
    LILY_TRY(model_forward(m->bundle->model, &batch, NULL, err));
    for (int i = 0; i < n; i++) {
        memcpy(logits_of(m, feeds[i].slot), m->batch_logits + (size_t)i * m->ld, m->ld * sizeof *m->logits);
        m->lanes[feeds[i].slot].length++;
    }
    return LILY_OK;
}

static const char *text(struct runner *r, int slot, int32_t id, size_t *n)
{
    const struct tokenizer *t = r->texts->tokenizer;
    const char *bytes = tokenizer_is_special(t, id) ? NULL : tokenizer_token(t, id, n);
    (void)slot;
    if (!bytes) *n = 0;
    return bytes ? bytes : "";
}

static void end(struct runner *r, int slot)
{
    struct lane *lane = &of(r)->lanes[slot];
    sampler_free(lane->sampler);
    lane->sampler = NULL;
    /* Empty again, so that the pages go back at once: what is worth keeping was saved as borders. */
    ops_of(of(r))->seq_reset(model_backend(of(r)->bundle->model), lane->seq);
}

static const struct runner_ops model_ops = {.load = load,
                                            .free = free_runner,
                                            .begin = begin,
                                            .prefill = prefill,
                                            .pick = pick,
                                            .decode = decode,
                                            .text = text,
                                            .end = end};

struct runner *runner_model_new(struct bundle *b, const struct runner_model_options *o)
{
    struct model_runner *m = mem_new(sizeof *m);
    size_t n = (size_t)o->n_slots;
    m->base = (struct runner){&model_ops, b, o->n_slots, 0, {0}};
    m->opt = *o;
    m->bundle = b;
    m->lanes = mem_new(sizeof *m->lanes * n);
    m->seqs = mem_new(sizeof *m->seqs * n);
    m->ids = mem_new(sizeof *m->ids * n);
    m->rows = mem_new(sizeof *m->rows * n);
    return &m->base;
}
