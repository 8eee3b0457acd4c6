/* Continuous batching over the slots of a runner. */
#include "run/scheduler.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "run/outbox.h"
#include "run/reply.h"

enum phase_of_slot { SLOT_FREE, SLOT_WAITING, SLOT_PREFILL, SLOT_DECODE, SLOT_ENDED /* its last records wait for room */ };

struct slot {
    enum phase_of_slot phase;
    struct job *job;      /* the engine's while not free */
    struct outbox outbox; /* owned */
    struct reply reply;   /* owned */
    struct job_result result;
    unsigned long order;  /* of admission */
    unsigned long turn;   /* when a piece of its prompt was last read; 0: never */
    bool bound;           /* runner begin was called */
    bool goes_on;         /* a short piece of its prompt is under way */
    double begun_ms, decode_ms;
};

struct scheduler {
    struct runner *runner; /* borrowed */
    struct engine_counters *counters; /* borrowed */
    struct slot *slots;    /* owned; (n_slots) */
    struct feed *feeds;    /* owned; (n_slots) what this step feeds */
    int n_feeds;
    unsigned long admitted, turns;
    bool newcomer;         /* the last piece was a prompt's first one */
    bool wrote, at_once;
};

struct scheduler *scheduler_new(struct runner *r, struct engine_counters *counters)
{
    struct scheduler *s = mem_new(sizeof *s);
    s->runner = r;
    s->counters = counters;
    s->slots = mem_new(sizeof *s->slots * (size_t)r->n_slots);
    s->feeds = mem_new(sizeof *s->feeds * (size_t)r->n_slots);
    return s;
}

void scheduler_free(struct scheduler *s)
{
    if (!s) return;
    for (int i = 0; i < s->runner->n_slots; i++) outbox_free(&s->slots[i].outbox);
    free(s->slots);
    free(s->feeds);
    free(s);
}

int scheduler_n_free(const struct scheduler *s)
{
    int n = 0;
    for (int i = 0; i < s->runner->n_slots; i++) n += s->slots[i].phase == SLOT_FREE;
    return n;
}

static void set_state(struct job *j, enum job_state from, enum job_state to)
{
    assert(atomic_load(&j->state) == (int)from);
    (void)from;
    atomic_store(&j->state, to);
}

static void put_record(void *ctx, enum job_record kind, const void *data, size_t n)
{
    struct slot *slot = ctx;
    outbox_put(&slot->outbox, &slot->job->ring, kind, data, n);
}

void scheduler_admit(struct scheduler *s, struct job *j)
{
    struct slot *slot = s->slots;
    while (slot->phase != SLOT_FREE) slot++;
    slot->phase = SLOT_WAITING;
    slot->job = j;
    slot->outbox.whole = j->spec->whole;
    slot->order = s->admitted++;
    slot->turn = 0;
    slot->bound = false;
    slot->goes_on = false;
    slot->begun_ms = clock_ms();
    slot->decode_ms = 0;
    memset(&slot->result, 0, sizeof slot->result);
    slot->result.queue_ms = slot->begun_ms - j->submitted_ms;
    atomic_store(&j->total, j->spec->n_ids);
    set_state(j, JOB_QUEUED, JOB_PREFILL);
    atomic_fetch_add(&s->counters->active, 1);
    atomic_fetch_add(&s->counters->queue_us, (uint64_t)(slot->result.queue_ms * 1e3));
}

/* ---- ends ---- */

/* The last record is out: the job is the asker's again. */
static void release(struct scheduler *s, struct slot *slot)
{
    set_state(slot->job, (enum job_state)atomic_load(&slot->job->state), JOB_DONE);
    ring_put_last(&slot->job->ring, JOB_END, &slot->result, sizeof slot->result);
    slot->job = NULL;
    slot->phase = SLOT_FREE;
    s->wrote = s->at_once = true;
    atomic_fetch_sub(&s->counters->active, 1);
}

static void count(struct engine_counters *c, const struct job_result *r)
{
    if (r->status != LILY_OK) atomic_fetch_add(&c->jobs_failed, 1);
    else if (r->finish == FINISH_CANCELLED) atomic_fetch_add(&c->jobs_cancelled, 1);
    else atomic_fetch_add(&c->jobs_done, 1);
    atomic_fetch_add(&c->reasoning_tokens, (uint64_t)r->reasoning_tokens);
}

