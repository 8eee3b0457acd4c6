/* Layout and checking of the tokenizer image. */
#include "text/image.h"

enum { ALIGN = 64, MIN_BITS = 4, MAX_BITS = 22, MAX_BYTES = 1 << 30 };

static size_t place(size_t *at, size_t n, size_t size)
{
    size_t here = *at;
    *at = (here + n * size + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

bool image_lay_out(const struct image_head *h, struct image_layout *out)
{
    if (h->n_ids < 1 || h->n_ids > IMAGE_MAX_IDS || h->n_merges > IMAGE_MAX_MERGES || h->n_added > IMAGE_MAX_ADDED ||
        h->n_bytes > MAX_BYTES || h->piece_bits < MIN_BITS || h->piece_bits > MAX_BITS || h->pair_bits < MIN_BITS ||
        h->pair_bits > MAX_BITS)
        return false;
    size_t at = 0;
    place(&at, 1, sizeof *h);
    out->offsets = place(&at, h->n_ids + 1, sizeof(uint32_t));
    out->byte_ids = place(&at, 256, sizeof(int32_t));
    out->added = place(&at, h->n_added, sizeof(int32_t));
    out->pieces = place(&at, (size_t)1 << h->piece_bits, sizeof(struct piece_slot));
    out->pairs = place(&at, (size_t)1 << h->pair_bits, sizeof(struct pair_slot));
    out->byte_pairs = place(&at, 256 * 256, sizeof(struct merge));
    out->flags = place(&at, h->n_ids, 1);
    out->bytes = place(&at, h->n_bytes, 1);
    out->size = at;
    return true;
}

void image_view(const void *block, const struct image_layout *layout, struct image *out)
{
    const uint8_t *p = block;
    out->head = block;
    out->offsets = (const uint32_t *)(const void *)(p + layout->offsets);
    out->byte_ids = (const int32_t *)(const void *)(p + layout->byte_ids);
    out->added = (const int32_t *)(const void *)(p + layout->added);
    out->pieces = (const struct piece_slot *)(const void *)(p + layout->pieces);
    out->pairs = (const struct pair_slot *)(const void *)(p + layout->pairs);
    out->byte_pairs = (const struct merge *)(const void *)(p + layout->byte_pairs);
    out->flags = p + layout->flags;
    out->bytes = p + layout->bytes;
}

static lily_status check_tokens(const struct image *im, struct lily_err *err)
{
    const struct image_head *h = im->head;
    if (im->offsets[0] != 0 || im->offsets[h->n_ids] != h->n_bytes)
        LILY_FAIL(err, LILY_ERR_FORMAT, "token offsets do not span the bytes");
    for (uint32_t i = 0; i < h->n_ids; i++) {
        if (im->offsets[i] > im->offsets[i + 1]) LILY_FAIL(err, LILY_ERR_FORMAT, "token %u ends before it begins", i);
        bool hole = im->offsets[i] == im->offsets[i + 1];
        if (im->flags[i] > 7 || (im->flags[i] == 0) != hole)
            LILY_FAIL(err, LILY_ERR_FORMAT, "token %u has flags %u", i, im->flags[i]);
    }
    for (int b = 0; b < 256; b++) {
        uint32_t id = (uint32_t)im->byte_ids[b];
        if (id >= h->n_ids || !(im->flags[id] & TOKEN_BASE)) LILY_FAIL(err, LILY_ERR_FORMAT, "byte %d has no token", b);
    }
    for (uint32_t i = 0; i < h->n_added; i++) {
        uint32_t id = (uint32_t)im->added[i];
        if (id >= h->n_ids || !(im->flags[id] & TOKEN_ADDED) ||
            im->offsets[id + 1] - im->offsets[id] > IMAGE_MAX_ADDED_BYTES)
            LILY_FAIL(err, LILY_ERR_FORMAT, "added token %u is none", i);
    }
    return LILY_OK;
}

static bool is_merge(const struct image_head *h, struct merge m)
{
    return m.rank < h->n_merges && m.result < h->n_ids;
}

static lily_status check_tables(const struct image *im, struct lily_err *err)
{
    const struct image_head *h = im->head;
    size_t free_pieces = 0, free_pairs = 0;
    for (size_t i = 0; i < (size_t)1 << h->piece_bits; i++) {
        uint32_t id = im->pieces[i].id;
        if (id == PIECE_EMPTY)
            free_pieces++;
        else if ((id & ~PIECE_PARTS) >= h->n_ids)
            LILY_FAIL(err, LILY_ERR_FORMAT, "piece slot %zu holds token %u of %u", i, id, h->n_ids);
    }
    for (size_t i = 0; i < (size_t)1 << h->pair_bits; i++) {
        if (im->pairs[i].key == PAIR_EMPTY)
            free_pairs++;
        else if (!is_merge(h, im->pairs[i].merge))
            LILY_FAIL(err, LILY_ERR_FORMAT, "pair slot %zu holds a merge out of range", i);
    }
    if (!free_pieces || !free_pairs) LILY_FAIL(err, LILY_ERR_FORMAT, "a table is full");
    for (uint32_t i = 0; i < 256 * 256; i++)
        if (im->byte_pairs[i].rank != RANK_NONE && !is_merge(h, im->byte_pairs[i]))
            LILY_FAIL(err, LILY_ERR_FORMAT, "byte pair %u has a merge out of range", i);
    return LILY_OK;
}

lily_status image_check(const void *block, size_t size, struct image *out, struct lily_err *err)
{
    const struct image_head *h = block;
    struct image_layout layout;
    if (size < sizeof *h || h->magic != IMAGE_MAGIC) LILY_FAIL(err, LILY_ERR_FORMAT, "not a tokenizer image");
    if (h->nfc > 1 || !image_lay_out(h, &layout) || layout.size != size || h->size != size)
        LILY_FAIL(err, LILY_ERR_FORMAT, "a tokenizer image with a wrong head");
    image_view(block, &layout, out);
    LILY_TRY(check_tokens(out, err));
    return check_tables(out, err);
}
