/* Reading ahead, and verifying. */
#include "run/aside.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "run/forward.h"

/* A piece that is read ahead; tokens after which its state is saved although it goes on; prompts that wait for each. */
enum { AHEAD_PIECE = 128, AHEAD_SAVE = 1024, MAX_AHEAD = 8, MAX_VERIFY = 8 };

struct verify {
    int32_t *ids;  /* owned; (n) */
    int n;
    float *logits; /* owned; (vocab) as served */
};

struct aside {
    struct model *model;     /* borrowed */
    struct borders *borders; /* borrowed */
    double share, credit;    /* of prompts to verify */
    struct seq *cold;        /* owned; NULL: nothing is verified */
    struct verify queue[MAX_VERIFY];
    int n_verify, verify_at; /* verify_at: tokens of the first that are read */
    float *logits;           /* owned; (ld) */
    struct read_ahead *first; /* owned list */
    int n_ahead;
    bool reading;            /* the spare sequence holds the first `read` tokens of `first` */
    int read;
};

void read_ahead_free(struct read_ahead *a)
{
    if (!a) return;
    ids_free(&a->ids);
    free(a);
}

static const struct backend_ops *ops_of(const struct aside *a)
{
    return model_backend(a->model)->ops;
}

lily_status aside_new(struct model *m, struct borders *b, double verify, struct aside **out, struct lily_err *err)
{
    struct aside *a = mem_new(sizeof *a);
    a->model = m;
    a->borders = b;
    a->share = verify;
    a->logits = mem_new(sizeof *a->logits * (size_t)shape_logits_ld(model_shape(m)));
    lily_status st = verify > 0 ? ops_of(a)->seq_new(model_backend(m), &a->cold, err) : LILY_OK;
    *out = st == LILY_OK ? a : NULL;
    if (st != LILY_OK) aside_free(a);
    return st;
}

static void drop_first_verify(struct aside *a)
{
    free(a->queue[0].ids);
    free(a->queue[0].logits);
    memmove(a->queue, a->queue + 1, sizeof a->queue[0] * (size_t)--a->n_verify);
    a->verify_at = 0;
    ops_of(a)->seq_reset(model_backend(a->model), a->cold);
}

static void drop_first_ahead(struct aside *a)
{
    struct read_ahead *gone = a->first;
    a->first = gone->next;
    a->n_ahead--;
    read_ahead_free(gone);
}

void aside_free(struct aside *a)
{
    if (!a) return;
    while (a->n_verify) drop_first_verify(a);
    while (a->first) drop_first_ahead(a);
    if (a->cold) ops_of(a)->seq_free(model_backend(a->model), a->cold);
    free(a->logits);
    free(a);
}

/* ---- verifying ---- */

bool aside_chooses(struct aside *a)
{
    a->credit += a->share;
    if (a->credit < 1) return false;
    a->credit -= 1;
    return true;
}

void aside_verify(struct aside *a, const int32_t *ids, int n, const float *logits)
{
    size_t n_logits = (size_t)model_shape(a->model)->vocab;
    if (!a->cold || a->n_verify == MAX_VERIFY) return;
    struct verify *v = &a->queue[a->n_verify++];
    v->ids = mem_new(sizeof *ids * (size_t)n);
    memcpy(v->ids, ids, sizeof *ids * (size_t)n);
    v->n = n;
    v->logits = mem_new(sizeof *logits * n_logits);
    memcpy(v->logits, logits, sizeof *logits * n_logits);
}

static void compare(struct aside *a)
{
    const struct verify *v = &a->queue[0];
    struct cache_counters *k = borders_counters(a->borders);
    int vocab = model_shape(a->model)->vocab, differ = 0;
    for (int i = 0; i < vocab; i++) differ += memcmp(&v->logits[i], &a->logits[i], sizeof *a->logits) != 0;
    atomic_fetch_add(&k->verified, 1);
    if (!differ) return;
    atomic_fetch_add(&k->differing, 1);
    log_warn("verify-cache: a prompt of %d tokens gave other logits from saved state than cold, %d of %d", v->n, differ, vocab);
}

