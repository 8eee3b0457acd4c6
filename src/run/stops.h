/*
 * Stop strings over a text that arrives in pieces: what may be shown, and where the answer ends.
 *
 * The result depends on the text alone, never on how it was cut: the answer ends before the match that is complete first
 * (the longest one, if several end at the same byte). Text that could still become a match is held back, so that
 * not even a first letter of a stop string is ever shown. Time: O(text x strings). Thread: one at a time.
 */
#ifndef LILY_RUN_STOPS_H
#define LILY_RUN_STOPS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum { MAX_STOP_STRINGS = 16, MAX_STOP_BYTES = 1024 };

struct stops; /* opaque; owned by its creator */

/*
 * Strings are copied; each has 1 … MAX_STOP_BYTES bytes of valid UTF-8 (else LILY_ERR_USAGE; the caller repeats the name
 * of its option or field). n = 0 is fine: everything passes.
 */
lily_status stops_new(const char *const *strings, int n, struct stops **out, struct lily_err *err);
void stops_free(struct stops *s); /* NULL is fine */

/* Takes n bytes of whole characters; appends to out what may be shown now. true: a stop string is complete, the text ends. */
bool stops_push(struct stops *s, const char *text, size_t n, struct buf *out);
/* The text ended otherwise: appends what was held back. */
void stops_flush(struct stops *s, struct buf *out);
/* The index of the string that ended the text; -1 before. */
int stops_matched(const struct stops *s);

#endif
