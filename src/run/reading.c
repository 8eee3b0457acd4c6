/* Pieces in slices. */
#include "run/reading.h"

static struct backend *backend_of(const struct reading *r)
{
    return model_backend(r->model);
}

/*
 * A copy to go back to, so that a client who leaves in the middle of a long piece costs that piece and not the prompt. One that finds no
 * room is done without: then the sequence becomes empty.
 */
static void keep_behind(struct reading *r)
{
    struct lily_err ignored;
    r->behind = NULL;
    if (r->from && r->from % GRID == 0) (void)backend_of(r)->ops->border_save(backend_of(r), r->rows.seq, &r->behind, &ignored);
}

static void begin_pass(struct reading *r)
{
    const struct rows *rows = &r->rows;
    r->one = (struct batch_seq){rows->seq, rows->n};
    r->last = rows->n - 1;
    r->pass.batch = (struct batch){.phase = rows->phase,
                                   .n_seqs = 1,
                                   .seqs = &r->one,
                                   .n_rows = rows->n,
                                   .ids = rows->ids,
                                   .n_logits = rows->logits != NULL,
                                   .logit_rows = &r->last,
                                   .logits = rows->logits};
    keep_behind(r);
    model_pass_begin(r->model, &r->pass);
}

/*
 * Layers that are as much work for this many rows as all of them are for a quarter of a short piece's, but at least one. All, where
 * pieces cannot be left.
 */
static int slice_layers(const struct reading *r)
{
    const int all = model_shape(r->model)->n_layers, shorter = backend_of(r)->limits.short_rows, layers = all * shorter / 4 / r->rows.n;
    return !shorter || layers > all ? all : layers < 1 ? 1 : layers;
}

void reading_begin(struct reading *r, struct model *m, const struct rows *rows)
{
    *r = (struct reading){.model = m, .under_way = true, .rows = *rows};
    r->from = backend_of(r)->ops->seq_length(rows->seq);
    r->sliced = !model_pass_is_open(m) && slice_layers(r) < model_shape(m)->n_layers;
    if (r->sliced) begin_pass(r);
}

bool reading_is_short(const struct reading *r)
{
    return r->rows.n <= backend_of(r)->limits.short_rows;
}

static bool is_set(const struct reading_pause *pause)
{
    for (int i = 0; i < 2; i++)
        if (pause->flags[i] && atomic_load(pause->flags[i])) return true;
    return false;
}

static bool has_layers(const struct reading *r)
{
    return r->pass.layer < model_shape(r->model)->n_layers;
}

static void ended(struct reading *r)
{
    if (r->behind) backend_of(r)->ops->border_free(backend_of(r), r->behind);
    r->behind = NULL;
    r->under_way = false;
}

lily_status reading_go_on(struct reading *r, const struct reading_pause *pause, bool *done, struct lily_err *err)
{
    *done = false;
    if (!r->sliced) {
        LILY_TRY(forward_rows(r->model, &r->rows, err));
        *done = true;
    }
    for (int left = slice_layers(r); !*done && (left > 0 || !has_layers(r)); left--) {
        if (pause->progress) pause->progress(pause->progress_ctx, r->pass.layer, model_shape(r->model)->n_layers);
        LILY_TRY(model_pass_go_on(r->model, &r->pass, done, err));
        if (has_layers(r) && is_set(pause)) return LILY_OK;
    }
    if (*done) ended(r);
    return LILY_OK;
}

int reading_give_up(struct reading *r)
{
    const struct backend_ops *ops = backend_of(r)->ops;
    struct seq *seq = r->rows.seq;
    if (r->sliced) model_pass_drop(r->model, &r->pass);
    if (r->behind) ops->border_restore(backend_of(r), seq, r->behind);
    else ops->seq_reset(backend_of(r), seq);
    ended(r);
    return ops->seq_length(seq);
}
