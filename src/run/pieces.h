/*
 * Where the pieces of a prompt end that is being read, and after which of them the state is worth saving.
 *
 * Worth saving is the last grid point (the same prompt may come again), the greatest grid point strictly below a mark (the
 * next request may go on, or part, there), and every 4,096th token of a long text. Of many marks the first, the last ones and
 * one in each 1,024 tokens count, so that a long history of short messages is not read in crumbs. Plain values; any thread.
 */
#ifndef LILY_RUN_PIECES_H
#define LILY_RUN_PIECES_H

#include <stdbool.h>

struct prompt_plan {
    int n;            /* tokens */
    const int *marks; /* borrowed; (n_marks) rising positions before which a border is worth saving */
    int n_marks;
    int piece;        /* rows of a piece at most, a multiple of 64 */
    bool inside;      /* a pass can keep one state on its way */
};
/*
 * Where the piece that begins at `at` ends: at its full size, at a border worth saving (the second one, if the first is kept on the
 * way), or at the end of the prompt.
 */
int plan_piece_end(const struct prompt_plan *p, int at);
/* The border inside that piece, to be kept on the way; 0: none. */
int plan_keeps(const struct prompt_plan *p, int at);
/* Whether the state after `at` tokens is worth saving. */
bool plan_saves(const struct prompt_plan *p, int at);

/* The greatest grid point strictly below a position, so that 1 to 64 tokens remain after it. */
int grid_below(int position);

#endif
