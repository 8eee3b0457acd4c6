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

void buf_reserve(struct buf *b, size_t extra)
{
    /* A sum that wraps is a request that no machine can serve: it ends as every other lack of memory does. */
    size_t need = extra < SIZE_MAX / 4 - b->len ? b->len + extra + 1 : SIZE_MAX;
    if (need <= b->cap) return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need && need != SIZE_MAX) cap += cap / 2 + 64;
    b->data = mem_resize(b->data, need == SIZE_MAX ? need : cap);
    b->cap = cap;
    b->data[b->len] = 0;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
    buf_reserve(b, n);
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
    if (n > 0) {
        buf_reserve(b, (size_t)n);
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
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
