/* The step table: each step goes to its phase; decode steps wait for the norm that follows them. */
#include "backend/cuda/device.cuh"

static bool idle(const struct cuda_backend *c)
{
    return c->mode == PASS_REPLAY;
}

static bool decoding(const struct cuda_backend *c)
{
    return c->batch->phase == PHASE_DECODE;
}

static void pend(struct cuda_backend *c, enum pending_step step, const void *weights)
{
    decode_flush(c, NULL);
    c->pending = step;
    c->pending_weights = weights;
}

void decode_flush(struct cuda_backend *c, const struct vector *next_norm)
{
    enum pending_step step = c->pending;
    const void *w = c->pending_weights;
    c->pending = PENDING_NONE;
    if (idle(c)) return;
    if (step == PENDING_EMBED) decode_embed(c, (const struct matrix *)w, next_norm);
    if (step == PENDING_GDN_OUT) decode_gdn_out(c, (const struct gdn_weights *)w, next_norm);
    if (step == PENDING_ATTN_OUT) decode_attn_out(c, (const struct attn_weights *)w, next_norm);
    if (step == PENDING_EXPERTS) decode_moe_experts(c, (const struct moe_weights *)w, next_norm);
    if (step != PENDING_NONE) c->normed_stale = !next_norm;
}

/* All rows times this norm's weight are there when it returns. */
static void need_normed(struct cuda_backend *c, const struct vector *norm)
{
    decode_flush(c, norm);
    if (c->normed_stale) decode_weigh(c, NULL, norm, c->batch->n_rows, c->ws.normed, c->ws.ss);
    c->normed_stale = false;
}

static void embed(struct backend *be, const struct matrix *table)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (decoding(c)) pend(c, PENDING_EMBED, table);
    else prefill_embed(c, table);
}

static void gdn_in(struct backend *be, const struct gdn_weights *w)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (!decoding(c)) {
        prefill_gdn_in(c, w);
        return;
    }
    need_normed(c, w->norm);
    decode_gdn_in(c, w);
}

static void gdn_mix(struct backend *be, const struct gdn_weights *w, int index)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (decoding(c)) decode_gdn_mix(c, w, index);
    else prefill_gdn_mix(c, w, index);
    c->gdn_seen = index + 1;
}

static void gdn_out(struct backend *be, const struct gdn_weights *w)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (decoding(c)) pend(c, PENDING_GDN_OUT, w);
    else prefill_gdn_out(c, w);
}

static void attn_in(struct backend *be, const struct attn_weights *w, int index)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (!decoding(c)) {
        prefill_attn_in(c, w, index);
        return;
    }
    need_normed(c, w->norm);
    decode_attn_in(c, w, index);
}

static void attn_mix(struct backend *be, int index)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (decoding(c)) decode_attn_mix(c, index);
    else prefill_attn_mix(c, index);
}

static void attn_out(struct backend *be, const struct attn_weights *w)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (decoding(c)) pend(c, PENDING_ATTN_OUT, w);
    else prefill_attn_out(c, w);
}

static void moe_route(struct backend *be, const struct moe_weights *w)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (!decoding(c)) {
        prefill_moe_route(c, w);
        return;
    }
    need_normed(c, w->norm);
    decode_moe_route(c, w);
}

static void moe_experts(struct backend *be, const struct moe_weights *w)
{
    struct cuda_backend *c = cuda_of(be);
    if (idle(c)) return;
    if (decoding(c)) pend(c, PENDING_EXPERTS, w);
    else prefill_moe_experts(c, w);
}

static void head(struct backend *be, const struct vector *norm, const struct matrix *m)
{
    struct cuda_backend *c = cuda_of(be);
    if (!idle(c)) pass_head(c, norm, m);
}

const struct step_table cuda_steps = {pass_begin, embed,     gdn_in,      gdn_mix, gdn_out,  attn_in,         attn_mix,
                                      attn_out,   moe_route, moe_experts, head,    pass_end, pass_read_hidden};
