/* Steps that take the time of the backend's own. */
#include "run/step_clock.h"

#include <string.h>

#include "base/clock.h"

static struct step_clock *clock_of(struct backend *be)
{
    return (struct step_clock *)(uintptr_t)be->ops;
}

#define TIMED(kind, call)                                                                                              \
    do {                                                                                                               \
        struct step_clock *c = clock_of(be);                                                                           \
        double start = clock_ms();                                                                                     \
        c->inner->step.call;                                                                                           \
        c->ms[kind] += clock_ms() - start;                                                                             \
    } while (0)

static void embed(struct backend *be, const struct matrix *table)
{
    TIMED(STEP_EMBED, embed(be, table));
}

static void gdn_in(struct backend *be, const struct gdn_weights *w)
{
    TIMED(STEP_GDN_IN, gdn_in(be, w));
}

static void gdn_mix(struct backend *be, const struct gdn_weights *w, int index)
{
    TIMED(STEP_GDN_MIX, gdn_mix(be, w, index));
}

static void gdn_out(struct backend *be, const struct gdn_weights *w)
{
    TIMED(STEP_GDN_OUT, gdn_out(be, w));
}

static void attn_in(struct backend *be, const struct attn_weights *w, int index)
{
    TIMED(STEP_ATTN_IN, attn_in(be, w, index));
}

static void attn_mix(struct backend *be, int index)
{
    TIMED(STEP_ATTN_MIX, attn_mix(be, index));
}

static void attn_out(struct backend *be, const struct attn_weights *w)
{
    TIMED(STEP_ATTN_OUT, attn_out(be, w));
}

static void moe_route(struct backend *be, const struct moe_weights *w)
{
    TIMED(STEP_ROUTE, moe_route(be, w));
}

static void moe_experts(struct backend *be, const struct moe_weights *w)
{
    TIMED(STEP_EXPERTS, moe_experts(be, w));
}

static void head(struct backend *be, const struct vector *norm, const struct matrix *m)
{
    TIMED(STEP_HEAD, head(be, norm, m));
}

void step_clock_on(struct step_clock *c, struct backend *be)
{
    memset(c, 0, sizeof *c);
    c->ops = *be->ops;
    c->inner = be->ops;
    struct step_table *s = &c->ops.step;
    s->embed = embed, s->gdn_in = gdn_in, s->gdn_mix = gdn_mix, s->gdn_out = gdn_out, s->attn_in = attn_in, s->attn_mix = attn_mix;
    s->attn_out = attn_out, s->moe_route = moe_route, s->moe_experts = moe_experts, s->head = head;
    be->ops = &c->ops;
}

void step_clock_off(struct step_clock *c, struct backend *be)
{
    be->ops = c->inner;
    c->inner = NULL;
}

const char *step_name(enum step_kind kind)
{
    static const char *const names[STEP_KINDS] = {"embed", "gdn_in", "gdn_mix", "gdn_out", "attn_in", "attn_mix", "attn_out", "route", "experts", "head"};
    return names[kind];
}