static lily_status verify_piece(struct aside *a, struct lily_err *err)
{
    const struct verify *v = &a->queue[0];
    const struct backend_limits *l = &model_backend(a->model)->limits;
    int rest = v->n - a->verify_at, piece = l->short_rows ? l->short_rows : l->max_rows, n = rest < piece ? rest : piece;
    struct rows rows = {PHASE_PREFILL, a->cold, v->ids + a->verify_at, n, n == rest ? a->logits : NULL, NULL};
    lily_status st = borders_reserve(a->borders, a->cold, n, err);
    if (st == LILY_OK) st = forward_rows(a->model, &rows, err);
    a->verify_at += n;
    if (st == LILY_OK && n == rest) compare(a);
    if (st != LILY_OK || n == rest) drop_first_verify(a);
    if (st == LILY_ERR_DEVICE) return st;
    if (st != LILY_OK) log_warn("verify-cache: a prompt could not be read again: %s", err->msg);
    return LILY_OK;
}

/* ---- reading ahead ---- */

void aside_read_ahead(struct aside *a, struct read_ahead *moved)
{
    /* The newest first: its client is the one that is there. The first of all may be half read and stays. */
    struct read_ahead **at = a->reading && a->first ? &a->first->next : &a->first;
    moved->next = *at;
    *at = moved;
    if (++a->n_ahead <= MAX_AHEAD) return;
    while ((*at)->next) at = &(*at)->next;
    read_ahead_free(*at);
    *at = NULL;
    a->n_ahead--;
}

/* What was read so far is saved, unless the sequence is in the middle of a pass; then it is empty again. */
static lily_status let_go(struct aside *a, struct seq *spare, bool whole, struct lily_err *err)
{
    lily_status st = LILY_OK;
    if (whole && a->reading) st = borders_save(a->borders, spare, a->first->ids.data, a->read, err);
    ops_of(a)->seq_reset(model_backend(a->model), spare);
    a->reading = false;
    a->read = 0;
    return st;
}

static lily_status ahead_piece(struct aside *a, struct aside_step *s, struct lily_err *err)
{
    int n = (int)a->first->ids.n / GRID * GRID, max = model_backend(a->model)->limits.max_rows;
    const int32_t *ids = a->first->ids.data;
    if (!a->reading) a->read = borders_restore(a->borders, s->spare, ids, n + 1, 0);
    a->reading = true;
    int piece = max < AHEAD_PIECE ? max : AHEAD_PIECE, rest = n - a->read;
    if (rest > 0) {
        piece = rest < piece ? rest : piece;
        struct rows rows = {PHASE_PREFILL, s->spare, ids + a->read, piece, NULL, s->hurry};
        lily_status st = borders_reserve(a->borders, s->spare, piece, err);
        if (st == LILY_OK) st = forward_rows(a->model, &rows, err);
        if (st == LILY_ERR_CANCELLED) return let_go(a, s->spare, false, err);
        if (st != LILY_OK) {
            drop_first_ahead(a);
            (void)let_go(a, s->spare, false, NULL);
            return st == LILY_ERR_MEMORY ? LILY_OK : st;
        }
        a->read += piece;
        atomic_fetch_add(&borders_counters(a->borders)->idle_tokens, (uint64_t)piece);
        if (a->read < n && a->read % AHEAD_SAVE == 0) LILY_TRY(borders_save(a->borders, s->spare, ids, a->read, err));
    }
    if (a->read < n) return LILY_OK;
    lily_status st = let_go(a, s->spare, true, err);
    drop_first_ahead(a);
    return st;
}

lily_status aside_pause(struct aside *a, struct seq *spare, struct lily_err *err)
{
    return a->reading ? let_go(a, spare, true, err) : LILY_OK;
}

lily_status aside_step(struct aside *a, struct aside_step *s, struct lily_err *err)
{
    s->more = false;
    if (a->n_verify) LILY_TRY(verify_piece(a, err));
    else if (s->spare && a->first && !atomic_load(s->hurry)) LILY_TRY(ahead_piece(a, s, err));
    s->more = a->n_verify > 0 || (s->spare && a->first);
    return LILY_OK;
}
