/* Making control characters visible. */
#include "base/safe.h"

#include <stdint.h>

#include "base/utf8.h"

void safe_text(struct buf *out, const char *text, size_t n, bool lines)
{
    while (n > 0) {
        size_t len;
        uint32_t c = utf8_decode(text, n, &len);
        if (c >= UTF8_PARTIAL) /* a code for what is no character */
            for (size_t i = 0; i < len; i++) buf_printf(out, "<%02X>", (unsigned char)text[i]);
        else if (c >= 0x80 && c < 0xa0) buf_printf(out, "<U+%04X>", (unsigned)c);
        else if (c == '\n') buf_addc(out, lines ? '\n' : ' ');
        else if (c == 0x7f || (c < 0x20 && c != '\t')) buf_printf(out, "^%c", (int)(c ^ 0x40));
        else buf_add(out, text, len);
        text += len;
        n -= len;
    }
}
