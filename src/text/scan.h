/*
 * A pull reader of JSON text for the one file that is too large for a tree: tokenizer.json with its half a million
 * strings. Strict (RFC 8259, UTF-8 checked), no allocation except for strings with escapes.
 *
 * The caller asks for what it expects; every other thing is LILY_ERR_FORMAT with the place. Threads: one at a time.
 * Lifetime: the text outlives the scan; string views point into the text or into the caller's scratch buffer.
 *
 *     scan_open(s, '{', err); while (true) { scan_key(s, &scratch, &key, &more, err); if (!more) break; … value … }
 */
#ifndef LILY_TEXT_SCAN_H
#define LILY_TEXT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct text_view { /* n bytes; not NUL-terminated */
    const char *data;
    size_t n;
};

struct scan {
    const char *text; /* borrowed */
    size_t n, at;
    int depth;
    bool first; /* nothing of the innermost open container has been read */
};

struct scan scan_begin(const char *text, size_t n);
/* The first byte of the next value ('{', '[', '"', a digit, …), 0 at the end. */
char scan_peek(struct scan *s);
/* Enters an object or array: bracket is '{' or '['. */
lily_status scan_open(struct scan *s, char bracket, struct lily_err *err);
/* In an object: the next key (its value follows), or *more = false after the closing brace. */
lily_status scan_key(struct scan *s, struct buf *scratch, struct text_view *key, bool *more, struct lily_err *err);
/* In an array: whether another value follows; false after the closing bracket. */
lily_status scan_item(struct scan *s, bool *more, struct lily_err *err);
lily_status scan_string(struct scan *s, struct buf *scratch, struct text_view *out, struct lily_err *err);
lily_status scan_integer(struct scan *s, int64_t *out, struct lily_err *err);
/* Passes over one value of any kind and gives its text. */
lily_status scan_value(struct scan *s, struct text_view *out, struct lily_err *err);
/* Nothing but white space may follow. */
lily_status scan_end(struct scan *s, struct lily_err *err);

/* A member that is wanted of an object; value gets the text of the value, n == 0 when there is none. */
struct scan_want {
    const char *key;
    struct text_view value;
};
/* One pass over the text of an object. A wanted key that comes twice is an error. */
lily_status scan_members(struct text_view object, struct scan_want *wants, int n_wants, struct lily_err *err);

bool text_is(struct text_view v, const char *s); /* the same bytes */
/* How many bytes of v a message shows with "%.*s": the first 60 or so, whole characters, up to a control character. */
int text_shown(struct text_view v);

#endif
