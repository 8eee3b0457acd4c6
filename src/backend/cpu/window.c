/* Mixers take a batch's rows in windows: some after others, as many as their intermediates have room for. */
#include "backend/cpu/cpu.h"

/*
 * The end of the window from `from` on: where another sequence begins, or inside one on the grid of positions, since chunks of the
 * delta rule end there whatever rows a pass or a window has.
 */
static int window_end(const struct batch *all, const struct row_place *place, int from)
{
    int end = from + CPU_MIXER_ROWS;
    if (end >= all->n_rows) return all->n_rows;
    while (place[end].seq == place[end - 1].seq && place[end].pos % GRID) end--;
    return end;
}

/* The sequences of the rows from … end-1. */
static void cut_batch(struct cpu_window *w, int from, int end)
{
    const struct batch *all = w->all;
    w->part = *all;
    w->part.seqs = w->seqs;
    w->part.n_seqs = 0;
    w->part.n_rows = end - from;
    for (int i = 0, row = 0; i < all->n_seqs && row < end; row += all->seqs[i++].n) {
        const int lo = row > from ? row : from, behind = row + all->seqs[i].n, hi = behind < end ? behind : end;
        if (lo < hi) w->seqs[w->part.n_seqs++] = (struct batch_seq){all->seqs[i].seq, hi - lo};
    }
}

static void open_window(struct cpu_backend *c, int from, int end)
{
    struct cpu_window *w = &c->window;
    if (!w->all) {
        w->all = c->batch;
        w->place = c->place;
        w->x = c->ws.x, w->rotary = c->ws.rotary;
    }
    cut_batch(w, from, end);
    c->batch = &w->part;
    c->place = w->place + from;
    c->ws.x = w->x + (long)from * c->base.shape.hidden;
    c->ws.rotary = w->rotary + (long)from * ROTARY_DIM;
    cpu_set_digits(c, c->at);
}

static void close_window(struct cpu_backend *c)
{
    struct cpu_window *w = &c->window;
    c->batch = w->all;
    c->place = w->place;
    c->ws.x = w->x, c->ws.rotary = w->rotary;
    w->all = NULL;
    cpu_set_digits(c, c->at);
}

int cpu_take_rows(struct backend *be, int from)
{
    struct cpu_backend *c = cpu_of(be);
    const struct batch *all = c->window.all ? c->window.all : c->batch;
    if (from == all->n_rows) {
        if (c->window.all) close_window(c);
        return 0;
    }
    if (all->n_rows <= CPU_MIXER_ROWS) return all->n_rows;
    const int end = window_end(all, c->window.all ? c->window.place : c->place, from);
    open_window(c, from, end);
    return end - from;
}
