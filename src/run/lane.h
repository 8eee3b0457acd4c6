/*
 * A sequence that decodes, for those who drive one or several. Its tokens are chosen by the host from logits, or by the device
 * where that can: then the pass behind a token is under way before the token is known here.
 *
 * Threads: the engine thread. Lifetime: the struct is the caller's, and all in it is borrowed.
 */
#ifndef LILY_RUN_LANE_H
#define LILY_RUN_LANE_H

#include "model/model.h"
#include "run/borders.h"
#include "sample/sampler.h"

struct lane {
    struct seq *seq;
    struct sampler *sampler;
    float *logits;      /* (shape_logits_ld) of the last token, where the host chooses; else of the prompt's last */
    const int32_t *eos; /* ids that end the answer */
    int n_eos;
    bool wants_logits;  /* the host chooses, whatever the device can do */
    int length;         /* tokens in the state, for messages; counted by lanes_feed */
    bool on_device, ahead; /* lane_begin */
};

/* What lanes that are fed together share. */
struct lanes {
    struct model *model;
    struct borders *borders; /* gives room for new tokens; may be NULL */
    float *scratch;          /* (lanes, shape_logits_ld); NULL where one alone is fed at a time */
};

/* The logits are the prompt's; the first token is chosen from them. */
void lane_begin(struct lane *l);
/* The next token; waits for it. Fails as sampler_pick_sound does. */
lily_status lane_pick(const struct lanes *all, struct lane *l, int32_t *id, struct lily_err *err);

struct lane_feed {
    struct lane *lane;
    int32_t id;
    bool goes_on; /* what lane_pick gives next will be fed, unless it is one of eos: so the device may begin with it */
};
/*
 * One more token for each of n different lanes. An id is the one that lane_pick gave, unless that was one of eos or goes_on was
 * false.
 */
lily_status lanes_feed(const struct lanes *all, const struct lane_feed *feeds, int n, struct lily_err *err);

#endif
