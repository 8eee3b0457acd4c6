/* Request heads and chunked bodies: no read past the input, views inside the text, the same body at any cut. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http_head.h"

enum { MOST = 4096 };

static void feed_all(const char *s, size_t n, size_t step, struct buf *body, enum http_chunk_result *result)
{
    struct http_chunks c = {0};
    *result = HTTP_CHUNK_MORE;
    for (size_t at = 0; at < n && *result == HTTP_CHUNK_MORE;) {
        size_t used, part = n - at < step ? n - at : step;
        *result = http_chunks_feed(&c, s + at, part, MOST, body, &used);
        if (used > part || (*result == HTTP_CHUNK_MORE && used != part)) abort();
        at += used;
    }
    if (body->len > MOST) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data, *why = NULL;
    struct http_head h;
    struct buf whole = {0}, bytes = {0};
    enum http_chunk_result a, b;
    size_t end = http_head_end(s, size);
    if (end > size) abort();
    int status = http_head_parse(s, end ? end : size, &h, &why);
    if (status) {
        if (status < 400 || !why) abort();
    } else {
        if (*h.path != '/' && strcmp(h.path, "*") != 0) abort();
        for (int i = 0; i < h.n_headers; i++)
            if (!http_header(&h, h.headers[i].name)) abort();
        http_head_free(&h);
    }
    feed_all(s, size, size ? size : 1, &whole, &a);
    feed_all(s, size, 1, &bytes, &b);
    if (a == HTTP_CHUNK_TOO_LONG || b == HTTP_CHUNK_TOO_LONG) goto out; /* what of the last chunk was taken depends on the cut */
    if (a != b || whole.len != bytes.len || memcmp(buf_str(&whole), buf_str(&bytes), whole.len) != 0) abort();
out:
    buf_free(&whole);
    buf_free(&bytes);
    return 0;
}