static void end_slot(struct scheduler *s, int i, lily_status status, const struct lily_err *err)
{
    struct slot *slot = &s->slots[i];
    struct job_result *r = &slot->result;
    if (slot->phase == SLOT_DECODE) {
        reply_finish(&slot->reply);
        r->decode_ms = clock_ms() - slot->decode_ms;
        r->finish = slot->reply.finish;
        r->detail = slot->reply.detail;
        r->stop_index = slot->reply.stop_index;
        r->completion_tokens = slot->reply.completion_tokens;
        r->reasoning_tokens = slot->reply.reasoning_tokens;
    } else {
        r->finish = FINISH_CANCELLED;
        r->prefill_ms = slot->bound ? clock_ms() - slot->begun_ms : 0;
    }
    r->status = status;
    if (status != LILY_OK && err) r->err = *err;
    if (slot->bound) {
        s->runner->ops->end(s->runner, i);
        reply_free(&slot->reply);
    }
    count(s->counters, r);
    slot->phase = SLOT_ENDED;
    if (outbox_is_empty(&slot->outbox)) release(s, slot);
}

static void cancel_slot(struct scheduler *s, int i)
{
    struct slot *slot = &s->slots[i];
    if (slot->phase != SLOT_ENDED) {
        slot->reply.finish = FINISH_CANCELLED;
        end_slot(s, i, LILY_OK, NULL);
    }
    if (slot->phase == SLOT_FREE) return;
    outbox_clear(&slot->outbox);
    release(s, slot);
}

void scheduler_end_all(struct scheduler *s, const struct lily_err *err)
{
    for (int i = 0; i < s->runner->n_slots; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->phase == SLOT_FREE) continue;
        if (err && slot->phase != SLOT_ENDED) end_slot(s, i, err->status, err);
        if (!err) cancel_slot(s, i);
    }
}

void scheduler_refuse(struct job *j, struct engine_counters *counters, const struct lily_err *err)
{
    struct job_result r = {.finish = FINISH_CANCELLED, .queue_ms = clock_ms() - j->submitted_ms};
    if (err) {
        r.status = err->status;
        r.err = *err;
    }
    count(counters, &r);
    set_state(j, JOB_QUEUED, JOB_DONE);
    ring_put_last(&j->ring, JOB_END, &r, sizeof r);
}

/* A call of the runner failed for this slot: true when it is broken for good. */
static bool slot_failed(struct scheduler *s, int i, lily_status st, const struct lily_err *err)
{
    if (st == LILY_ERR_DEVICE) return true;
    end_slot(s, i, st, err);
    return false;
}

/* ---- decoding ---- */

/* Finds the token to feed; -1 when there is none now, or when the answer has ended. */
static lily_status next_token(struct scheduler *s, int i, int32_t *id, double *wait_ms, struct lily_err *err)
{
    struct slot *slot = &s->slots[i];
    const struct runner_ops *ops = s->runner->ops;
    *id = -1;
    for (;;) {
        bool closes, forced;
        struct picked picked = {.ready = true};
        picked.id = reply_forced(&slot->reply, &closes);
        forced = picked.id >= 0;
        if (closes && ops->thinking_closed) ops->thinking_closed(s->runner, i);
        if (!forced) LILY_TRY(ops->pick(s->runner, i, &picked, err));
        if (!picked.ready) {
            if (picked.ready_ms < *wait_ms) *wait_ms = picked.ready_ms;
            return LILY_OK;
        }
        if (bundle_is_eos(s->runner->texts, picked.id)) {
            if (reply_end_of_turn(&slot->reply)) continue;
            end_slot(s, i, LILY_OK, NULL);
            return LILY_OK;
        }
        size_t n;
        const char *bytes = ops->text(s->runner, i, picked.id, &n);
        bool with_logprob = !forced && slot->job->spec->n_logprobs >= 0;
        bool on = reply_token(&slot->reply, picked.id, bytes, n, with_logprob ? &picked.logprob : NULL);
        atomic_fetch_add(&s->counters->generated_tokens, 1);
        if (slot->reply.completion_tokens == 1) s->at_once = true;
        if (on) *id = picked.id;
        else end_slot(s, i, LILY_OK, NULL);
        return LILY_OK;
    }
}

