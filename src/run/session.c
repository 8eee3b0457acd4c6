/* A session: sync by pieces on the grid, decode steps, and the borders saved on the way. */
#include "run/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/borders.h"
#include "run/lane.h"
#include "run/pieces.h"
#include "run/reading.h"

struct session {
    struct model *model; /* borrowed */
    struct seq *seq;     /* owned */
    int ctx, piece;
    int32_t *ids;        /* owned; (ctx) tokens in the state */
    int length;
    bool decoded;        /* a decode step touched the live state */
    float *logits;       /* owned; (shape_logits_ld) */
    struct borders *borders; /* owned */
    struct lane lane;    /* of the answer */
    bool takes_up;
    struct reading piece_read; /* the piece under way, if any: tokens length … end - 1, which lie in ids */
    int end, keep;             /* of it; keep: where a border is taken on the way, 0: none */
};

static const struct backend_ops *ops_of(const struct session *s)
{
    return model_backend(s->model)->ops;
}

static lily_status check_options(const struct model *m, const struct session_options *o, struct lily_err *err)
{
    int max_ctx = model_plan(m)->ctx;
    if (o->ctx < 1 || o->ctx > max_ctx)
        LILY_FAIL(err, LILY_ERR_USAGE, "a session of %d tokens: expected 1 to %d", o->ctx, max_ctx);
    if (o->piece < 0 || o->piece % GRID)
        LILY_FAIL(err, LILY_ERR_USAGE, "prefill pieces of %d rows: expected a multiple of %d", o->piece, GRID);
    return LILY_OK;
}

/*
 * Bytes for n states beside the live one, each of them as long as the context at most. The plan holds less: pages that the
 * live sequence shares are counted there once, and what does not fit gives way.
 */
static size_t border_budget(struct model *m, int n)
{
    const struct backend *be = model_backend(m);
    size_t pages = (size_t)(model_plan(m)->ctx + GRID - 1) / GRID, lists = 8192 + pages * sizeof(void *);
    return (size_t)n * (be->ops->border_bytes(be) + lists) + 2 * pages * (be->ops->page_bytes(be) + GRID * sizeof(int32_t));
}

lily_status session_new(struct model *m, const struct session_options *o, struct session **out, struct lily_err *err)
{
    *out = NULL;
    LILY_TRY(check_options(m, o, err));
    struct backend *be = model_backend(m);
    struct session *s = mem_new(sizeof *s);
    s->model = m;
    s->ctx = o->ctx;
    s->takes_up = o->takes_up;
    s->piece = o->piece && o->piece < be->limits.max_rows ? o->piece : be->limits.max_rows;
    s->ids = mem_new(sizeof *s->ids * (size_t)s->ctx);
    s->logits = mem_new(sizeof *s->logits * (size_t)shape_logits_ld(model_shape(m)));
    s->borders = borders_new(m, o->max_borders ? border_budget(m, o->max_borders) : 0);
    lily_status st = be->ops->seq_new(be, &s->seq, err);
    if (st != LILY_OK) {
        session_free(s);
        return st;
    }
    *out = s;
    return LILY_OK;
}

/* The session goes back to where the piece under way begins, or to nothing. */
static void give_piece_up(struct session *s)
{
    if (s->piece_read.under_way) s->length = reading_give_up(&s->piece_read);
}

void session_clear(struct session *s)
{
    give_piece_up(s);
    borders_clear(s->borders);
    ops_of(s)->seq_reset(model_backend(s->model), s->seq);
    s->length = 0;
    s->decoded = false;
}

void session_free(struct session *s)
{
    if (!s) return;
    give_piece_up(s);
    borders_free(s->borders);
    if (s->seq) ops_of(s)->seq_free(model_backend(s->model), s->seq);
    free(s->logits);
    free(s->ids);
    free(s);
}

static bool is_prefix(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    return n_a <= n_b && memcmp(a, b, sizeof *a * (size_t)n_a) == 0;
}

lily_status session_checkpoint(struct session *s, struct lily_err *err)
{
    give_piece_up(s);
    if (s->decoded) LILY_FAIL(err, LILY_ERR_USAGE, "a border after a decode step: only prefill state may be saved");
    if (s->length % GRID) LILY_FAIL(err, LILY_ERR_USAGE, "a border at token %d: expected a multiple of %d", s->length, GRID);
    return borders_save(s->borders, s->seq, s->ids, s->length, err);
}

