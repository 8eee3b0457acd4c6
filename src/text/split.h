/*
 * The family's split pattern (MODEL.md, Tokenizer): cuts normalized text into the pieces inside which merges happen.
 *
 * Threads: a struct splitter is immutable and shared; a struct split_run belongs to one call. Lifetime: the splitter
 * outlives its runs.
 */
#ifndef LILY_TEXT_SPLIT_H
#define LILY_TEXT_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The only pattern that a tokenizer of this family may name, as it stands in tokenizer.json. */
extern const char SPLIT_PATTERN[];

struct splitter; /* the compiled pattern; owned by the caller of split_new */
lily_status split_new(struct splitter **out, struct lily_err *err);
void split_free(struct splitter *s);

struct split_run; /* match state of one thread; owned by the caller of split_begin */
struct split_run *split_begin(const struct splitter *s);
void split_end(struct split_run *r);

/* The end of the piece that begins at pos < n; text is well-formed UTF-8 and pos starts a character. 0: no memory. */
size_t split_next(struct split_run *r, const char *text, size_t n, size_t pos);

#endif