/* The tokens of this step, in the order of the slots. */
static lily_status collect(struct scheduler *s, double *wait_ms, struct lily_err *err)
{
    s->n_feeds = 0;
    for (int i = 0; i < s->runner->n_slots; i++) {
        struct slot *slot = &s->slots[i];
        int32_t id;
        if (slot->phase != SLOT_DECODE || !outbox_is_empty(&slot->outbox)) continue;
        lily_status st = next_token(s, i, &id, wait_ms, err);
        if (st != LILY_OK && slot_failed(s, i, st, err)) return st;
        if (st == LILY_OK && id >= 0) s->feeds[s->n_feeds++] = (struct feed){i, id, reply_goes_on(&slot->reply)};
    }
    return LILY_OK;
}

static lily_status decode(struct scheduler *s, struct lily_err *err)
{
    int n = s->n_feeds;
    double start = clock_ms();
    lily_status st = s->runner->ops->decode(s->runner, s->feeds, n, err);
    atomic_fetch_add(&s->counters->decode_us, (uint64_t)((clock_ms() - start) * 1e3));
    atomic_fetch_add(&s->counters->decode_steps, 1);
    atomic_fetch_add(&s->counters->decode_rows, (uint64_t)n);
    for (int k = 0; st != LILY_OK && k < n; k++)
        if (slot_failed(s, s->feeds[k].slot, st, err)) return st;
    return LILY_OK;
}

/* ---- prefill ---- */

/* Whether a prompt that is being read is, beyond the place where it is, also what this one needs. */
static bool reads_for(const struct slot *reader, const struct job_spec *spec)
{
    const struct job_spec *other = reader->job->spec;
    int ahead = reader->result.reused + reader->result.computed + GRID;
    return ahead < other->n_ids && ahead < spec->n_ids && memcmp(other->ids, spec->ids, sizeof *spec->ids * (size_t)ahead) == 0;
}

/* A prompt waits while another one reads what both have in common: then it finds that saved. */
static bool waits_for_another(const struct scheduler *s, const struct slot *slot)
{
    for (int i = 0; i < s->runner->n_slots; i++) {
        const struct slot *other = &s->slots[i];
        if (other->phase == SLOT_PREFILL && other->bound && reads_for(other, slot->job->spec)) return true;
    }
    return false;
}

static bool comes_before(const struct slot *a, const struct slot *b)
{
    return a->turn != b->turn ? a->turn < b->turn : a->order < b->order;
}

/*
 * The slot whose prompt is read now; -1: none. Prompts take turns, so that a short one does not wait for a long one. One that
 * was never read goes first, but not twice in a row, so that a long one gets on among any number of short ones. A short piece
 * that is under way goes on: it is left for those who decode alone.
 */
static int reading_slot(const struct scheduler *s)
{
    int fresh = -1, begun = -1;
    for (int i = 0; i < s->runner->n_slots; i++) {
        const struct slot *slot = &s->slots[i];
        int *best = slot->phase == SLOT_WAITING ? &fresh : &begun;
        if (slot->phase == SLOT_PREFILL && slot->goes_on) return i;
        if (slot->phase != SLOT_WAITING && slot->phase != SLOT_PREFILL) continue;
        if (slot->phase == SLOT_WAITING && waits_for_another(s, slot)) continue;
        if (*best < 0 || comes_before(slot, &s->slots[*best])) *best = i;
    }
    return fresh >= 0 && (begun < 0 || !s->newcomer) ? fresh : begun;
}

static lily_status bind(struct scheduler *s, int i, struct lily_err *err)
{
    struct slot *slot = &s->slots[i];
    slot->phase = SLOT_PREFILL;
    slot->reply.put = put_record;
    slot->reply.ctx = slot;
    LILY_TRY(reply_open(&slot->reply, slot->job->spec, s->runner->texts, err));
    lily_status st = s->runner->ops->begin(s->runner, i, slot->job, &slot->result, err);
    if (st != LILY_OK) {
        reply_free(&slot->reply);
        return st;
    }
    slot->bound = true;
    atomic_fetch_add(&s->counters->prompt_tokens, (uint64_t)slot->job->spec->n_ids);
    atomic_fetch_add(&s->counters->reused_tokens, (uint64_t)slot->result.reused);
    return LILY_OK;
}

