/* From text to ids: repair, added tokens, NFC, pieces, merges. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/impl.h"

/*
 * What pieces of several tokens came to be, since text repeats its words. A slot keeps its latest piece. 64 bytes.
 */
enum { MEMO_BYTES = 30, MEMO_IDS = 8, MAX_MEMO_BITS = 13, TEXT_PER_MEMO_BITS = 6 };
struct memo_slot {
    uint8_t n, n_ids; /* n == 0: empty */
    uint8_t bytes[MEMO_BYTES];
    int32_t ids[MEMO_IDS];
};

/* A piece that waits for the others of its batch. */
struct pending {
    const uint8_t *p; /* view */
    size_t n;
    struct piece_key key;
    uint32_t id;                  /* the whole token, or with PIECE_PARTS set: see memo, lane */
    const struct memo_slot *memo; /* view, or NULL */
    int lane;
};

/* What one call works with. */
struct encoder {
    const struct tokenizer *t; /* borrowed */
    struct ids *out;           /* borrowed */
    struct split_run *split;   /* owned */
    struct bpe_batch *bpe;     /* owned */
    struct memo_slot *memo;    /* owned */
    unsigned memo_bits;
    int n_pending;
    struct pending pending[BPE_LANES];
    struct buf normal;         /* the normalized segment */
};

/* A share of the text's size, so that a short text does not pay for clearing a large table. */
static bool begin_memo(struct encoder *e, size_t n)
{
    while (e->memo_bits < MAX_MEMO_BITS && n >> (e->memo_bits + TEXT_PER_MEMO_BITS)) e->memo_bits++;
    e->memo = mem_try((size_t)1 << e->memo_bits, sizeof *e->memo);
    return e->memo != NULL;
}

static struct memo_slot *memo_of(const struct encoder *e, const struct pending *w)
{
    return e->memo + (w->key.hash >> 24 & ((UINT64_C(1) << e->memo_bits) - 1));
}

/* Finds what is known of a piece, else starts merging it. */
static void look_up(struct encoder *e, struct pending *w)
{
    const struct image *im = &e->t->image;
    w->id = im->pieces[piece_slot_of(im, w->key, w->p, w->n)].id;
    w->memo = NULL;
    if (w->id < PIECE_PARTS) return;
    const struct memo_slot *memo = memo_of(e, w);
    if (memo->n == w->n && memcmp(memo->bytes, w->p, w->n) == 0) {
        w->memo = memo;
        return;
    }
    w->lane = e->bpe->n;
    bpe_batch_add(im, e->bpe, w->p, w->n);
}

/* Appends the ids of a piece; a merged one stays in the memo for the next time, if asked for again after this batch. */
static bool emit(struct encoder *e, struct pending *w)
{
    if (w->id < PIECE_PARTS) return ids_try_append(e->out, &(int32_t){(int32_t)w->id}, 1);
    if (w->memo) return ids_try_append(e->out, w->memo->ids, w->memo->n_ids);
    return bpe_batch_ids(&e->t->image, e->bpe, w->lane, e->out);
}

static void remember(struct encoder *e, const struct pending *w, const int32_t *ids, size_t n_ids)
{
    if (w->n > MEMO_BYTES || n_ids > MEMO_IDS) return;
    struct memo_slot *memo = memo_of(e, w);
    memo->n = (uint8_t)w->n;
    memo->n_ids = (uint8_t)n_ids;
    memcpy(memo->bytes, w->p, w->n);
    memcpy(memo->ids, ids, n_ids * sizeof *ids);
}

/* This and what calls it: false when there is no memory. */
static bool finish_batch(struct encoder *e)
{
    size_t begin[BPE_LANES + 1];
    for (int i = 0; i < e->n_pending; i++) look_up(e, &e->pending[i]);
    bpe_batch_run(&e->t->image, e->bpe);
    for (int i = 0; i < e->n_pending; i++) {
        begin[i] = e->out->n;
        if (!emit(e, &e->pending[i])) return false;
    }
    begin[e->n_pending] = e->out->n;
    /* Only now: until here pieces may use what the slots hold. */
    for (int i = 0; i < e->n_pending; i++) {
        const struct pending *w = &e->pending[i];
        if (w->id >= PIECE_PARTS && !w->memo) remember(e, w, e->out->data + begin[i], begin[i + 1] - begin[i]);
    }
    e->n_pending = e->bpe->n = 0;
    return true;
}

static bool add_piece(struct encoder *e, const uint8_t *p, size_t n)
{
    const struct image *im = &e->t->image;
    struct pending *w = &e->pending[e->n_pending++];
    w->p = p;
    w->n = n;
    w->key = piece_key(im->head->seed, p, n);
    __builtin_prefetch(im->pieces + piece_home(im->head, w->key));
    return e->n_pending < BPE_LANES || finish_batch(e);
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
static bool encode_segment(struct encoder *e, const char *text, size_t n)
{
    if (e->t->nfc) text = nfc_text(e->t->nfc, text, &n, &e->normal);
    if (!text) return false;
    for (size_t at = 0, end; at < n; at = end) {
        end = ascii_word(text, n, at);
        if (end == at) end = split_next(e->split, text, n, at);
        if (end == 0 || !add_piece(e, (const uint8_t *)text + at, end - at)) return false;
    }
    return finish_batch(e);
}

static bool encode_valid(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *out)
{
    struct encoder e = {.t = t, .out = out, .split = split_begin(t->splitter), .bpe = bpe_batch_new()};
    bool fits = begin_memo(&e, n);
    size_t at = 0;
    while (fits && at < n) {
        size_t len = 0, next = n;
        int32_t id = -1;
        if (special) next = added_find(t->added, text, n, at, &len, &id);
        fits = encode_segment(&e, text + at, next - at) && (next == n || ids_try_append(out, &id, 1));
        at = next + len;
    }
    split_end(e.split);
    bpe_batch_free(e.bpe);
    free(e.memo);
    buf_free(&e.normal);
    return fits;
}

static lily_status encode(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *out, struct lily_err *err)
{
    struct buf repaired = {0};
    size_t before = out->n;
    bool fits = true;
    if (!n) return LILY_OK;
    if (utf8_valid(text, n)) {
        fits = encode_valid(t, text, n, special, out);
    } else if ((fits = buf_try_reserve(&repaired, n * UTF8_REPAIRED))) {
        utf8_add_repaired(&repaired, text, n);
        fits = encode_valid(t, repaired.data, repaired.len, special, out);
    }
    buf_free(&repaired);
    if (fits) return LILY_OK;
    out->n = before;
    LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for the tokens of a text of %zu bytes", n);
}

lily_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, struct ids *out, struct lily_err *err)
{
    return encode(t, text, n, false, out, err);
}

lily_status tokenizer_encode_special(const struct tokenizer *t, const char *text, size_t n, struct ids *out, struct lily_err *err)
{
    return encode(t, text, n, true, out, err);
}
