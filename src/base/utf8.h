/* UTF-8: decoding with the exact limits of each lead byte, encoding, repair of what is invalid. Any thread. */
#ifndef LILY_BASE_UTF8_H
#define LILY_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "lily/status.h"

enum { UTF8_MAX = 4 }; /* bytes of a character */
#define UTF8_INVALID UINT32_MAX /* no character here: the bytes can never be one */
#define UTF8_PARTIAL (UINT32_MAX - 1) /* the text ends inside a character that is right so far */

/*
 * The code point at s (n > 0 bytes left) or one of the two codes above; *used gets the bytes it takes. For an invalid
 * sequence that is its longest start that could have begun a character (at least 1), as Python and WHATWG replace it.
 */
uint32_t utf8_decode(const char *s, size_t n, size_t *used);
bool utf8_valid(const char *s, size_t n);
/* The same for text that a person gave: LILY_ERR_FORMAT names it ("stdin") and the offset of the first byte that is none. */
lily_status utf8_check(const char *what, const char *s, size_t n, struct lily_err *err);
/* How many of the n bytes from s on are ASCII before the first one that is not. */
size_t utf8_ascii_run(const char *s, size_t n);
void utf8_add(struct buf *out, uint32_t code_point); /* appends a valid code point */
/* Appends n bytes; each invalid sequence, and a partial one at the end, becomes U+FFFD: at most UTF8_REPAIRED bytes for each. */
enum { UTF8_REPAIRED = 3 };
void utf8_add_repaired(struct buf *out, const char *s, size_t n);

#endif
