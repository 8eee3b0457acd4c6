/*
 * The state of sequences on the CPU: KV pages of 64 tokens, shared between sequences and borders by reference count, and
 * the fp32 recurrent and convolution state.
 *
 * A page holds K and V of 64 tokens for every full-attention layer and KV head: for layer l, head h, first K then V, each
 * (64, 256) of bf16 or fp32. Borders lie on the grid of 64, so a shared page is always full and never written again; a
 * sequence writes only into pages that it alone holds.
 *
 * Pages and the fixed states of sequences and borders count against one budget. Engine thread only.
 */
#ifndef LILY_BACKEND_CPU_STATE_H
#define LILY_BACKEND_CPU_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/pages.h"
#include "base/err.h"
#include "spec/shape.h"

/* Sizes, memory and counters that all states of a backend share. */
struct state_pool {
    const struct model_shape *shape; /* borrowed */
    bool kv_bf16;
    size_t head_bytes;   /* (64, 256) elements: K or V of one head */
    size_t budget, used; /* bytes that states may take, and take now */
    struct kv_pages pages;
};

struct seq {
    struct state_pool *pool; /* borrowed */
    const uint8_t **pages;   /* owned array, a reference to each page; (n_pages) */
    int n_pages, cap_pages;
    int length;       /* tokens */
    float *recurrent; /* owned; (n_linear, n_gdn_v_heads, k 128, v 128) */
    float *conv;      /* owned; (n_linear, 3, conv_dim), oldest first */
    float *kept;      /* owned; like recurrent and conv, at kept_at tokens: of the pass that goes over them. NULL: none */
    int kept_at;
};

struct border {
    struct state_pool *pool; /* borrowed */
    const uint8_t **pages;   /* owned array, a reference to each page */
    int n_pages;
    int length; /* multiple of 64 */
    float *recurrent, *conv; /* owned copies */
};

/* budget: bytes for every page, recurrent and convolution state together. */
lily_status state_pool_init(struct state_pool *p, const struct model_shape *shape, bool kv_bf16, size_t budget,
                            struct lily_err *err);
void state_pool_free(struct state_pool *p);

lily_status state_seq_new(struct state_pool *p, struct seq **out, struct lily_err *err);
void state_seq_free(struct seq *s);
void state_seq_reset(struct seq *s);
lily_status state_seq_reserve(struct seq *s, int n, struct lily_err *err);

lily_status state_seq_keep(struct seq *s, int length, struct lily_err *err);
/* Where the present pass has to put the state at `end` tokens, as in recurrent; NULL: it is not kept there. */
static inline float *state_kept(const struct seq *s, int end)
{
    return s->kept && s->kept_at == end && end > s->length ? s->kept : NULL;
}

lily_status state_border_kept(struct seq *s, int length, struct border **out);
lily_status state_border_save(const struct seq *s, struct border **out, struct lily_err *err);
void state_border_restore(struct seq *s, const struct border *b);
void state_border_free(struct border *b);
size_t state_border_bytes(const struct state_pool *p);
/* As in backend.h. */
void state_seq_share(struct seq *s, const struct border *b, int n);
const uint8_t *state_border_part(const struct border *b, int part);
struct border_source;
struct border_shape {
    int length;                /* tokens, a multiple of 64 */
    const struct border *base; /* borrowed; whose first n_shared pages are taken */
    int n_shared;
};
lily_status state_border_import(struct state_pool *p, const struct border_shape *shape, const struct border_source *src,
                                struct border **out, struct lily_err *err);

/* Bytes from a page's start to K of a layer (among full layers) and head; V follows K. */
static inline size_t state_k_offset(const struct state_pool *p, int layer, int head)
{
    return ((size_t)layer * (size_t)p->shape->n_kv_heads + (size_t)head) * 2 * p->head_bytes;
}

/* Writes one K or V row of 256 into its place; pos must be reserved. */
void state_kv_store(const struct seq *s, size_t offset, int pos, const float *row);

#endif
