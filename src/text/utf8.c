/* UTF-8 reading, writing and repair. */
#include "text/utf8.h"

#include <string.h>

/* For a lead byte: the length of its sequence (0: begins nothing) and the range of its second byte. */
struct lead {
    uint8_t len, lo, hi;
};

static struct lead lead_of(uint8_t b)
{
    if (b < 0xC2) return (struct lead){0, 0, 0};
    if (b < 0xE0) return (struct lead){2, 0x80, 0xBF};
    if (b < 0xF0) return (struct lead){3, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF};
    if (b < 0xF5) return (struct lead){4, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF};
    return (struct lead){0, 0, 0};
}

int32_t utf8_next(const uint8_t *p, size_t n, size_t *len)
{
    *len = 1;
    if (p[0] < 0x80) return p[0];
    struct lead lead = lead_of(p[0]);
    if (!lead.len) return UTF8_BAD;
    if (n < 2) return UTF8_CUT;
    if (p[1] < lead.lo || p[1] > lead.hi) return UTF8_BAD;
    int32_t c = (p[0] & (0x7F >> lead.len)) << 6 | (p[1] & 0x3F);
    for (size_t i = 2; i < lead.len; i++) {
        *len = i;
        if (i == n) return UTF8_CUT;
        if ((p[i] & 0xC0) != 0x80) return UTF8_BAD;
        c = c << 6 | (p[i] & 0x3F);
    }
    *len = lead.len;
    return c;
}

size_t utf8_put(uint32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (c & 0x3F));
    return 4;
}

size_t utf8_ascii_run(const uint8_t *p, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        if (w & 0x8080808080808080u) break;
    }
    while (i < n && p[i] < 0x80) i++;
    return i;
}

int utf8_valid(const uint8_t *p, size_t n)
{
    size_t i = 0, len;
    while (i < n) {
        i += utf8_ascii_run(p + i, n - i);
        while (i < n && p[i] >= 0x80) {
            if (utf8_next(p + i, n - i, &len) < 0) return 0;
            i += len;
        }
    }
    return 1;
}

void utf8_repair(const uint8_t *p, size_t n, struct buf *out)
{
    size_t start = 0, i = 0, len;
    while (i < n) {
        i += utf8_ascii_run(p + i, n - i);
        if (i == n) break;
        int32_t c = utf8_next(p + i, n - i, &len);
        if (c < 0) {
            buf_add(out, p + start, i - start);
            buf_add(out, "\xEF\xBF\xBD", 3);
            start = i + len;
        }
        i += len;
    }
    buf_add(out, p + start, n - start);
}
