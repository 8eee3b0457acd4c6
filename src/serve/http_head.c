/* Parsing of request heads and chunked bodies. */
#include "serve/http_head.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static int refuse(const char **why, int status, const char *text)
{
    *why = text;
    return status;
}

static bool is_token_char(unsigned char c)
{
    return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *s)
{
    if (!*s) return false;
    for (; *s; s++)
        if (!is_token_char((unsigned char)*s)) return false;
    return true;
}

/* ---- the request line ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes %XX in place; false for a malformed one or a NUL. */
static bool decode_path(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (*s != '%') {
            *to++ = *s;
            continue;
        }
        int hi = hex_digit(s[1]), lo = hi >= 0 ? hex_digit(s[2]) : -1;
        if (lo < 0 || (hi == 0 && lo == 0)) return false;
        *to++ = (char)(hi * 16 + lo);
        s += 2;
    }
    *to = 0;
    return true;
}

static int parse_target(struct http_head *h, char *target, const char **why)
{
    if (strncasecmp(target, "http://", 7) == 0) {
        char *slash = strchr(target + 7, '/');
        target = slash ? slash : target + strlen(target);
        h->path = "/";
        if (!slash) return 0;
    }
    char *mark = strpbrk(target, "?#");
    if (mark && *mark == '?') h->query = mark + 1;
    if (mark) *mark = 0;
    if (*target == '*' && !target[1]) {
        h->path = "*";
        return 0;
    }
    if (*target != '/' || !decode_path(target)) return refuse(why, 400, "the request's path is malformed");
    for (size_t n = strlen(target); n > 1 && target[n - 1] == '/'; n--) target[n - 1] = 0;
    h->path = target;
    return 0;
}

static int parse_request_line(struct http_head *h, char *line, const char **why)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || strchr(version + 1, ' ')) return refuse(why, 400, "the request line is malformed");
    *target++ = 0;
    *version++ = 0;
    h->method = line;
    if (!is_token(line)) return refuse(why, 400, "the request's method is malformed");
    if (strcmp(version, "HTTP/1.1") == 0) h->minor = 1;
    else if (strcmp(version, "HTTP/1.0") != 0)
        return refuse(why, strncmp(version, "HTTP/", 5) == 0 ? 505 : 400, "the request is not HTTP/1.1 or HTTP/1.0");
    for (const unsigned char *p = (const unsigned char *)target; *p; p++)
        if (*p <= ' ' || *p == 0x7f) return refuse(why, 400, "the request's path holds control characters");
    return parse_target(h, target, why);
}

/* ---- headers ---- */

static int parse_header(struct http_head *h, char *line, const char **why)
{
    char *colon = strchr(line, ':');
    if (*line == ' ' || *line == '\t') return refuse(why, 400, "a header line is folded");
    if (!colon) return refuse(why, 400, "a header line has no colon");
    *colon = 0;
    if (!is_token(line)) return refuse(why, 400, "a header's name is malformed");
    if (h->n_headers == HTTP_MAX_HEADERS) return refuse(why, 431, "there are too many headers");
    char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) *--end = 0;
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if ((*p < ' ' && *p != '\t') || *p == 0x7f) return refuse(why, 400, "a header's value holds control characters");
    h->headers[h->n_headers++] = (struct http_header){line, value};
    return 0;
}

const char *http_header(const struct http_head *h, const char *name)
{
    for (int i = 0; i < h->n_headers; i++)
        if (strcasecmp(h->headers[i].name, name) == 0) return h->headers[i].value;
    return NULL;
}

static int count_of(const struct http_head *h, const char *name)
{
    int n = 0;
    for (int i = 0; i < h->n_headers; i++) n += strcasecmp(h->headers[i].name, name) == 0;
    return n;
}

static bool lists(const char *value, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = value; p && *p; p += strspn(p, ", \t")) {
        size_t len = strcspn(p, ", \t");
        if (len == n && strncasecmp(p, word, n) == 0) return true;
        p += len;
    }
    return false;
}

/* What the headers say about the body and the connection. */
static int read_framing(struct http_head *h, const char **why)
{
    const char *te = http_header(h, "Transfer-Encoding"), *length = http_header(h, "Content-Length");
    const char *connection = http_header(h, "Connection"), *expect = http_header(h, "Expect");
    if (te && length) return refuse(why, 400, "the request has both Transfer-Encoding and Content-Length");
    if (count_of(h, "Content-Length") > 1 || count_of(h, "Transfer-Encoding") > 1)
        return refuse(why, 400, "the request's length is given more than once");
    if (count_of(h, "Host") > 1 || (h->minor == 1 && !http_header(h, "Host")))
        return refuse(why, 400, "the request has not exactly one Host header");
    if (te && (strcasecmp(te, "chunked") != 0 || h->minor == 0)) return refuse(why, 501, "only Transfer-Encoding: chunked is known");
    h->chunked = te != NULL;
    if (length) {
        size_t n = strlen(length);
        if (n == 0 || n > 18 || strspn(length, "0123456789") != n) return refuse(why, 400, "Content-Length is no number");
        h->length = strtoll(length, NULL, 10);
    }
    if (h->chunked) h->length = -1;
    h->keep_alive = h->minor == 1 ? !lists(connection, "close") : lists(connection, "keep-alive");
    if (expect && strcasecmp(expect, "100-continue") != 0) return refuse(why, 417, "only Expect: 100-continue is known");
    h->expect_continue = expect && h->minor == 1;
    return 0;
}

