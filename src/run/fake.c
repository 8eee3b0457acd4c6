/* Playing a script: each slot has a reply and a place in it. */
#include "run/fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "run/fake_script.h"

enum { KEPT_PROMPTS = 32, LOAD_PARTS = 20 };

struct lane {
    struct fake_reply own;   /* owned; the reply that the prompt itself carried */
    const struct fake_reply *reply; /* own, or one of the script's */
    const struct job_spec *spec; /* NULL: free */
    int read;     /* prompt tokens */
    int slices;   /* made of the piece under way */
    int at;       /* next token of the reply */
    double due_ms; /* when that one comes; the clock of the token before it, once it was taken */
    bool scheduled; /* due_ms is that of the next token */
    int32_t picked; /* last */
    bool promised;  /* the picked token will be fed, unless it ends the turn */
};

struct fake {
    struct runner base;
    struct fake_script script; /* owned */
    struct fake_reply empty;
    struct lane *lanes;        /* owned; (n_slots) */
    struct ids kept[KEPT_PROMPTS]; /* owned; prompts that were read, for what a real engine would reuse */
    int n_kept;                /* ever */
    int steps;
    int32_t eos, first_own;    /* ids from first_own on are the reply's tokens */
};

static struct fake *of(struct runner *r)
{
    return (struct fake *)r;
}

static void sleep_ms(double ms)
{
    struct timespec t = {(time_t)(ms / 1e3), (long)((ms - 1e3 * (double)(time_t)(ms / 1e3)) * 1e6)};
    if (ms > 0) nanosleep(&t, NULL);
}

static lily_status load(struct runner *r, struct lily_err *err)
{
    struct fake *f = of(r);
    for (int i = 0; i < LOAD_PARTS; i++) {
        if (atomic_load(&r->loading.stop)) LILY_FAIL(err, LILY_ERR_CANCELLED, "loading was stopped");
        sleep_ms(f->script.load_ms / LOAD_PARTS);
        atomic_store(&r->loading.thousandths, (i + 1) * 1000 / LOAD_PARTS);
    }
    if (f->script.load_error) LILY_FAIL(err, LILY_ERR_DEVICE, "%s", f->script.load_error);
    return LILY_OK;
}

static void free_fake(struct runner *r)
{
    struct fake *f = of(r);
    for (int i = 0; i < r->n_slots; i++) fake_reply_free(&f->lanes[i].own);
    for (int i = 0; i < KEPT_PROMPTS; i++) ids_free(&f->kept[i]);
    fake_script_free(&f->script);
    free(f->lanes);
    free(f);
}

/* The tokens that two texts have in common, on the grid and without the last one of the prompt. */
static int common(const struct job_spec *spec, const int32_t *ids, int n_ids)
{
    int n = 0;
    while (n < n_ids && n < spec->n_ids && ids[n] == spec->ids[n]) n++;
    if (n == spec->n_ids) n--;
    return n / GRID * GRID;
}

/* The longest part of a prompt that begins an earlier one, or what has been read of one. */
static int reusable(const struct fake *f, const struct job_spec *spec)
{
    int best = 0;
    for (int i = 0; i < KEPT_PROMPTS + f->base.n_slots; i++) {
        const struct lane *lane = &f->lanes[i < KEPT_PROMPTS ? 0 : i - KEPT_PROMPTS];
        int n = i < KEPT_PROMPTS ? common(spec, f->kept[i].data, (int)f->kept[i].n)
                                 : lane->spec && lane->spec != spec ? common(spec, lane->spec->ids, lane->read) : 0;
        if (n > best) best = n;
    }
    return best;
}

static void keep(struct fake *f, const struct job_spec *spec)
{
    struct ids *to = &f->kept[f->n_kept++ % KEPT_PROMPTS];
    ids_clear(to);
    ids_append(to, spec->ids, (size_t)spec->n_ids);
}

