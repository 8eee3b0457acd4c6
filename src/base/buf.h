/*
 * A growable byte buffer that is always NUL-terminated, for text that is built piece by piece.
 *
 * Owned: buf_free releases it, and makes it a buffer without `tries` again. Thread: one at a time. Zero-initialised is a valid empty buffer.
 */
#ifndef LILY_BASE_BUF_H
#define LILY_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct buf {
    char *data; /* owned; NULL while empty and never grown */
    size_t len; /* bytes in use, without the NUL */
    size_t cap;
    bool tries;  /* for text whose size comes from outside: lack of memory does not end the process, but sets `failed` */
    bool failed; /* the text lacks what came since memory was refused; until buf_free */
};

void buf_free(struct buf *b);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_reserve(struct buf *b, size_t extra); /* room for extra more bytes and the NUL */
bool buf_try_reserve(struct buf *b, size_t extra); /* the same, but false when there is no memory */
void buf_add(struct buf *b, const void *data, size_t n);
void buf_addz(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *buf_str(const struct buf *b); /* view, valid until the next change; "" when empty */
char *buf_take(struct buf *b);            /* moves the text to the caller (free()); the buffer is empty again */
/* LILY_ERR_MEMORY that names `what` when the text has failed. */
lily_status buf_check(const struct buf *b, const char *what, struct lily_err *err);

#endif
