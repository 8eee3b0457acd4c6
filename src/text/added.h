/*
 * Finding added tokens in text: the leftmost occurrence, and of those that begin there the longest.
 *
 * Threads: immutable once built. Lifetime: owned by the caller of added_new.
 */
#ifndef LILY_TEXT_ADDED_H
#define LILY_TEXT_ADDED_H

#include "text/image.h"

struct added;

struct added *added_new(const struct image *im);
void added_free(struct added *a);

/*
 * The place of the next added token at or after from; n if there is none. Its length and id go to *len and *id. Time O(n)
 * times the length of the longest added token at worst.
 */
size_t added_find(const struct added *a, const char *text, size_t n, size_t from, size_t *len, int32_t *id);

#endif
