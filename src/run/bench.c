/* Timed passes over a model. */
#include "run/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/busy.h"
#include "base/clock.h"
#include "base/mem.h"
#include "model/cost.h"
#include "run/lane.h"

#define MAX_SPREAD 0.03
#define MAX_OTHERS 0.05

struct bencher {
    struct model *model; /* borrowed */
    struct backend *be;
    const struct bench_options *o;
    struct seq *seq;  /* owned */
    int32_t *prompt;  /* owned; of the longest context */
    float *logits;    /* owned */
    struct sampler *sampler; /* owned; greedy */
    int done, total;  /* measurements */
    struct step_clock clock;
};

/* One timed stretch. */
struct stretch {
    double ms;
    double others;
    double joules; /* negative: unknown */
    double step_ms[STEP_KINDS];
};

struct stopwatch {
    struct busy_mark mark;
    double joules, ms;
    double step_ms[STEP_KINDS];
};

static double joules_now(const struct bencher *b)
{
    return b->be->ops->joules ? b->be->ops->joules(b->be) : -1;
}

static struct stopwatch watch_start(const struct bencher *b)
{
    struct stopwatch w = {busy_now(), joules_now(b), 0, {0}};
    memcpy(w.step_ms, b->clock.ms, sizeof w.step_ms);
    w.ms = clock_ms();
    return w;
}

static struct stretch watch_stop(const struct bencher *b, const struct stopwatch *w)
{
    double ms = clock_ms() - w->ms, joules = joules_now(b);
    struct busy_mark now = busy_now();
    bool known = w->joules >= 0 && joules >= w->joules; /* a counter that came round again says nothing */
    struct stretch t = {ms, busy_others(&w->mark, &now), known ? joules - w->joules : -1, {0}};
    for (int i = 0; i < STEP_KINDS; i++) t.step_ms[i] = b->clock.ms[i] - w->step_ms[i];
    return t;
}

static lily_status forward(struct bencher *b, const int32_t *ids, int n, bool want, struct lily_err *err)
{
    if (b->o->cancel && atomic_load(b->o->cancel)) return LILY_ERR_CANCELLED;
    LILY_TRY(b->be->ops->seq_reserve(b->be, b->seq, n, err));
    struct batch_seq bs = {b->seq, n};
    int32_t last = n - 1;
    struct batch batch = {.phase = PHASE_PREFILL,
                          .n_seqs = 1,
                          .seqs = &bs,
                          .n_rows = n,
                          .ids = ids,
                          .n_logits = want,
                          .logit_rows = &last,
                          .logits = b->logits};
    const struct forward_observer watch = {.stop = b->o->cancel};
    return model_forward(b->model, &batch, &watch, err);
}

/* Reads a prompt of n tokens into an empty sequence; *next gets the first token. */
static lily_status prefill(struct bencher *b, int n, int32_t *next, struct lily_err *err)
{
    int piece = b->be->limits.max_rows;
    b->be->ops->seq_reset(b->be, b->seq);
    for (int at = 0; at < n; at += piece) {
        int rows = n - at < piece ? n - at : piece;
        LILY_TRY(forward(b, b->prompt + at, rows, at + rows == n, err));
    }
    return sampler_pick_sound(b->sampler, b->logits, n, next, err);
}

/* Decodes as an answer is made: the device chooses and goes ahead, where it can. */
static lily_status decode(struct bencher *b, int32_t next, int steps, struct lily_err *err)
{
    const struct lanes all = {b->model, NULL, NULL};
    struct lane lane = {.seq = b->seq, .sampler = b->sampler, .logits = b->logits};
    lane_begin(&lane);
    for (int i = 0; i < steps; i++) {
        if (b->o->cancel && atomic_load(b->o->cancel)) return LILY_ERR_CANCELLED;
        const struct lane_feed feed = {&lane, next, i + 1 < steps};
        LILY_TRY(lanes_feed(&all, &feed, 1, err));
        LILY_TRY(lane_pick(&all, &lane, &next, err));
    }
    return LILY_OK;
}

static bool is_filled(const struct bencher *b, int n)
{
    return b->o->fill_from && n >= b->o->fill_from && b->be->ops->seq_fill;
}

/* Brings the sequence to n tokens, timed into *t. */
static lily_status fill_or_prefill(struct bencher *b, int n, int32_t *next, struct stretch *t, struct lily_err *err)
{
    struct stopwatch w = watch_start(b);
    lily_status st;
    *next = b->prompt[0];
    if (is_filled(b, n)) st = b->be->ops->seq_fill(b->be, b->seq, n / GRID * GRID, b->o->seed, err);
    else st = prefill(b, n, next, err);
    *t = watch_stop(b, &w);
    return st;
}

