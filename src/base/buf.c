/* Growable byte buffer. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void buf_free(struct buf *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data) b->data[0] = 0;
}

/* The capacity that holds extra more bytes and the NUL. */
static size_t cap_for(const struct buf *b, size_t extra)
{
    /* A sum that wraps is a request that no machine can serve: it ends as every other lack of memory does. */
    if (extra >= SIZE_MAX / 4 - b->len) return SIZE_MAX;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < b->len + extra + 1) cap += cap / 2 + 64;
    return cap;
}

static void set_room(struct buf *b, char *data, size_t cap)
{
    b->data = data;
    b->cap = cap;
    b->data[b->len] = 0;
}

void buf_reserve(struct buf *b, size_t extra)
{
    size_t cap = cap_for(b, extra);
    if (cap > b->cap) set_room(b, mem_resize(b->data, cap), cap);
}

bool buf_try_reserve(struct buf *b, size_t extra)
{
    size_t cap = cap_for(b, extra);
    if (cap <= b->cap) return true;
    char *data = mem_try_resize(b->data, cap, 1);
    if (data) set_room(b, data, cap);
    return data != NULL;
}

/* Room for n more bytes, or false where that may fail and does. */
static bool room(struct buf *b, size_t n)
{
    if (!b->tries) buf_reserve(b, n);
    else if (!b->failed) b->failed = !buf_try_reserve(b, n);
    return !b->failed;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
    if (!room(b, n)) return;
    if (n) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buf_addz(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n > 0 && room(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

lily_status buf_check(const struct buf *b, const char *what, struct lily_err *err)
{
    if (b->failed) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for %s: its first %zu bytes fit", what, b->len);
    return LILY_OK;
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}

char *buf_take(struct buf *b)
{
    buf_reserve(b, 0);
    char *p = b->data;
    memset(b, 0, sizeof *b);
    return p;
}