size_t http_head_end(const char *bytes, size_t n)
{
    for (const char *p = bytes; (p = memchr(p, '\n', n - (size_t)(p - bytes))); p++) {
        size_t rest = n - (size_t)(p + 1 - bytes);
        if (rest >= 1 && p[1] == '\n') return (size_t)(p + 2 - bytes);
        if (rest >= 2 && p[1] == '\r' && p[2] == '\n') return (size_t)(p + 3 - bytes);
    }
    return 0;
}

static int parse_lines(struct http_head *h, char *text, size_t n, const char **why)
{
    bool first = true;
    for (char *line = text; line < text + n;) {
        char *end = memchr(line, '\n', (size_t)(text + n - line));
        if (!end || end == line || end[-1] != '\r') return refuse(why, 400, "a line of the request does not end in CR LF");
        char *next = end + 1;
        end[-1] = 0;
        if (strlen(line) != (size_t)(end - 1 - line) || strchr(line, '\r'))
            return refuse(why, 400, "the request holds control characters");
        int status = 0;
        if (first) status = parse_request_line(h, line, why);
        else if (*line) status = parse_header(h, line, why);
        if (status) return status;
        first = false;
        line = next;
    }
    return first ? refuse(why, 400, "the request is empty") : read_framing(h, why);
}

int http_head_parse(const char *bytes, size_t n, struct http_head *out, const char **why)
{
    memset(out, 0, sizeof *out);
    out->query = "";
    out->text = mem_dup(bytes, n);
    int status = parse_lines(out, out->text, n, why);
    if (status) http_head_free(out);
    return status;
}

void http_head_free(struct http_head *h)
{
    free(h->text);
    memset(h, 0, sizeof *h);
}

/* ---- chunks ---- */

enum { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_SIZE_LF, CHUNK_DATA, CHUNK_DATA_CR, CHUNK_DATA_LF, CHUNK_TRAILER, CHUNK_TRAILER_LF, CHUNK_OVER };
enum { MAX_CHUNK_LINE = 256, MAX_TRAILERS = 8192 };

/* One byte outside the data. */
static enum http_chunk_result take_byte(struct http_chunks *c, char b)
{
    switch (c->state) {
    case CHUNK_SIZE:
        if (hex_digit(b) >= 0) {
            c->left = c->left * 16 + (uint64_t)hex_digit(b);
            return ++c->line <= 15 ? HTTP_CHUNK_MORE : HTTP_CHUNK_BAD;
        }
        if (c->line == 0) return HTTP_CHUNK_BAD;
        c->state = b == '\r' ? CHUNK_SIZE_LF : CHUNK_EXTENSION;
        return b == '\r' || b == ';' ? HTTP_CHUNK_MORE : HTTP_CHUNK_BAD;
    case CHUNK_EXTENSION:
        if (b == '\r') c->state = CHUNK_SIZE_LF;
        return b != '\n' && b != 0 && ++c->line < MAX_CHUNK_LINE ? HTTP_CHUNK_MORE : HTTP_CHUNK_BAD;
    case CHUNK_SIZE_LF:
        c->state = c->left ? CHUNK_DATA : CHUNK_TRAILER;
        c->line = 0;
        return b == '\n' ? HTTP_CHUNK_MORE : HTTP_CHUNK_BAD;
    case CHUNK_DATA_CR:
        c->state = CHUNK_DATA_LF;
        return b == '\r' ? HTTP_CHUNK_MORE : HTTP_CHUNK_BAD;
    case CHUNK_DATA_LF:
        c->state = CHUNK_SIZE;
        c->line = 0;
        return b == '\n' ? HTTP_CHUNK_MORE : HTTP_CHUNK_BAD;
    case CHUNK_TRAILER:
        if (++c->trailers > MAX_TRAILERS || b == '\n' || b == 0) return HTTP_CHUNK_BAD;
        if (b == '\r') c->state = CHUNK_TRAILER_LF;
        else c->line++;
        return HTTP_CHUNK_MORE;
    default: /* CHUNK_TRAILER_LF */
        if (b != '\n') return HTTP_CHUNK_BAD;
        c->state = c->line ? CHUNK_TRAILER : CHUNK_OVER;
        c->line = 0;
        return c->state == CHUNK_OVER ? HTTP_CHUNK_DONE : HTTP_CHUNK_MORE;
    }
}

enum http_chunk_result http_chunks_feed(struct http_chunks *c, const char *bytes, size_t n, size_t most, struct buf *body,
                                        size_t *used)
{
    for (*used = 0; *used < n;) {
        if (c->state == CHUNK_DATA) {
            size_t part = n - *used < c->left ? n - *used : (size_t)c->left;
            if (body->len + part > most) return HTTP_CHUNK_TOO_LONG;
            if (!buf_try_reserve(body, part)) return HTTP_CHUNK_NO_MEMORY;
            buf_add(body, bytes + *used, part);
            *used += part;
            c->left -= part;
            if (c->left == 0) c->state = CHUNK_DATA_CR;
            continue;
        }
        enum http_chunk_result r = take_byte(c, bytes[(*used)++]);
        if (r != HTTP_CHUNK_MORE) return r;
    }
    return HTTP_CHUNK_MORE;
}
