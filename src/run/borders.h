/*
 * The saved states of a model. Every sequence of the model may go on from any of them.
 *
 * Borders hold prefill state on the grid of 64 only (ARCHITECTURE.md, State). They are found by their tokens (run/prefix.h) and
 * kept under a budget of bytes that counts every KV page once, and whatever else is resident for their sake: tokens, lists, the index
 * of the disk cache and what is on its way there. When room is needed the least valuable one goes: the fewest tokens saved for each
 * byte it alone holds, where a use raises the value and age lowers it.
 *
 * Threads: the engine thread; borders_list and the counters may be read by any. Lifetime: the model outlives the store.
 * Owned: borders_free.
 */
#ifndef LILY_RUN_BORDERS_H
#define LILY_RUN_BORDERS_H

#include "model/model.h"
#include "run/cache_counters.h"

struct borders;

struct disk;

struct borders *borders_new(struct model *m, size_t budget); /* bytes; 0: none are kept */
void borders_free(struct borders *b);                        /* NULL is fine */
void borders_clear(struct borders *b);
int borders_count(const struct borders *b);
size_t borders_bytes(const struct borders *b); /* all that counts against the budget */
void borders_beside(struct borders *b, size_t bytes); /* the present size of something of the caller's that counts, too */
struct cache_counters *borders_counters(struct borders *b);

/*
 * Restores the deepest border that is a proper prefix of ids and has more than `floor` tokens into the sequence. Returns its
 * length, or 0 when there is none and the sequence is as it was.
 */
int borders_restore(struct borders *b, struct seq *seq, const int32_t *ids, int n, int floor);
/* The length of the deepest one that is a proper prefix of ids; changes nothing. */
int borders_depth(const struct borders *b, const int32_t *ids, int n);
/* Whether a pass can keep a state on its way: borders_keep. */
bool borders_keep_inside(const struct borders *b);
/* Lets the sequence's next prefill pass keep the state of ids[0 … length-1] inside it, for borders_save; not when that is saved already. */
lily_status borders_keep(struct borders *b, struct seq *seq, const int32_t *ids, int length, struct lily_err *err);
/*
 * Saves the state of a sequence whose tokens are ids[0 … length-1], or the one that its last pass has kept. Lack of memory is no
 * failure: then nothing is saved.
 */
lily_status borders_save(struct borders *b, struct seq *seq, const int32_t *ids, int length, struct lily_err *err);
/* Makes a state of ids[0 … length-1] from bytes and keeps it. Lack of memory is no failure; an error of the source comes through. */
lily_status borders_import(struct borders *b, const int32_t *ids, int length, const struct border_source *source, struct lily_err *err);
/* The states that are prefixes of ids[0 … n-1], by rising length, the deepest max of them; borrowed until the store changes. */
int borders_along(const struct borders *b, const int32_t *ids, int n, const struct border **out, int *lengths, int max);
/* Room for n more tokens in a sequence; borders give way. */
lily_status borders_reserve(struct borders *b, struct seq *seq, int n, struct lily_err *err);

/*
 * States also live on disk from now on (run/disk.h): the deepest one is looked for there, too, and comes into memory when it is
 * used; those in memory are written bit by bit in borders_tend, the most valuable first. *more: it wants to be called again at once.
 */
void borders_use_disk(struct borders *b, struct disk *moved);
lily_status borders_tend(struct borders *b, bool *more, struct lily_err *err);
/* Writes what is not written yet, for at most that long. */
void borders_flush(struct borders *b, double ms);

/* A saved state as others see it. */
struct border_info {
    int tokens;   /* that it stands for */
    size_t bytes; /* that would be free without it */
    int hits;
    double age_s; /* since it was last used */
    bool on_disk;
};
/* The first max of them, the most valuable first; returns how many there are. */
int borders_list(struct borders *b, struct border_info *out, int max);

#endif
