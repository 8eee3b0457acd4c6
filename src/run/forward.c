/* A batch of one sequence. */
#include "run/forward.h"

lily_status forward_rows(struct model *m, const struct rows *r, struct lily_err *err)
{
    const struct batch_seq one = {r->seq, r->n};
    const struct forward_observer watch = {.stop = r->stop};
    int32_t last = r->n - 1;
    const struct batch batch = {.phase = r->phase,
                                .n_seqs = 1,
                                .seqs = &one,
                                .n_rows = r->n,
                                .ids = r->ids,
                                .n_logits = r->logits != NULL,
                                .logit_rows = &last,
                                .logits = r->logits};
    return model_forward(m, &batch, r->stop ? &watch : NULL, err);
}
