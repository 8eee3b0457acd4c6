/*
 * Unicode normalization form C of UTF-8 text. Nearly all text is in that form already and is handed back as it is; what is
 * not is rebuilt only around the places that need it.
 *
 * Threads: a struct nfc is immutable and shared. Lifetime: owned by the caller of nfc_new.
 */
#ifndef LILY_TEXT_NORMALIZE_H
#define LILY_TEXT_NORMALIZE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct nfc;
struct nfc *nfc_new(void); /* about a millisecond */
void nfc_free(struct nfc *nfc);

/*
 * The NFC of n bytes of well-formed UTF-8: returns text itself when it is normal, else scratch's bytes (cleared first);
 * *n becomes the new length. NULL when there is no memory. Time O(n), memory O(longest run of combining characters).
 */
const char *nfc_text(const struct nfc *nfc, const char *text, size_t *n, struct buf *scratch);

#endif
