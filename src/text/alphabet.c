/* The byte alphabet. */
#include "text/alphabet.h"

#include <stdbool.h>

#include "base/utf8.h"

/* The characters from U+0100 on stand for the bytes that do not print: 0–32, 127–160, 173. */
enum { FIRST = 0x100, LOW = 33, HIGH_FROM = 127, HIGH = 34, SOFT_HYPHEN = 173 };

static int byte_of(uint32_t c)
{
    if (c < FIRST) {
        bool prints = (c >= LOW && c < HIGH_FROM) || (c >= HIGH_FROM + HIGH && c != SOFT_HYPHEN);
        return prints ? (int)c : -1;
    }
    c -= FIRST;
    if (c < LOW) return (int)c;
    c -= LOW;
    if (c < HIGH) return (int)(HIGH_FROM + c);
    return c == HIGH ? SOFT_HYPHEN : -1;
}

long alphabet_bytes(const char *spelling, size_t n, uint8_t *out)
{
    long k = 0;
    size_t used;
    for (size_t i = 0; i < n; i += used) {
        int b = byte_of(utf8_decode(spelling + i, n - i, &used));
        if (b < 0) return -1;
        out[k++] = (uint8_t)b;
    }
    return k;
}
