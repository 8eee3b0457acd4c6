/* UTF-8 decoding, encoding and repair. */
#include "base/utf8.h"

#include <string.h>

#include "base/err.h"

/* Length and range of the second byte by lead byte; 0 for bytes that begin nothing. */
static size_t lead_length(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xbf;
    if (c >= 0xc2 && c <= 0xdf) return 2;
    if (c >= 0xe0 && c <= 0xef) {
        if (c == 0xe0) *lo = 0xa0; /* overlong forms */
        if (c == 0xed) *hi = 0x9f; /* surrogates */
        return 3;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        if (c == 0xf0) *lo = 0x90;
        if (c == 0xf4) *hi = 0x8f; /* beyond U+10FFFF */
        return 4;
    }
    return 0;
}

uint32_t utf8_decode(const char *s, size_t n, size_t *used)
{
    unsigned char c = (unsigned char)s[0], lo, hi;
    *used = 1;
    if (c < 0x80) return c;
    size_t len = lead_length(c, &lo, &hi);
    if (len == 0) return UTF8_INVALID;
    uint32_t cp = c & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        *used = i;
        if (i == n) return UTF8_PARTIAL;
        c = (unsigned char)s[i];
        if (c < lo || c > hi) return UTF8_INVALID;
        lo = 0x80;
        hi = 0xbf;
        cp = cp << 6 | (c & 0x3f);
    }
    *used = len;
    return cp;
}

size_t utf8_ascii_run(const char *s, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, s + i, 8);
        if (w & UINT64_C(0x8080808080808080)) break;
    }
    while (i < n && (unsigned char)s[i] < 0x80) i++;
    return i;
}

/* Where the first sequence that is no character begins; n: all of it is text. */
static size_t first_bad(const char *s, size_t n)
{
    size_t i = 0, used;
    while (true) {
        i += utf8_ascii_run(s + i, n - i);
        if (i == n || utf8_decode(s + i, n - i, &used) >= UTF8_PARTIAL) return i;
        i += used;
    }
}

bool utf8_valid(const char *s, size_t n)
{
    return first_bad(s, n) == n;
}

lily_status utf8_check(const char *what, const char *s, size_t n, struct lily_err *err)
{
    size_t at = first_bad(s, n), used;
    if (at == n) return LILY_OK;
    bool cut = utf8_decode(s + at, n - at, &used) == UTF8_PARTIAL;
    if (cut) err_set(err, LILY_ERR_FORMAT, "%s ends inside a UTF-8 character, which begins at byte offset %zu", what, at);
    else err_set(err, LILY_ERR_FORMAT, "%s is no UTF-8 text: the byte 0x%02x at offset %zu", what, (unsigned)(unsigned char)s[at], at);
    err_hint(err, cut ? "it was cut: give it whole" : "lily reads text only; iconv -f ENCODING -t UTF-8 converts text of another encoding");
    return LILY_ERR_FORMAT;
}

void utf8_add(struct buf *out, uint32_t cp)
{
    char b[4];
    if (cp < 0x80) {
        buf_addc(out, (char)cp);
    } else if (cp < 0x800) {
        b[0] = (char)(0xc0 | cp >> 6);
        b[1] = (char)(0x80 | (cp & 0x3f));
        buf_add(out, b, 2);
    } else if (cp < 0x10000) {
        b[0] = (char)(0xe0 | cp >> 12);
        b[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        b[2] = (char)(0x80 | (cp & 0x3f));
        buf_add(out, b, 3);
    } else {
        b[0] = (char)(0xf0 | cp >> 18);
        b[1] = (char)(0x80 | (cp >> 12 & 0x3f));
        b[2] = (char)(0x80 | (cp >> 6 & 0x3f));
        b[3] = (char)(0x80 | (cp & 0x3f));
        buf_add(out, b, 4);
    }
}

void utf8_add_repaired(struct buf *out, const char *s, size_t n)
{
    size_t start = 0, used;
    for (size_t i = 0; i < n; i += used) {
        i += utf8_ascii_run(s + i, n - i);
        if (i == n) break;
        if (utf8_decode(s + i, n - i, &used) < UTF8_PARTIAL) continue;
        buf_add(out, s + start, i - start);
        buf_addz(out, "\xef\xbf\xbd");
        start = i + used;
    }
    buf_add(out, s + start, n - start);
}