static const char *last_script(const char *text, size_t n)
{
    static const char mark[] = "#script ";
    const char *found = NULL, *p = text;
    while ((p = memmem(p, n - (size_t)(p - text), mark, sizeof mark - 1))) found = p += sizeof mark - 1;
    return found;
}

/* The reply in the prompt's last "#script {...}" line. */
static lily_status read_own(struct fake *f, struct lane *lane, const char *from, struct lily_err *err)
{
    static const char end_of_turn[] = "<|im_end|>";
    const struct job_spec *spec = lane->spec;
    size_t rest = spec->n_text - (size_t)(from - spec->text), tail = sizeof end_of_turn - 1;
    const char *line_end = memchr(from, '\n', rest);
    size_t n = line_end ? (size_t)(line_end - from) : rest;
    if (n >= tail && memcmp(from + n - tail, end_of_turn, tail) == 0) n -= tail;
    struct json *v;
    LILY_TRY(json_parse(from, n, "the prompt's #script", &v, err));
    lily_status st = fake_reply_read(v, "the prompt's #script", f->base.texts->tokenizer, &lane->own, err);
    json_free(v);
    return st;
}

static lily_status begin(struct runner *r, int slot, struct job *job, struct job_result *result, struct lily_err *err)
{
    struct fake *f = of(r);
    struct lane *lane = &f->lanes[slot];
    lily_status st = LILY_OK;
    const char *own = f->script.prompt_scripts ? last_script(job->spec->text, job->spec->n_text) : NULL;
    *lane = (struct lane){.spec = job->spec};
    if (own) {
        st = read_own(f, lane, own, err);
        lane->reply = &lane->own;
    } else {
        lane->reply = fake_script_choose(&f->script, job->spec->text, job->spec->n_text);
        if (!lane->reply) lane->reply = &f->empty;
    }
    lane->read = result->reused = reusable(f, job->spec);
    if (st != LILY_OK) lane->spec = NULL; /* end is not called */
    return st;
}

static lily_status prefill(struct runner *r, int slot, int *read, bool *goes_on, struct lily_err *err)
{
    struct fake *f = of(r);
    struct lane *lane = &f->lanes[slot];
    double rate = lane->reply->prefill_rate > 0 ? lane->reply->prefill_rate : f->script.prefill_rate;
    int n = lane->spec->n_ids - lane->read;
    if (n > f->script.piece) n = f->script.piece;
    if (rate > 0) sleep_ms(1e3 * n / rate / f->script.slices);
    if (lane->reply->prefill_crash) LILY_FAIL(err, LILY_ERR_DEVICE, "the script breaks the engine while it reads a prompt");
    if (lane->reply->prefill_error) LILY_FAIL(err, LILY_ERR_INTERNAL, "%s", lane->reply->prefill_error);
    *goes_on = ++lane->slices < f->script.slices;
    *read = lane->read;
    if (*goes_on) return LILY_OK;
    lane->slices = 0;
    *read = lane->read += n;
    if (lane->read < lane->spec->n_ids) return LILY_OK;
    keep(f, lane->spec);
    lane->due_ms = clock_ms();
    return LILY_OK;
}

/* Invented, but in order: the token itself, then others that are ever less likely. */
static void invent_logprobs(const struct job_spec *spec, int32_t id, struct job_logprob *out)
{
    out->id = id;
    out->logprob = -0.125f;
    out->n_top = spec->n_logprobs;
    for (int i = 0; i < out->n_top; i++) out->top[i] = (struct token_logprob){i ? i : id, -0.125f - 2.0f * (float)i};
}

