/* From ids to text: whole characters as they complete. */
#include <string.h>

#include "text/impl.h"
#include "text/utf8.h"

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool special)
{
    *d = (struct detokenizer){.tokenizer = t, .special = special};
}

/* Appends the whole characters at p and returns how many bytes of an incomplete one are left at the end. */
static size_t add_whole(const uint8_t *p, size_t n, struct buf *out)
{
    size_t len, tail = 0;
    /* Only the last three bytes can belong to a character that goes on. */
    for (size_t k = 1; k <= 3 && k <= n && !tail; k++)
        if (p[n - k] >= 0xC0 && utf8_next(p + n - k, k, &len) == UTF8_CUT) tail = k;
    utf8_repair(p, n - tail, out);
    return tail;
}

void detokenizer_push(struct detokenizer *d, int32_t id, struct buf *out)
{
    size_t n, used = 0;
    const uint8_t *p = (const uint8_t *)tokenizer_token(d->tokenizer, id, &n);
    if (!p || (!d->special && tokenizer_is_special(d->tokenizer, id))) return;
    /* Complete the held character byte by byte, since its end may be invalid. */
    while (d->n_held && used < n) {
        size_t len, held = (size_t)d->n_held;
        d->held[held] = p[used];
        int32_t c = utf8_next(d->held, held + 1, &len);
        if (c == UTF8_CUT) {
            d->n_held++;
            used++;
            continue;
        }
        /* Whole, or the held part is invalid and p[used] begins something new. */
        utf8_repair(d->held, len, out);
        if (len > held) used++;
        d->n_held = 0;
    }
    if (used == n) return;
    size_t tail = add_whole(p + used, n - used, out);
    memcpy(d->held, p + n - tail, tail);
    d->n_held = (int)tail;
}

void detokenizer_flush(struct detokenizer *d, struct buf *out)
{
    utf8_repair(d->held, (size_t)d->n_held, out);
    d->n_held = 0;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct buf *out)
{
    struct detokenizer d;
    detokenizer_init(&d, t, special);
    for (size_t i = 0; i < n; i++) detokenizer_push(&d, ids[i], out);
    detokenizer_flush(&d, out);
}
