/* From ids to text: whole characters as they complete. */
#include <string.h>

#include "base/utf8.h"
#include "text/impl.h"

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool special)
{
    *d = (struct detokenizer){.tokenizer = t, .special = special};
}

/* Appends the whole characters at p and returns how many bytes of an incomplete one are left at the end. */
static size_t add_whole(const char *p, size_t n, struct buf *out)
{
    size_t used, tail = 0;
    /* Only the last three bytes can belong to a character that goes on. */
    for (size_t k = 1; k <= 3 && k <= n && !tail; k++)
        if ((p[n - k] & 0xC0) == 0xC0 && utf8_decode(p + n - k, k, &used) == UTF8_PARTIAL) tail = k;
    utf8_add_repaired(out, p, n - tail);
    return tail;
}

void detokenizer_push(struct detokenizer *d, int32_t id, struct buf *out)
{
    size_t n;
    const char *p = tokenizer_token(d->tokenizer, id, &n);
    if (p && (d->special || !tokenizer_is_special(d->tokenizer, id))) detokenizer_bytes(d, p, n, out);
}

void detokenizer_bytes(struct detokenizer *d, const char *p, size_t n, struct buf *out)
{
    size_t at = 0;
    /* Complete the held character byte by byte, since its end may be invalid. */
    while (d->n_held && at < n) {
        size_t used, held = (size_t)d->n_held;
        d->held[held] = p[at];
        if (utf8_decode(d->held, held + 1, &used) == UTF8_PARTIAL) {
            d->n_held++;
            at++;
            continue;
        }
        /* Whole, or the held part is invalid and p[at] begins something new. */
        utf8_add_repaired(out, d->held, used);
        if (used > held) at++;
        d->n_held = 0;
    }
    if (at == n) return;
    size_t tail = add_whole(p + at, n - at, out);
    memcpy(d->held, p + n - tail, tail);
    d->n_held = (int)tail;
}

void detokenizer_flush(struct detokenizer *d, struct buf *out)
{
    utf8_add_repaired(out, d->held, (size_t)d->n_held);
    d->n_held = 0;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct buf *out)
{
    struct detokenizer d;
    detokenizer_init(&d, t, special);
    for (size_t i = 0; i < n; i++) detokenizer_push(&d, ids[i], out);
    detokenizer_flush(&d, out);
}