/* Reads on: a piece, or a slice of one. */
static lily_status read_piece(struct scheduler *s, int i, struct lily_err *err)
{
    struct slot *slot = &s->slots[i];
    int read = 0, before;
    if (!slot->goes_on) s->newcomer = slot->turn == 0; /* the rest of a piece is that piece */
    slot->turn = ++s->turns;
    if (!slot->bound) LILY_TRY(bind(s, i, err));
    before = slot->result.reused + slot->result.computed;
    double start = clock_ms();
    LILY_TRY(s->runner->ops->prefill(s->runner, i, &read, &slot->goes_on, err));
    slot->result.computed = read - slot->result.reused;
    atomic_fetch_add(&s->counters->prefill_us, (uint64_t)((clock_ms() - start) * 1e3));
    if (read == before) return LILY_OK; /* a slice of a piece */
    atomic_store(&slot->job->done, read);
    atomic_fetch_add(&s->counters->prefill_pieces, 1);
    atomic_fetch_add(&s->counters->computed_tokens, (uint64_t)(read - before));
    if (read < slot->job->spec->n_ids) return LILY_OK;
    slot->phase = SLOT_DECODE;
    slot->decode_ms = clock_ms();
    slot->result.prefill_ms = slot->decode_ms - slot->begun_ms;
    set_state(slot->job, JOB_PREFILL, JOB_DECODE);
    return LILY_OK;
}

/* ---- the step ---- */

static void settle(struct scheduler *s, int i)
{
    struct slot *slot = &s->slots[i];
    if (slot->phase == SLOT_FREE) return;
    if (atomic_load(&slot->job->cancel)) {
        cancel_slot(s, i);
        return;
    }
    if (outbox_flush(&slot->outbox, &slot->job->ring)) s->wrote = true;
    atomic_store(&slot->job->blocked, !outbox_is_empty(&slot->outbox));
    /* The reader may have made room between the two. */
    if (outbox_flush(&slot->outbox, &slot->job->ring)) s->wrote = true;
    if (slot->phase == SLOT_ENDED && outbox_is_empty(&slot->outbox)) release(s, slot);
}

/* What the runner does beside the jobs. */
static lily_status tend(struct scheduler *s, struct step_outcome *out, struct lily_err *err)
{
    bool more = false;
    if (!s->runner->ops->tend) return LILY_OK;
    lily_status st = s->runner->ops->tend(s->runner, atomic_load(&s->counters->active) == 0, &more, err);
    out->worked |= more;
    return st;
}

/* What was written since the last time. */
static void take_wrote(struct scheduler *s, struct step_outcome *out)
{
    out->wrote = s->wrote;
    out->at_once = s->at_once;
    for (int i = 0; i < s->runner->n_slots; i++) out->wrote |= outbox_take_wrote(&s->slots[i].outbox);
    s->wrote = s->at_once = false;
}

lily_status scheduler_tell(struct scheduler *s, struct step_outcome *out, struct lily_err *err)
{
    *out = (struct step_outcome){.wait_ms = INFINITY};
    for (int i = 0; i < s->runner->n_slots; i++) settle(s, i);
    lily_status st = collect(s, &out->wait_ms, err);
    take_wrote(s, out);
    return st;
}

static lily_status compute(struct scheduler *s, struct step_outcome *out, struct lily_err *err)
{
    if (s->n_feeds) LILY_TRY(decode(s, err));
    int i = reading_slot(s);
    if (i >= 0) {
        lily_status st = read_piece(s, i, err);
        if (st != LILY_OK && slot_failed(s, i, st, err)) return st;
    }
    out->worked = s->n_feeds > 0 || i >= 0;
    return tend(s, out, err);
}

lily_status scheduler_compute(struct scheduler *s, struct step_outcome *out, struct lily_err *err)
{
    lily_status st = compute(s, out, err);
    take_wrote(s, out);
    return st;
}
