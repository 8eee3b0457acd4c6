/*
 * UTF-8, one character at a time, with the replacement rule of the Unicode standard ("maximal subparts", chapter 3.9):
 * each longest prefix of a well-formed sequence that does not complete counts as one error, and so does every byte that
 * can begin nothing. Python's errors='replace' and Rust's lossy decoding do the same. Pure functions; any thread.
 */
#ifndef LILY_TEXT_UTF8_H
#define LILY_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    UTF8_BAD = -1, /* an invalid part */
    UTF8_CUT = -2  /* well formed so far, but the bytes end inside the character */
};

/* The character at p (n > 0 bytes), or UTF8_BAD or UTF8_CUT; *len gets the bytes that it, or the part, takes. */
int32_t utf8_next(const uint8_t *p, size_t n, size_t *len);

/* Writes a character (below 0x110000) to out; returns its length 1…4. */
size_t utf8_put(uint32_t c, uint8_t out[4]);

/* How many of the n bytes from p on are ASCII before the first one that is not. */
size_t utf8_ascii_run(const uint8_t *p, size_t n);

/* Whether n bytes are well-formed UTF-8. */
int utf8_valid(const uint8_t *p, size_t n);

/* Appends n bytes to out with U+FFFD for each invalid part, an incomplete end included. */
void utf8_repair(const uint8_t *p, size_t n, struct buf *out);

#endif