/* Brings the live state to the longest usable proper prefix of the request. */
static void restore_prefix(struct session *s, const struct sync_request *r)
{
    bool live = !s->decoded && s->length % GRID == 0 && s->length < r->n && is_prefix(s->ids, s->length, r->ids, r->n);
    int length = borders_restore(s->borders, s->seq, r->ids, r->n, live ? s->length : 0);
    if (!length && live) length = s->length;
    else if (!length) ops_of(s)->seq_reset(model_backend(s->model), s->seq);
    s->length = length;
    s->decoded = false;
    if (length) memcpy(s->ids, r->ids, sizeof *s->ids * (size_t)length);
}

static lily_status run_token(struct session *s, int32_t id, struct lily_err *err)
{
    struct rows rows = {PHASE_DECODE, s->seq, &id, 1, s->logits, NULL};
    LILY_TRY(borders_reserve(s->borders, s->seq, 1, err));
    LILY_TRY(forward_rows(s->model, &rows, err));
    s->ids[s->length++] = id;
    return LILY_OK;
}

/* How much of a request is read. */
struct share {
    const struct sync_request *r;
    int from, n;   /* of the piece, among the tokens to compute */
    int total;
};

static void show_layers(void *ctx, int done, int total)
{
    const struct share *s = ctx;
    if (s->r->progress) s->r->progress(s->r->progress_ctx, s->from + s->n * done / total, s->total);
}

static struct prompt_plan plan_of(const struct session *s, const struct sync_request *r)
{
    const int most = model_rows(s->model), piece = s->piece < most ? s->piece : most;
    return (struct prompt_plan){r->n, r->marks, r->n_marks, piece, borders_keep_inside(s->borders)};
}

static lily_status begin_piece(struct session *s, const struct sync_request *r, struct lily_err *err)
{
    const struct prompt_plan plan = plan_of(s, r);
    s->end = plan_piece_end(&plan, s->length);
    s->keep = plan_keeps(&plan, s->length);
    const int n = s->end - s->length;
    if (s->keep) LILY_TRY(borders_keep(s->borders, s->seq, r->ids, s->keep, err));
    LILY_TRY(borders_reserve(s->borders, s->seq, n, err));
    memcpy(s->ids + s->length, r->ids + s->length, sizeof *s->ids * (size_t)n);
    const struct rows rows = {PHASE_PREFILL, s->seq, s->ids + s->length, n, s->end == r->n ? s->logits : NULL, NULL};
    reading_begin(&s->piece_read, s->model, &rows);
    return LILY_OK;
}

/* Whether the piece that was stopped is one of the request, and ends where the request may be cut. */
static bool goes_on(const struct session *s, const struct sync_request *r)
{
    const bool fits = s->end == r->n ? s->piece_read.rows.logits != NULL : s->end % GRID == 0;
    return fits && is_prefix(s->ids, s->end, r->ids, r->n);
}

/* Tokens' worth of the layers that are read of the piece under way. */
static int layers_read(const struct session *s)
{
    const struct reading *p = &s->piece_read;
    return p->under_way && p->sliced ? p->rows.n * p->pass.layer / model_shape(s->model)->n_layers : 0;
}

/* The rest of the piece under way. When it is stopped it is set aside or given up, when it fails given up. */
static lily_status read_piece(struct session *s, const struct sync_request *r, int reused, struct lily_err *err)
{
    struct share share = {r, s->length - reused, s->end - s->length, r->n - reused};
    const struct reading_pause pause = {{r->cancel, NULL}, show_layers, &share};
    for (bool done = false; !done;) {
        lily_status st = reading_go_on(&s->piece_read, &pause, &done, err);
        const bool stopped = st == LILY_OK && !done && r->cancel && atomic_load(r->cancel);
        if (stopped) st = err_set(err, LILY_ERR_CANCELLED, "stopped inside token %d to %d of %d", s->length, s->end, r->n);
        if (st != LILY_OK && !(stopped && s->takes_up)) give_piece_up(s);
        LILY_TRY(st);
    }
    s->length = s->end;
    return LILY_OK;
}

