/* The generation loop. */
#include "run/generate.h"

#include <string.h>

#include "base/clock.h"
#include "run/stops.h"

const char *finish_reason_name(enum finish_reason r)
{
    static const char *const names[] = {"stop", "stop", "length", "cancelled"};
    return names[r];
}

struct loop {
    struct session *session;
    const struct generate_request *r;
    struct generate_result *out;
    struct detokenizer detokenizer;
    struct stops *stops;   /* owned */
    struct buf piece;      /* owned; text of one token */
    struct buf shown;      /* owned; what of it may be shown */
    int32_t close_think;   /* id of </think>, or -1 */
    bool thinking;
    bool refused;          /* the callback wants no more */
};

static bool is_eos(const struct generate_request *r, int32_t id)
{
    for (int i = 0; i < r->n_eos; i++)
        if (r->eos[i] == id) return true;
    return false;
}

static bool cancelled(const struct generate_request *r)
{
    return r->cancel && atomic_load(r->cancel);
}

/* Shows a token. true when the answer ends with it, and why. */
static bool show(struct loop *l, int32_t id)
{
    bool ended = false;
    buf_clear(&l->piece);
    buf_clear(&l->shown);
    detokenizer_push(&l->detokenizer, id, &l->piece);
    if (l->thinking) buf_add(&l->shown, buf_str(&l->piece), l->piece.len);
    else ended = stops_push(l->stops, buf_str(&l->piece), l->piece.len, &l->shown);
    if (id == l->close_think) l->thinking = false;
    if (ended) l->out->finish = FINISH_STOP_STRING;
    l->refused = !l->r->on_text(l->r->ctx, id, buf_str(&l->shown), l->shown.len);
    if (l->refused && !ended) l->out->finish = FINISH_CANCELLED;
    return ended || l->refused;
}

static lily_status run_loop(struct loop *l, struct lily_err *err)
{
    for (;;) {
        l->out->finish = FINISH_CANCELLED;
        if (cancelled(l->r)) return LILY_OK;
        int32_t id;
        LILY_TRY(session_pick(l->session, &id, err));
        l->out->finish = FINISH_STOP;
        if (is_eos(l->r, id)) return LILY_OK;
        ids_add(&l->out->ids, id);
        if (show(l, id)) return LILY_OK;
        l->out->finish = FINISH_LENGTH;
        if (l->out->ids.n >= (size_t)l->r->max_tokens) return LILY_OK;
        lily_status st = session_feed(l->session, id, l->out->ids.n + 1 < (size_t)l->r->max_tokens, err);
        if (st == LILY_ERR_LIMIT) return LILY_OK;
        if (st != LILY_OK) return st;
        l->out->steps++;
    }
}

lily_status generate(struct session *s, struct sampler *sampler, const struct generate_request *r,
                     struct generate_result *out, struct lily_err *err)
{
    struct loop l = {.session = s, .r = r, .out = out, .thinking = r->thinking_open};
    memset(out, 0, sizeof *out);
    if (r->max_tokens < 1) LILY_FAIL(err, LILY_ERR_USAGE, "max_tokens is %d, expected at least 1", r->max_tokens);
    LILY_TRY(stops_new(r->stop, r->n_stop, &l.stops, err));
    detokenizer_init(&l.detokenizer, r->tokenizer, r->show_special);
    l.close_think = tokenizer_added(r->tokenizer, "</think>");
    session_answer(s, sampler, r->eos, r->n_eos);
    double start = clock_ms();
    lily_status st = run_loop(&l, err);
    out->decode_ms = clock_ms() - start;
    buf_clear(&l.shown);
    stops_flush(l.stops, &l.shown);
    if (l.shown.len && !l.refused) r->on_text(r->ctx, -1, buf_str(&l.shown), l.shown.len);
    stops_free(l.stops);
    buf_free(&l.piece);
    buf_free(&l.shown);
    return st;
}