static void add_sample(struct bench_row *r, const struct stretch *t)
{
    if (!r) return;
    r->samples[r->n_rounds++] = r->tokens / (t->ms / 1e3);
    if (t->others > r->others) r->others = t->others;
    r->joules = t->joules < 0 ? -1 : t->joules / r->tokens;
    for (int i = 0; i < STEP_KINDS; i++) r->step_ms[i] = t->step_ms[i] / r->tokens;
}

/* One length once. The rows are NULL in a warm-up, or where a phase is not wanted. */
static lily_status measure(struct bencher *b, int n, struct bench_row *pre, struct bench_row *dec, struct lily_err *err)
{
    struct stretch t;
    int32_t next;
    if (b->o->progress) b->o->progress(b->o->progress_ctx, b->done, b->total);
    b->done++;
    LILY_TRY(fill_or_prefill(b, n, &next, &t, err));
    add_sample(pre, &t);
    if (!b->o->decode) return LILY_OK;
    struct stopwatch w = watch_start(b);
    LILY_TRY(decode(b, next, b->o->steps, err));
    t = watch_stop(b, &w);
    add_sample(dec, &t);
    return LILY_OK;
}

/* ---- verdict ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_judge(struct bench_row *r, const struct device_limits *limits)
{
    int n = r->n_rounds;
    double sorted[BENCH_MAX_ROUNDS];
    memcpy(sorted, r->samples, sizeof *sorted * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    r->tok_s = n ? (sorted[(n - 1) / 2] + sorted[n / 2]) / 2 : 0;
    r->spread = n && r->tok_s > 0 ? (sorted[n - 1] - sorted[0]) / r->tok_s : 0;
    r->final = false;
    if (n < 2) snprintf(r->note, sizeof r->note, "one round only");
    else if (r->others > MAX_OTHERS) snprintf(r->note, sizeof r->note, "machine busy: others used %.0f%%", 100 * r->others);
    else if (r->spread > MAX_SPREAD) snprintf(r->note, sizeof r->note, "rounds differ by %.1f%%", 100 * r->spread);
    else if (limits->slow_below_gb_s > 0 && limits->read_gb_s < limits->slow_below_gb_s)
        snprintf(r->note, sizeof r->note, "host slow: reads %.1f GB/s", limits->read_gb_s);
    else r->final = true;
    size_t used = r->final ? 0 : strlen(r->note);
    if (r->final) r->note[0] = 0;
    if (r->filled) snprintf(r->note + used, sizeof r->note - used, "%scache filled from a seed", used ? "; " : "");
}

/* Floor and rates of a row, from the cost of its pass. */
static void compare_with_limits(const struct bencher *b, struct bench_row *r, const struct device_limits *l)
{
    const struct model_config *c = model_config(b->model);
    int kv = model_kv_bytes(b->model);
    bool pre = r->phase == PHASE_PREFILL;
    struct pass_cost cost = pre ? cost_prefill(c, r->context, kv) : cost_decode(c, r->context + r->tokens / 2, kv);
    double per_token = pre ? r->context : 1;
    double read_s = l->read_gb_s > 0 ? cost.bytes / 1e9 / l->read_gb_s : 0;
    double compute_s = l->matmul_gop_s > 0 && pre ? cost.ops / 1e9 / l->matmul_gop_s : 0;
    double floor_s = read_s > compute_s ? read_s : compute_s;
    if (pre && l->matmul_gop_s <= 0) floor_s = 0; /* a prompt's floor is its products: not known */
    r->gb_s = cost.bytes / 1e9 * r->tok_s / per_token;
    r->gop_s = cost.ops / 1e9 * r->tok_s / per_token;
    r->floor_tok_s = floor_s > 0 ? per_token / floor_s : 0;
    r->share = r->floor_tok_s > 0 ? r->tok_s / r->floor_tok_s : 0;
}

/* ---- the matrix ---- */

struct row_pair {
    struct bench_row *prefill, *decode; /* NULL: not measured */
};

static struct bench_row *add_row(struct bench_result *out, enum phase phase, int context, int tokens, bool filled)
{
    struct bench_row *r = &out->rows[out->n_rows++];
    *r = (struct bench_row){.phase = phase, .context = context, .tokens = tokens, .filled = filled, .joules = -1};
    return r;
}

