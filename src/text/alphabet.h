/*
 * The byte alphabet of byte-level vocabularies: each byte is written as one printable character (33–126, 161–172 and
 * 174–255 as themselves, the other 68 from U+0100 on, in order). Pure functions; any thread.
 */
#ifndef LILY_TEXT_ALPHABET_H
#define LILY_TEXT_ALPHABET_H

#include <stddef.h>
#include <stdint.h>

/* The bytes that n bytes of spelling stand for, into out (room for n); returns how many, or -1: not of the alphabet. */
long alphabet_bytes(const char *spelling, size_t n, uint8_t *out);

#endif
