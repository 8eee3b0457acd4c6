/*
 * Unicode normalization form C of UTF-8 text. Nearly all text is in that form already and is handed back as it is; what is
 * not is rebuilt only around the places that need it. Any thread.
 */
#ifndef LILY_TEXT_NORMALIZE_H
#define LILY_TEXT_NORMALIZE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * The NFC of n bytes of well-formed UTF-8: returns text itself when it is normal, else scratch's bytes (cleared first);
 * *n becomes the new length. Time O(n), memory O(longest run of combining characters).
 */
const uint8_t *nfc_text(const uint8_t *text, size_t *n, struct buf *scratch);

#endif