static lily_status check_ids(const struct session *s, const int32_t *ids, int n, struct lily_err *err)
{
    int vocab = model_shape(s->model)->vocab;
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            LILY_FAIL(err, LILY_ERR_USAGE, "token %d is %d: expected 0 to %d", i, ids[i], vocab - 1);
    return LILY_OK;
}

lily_status session_sync(struct session *s, const struct sync_request *r, struct sync_result *out,
                         struct lily_err *err)
{
    if (r->n < 1) LILY_FAIL(err, LILY_ERR_USAGE, "an empty prompt: at least one token is needed");
    if (r->n > s->ctx) {
        err_set(err, LILY_ERR_LIMIT, "the prompt has %d tokens, the context holds %d", r->n, s->ctx);
        const int most = model_shape(s->model)->max_positions;
        if (r->n > most) err_hint(err, "shorten the prompt: the model's own limit is %d tokens", most);
        else err_hint(err, "shorten the prompt or raise --ctx");
        return LILY_ERR_LIMIT;
    }
    LILY_TRY(check_ids(s, r->ids, r->n, err));
    if (s->piece_read.under_way && !goes_on(s, r)) give_piece_up(s);
    if (!s->piece_read.under_way) restore_prefix(s, r);
    const int reused = s->length + layers_read(s);
    *out = (struct sync_result){reused, 0};
    while (s->length < r->n) {
        if (r->cancel && atomic_load(r->cancel)) LILY_FAIL(err, LILY_ERR_CANCELLED, "stopped at token %d of %d", s->length, r->n);
        if (r->progress) r->progress(r->progress_ctx, out->computed, r->n - reused);
        if (!s->piece_read.under_way) LILY_TRY(begin_piece(s, r, err));
        lily_status st = read_piece(s, r, reused, err);
        const int have = s->length + layers_read(s);
        out->computed = have > reused ? have - reused : 0;
        LILY_TRY(st);
        if (s->keep) LILY_TRY(borders_save(s->borders, s->seq, r->ids, s->keep, err));
        const struct prompt_plan plan = plan_of(s, r);
        if (plan_saves(&plan, s->length)) LILY_TRY(session_checkpoint(s, err));
    }
    if (r->progress) r->progress(r->progress_ctx, r->n - reused, r->n - reused);
    return LILY_OK;
}

static lily_status check_step(const struct session *s, int32_t id, struct lily_err *err)
{
    if (!s->length || s->piece_read.under_way) LILY_FAIL(err, LILY_ERR_USAGE, "a decode step before any whole prompt");
    if (s->length >= s->ctx) LILY_FAIL(err, LILY_ERR_LIMIT, "the context of %d tokens is full", s->ctx);
    return check_ids(s, &id, 1, err);
}

lily_status session_step(struct session *s, int32_t id, struct lily_err *err)
{
    LILY_TRY(check_step(s, id, err));
    s->decoded = true;
    return run_token(s, id, err);
}

void session_answer(struct session *s, struct sampler *sampler, const int32_t *eos, int n_eos)
{
    s->lane = (struct lane){.seq = s->seq, .sampler = sampler, .logits = s->logits, .eos = eos, .n_eos = n_eos, .length = s->length};
    lane_begin(&s->lane);
}

lily_status session_pick(struct session *s, int32_t *id, struct lily_err *err)
{
    const struct lanes all = {s->model, s->borders, NULL};
    return lane_pick(&all, &s->lane, id, err);
}

lily_status session_feed(struct session *s, int32_t id, bool goes_on, struct lily_err *err)
{
    const struct lanes all = {s->model, s->borders, NULL};
    const struct lane_feed feed = {&s->lane, id, goes_on && s->length + 1 < s->ctx};
    LILY_TRY(check_step(s, id, err));
    s->decoded = true;
    LILY_TRY(lanes_feed(&all, &feed, 1, err));
    s->ids[s->length++] = id;
    return LILY_OK;
}

struct borders *session_borders(struct session *s)
{
    return s->borders;
}

float *session_logits(struct session *s)
{
    return s->logits;
}

int session_length(const struct session *s)
{
    return s->length;
}

const int32_t *session_ids(const struct session *s)
{
    return s->ids;
}
