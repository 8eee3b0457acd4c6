/*
 * A reference: what some engine thought of every next token of a text, kept in a safetensors file.
 *
 * Tensors: ids I32 (n), all sequences one after another; starts I32 (sequences), where each begins, the first at 0; chosen
 * F32 (n), the natural-log probability of ids[i+1] after ids[0…i] of its sequence (0 in the last row of a sequence); top_ids I32 (n, k) and
 * top_logprobs F32 (n, k), the k most likely tokens, falling. Any engine can write it (tools/golden/eval_reference.py does
 * for transformers). Files are hostile: every index and number is checked. Plain values; any thread.
 */
#ifndef LILY_RUN_REFERENCE_H
#define LILY_RUN_REFERENCE_H

#include <stdint.h>

#include "base/err.h"

enum { REFERENCE_MAX_TOP = 20, REFERENCE_MAX_TOKENS = 1 << 24 };

struct reference {
    int32_t *ids, *starts, *top_ids;  /* owned */
    float *chosen, *top_logprobs;     /* owned */
    int n, n_sequences, k;
};

/* Room for n tokens; everything zero, one sequence. */
lily_status reference_new(int n, int k, struct reference *out, struct lily_err *err);
void reference_free(struct reference *r);
/* The end of sequence s: one past its last token. */
static inline int reference_end(const struct reference *r, int s)
{
    return s + 1 < r->n_sequences ? r->starts[s + 1] : r->n;
}

/* Ids are checked to be below vocab. */
lily_status reference_read(const char *path, int vocab, struct reference *out, struct lily_err *err);
lily_status reference_write(const char *path, const struct reference *r, struct lily_err *err);

#endif
