/* Passes of lanes: with logits for the host's sampler, or chosen on the device and one ahead. */
#include "run/lane.h"

#include <string.h>

enum { MAX_ROWS = 64 }; /* of one pass */

/* Rows of one pass. */
struct row_list {
    struct batch_seq seqs[MAX_ROWS];
    struct lane *lanes[MAX_ROWS];
    int32_t ids[MAX_ROWS], rows[MAX_ROWS];
    int n;
    bool choose; /* the device does */
};

static struct backend *backend_of(const struct lanes *all)
{
    return model_backend(all->model);
}

static bool device_chooses(const struct lanes *all, const struct lane *l)
{
    return backend_of(all)->limits.max_chosen > 0 && !l->wants_logits && l->n_eos <= PICK_STOPS;
}

void lane_begin(struct lane *l)
{
    l->on_device = l->ahead = false;
}

lily_status lane_pick(const struct lanes *all, struct lane *l, int32_t *id, struct lily_err *err)
{
    struct backend *be = backend_of(all);
    struct pick p;
    if (!l->on_device) return sampler_pick_sound(l->sampler, l->logits, l->length, id, err);
    LILY_TRY(be->ops->pick_take(be, l->seq, &p, err));
    LILY_TRY(sampler_took(l->sampler, &p, l->length, err));
    if (p.stopped) l->ahead = false; /* what was begun behind it changed nothing */
    *id = p.id;
    return LILY_OK;
}

static lily_status run_pass(const struct lanes *all, struct row_list *r, struct lily_err *err)
{
    if (!r->n) return LILY_OK;
    size_t ld = (size_t)shape_logits_ld(model_shape(all->model));
    const bool several = !r->choose && r->n > 1;
    float *logits = r->choose ? NULL : several ? all->scratch : r->lanes[0]->logits;
    const struct batch batch = {.phase = PHASE_DECODE,
                                .n_seqs = r->n,
                                .seqs = r->seqs,
                                .n_rows = r->n,
                                .ids = r->ids,
                                .n_logits = r->choose ? 0 : r->n,
                                .logit_rows = r->rows,
                                .logits = logits,
                                .choose = r->choose};
    LILY_TRY(model_forward(all->model, &batch, NULL, err));
    for (int i = 0; several && i < r->n; i++) memcpy(r->lanes[i]->logits, logits + (size_t)i * ld, ld * sizeof *logits);
    r->n = 0;
    return LILY_OK;
}

/* A full list is run at once. */
static lily_status add_row(const struct lanes *all, struct row_list *r, struct lane *l, int32_t id, struct lily_err *err)
{
    int most = r->choose ? backend_of(all)->limits.max_chosen : MAX_ROWS;
    if (r->n == (most < MAX_ROWS ? most : MAX_ROWS)) LILY_TRY(run_pass(all, r, err));
    r->seqs[r->n] = (struct batch_seq){l->seq, 1};
    r->lanes[r->n] = l;
    r->ids[r->n] = id;
    r->rows[r->n] = r->n;
    r->n++;
    return LILY_OK;
}

static lily_status make_room(const struct lanes *all, struct lane *l, struct lily_err *err)
{
    struct backend *be = backend_of(all);
    return all->borders ? borders_reserve(all->borders, l->seq, 1, err) : be->ops->seq_reserve(be, l->seq, 1, err);
}

/* The pass behind the token that the device is about to choose; none where there is no room. */
static lily_status go_ahead(const struct lanes *all, struct row_list *r, struct lane *l, struct lily_err *err)
{
    struct lily_err full;
    if (make_room(all, l, &full) != LILY_OK) return LILY_OK;
    l->ahead = true;
    return add_row(all, r, l, ID_CHOSEN, err);
}

static lily_status send_rules(const struct lanes *all, struct lane *l, struct lily_err *err)
{
    struct backend *be = backend_of(all);
    struct pick_rules rules;
    sampler_rules(l->sampler, &rules);
    rules.stop = l->eos;
    rules.n_stop = l->n_eos;
    l->on_device = true;
    return be->ops->pick_rules(be, l->seq, &rules, err);
}

/*
 * A lane that is ahead has begun with this token already, so it goes on with the one behind it, in the same pass in which others
 * are fed theirs. Those are ahead, too, once that pass and one more are under way.
 */
static lily_status feed_device(const struct lanes *all, const struct lane_feed *feeds, int n, struct lily_err *err)
{
    struct row_list rows = {.choose = true};
    bool fresh[MAX_ROWS];
    for (int i = 0; i < n; i++) {
        struct lane *l = feeds[i].lane;
        fresh[i] = !l->ahead;
        l->ahead = false;
        l->length++;
        if (!l->on_device) LILY_TRY(send_rules(all, l, err));
        if (fresh[i]) LILY_TRY(make_room(all, l, err));
        if (fresh[i]) LILY_TRY(add_row(all, &rows, l, feeds[i].id, err));
        else if (feeds[i].goes_on) LILY_TRY(go_ahead(all, &rows, l, err));
    }
    LILY_TRY(run_pass(all, &rows, err));
    for (int i = 0; i < n; i++)
        if (fresh[i] && feeds[i].goes_on) LILY_TRY(go_ahead(all, &rows, feeds[i].lane, err));
    return run_pass(all, &rows, err);
}

static lily_status feed_host(const struct lanes *all, const struct lane_feed *feeds, int n, struct lily_err *err)
{
    struct row_list rows = {.choose = false};
    for (int i = 0; i < n; i++) {
        LILY_TRY(make_room(all, feeds[i].lane, err));
        LILY_TRY(add_row(all, &rows, feeds[i].lane, feeds[i].id, err));
        feeds[i].lane->length++;
    }
    return run_pass(all, &rows, err);
}

lily_status lanes_feed(const struct lanes *all, const struct lane_feed *feeds, int n, struct lily_err *err)
{
    while (n > 0) {
        struct lane_feed host[MAX_ROWS], device[MAX_ROWS];
        int n_host = 0, n_device = 0, part = n < MAX_ROWS ? n : MAX_ROWS;
        for (int i = 0; i < part; i++)
            if (device_chooses(all, feeds[i].lane)) device[n_device++] = feeds[i];
            else host[n_host++] = feeds[i];
        LILY_TRY(feed_device(all, device, n_device, err));
        LILY_TRY(feed_host(all, host, n_host, err));
        feeds += part;
        n -= part;
    }
    return LILY_OK;
}
