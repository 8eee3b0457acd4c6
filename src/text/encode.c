/* From text to ids: repair, added tokens, NFC, pieces, merges. */
#include <stdlib.h>

#include "base/mem.h"
#include "text/bpe.h"
#include "text/impl.h"
#include "text/utf8.h"

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
    uint32_t id = im->pieces[piece_slot_of(im, piece_hash(im->head->seed, p, n), p, n)].id;
    if (id < PIECE_PARTS)
        ids_add(e->out, (int32_t)id);
    else
        bpe_encode(im, &e->bpe, p, n, e->out);
}

/* Text between added tokens. */
static void encode_segment(struct encoder *e, const uint8_t *text, size_t n)
{
    if (e->t->nfc) text = nfc_text(e->t->nfc, text, &n, &e->normal);
    for (size_t at = 0, end; at < n; at = end) {
        end = split_next(e->split, text, n, at);
        encode_piece(e, text + at, end - at);
    }
}

static void encode(const struct tokenizer *t, const char *chars, size_t n, bool special, struct ids *out)
{
    const uint8_t *text = (const uint8_t *)chars;
    struct buf repaired = {0};
    if (!n) return;
    if (!utf8_valid(text, n)) {
        utf8_repair(text, n, &repaired);
        text = (const uint8_t *)repaired.data;
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