static lily_status pick(struct runner *r, int slot, struct picked *out, struct lily_err *err)
{
    struct fake *f = of(r);
    struct lane *lane = &f->lanes[slot];
    const struct fake_token *t = lane->at < lane->reply->n_tokens ? &lane->reply->tokens[lane->at] : NULL;
    if (!lane->scheduled) {
        lane->due_ms += t ? t->delay_ms : 0;
        lane->scheduled = true;
    }
    out->ready = clock_ms() >= lane->due_ms;
    out->ready_ms = lane->due_ms;
    if (!out->ready) return LILY_OK;
    lane->scheduled = false;
    if (t && t->crash) LILY_FAIL(err, LILY_ERR_DEVICE, "the script breaks the engine at token %d", lane->at);
    if (t && t->error) LILY_FAIL(err, LILY_ERR_INTERNAL, "%s", t->error);
    out->id = !t ? f->eos : t->id >= 0 ? t->id : f->first_own + t->same;
    lane->at++;
    lane->picked = out->id;
    invent_logprobs(lane->spec, out->id, &out->logprob);
    return LILY_OK;
}

static lily_status decode(struct runner *r, const struct feed *feeds, int n, struct lily_err *err)
{
    struct fake *f = of(r);
    for (int i = 0; i < n; i++) { /* a device that has begun with the picked token could not turn back */
        struct lane *lane = &f->lanes[feeds[i].slot];
        if (lane->promised && feeds[i].id != lane->picked && lane->picked != f->eos)
            LILY_FAIL(err, LILY_ERR_DEVICE, "token %d was fed in place of %d, which was to be fed", (int)feeds[i].id, (int)lane->picked);
        lane->promised = feeds[i].goes_on;
    }
    if (++f->steps == f->script.crash_at_step)
        LILY_FAIL(err, LILY_ERR_DEVICE, "the script breaks the engine at step %d", f->steps);
    return LILY_OK;
}

static const char *text(struct runner *r, int slot, int32_t id, size_t *n)
{
    struct fake *f = of(r);
    const struct tokenizer *t = r->texts->tokenizer;
    if (id >= f->first_own) {
        const struct buf *own = &f->lanes[slot].reply->tokens[id - f->first_own].text;
        *n = own->len;
        return buf_str(own);
    }
    const char *bytes = tokenizer_is_special(t, id) ? NULL : tokenizer_token(t, id, n);
    if (!bytes) *n = 0;
    return bytes ? bytes : "";
}

/* A model whose thoughts are closed for it goes on with its answer. */
static void thinking_closed(struct runner *r, int slot)
{
    struct lane *lane = &of(r)->lanes[slot];
    int32_t close = tokenizer_added(r->texts->tokenizer, "</think>");
    for (int i = lane->at; i < lane->reply->n_tokens && close >= 0; i++) {
        if (lane->reply->tokens[i].id != close) continue;
        lane->at = i + 1;
        break;
    }
    lane->scheduled = false;
}

static void end(struct runner *r, int slot)
{
    fake_reply_free(&of(r)->lanes[slot].own);
    of(r)->lanes[slot].spec = NULL;
}

static const struct runner_ops fake_ops = {.load = load,
                                           .free = free_fake,
                                           .begin = begin,
                                           .prefill = prefill,
                                           .pick = pick,
                                           .decode = decode,
                                           .text = text,
                                           .thinking_closed = thinking_closed,
                                           .end = end};

lily_status fake_open(const char *path, const struct bundle *texts, int n_slots, int ctx, struct runner **out,
                      struct lily_err *err)
{
    struct fake *f = mem_new(sizeof *f);
    *out = NULL;
    f->base = (struct runner){.ops = &fake_ops, .texts = texts, .n_slots = n_slots, .ctx = ctx};
    f->lanes = mem_new(sizeof *f->lanes * (size_t)n_slots);
    f->eos = texts->n_eos ? texts->eos[0] : -1;
    f->first_own = tokenizer_size(texts->tokenizer);
    lily_status st = fake_script_read(path, texts->tokenizer, &f->script, err);
    if (st == LILY_OK && f->eos < 0) st = err_set(err, LILY_ERR_UNSUPPORTED, "the tokenizer has no end-of-turn token");
    if (st != LILY_OK) {
        free_fake(&f->base);
        return st;
    }
    *out = &f->base;
    return LILY_OK;
}
