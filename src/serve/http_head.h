/*
 * The head of an HTTP/1.x request and chunked bodies, from bytes: pure parsing, strict where laxness lets one request hide
 * in another (both lengths, folded lines, blanks before a colon, odd chunk sizes are all refused). Any thread.
 */
#ifndef LILY_SERVE_HTTP_HEAD_H
#define LILY_SERVE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { HTTP_MAX_HEADERS = 100, HTTP_MAX_HEAD = 32 << 10 };

struct http_header {
    const char *name, *value; /* views, NUL-terminated */
};

struct http_head {
    char *text; /* owned; what the views point into */
    const char *method;
    const char *path;  /* decoded, begins with '/'; without trailing slashes, but for "/" itself */
    const char *query; /* as sent, without '?'; "" when absent */
    int minor;         /* of HTTP/1.minor: 0 or 1 */
    struct http_header headers[HTTP_MAX_HEADERS];
    int n_headers;
    bool chunked;
    int64_t length;    /* of the body; 0 without one; -1: not known, as it is chunked */
    bool keep_alive, expect_continue;
};

/*
 * Parses n bytes: everything up to and with the blank line. Returns 0, or the HTTP status that refuses it, with the
 * reason in *why (static text). On failure there is nothing to free.
 */
int http_head_parse(const char *bytes, size_t n, struct http_head *out, const char **why);
void http_head_free(struct http_head *h);
/* The value of a header by its name in any case, or NULL. */
const char *http_header(const struct http_head *h, const char *name);
/* Where a head that begins at bytes ends (behind its blank line), or 0 when it is not complete. */
size_t http_head_end(const char *bytes, size_t n);

/* A chunked body. Zero-initialised is its beginning. */
struct http_chunks {
    int state;
    uint64_t left; /* bytes of the chunk that are missing */
    size_t line;   /* bytes of the present line */
    size_t trailers; /* bytes of trailing header lines */
};
enum http_chunk_result { HTTP_CHUNK_MORE, HTTP_CHUNK_DONE, HTTP_CHUNK_BAD, HTTP_CHUNK_TOO_LONG, HTTP_CHUNK_NO_MEMORY };
/* Takes bytes; appends the content to body, at most `most` bytes in all. *used: bytes that belonged to the body. */
enum http_chunk_result http_chunks_feed(struct http_chunks *c, const char *bytes, size_t n, size_t most, struct buf *body,
                                        size_t *used);

#endif