static void add_rows(const struct bencher *b, struct bench_result *out, struct row_pair *pairs)
{
    for (int i = 0; i < b->o->n_lengths; i++) {
        int n = b->o->lengths[i];
        bool filled = is_filled(b, n);
        pairs[i] = (struct row_pair){NULL, NULL};
        if (b->o->prefill && !filled) pairs[i].prefill = add_row(out, PHASE_PREFILL, n, n, false);
        if (b->o->decode) pairs[i].decode = add_row(out, PHASE_DECODE, filled ? n / GRID * GRID : n, b->o->steps, filled);
    }
}

/* The device's limits are the highest of all that were measured: while others use the machine each comes out too low. */
static lily_status measure_limits(struct bencher *b, struct device_limits *limits, struct lily_err *err)
{
    struct device_limits now;
    if (!b->be->ops->measure) return LILY_OK;
    LILY_TRY(b->be->ops->measure(b->be, &now, err));
    if (now.read_gb_s < limits->read_gb_s) now.read_gb_s = limits->read_gb_s;
    if (now.matmul_gop_s < limits->matmul_gop_s) now.matmul_gop_s = limits->matmul_gop_s;
    *limits = now;
    return LILY_OK;
}

static lily_status run_rounds(struct bencher *b, const struct row_pair *pairs, struct device_limits *limits, struct lily_err *err)
{
    const struct bench_options *o = b->o;
    b->total = o->n_lengths * (o->rounds + o->warm_up);
    for (int i = 0; i < o->n_lengths && o->warm_up; i++) LILY_TRY(measure(b, o->lengths[i], NULL, NULL, err));
    for (int round = 0; round < o->rounds; round++) {
        for (int i = 0; i < o->n_lengths; i++) {
            int at = round % 2 ? o->n_lengths - 1 - i : i;
            LILY_TRY(measure(b, o->lengths[at], pairs[at].prefill, pairs[at].decode, err));
        }
        LILY_TRY(measure_limits(b, limits, err));
    }
    if (o->progress) o->progress(o->progress_ctx, b->total, b->total);
    return LILY_OK;
}

static lily_status prepare(struct bencher *b, struct bench_result *out, struct lily_err *err)
{
    int longest = bench_context(b->o), vocab = model_shape(b->model)->vocab;
    b->prompt = mem_try((size_t)longest, sizeof *b->prompt);
    b->logits = mem_try((size_t)shape_logits_ld(model_shape(b->model)), sizeof *b->logits);
    if (!b->prompt || !b->logits) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for a prompt of %d tokens", longest);
    for (int i = 0; i < longest; i++) b->prompt[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)vocab);
    struct sampler_params greedy;
    sampler_params_init(&greedy);
    LILY_TRY(sampler_new(&greedy, vocab, &b->sampler, err));
    LILY_TRY(b->be->ops->seq_new(b->be, &b->seq, err));
    return measure_limits(b, &out->limits, err);
}

int bench_context(const struct bench_options *o)
{
    int longest = 1;
    for (int i = 0; i < o->n_lengths; i++)
        if (o->lengths[i] > longest) longest = o->lengths[i];
    return longest + (o->decode ? o->steps : 0);
}

/* Of a run that was stopped: rows without a round go, and the others say how many they have. */
static void keep_measured(struct bench_result *out, int rounds)
{
    int kept = 0;
    for (int i = 0; i < out->n_rows; i++) {
        struct bench_row *r = &out->rows[i];
        if (r->n_rounds == 0) continue;
        r->final = false;
        snprintf(r->note, sizeof r->note, "stopped after %d of %d rounds%s", r->n_rounds, rounds, r->filled ? "; cache filled from a seed" : "");
        out->rows[kept++] = *r;
    }
    out->n_rows = kept;
}

lily_status bench_run(struct model *m, const struct bench_options *o, struct bench_result *out, struct lily_err *err)
{
    struct bencher b = {.model = m, .be = model_backend(m), .o = o};
    struct row_pair pairs[BENCH_MAX_LENGTHS];
    memset(out, 0, sizeof *out);
    add_rows(&b, out, pairs);
    lily_status st = prepare(&b, out, err);
    bool synchronous = !strncmp(b.be->code, "cpu", 3);
    if (synchronous) step_clock_on(&b.clock, b.be);
    if (st == LILY_OK) st = run_rounds(&b, pairs, &out->limits, err);
    if (synchronous) step_clock_off(&b.clock, b.be);
    for (int i = 0; i < out->n_rows; i++) {
        bench_judge(&out->rows[i], &out->limits);
        compare_with_limits(&b, &out->rows[i], &out->limits);
    }
    if (st == LILY_ERR_CANCELLED) keep_measured(out, o->rounds);
    if (b.seq) b.be->ops->seq_free(b.be, b.seq);
    sampler_free(b.sampler);
    free(b.prompt);
    free(b.logits);
    return st;
}
