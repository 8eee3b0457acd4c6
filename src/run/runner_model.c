/* The model as a runner: sequences, shared borders, batches, one sampler per slot. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/aside.h"
#include "run/borders.h"
#include "run/disk.h"
#include "run/lane.h"
#include "run/pieces.h"
#include "run/reading.h"
#include "run/runner.h"
#include "run/state_key.h"

enum { MAX_RECENT = 4 << 20 };
static const double flush_ms = 10e3; /* for writing at the end what is not on disk yet */

struct slot {
    struct lane lane;        /* owned: seq, and the job's sampler */
    struct job *job;         /* borrowed */
    const struct job_spec *spec;
    struct reading reading;  /* of a piece of the prompt */
    int end, keep;           /* where that ends; the border inside it, 0: none */
    bool prefill;            /* the state is whole and no decode step has touched it */
    bool verify;             /* the prompt is one of those that are read again */
};

struct model_runner {
    struct runner base;
    struct runner_model_options opt;
    struct bundle *bundle;   /* borrowed */
    struct borders *borders; /* owned */
    struct recent *recent;   /* owned */
    struct aside *aside;     /* owned */
    struct slot *slots;      /* owned; (n_slots) */
    float *logits;           /* owned; (n_slots, ld) of each slot's last token */
    float *batch_logits;     /* owned; (n_slots, ld) what a batch writes */
    size_t ld;
    struct lane_feed *feeds; /* owned; (n_slots) */
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

static struct lanes lanes_of(struct model_runner *m)
{
    return (struct lanes){m->bundle->model, m->borders, m->batch_logits};
}

static void wake(void *runner)
{
    struct runner *r = runner;
    if (r->kick) r->kick(r->kick_ctx);
}

static lily_status open_disk(struct model_runner *m, struct lily_err *err)
{
    char key[65];
    struct disk *disk;
    struct backend *be = model_backend(m->bundle->model);
    if (!m->opt.cache_dir) return LILY_OK;
    LILY_TRY(state_key(m->bundle->model, key, err));
    const struct disk_options o = {.dir = m->opt.cache_dir,
                                   .quota = m->opt.cache_disk,
                                   .key = key,
                                   .fixed_bytes = be->ops->border_bytes(be),
                                   .page_bytes = be->ops->page_bytes(be),
                                   .counters = borders_counters(m->borders),
                                   .wake = wake,
                                   .wake_ctx = m};
    LILY_TRY(disk_open(&o, &disk, err));
    borders_use_disk(m->borders, disk);
    return LILY_OK;
}

static lily_status load(struct runner *r, struct lily_err *err)
{
    struct model_runner *m = of(r);
    m->opt.model.watch = &r->loading;
    m->opt.model.identify = m->opt.cache_dir != NULL;
    LILY_TRY(bundle_load(m->bundle, &m->opt.model, err));
    struct backend *be = model_backend(m->bundle->model);
    size_t n = (size_t)r->n_slots;
    m->ld = (size_t)shape_logits_ld(model_shape(m->bundle->model));
    m->borders = borders_new(m->bundle->model, m->opt.cache_bytes);
    LILY_TRY(open_disk(m, err));
    /* The texts of prompts count as the states do (begin), so they may take little. */
    m->recent = recent_new(m->opt.cache_bytes / 128 < MAX_RECENT ? m->opt.cache_bytes / 128 : MAX_RECENT);
    LILY_TRY(aside_new(m->bundle->model, m->borders, m->opt.verify, &m->aside, err));
    m->logits = mem_try(n * m->ld, sizeof *m->logits);
    m->batch_logits = mem_try(n * m->ld, sizeof *m->batch_logits);
    if (!m->logits || !m->batch_logits) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the logits of %zu sequences", n);
    for (size_t i = 0; i < n; i++) LILY_TRY(be->ops->seq_new(be, &m->slots[i].lane.seq, err));
    r->ctx = model_plan(m->bundle->model)->ctx;
    r->cache = borders_counters(m->borders);
    return LILY_OK;
}

static void free_runner(struct runner *r)
{
    struct model_runner *m = of(r);
    for (int i = 0; i < r->n_slots; i++) {
        sampler_free(m->slots[i].lane.sampler);
        if (m->slots[i].lane.seq) ops_of(m)->seq_free(model_backend(m->bundle->model), m->slots[i].lane.seq);
    }
    if (m->borders) borders_flush(m->borders, flush_ms);
    aside_free(m->aside);
    recent_free(m->recent);
    borders_free(m->borders);
    free(m->slots);
    free(m->logits);
    free(m->batch_logits);
    free(m->feeds);
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

static void note_hit(struct model_runner *m, bool hit)
{
    struct cache_counters *k = borders_counters(m->borders);
    atomic_fetch_add(hit ? &k->hits : &k->misses, 1);
}

static lily_status begin(struct runner *r, int slot, struct job *job, struct job_result *result, struct lily_err *err)
{
    struct model_runner *m = of(r);
    struct slot *at = &m->slots[slot];
    const struct job_spec *spec = job->spec;
    struct sampler_params params = spec->sampling;
    params.seed = job->seed;
    LILY_TRY(check_ids(m, spec, err));
    LILY_TRY(aside_pause(m->aside, m->slots[0].lane.seq, err));
    LILY_TRY(sampler_new(&params, m->bundle->n_tokens, &at->lane.sampler, err));
    sampler_prompt(at->lane.sampler, spec->ids, (size_t)spec->n_ids);
    at->job = job;
    at->spec = spec;
    at->prefill = true;
    at->lane.logits = logits_of(m, slot);
    at->lane.eos = m->bundle->eos;
    at->lane.n_eos = m->bundle->n_eos;
    at->lane.wants_logits = spec->n_logprobs >= 0;
    lane_begin(&at->lane);
    at->lane.length = borders_restore(m->borders, at->lane.seq, spec->ids, spec->n_ids, 0);
    at->verify = at->lane.length && aside_chooses(m->aside);
    result->reused = at->lane.length;
    note_hit(m, at->lane.length > 0);
    const struct recent_prompt p = {spec->ids, spec->n_ids, spec->marks, spec->n_marks, spec->owner};
    recent_add(m->recent, &p, at->lane.length, &result->miss);
    borders_beside(m->borders, recent_bytes(m->recent));
    return LILY_OK;
}

static lily_status begin_piece(struct model_runner *m, int slot, struct lily_err *err)
{
    struct slot *at = &m->slots[slot];
    const struct job_spec *spec = at->spec;
    const int from = at->lane.length;
    const struct prompt_plan plan = {spec->n_ids, spec->marks, spec->n_marks, model_rows(m->bundle->model), borders_keep_inside(m->borders)};
    at->end = plan_piece_end(&plan, from);
    at->keep = plan_keeps(&plan, from);
    const struct rows rows = {.phase = PHASE_PREFILL,
                              .seq = at->lane.seq,
                              .ids = spec->ids + from,
                              .n = at->end - from,
                              .logits = at->end == spec->n_ids ? logits_of(m, slot) : NULL};
    at->prefill = false;
    if (at->keep) LILY_TRY(borders_keep(m->borders, at->lane.seq, spec->ids, at->keep, err));
    LILY_TRY(borders_reserve(m->borders, at->lane.seq, rows.n, err));
    reading_begin(&at->reading, m->bundle->model, &rows);
    return LILY_OK;
}

static lily_status end_piece(struct model_runner *m, int slot, struct lily_err *err)
{
    struct slot *at = &m->slots[slot];
    const struct job_spec *spec = at->spec;
    const struct prompt_plan plan = {.n = spec->n_ids, .marks = spec->marks, .n_marks = spec->n_marks};
    at->prefill = true;
    at->lane.length = at->end;
    if (at->keep) LILY_TRY(borders_save(m->borders, at->lane.seq, spec->ids, at->keep, err));
    if (plan_saves(&plan, at->end)) LILY_TRY(borders_save(m->borders, at->lane.seq, spec->ids, at->end, err));
    if (at->end == spec->n_ids && at->verify) aside_verify(m->aside, spec->ids, spec->n_ids, logits_of(m, slot));
    return LILY_OK;
}

static void show_layers(void *ctx, int done, int total)
{
    struct slot *at = ctx;
    atomic_store(&at->job->done, at->lane.length + (at->end - at->lane.length) * done / total);
}

static lily_status prefill(struct runner *r, int slot, int *read, bool *goes_on, struct lily_err *err)
{
    struct model_runner *m = of(r);
    struct slot *at = &m->slots[slot];
    const struct reading_pause pause = {{&r->hurry, &at->job->cancel}, show_layers, at};
    bool done;
    if (!at->reading.under_way) LILY_TRY(begin_piece(m, slot, err));
    LILY_TRY(reading_go_on(&at->reading, &pause, &done, err));
    if (done) LILY_TRY(end_piece(m, slot, err));
    *read = at->lane.length;
    *goes_on = !done && reading_is_short(&at->reading);
    return LILY_OK;
}

static lily_status pick(struct runner *r, int slot, struct picked *out, struct lily_err *err)
{
    struct model_runner *m = of(r);
    struct slot *at = &m->slots[slot];
    out->ready = true;
    const struct lanes all = lanes_of(m);
    LILY_TRY(lane_pick(&all, &at->lane, &out->id, err));
    if (at->spec->n_logprobs < 0) return LILY_OK;
    out->logprob.id = out->id;
    out->logprob.n_top = at->spec->n_logprobs;
    logits_logprobs(logits_of(m, slot), m->bundle->n_tokens, out->id, &out->logprob.logprob, out->logprob.top,
                    out->logprob.n_top);
    return LILY_OK;
}

static lily_status decode(struct runner *r, const struct feed *feeds, int n, struct lily_err *err)
{
    struct model_runner *m = of(r);
    const struct lanes all = lanes_of(m);
    for (int i = 0; i < n; i++) {
        struct slot *at = &m->slots[feeds[i].slot];
        at->prefill = false;
        m->feeds[i] = (struct lane_feed){&at->lane, feeds[i].id, feeds[i].goes_on && at->lane.length + 1 < r->ctx};
    }
    return lanes_feed(&all, m->feeds, n, err);
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
    struct model_runner *m = of(r);
    struct slot *at = &m->slots[slot];
    sampler_free(at->lane.sampler);
    at->lane.sampler = NULL;
    if (at->reading.under_way) {
        at->lane.length = reading_give_up(&at->reading);
        at->prefill = true;
    }
    /* A client that leaves while its prompt is read may come back: what was read so far is not read again. */
    if (at->prefill && at->lane.length % GRID == 0) (void)borders_save(m->borders, at->lane.seq, at->spec->ids, at->lane.length, NULL);
    at->prefill = false;
    /* Empty again, so that the pages go back at once: what is worth keeping was saved as borders. */
    ops_of(of(r))->seq_reset(model_backend(of(r)->bundle->model), at->lane.seq);
}

static lily_status tend(struct runner *r, bool idle, bool *more, struct lily_err *err)
{
    struct model_runner *m = of(r);
    struct aside_step step = {idle ? m->slots[0].lane.seq : NULL, &r->hurry, false};
    bool writes = false;
    LILY_TRY(borders_tend(m->borders, &writes, err));
    LILY_TRY(aside_step(m->aside, &step, err));
    *more = step.more || writes;
    return LILY_OK;
}

static void read_ahead(struct runner *r, struct read_ahead *moved)
{
    if (of(r)->opt.cache_bytes) aside_read_ahead(of(r)->aside, moved);
    else read_ahead_free(moved); /* nothing of it would be kept */
}

static int states(struct runner *r, struct border_info *out, int max)
{
    return borders_list(of(r)->borders, out, max);
}

struct borders *runner_model_borders(struct runner *r)
{
    return of(r)->borders;
}

const float *runner_model_logits(const struct runner *r, int slot)
{
    const struct model_runner *m = (const struct model_runner *)r;
    return m->logits + (size_t)slot * m->ld;
}

static const struct runner_ops model_ops = {.load = load,
                                            .free = free_runner,
                                            .begin = begin,
                                            .prefill = prefill,
                                            .pick = pick,
                                            .decode = decode,
                                            .text = text,
                                            .end = end,
                                            .tend = tend,
                                            .read_ahead = read_ahead,
                                            .states = states};

struct runner *runner_model_new(struct bundle *b, const struct runner_model_options *o)
{
    struct model_runner *m = mem_new(sizeof *m);
    size_t n = (size_t)o->n_slots;
    m->base = (struct runner){.ops = &model_ops, .texts = b, .n_slots = o->n_slots};
    m->opt = *o;
    m->bundle = b;
    m->slots = mem_new(sizeof *m->slots * n);
    m->feeds = mem_new(sizeof *m->feeds * n);
    return &m->base;
}
