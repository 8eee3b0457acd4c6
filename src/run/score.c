/* Reading a sequence piece by piece, logits and all. */
#include "run/score.h"

#include <stdlib.h>

#include "base/mem.h"

enum { PIECE = GRID }; /* the head writes PIECE rows of logits at once: 64 MB with the published vocabulary */

static lily_status check(const struct model *m, const struct score_request *r, struct lily_err *err)
{
    int vocab = model_shape(m)->vocab, ctx = model_plan(m)->ctx;
    if (r->n < 1) LILY_FAIL(err, LILY_ERR_USAGE, "nothing to read: at least one token is needed");
    if (r->n > ctx) {
        err_set(err, LILY_ERR_LIMIT, "%d tokens, the context holds %d", r->n, ctx);
        err_hint(err, "raise --ctx");
        return LILY_ERR_LIMIT;
    }
    for (int i = 0; i < r->n; i++)
        if (r->ids[i] < 0 || r->ids[i] >= vocab)
            LILY_FAIL(err, LILY_ERR_USAGE, "token %d is %d: expected 0 to %d", i, (int)r->ids[i], vocab - 1);
    return LILY_OK;
}

/* One piece of n rows that begins at row `at`. */
static lily_status read_piece(struct model *m, struct seq *seq, const struct score_request *r, int at, int n, float *logits,
                              struct lily_err *err)
{
    struct backend *be = model_backend(m);
    struct batch_seq bs = {seq, n};
    int32_t rows[PIECE];
    int skip = r->first > at ? r->first - at : 0, wanted = 0;
    for (int i = skip; i < n; i++) rows[wanted++] = i;
    struct batch batch = {.phase = PHASE_PREFILL, .n_seqs = 1, .seqs = &bs, .n_rows = n, .ids = r->ids + at,
                          .n_logits = wanted, .logit_rows = rows, .logits = logits};
    LILY_TRY(be->ops->seq_reserve(be, seq, n, err));
    LILY_TRY(model_forward(m, &batch, NULL, err));
    size_t ld = (size_t)shape_logits_ld(model_shape(m));
    for (int i = 0; i < wanted; i++) LILY_TRY(r->row(r->ctx, at + rows[i], logits + (size_t)i * ld, err));
    return LILY_OK;
}

lily_status score_sequence(struct model *m, const struct score_request *r, struct lily_err *err)
{
    struct backend *be = model_backend(m);
    struct seq *seq;
    LILY_TRY(check(m, r, err));
    float *logits = mem_try((size_t)shape_logits_ld(model_shape(m)) * PIECE, sizeof *logits);
    if (!logits) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for %d rows of logits", PIECE);
    lily_status st = be->ops->seq_new(be, &seq, err);
    if (st == LILY_OK) {
        for (int at = 0; at < r->n && st == LILY_OK; at += PIECE) {
            if (r->cancel && atomic_load(r->cancel)) st = err_set(err, LILY_ERR_CANCELLED, "%s", "");
            else st = read_piece(m, seq, r, at, r->n - at < PIECE ? r->n - at : PIECE, logits, err);
        }
        be->ops->seq_free(be, seq);
    }
    free(logits);
    return st;
}
