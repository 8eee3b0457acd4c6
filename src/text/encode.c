/* From text to ids: repair, added tokens, NFC, pieces, merges. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/impl.h"

/* What one call works with. */
struct encoder {
    const struct tokenizer *t; /* borrowed */
    struct ids *out;           /* borrowed */
    struct split_run *split;   /* owned */
    struct bpe_work bpe;
    struct buf normal;         /* the normalized segment */
};

static void encode_piece(struct encoder *e, const uint8_t *p, size_t n)
{
    const struct image *im = &e->t->image;
    uint32_t id = im->pieces[piece_slot_of(im, piece_key(im->head->seed, p, n), p, n)].id;
    if (id < PIECE_PARTS)
        ids_add(e->out, (int32_t)id);
    else
        bpe_encode(im, &e->bpe, p, n, e->out);
}

/*
 * The end of the piece at `at` where it is a word of ASCII letters, perhaps behind a space, that another ASCII character
 * ends; else at. The pattern's second alternative takes just that, whatever stands around it.
 */
static size_t ascii_word(const char *text, size_t n, size_t at)
{
    size_t first = at + (text[at] == ' '), end = first;
    while (end < n && (uint8_t)((text[end] | 0x20) - 'a') < 26) end++;
    return end > first && end < n && (uint8_t)text[end] < 0x80 ? end : at;
}

/* Text between added tokens. */
static void encode_segment(struct encoder *e, const char *text, size_t n)
{
    if (e->t->nfc) text = nfc_text(e->t->nfc, text, &n, &e->normal);
    for (size_t at = 0, end; at < n; at = end) {
        end = ascii_word(text, n, at);
        if (end == at) end = split_next(e->split, text, n, at);
        encode_piece(e, (const uint8_t *)text + at, end - at);
    }
}

static void encode(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *out)
{
    struct buf repaired = {0};
    if (!n) return;
    if (!utf8_valid(text, n)) {
        utf8_add_repaired(&repaired, text, n);
        text = repaired.data;
        n = repaired.len;
    }
    struct encoder e = {.t = t, .out = out, .split = split_begin(t->splitter)};
    size_t at = 0;
    while (at < n) {
        size_t len = 0, next = n;
        int32_t id = -1;
        if (special) next = added_find(t->added, text, n, at, &len, &id);
        encode_segment(&e, text + at, next - at);
        if (next < n) ids_add(out, id);
        at = next + len;
    }
    split_end(e.split);
    bpe_free(&e.bpe);
    buf_free(&e.normal);
    buf_free(&repaired);
}

void tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, struct ids *out)
{
    encode(t, text, n, false, out);
}

void tokenizer_encode_special(const struct tokenizer *t, const char *text, size_t n, struct ids *out)
{
    encode(t, text, n, true, out);
}
