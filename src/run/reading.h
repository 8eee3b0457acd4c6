/*
 * A piece of a prompt, read in slices: between two of them the model does other work. A slice ends between layers, after about a quarter
 * of a short piece's work, or sooner. It is a whole piece where pieces cannot be left (CUDA), where that is no more work, and where
 * another piece has been left.
 *
 * The sequence of a piece that has not ended is broken: layers have advanced its state in place. reading_give_up makes it whole.
 * Engine thread. In place while a piece is under way.
 */
#ifndef LILY_RUN_READING_H
#define LILY_RUN_READING_H

#include "run/forward.h"

struct reading {
    struct model *model; /* borrowed */
    bool under_way;
    struct rows rows;    /* what it points to is borrowed */
    int from;            /* tokens of the sequence before the piece */
    bool sliced;         /* the pass is open in the model */
    struct pass pass;
    struct batch_seq one;
    int32_t last;
    struct border *behind; /* owned; the sequence before the piece; NULL: it was empty, or there was no memory */
};

/* What ends a slice before its time, after the present layer. Each may be NULL. */
struct reading_pause {
    const atomic_bool *flags[2];
    void (*progress)(void *ctx, int done, int total); /* layers made, before each of them */
    void *progress_ctx;
};

/* The sequence has room for rows.n more tokens; rows.stop is NULL. No other piece may be under way, unless this one is short. */
void reading_begin(struct reading *r, struct model *m, const struct rows *rows);
/* While such a piece is under way, others can be read, but none of them in slices. */
bool reading_is_short(const struct reading *r);
lily_status reading_go_on(struct reading *r, const struct reading_pause *pause, bool *done, struct lily_err *err);
/* Ends a piece that is under way, for good. The sequence is as before it, or empty: returns its length. */
int reading_give_up(struct reading *r);

#endif
