/* The steps at both ends of a pass: begin (positions, rotary angles), embedding, head, end. */
#include <assert.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/rotary.h"

void cpu_set_digits(struct cpu_backend *c, enum digit_place place)
{
    const struct digit_choice *d = &c->digits[c->batch->phase][place];
    const struct {
        struct act *act;
        int count;
    } all[] = {{&c->ws.norm, d->count},   {&c->ws.mixed, d->count}, {&c->ws.inner, d->count},
               {&c->ws.shared, d->count}, {&c->ws.head, d->count},  {&c->ws.routed, d->routed}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        all[i].act->digits.count = all[i].count;
        all[i].act->bf16.n = d->bf16 ? c->batch->n_rows : 0;
    }
    c->now = *d;
    c->at = place;
}

void cpu_step_begin(struct backend *be, const struct batch *batch)
{
    struct cpu_backend *c = cpu_of(be);
    assert(batch->phase == PHASE_PREFILL || batch->n_rows <= CPU_MIXER_ROWS);
    c->batch = batch;
    cpu_set_digits(c, AT_ENDS);
    int row = 0;
    for (int i = 0; i < batch->n_seqs; i++)
        for (int t = 0; t < batch->seqs[i].n; t++, row++)
            c->place[row] = (struct row_place){batch->seqs[i].seq, batch->seqs[i].seq->length + t};
    for (int r = 0; r < row; r++) rotary_angles(c->frequency, c->place[r].pos, c->ws.rotary + (long)r * ROTARY_DIM);
}

void cpu_step_embed(struct backend *be, const struct matrix *table)
{
    struct cpu_backend *c = cpu_of(be);
    for (int t = 0; t < c->batch->n_rows; t++) matrix_row(table, 0, c->batch->ids[t], c->ws.x + (long)t * be->shape.hidden);
}

void cpu_step_head(struct backend *be, const struct vector *norm, const struct matrix *head)
{
    struct cpu_backend *c = cpu_of(be);
    const struct batch *b = c->batch;
    const struct model_shape *s = &be->shape;
    cpu_set_digits(c, AT_ENDS);
    for (int i = 0; i < b->n_logits; i++) {
        float *row = c->ws.head.x + (long)i * c->ws.head.ld;
        c->kernels.rms_norm(row, c->ws.x + (long)b->logit_rows[i] * s->hidden, norm->data, s->hidden, s->rms_eps);
        act_groups(c, &c->ws.head, i, 0, s->hidden / QUANT_GROUP);
    }
    if (!b->n_logits) return;
    struct linear l = {head, b->logits, shape_logits_ld(s), 0};
    cpu_linear(c, &l, 1, &c->ws.head, b->n_logits);
}

lily_status cpu_step_end(struct backend *be, struct lily_err *err)
{
    (void)err;
    struct cpu_backend *c = cpu_of(be);
    for (int i = 0; i < c->batch->n_seqs; i++) c->batch->seqs[i].seq->length += c->batch->seqs[i].n;
    c->batch = NULL;
    return LILY_OK;
}
