/* The pieces of a prompt. */
#include "run/pieces.h"

#include "spec/family.h"

enum { LAST_MARKS = 6, MARK_STEP = 1024, COARSE = 4096 };

int grid_below(int position)
{
    return (position - 1) / GRID * GRID;
}

static bool counts(const struct prompt_plan *p, int i)
{
    return i == 0 || i >= p->n_marks - LAST_MARKS || p->marks[i] / MARK_STEP != p->marks[i - 1] / MARK_STEP;
}

/* The first place worth a border behind `at`, or the end of the prompt. */
static int next_border(const struct prompt_plan *p, int at)
{
    int next = p->n, coarse = at / COARSE * COARSE + COARSE, last = grid_below(p->n);
    if (last > at) next = last;
    if (coarse < next) next = coarse;
    for (int i = 0; i < p->n_marks; i++) {
        int border = grid_below(p->marks[i]);
        if (border > at && border < next && counts(p, i)) next = border;
    }
    return next;
}

int plan_piece_end(const struct prompt_plan *p, int at)
{
    int end = at + p->piece, next = next_border(p, at);
    if (p->inside && next < p->n && next < end) next = next_border(p, next);
    return end < next ? end : next;
}

int plan_keeps(const struct prompt_plan *p, int at)
{
    int next = next_border(p, at);
    return next < plan_piece_end(p, at) ? next : 0;
}

bool plan_saves(const struct prompt_plan *p, int at)
{
    return at > 0 && at < p->n && at % GRID == 0 && next_border(p, at - 1) == at;
}
