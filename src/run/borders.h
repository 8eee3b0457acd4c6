/*
 * The saved states of a model, and where prefill pieces end. Every sequence of the model may go on from any of them.
 *
 * Borders hold prefill state on the grid of 64 only (ARCHITECTURE.md, State); the least recently used goes first.
 * Threads: the engine thread. Lifetime: the model outlives the store. Owned: borders_free.
 */
#ifndef LILY_RUN_BORDERS_H
#define LILY_RUN_BORDERS_H

#include "model/model.h"

struct borders;

struct borders *borders_new(struct model *m, int max); /* at most max; 0: none are kept */
void borders_free(struct borders *b);                  /* NULL is fine */
void borders_clear(struct borders *b);
int borders_count(const struct borders *b);

/*
 * Restores the deepest border that is a proper prefix of ids and has more than `floor` tokens into the sequence. Returns its
 * length, or 0 when there is none and the sequence is as it was.
 */
int borders_restore(struct borders *b, struct seq *seq, const int32_t *ids, int n, int floor);
/* Saves the state of a sequence whose tokens are ids[0 … length-1]. Lack of memory is no failure: then nothing is saved. */
lily_status borders_save(struct borders *b, const struct seq *seq, const int32_t *ids, int length, struct lily_err *err);
/* Room for n more tokens in a sequence; borders give way. */
lily_status borders_reserve(struct borders *b, struct seq *seq, int n, struct lily_err *err);

/* A prompt and what is known of its structure. */
struct prompt_plan {
    int n;            /* tokens */
    const int *marks; /* borrowed; (n_marks) positions before which a border is worth saving */
    int n_marks;
    int piece;        /* rows of a piece at most, a multiple of 64 */
};
/* Where the piece that begins at `at` ends: at its full size, at a border worth saving, or at the end of the prompt. */
int plan_piece_end(const struct prompt_plan *p, int at);
/* Whether the state after `at` tokens is worth saving. */
bool plan_saves(const struct prompt_plan *p, int at);

#endif
