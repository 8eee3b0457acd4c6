/* Making control characters visible. */
#include "base/safe.h"

/* The length of the well-formed character at p, or 0. */
static size_t character(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80) return 1;
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)) return 0; /* too long a form, surrogates */
    if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) return 0; /* too long a form, past U+10FFFF */
    return len;
}

void safe_text(struct buf *out, const char *text, size_t n, bool lines)
{
    const unsigned char *p = (const unsigned char *)text;
    while (n > 0) {
        size_t len = character(p, n);
        if (len == 0) buf_printf(out, "<%02X>", p[0]);
        else if (len == 2 && p[0] == 0xc2 && p[1] < 0xa0) buf_printf(out, "<U+00%02X>", p[1]);
        else if (len > 1 || p[0] == '\t' || (p[0] >= 0x20 && p[0] != 0x7f)) buf_add(out, p, len);
        else if (p[0] == '\n') buf_addc(out, lines ? '\n' : ' ');
        else buf_printf(out, "^%c", p[0] ^ 0x40);
        p += len ? len : 1;
        n -= len ? len : 1;
    }
}
