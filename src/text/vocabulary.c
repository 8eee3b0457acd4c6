/* Collects and checks tokens and merges; builds the image. */
#include "text/vocabulary.h"

#include <stdlib.h>

#include "base/mem.h"
#include "text/alphabet.h"
#include "text/bpe.h"

enum { MAX_TEXT = 1 << 16 };

struct entry {
    uint32_t at, n; /* its bytes in the store */
    uint8_t flags;
};

struct rule { /* a merge */
    uint32_t left, right, result;
};

struct vocabulary {
    uint64_t seed;
    uint8_t *bytes; /* owned store of all texts, in the order they came */
    size_t n_bytes, cap_bytes;
    struct entry *entries; /* owned, by id */
    uint32_t n_ids, cap_ids;
    uint32_t *slots; /* owned hash table of base ids by bytes; PIECE_EMPTY is free */
    uint32_t slot_bits, n_base;
    struct rule *merges; /* owned, by rank */
    uint32_t n_merges, cap_merges;
    uint32_t n_added;
};

struct vocabulary *vocabulary_new(uint64_t seed)
{
    struct vocabulary *v = mem_new(sizeof *v);
    v->seed = seed;
    v->slot_bits = 10;
    v->slots = mem_new(sizeof *v->slots << v->slot_bits);
    memset(v->slots, 0xFF, sizeof *v->slots << v->slot_bits);
    return v;
}

void vocabulary_free(struct vocabulary *v)
{
    if (!v) return;
    free(v->bytes);
    free(v->entries);
    free(v->slots);
    free(v->merges);
    free(v);
}

static struct text_view text_of(const struct vocabulary *v, uint32_t id)
{
    return (struct text_view){(const char *)v->bytes + v->entries[id].at, v->entries[id].n};
}

/* A hole, or the entry of an id below IMAGE_MAX_IDS; grows the table. */
static struct entry *entry_of(struct vocabulary *v, uint32_t id)
{
    if (id >= v->cap_ids) {
        uint32_t cap = v->cap_ids ? v->cap_ids : 1024;
        while (cap <= id) cap *= 2;
        v->entries = mem_resize(v->entries, cap * sizeof *v->entries);
        memset(v->entries + v->cap_ids, 0, (cap - v->cap_ids) * sizeof *v->entries);
        v->cap_ids = cap;
    }
    if (id >= v->n_ids) v->n_ids = id + 1;
    return v->entries + id;
}

static uint32_t store(struct vocabulary *v, const void *data, size_t n)
{
    if (v->cap_bytes - v->n_bytes < n) {
        v->cap_bytes += v->cap_bytes / 2 + n + 4096;
        v->bytes = mem_resize(v->bytes, v->cap_bytes);
    }
    memcpy(v->bytes + v->n_bytes, data, n);
    v->n_bytes += n;
    return (uint32_t)(v->n_bytes - n);
}

/* The slot of the base token with these bytes, or the free one where it would go. */
static uint32_t *slot_of(const struct vocabulary *v, const uint8_t *p, size_t n)
{
    uint32_t mask = (UINT32_C(1) << v->slot_bits) - 1;
    for (uint32_t i = (uint32_t)(piece_key(v->seed, p, n).hash >> 32) & mask;; i = (i + 1) & mask) {
        uint32_t id = v->slots[i];
        if (id == PIECE_EMPTY) return v->slots + i;
        if (v->entries[id].n == n && memcmp(v->bytes + v->entries[id].at, p, n) == 0) return v->slots + i;
    }
}

static void grow_slots(struct vocabulary *v)
{
    uint32_t *old = v->slots, n = UINT32_C(1) << v->slot_bits;
    v->slot_bits++;
    v->slots = mem_new(sizeof *v->slots << v->slot_bits);
    memset(v->slots, 0xFF, sizeof *v->slots << v->slot_bits);
    for (uint32_t i = 0; i < n; i++) {
        if (old[i] == PIECE_EMPTY) continue;
        const struct entry *e = v->entries + old[i];
        *slot_of(v, v->bytes + e->at, e->n) = old[i];
    }
    free(old);
}

static bool has_text(const struct vocabulary *v, const struct entry *e, const void *data, size_t n)
{
    return e->n == n && memcmp(v->bytes + e->at, data, n) == 0;
}

/* Refuses an id that is out of range, or that an entry with another text (or of the kinds in `taken`) has already. */
static lily_status check_id(struct vocabulary *v, int64_t id, struct text_view text, uint8_t taken, struct lily_err *err)
{
    if (id < 0 || id >= IMAGE_MAX_IDS)
        LILY_FAIL(err, LILY_ERR_FORMAT, "token \"%.*s\" has id %lld, expected 0 to %d", text_shown(text), text.data,
                  (long long)id, IMAGE_MAX_IDS - 1);
    if (id >= v->n_ids) return LILY_OK;
    const struct entry *e = v->entries + id;
    if (e->flags && (e->flags & taken || !has_text(v, e, text.data, text.n)))
        LILY_FAIL(err, LILY_ERR_FORMAT, "token \"%.*s\" has id %lld, which token \"%.*s\" has already", text_shown(text),
                  text.data, (long long)id, text_shown(text_of(v, (uint32_t)id)), text_of(v, (uint32_t)id).data);
    return LILY_OK;
}

lily_status vocabulary_add_added(struct vocabulary *v, int64_t id, struct text_view text, bool special,
                                 struct lily_err *err)
{
    if (text.n < 1 || text.n > IMAGE_MAX_ADDED_BYTES)
        LILY_FAIL(err, LILY_ERR_FORMAT, "token %lld has a text of %zu bytes, expected 1 to %d", (long long)id, text.n,
                  IMAGE_MAX_ADDED_BYTES);
    LILY_TRY(check_id(v, id, text, TOKEN_BASE, err));
    struct entry *e = entry_of(v, (uint32_t)id);
    if (e->flags) return LILY_OK;
    if (v->n_added == IMAGE_MAX_ADDED)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "more than %d added tokens", IMAGE_MAX_ADDED);
    e->at = store(v, text.data, text.n);
    e->n = (uint32_t)text.n;
    e->flags = (uint8_t)(TOKEN_ADDED | (special ? TOKEN_SPECIAL : 0));
    v->n_added++;
    return LILY_OK;
}

lily_status vocabulary_add_base(struct vocabulary *v, int64_t id, struct text_view spelling, struct lily_err *err)
{
    uint8_t bytes[MAX_TEXT];
    if (spelling.n < 1 || spelling.n > MAX_TEXT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "token %lld is spelled with %zu bytes, expected 1 to %d", (long long)id,
                  spelling.n, MAX_TEXT);
    LILY_TRY(check_id(v, id, spelling, TOKEN_BASE, err));
    struct entry *e = entry_of(v, (uint32_t)id);
    long n = alphabet_bytes(spelling.data, spelling.n, bytes);
    /* An added token that the vocabulary lists, too, is a base token only where both ways to read its spelling agree. */
    if (e->flags && (n < 0 || !has_text(v, e, bytes, (size_t)n))) return LILY_OK;
    if (n < 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "token \"%.*s\" (id %lld) is not spelled in the byte alphabet", text_shown(spelling),
                  spelling.data, (long long)id);
    uint32_t *slot = slot_of(v, bytes, (size_t)n);
    if (*slot != PIECE_EMPTY)
        LILY_FAIL(err, LILY_ERR_FORMAT, "token \"%.*s\" has two ids, %u and %lld", text_shown(spelling), spelling.data,
                  *slot, (long long)id);
    if (!e->flags) {
        e->at = store(v, bytes, (size_t)n);
        e->n = (uint32_t)n;
    }
    e->flags |= TOKEN_BASE;
    *slot = (uint32_t)id;
    if (++v->n_base > (UINT32_C(1) << v->slot_bits) / 2) grow_slots(v);
    return LILY_OK;
}

static lily_status find_base(const struct vocabulary *v, struct text_view part, const uint8_t *bytes, size_t n,
                             uint32_t *id, struct lily_err *err)
{
    *id = n ? *slot_of(v, bytes, n) : PIECE_EMPTY;
    if (*id == PIECE_EMPTY)
        LILY_FAIL(err, LILY_ERR_FORMAT, "merge %u needs the token \"%.*s\", which the vocabulary does not have",
                  v->n_merges, text_shown(part), part.data);
    return LILY_OK;
}

lily_status vocabulary_add_merge(struct vocabulary *v, struct text_view left, struct text_view right,
                                 struct lily_err *err)
{
    uint8_t bytes[2 * MAX_TEXT];
    if (v->n_merges == IMAGE_MAX_MERGES) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "more than %d merges", IMAGE_MAX_MERGES);
    if (left.n > MAX_TEXT || right.n > MAX_TEXT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "merge %u has a part of more than %d bytes", v->n_merges, MAX_TEXT);
    long a = alphabet_bytes(left.data, left.n, bytes);
    long b = a < 0 ? -1 : alphabet_bytes(right.data, right.n, bytes + a);
    if (b < 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "merge %u (\"%.*s\", \"%.*s\") is not spelled in the byte alphabet", v->n_merges,
                  text_shown(left), left.data, text_shown(right), right.data);
    struct rule m;
    LILY_TRY(find_base(v, left, bytes, (size_t)a, &m.left, err));
    LILY_TRY(find_base(v, right, bytes + a, (size_t)b, &m.right, err));
    if (*slot_of(v, bytes, (size_t)(a + b)) == PIECE_EMPTY)
        LILY_FAIL(err, LILY_ERR_FORMAT, "merge %u makes \"%.*s%.*s\", which the vocabulary does not have", v->n_merges,
                  text_shown(left), left.data, text_shown(right), right.data);
    m.result = *slot_of(v, bytes, (size_t)(a + b));
    if (v->n_merges == v->cap_merges) {
        v->cap_merges = v->cap_merges ? v->cap_merges * 2 : 1024;
        v->merges = mem_resize(v->merges, v->cap_merges * sizeof *v->merges);
    }
    v->merges[v->n_merges++] = m;
    return LILY_OK;
}

/* Slots of a table that stays at most half full. */
static uint32_t bits_for(uint32_t n)
{
    uint32_t bits = 4;
    while ((UINT32_C(1) << bits) < 2 * n) bits++;
    return bits;
}

static void fill_tokens(const struct vocabulary *v, uint8_t *block, const struct image_layout *at)
{
    uint32_t *offsets = (uint32_t *)(void *)(block + at->offsets), end = 0;
    for (uint32_t i = 0; i < v->n_ids; i++) {
        const struct entry *e = v->entries + i;
        offsets[i] = end;
        if (e->flags) memcpy(block + at->bytes + end, v->bytes + e->at, e->n);
        if (e->flags) end += e->n;
        block[at->flags + i] = e->flags;
    }
    offsets[v->n_ids] = end;
}

static lily_status fill_bytes(const struct vocabulary *v, uint8_t *block, const struct image_layout *at,
                              struct lily_err *err)
{
    int32_t *byte_ids = (int32_t *)(void *)(block + at->byte_ids);
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        uint32_t id = *slot_of(v, &byte, 1);
        if (id == PIECE_EMPTY) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "there is no token for the byte 0x%02x", b);
        byte_ids[b] = (int32_t)id;
    }
    return LILY_OK;
}

struct sortable {
    const uint8_t *text;
    uint32_t n, id;
};

static int by_text(const void *a, const void *b)
{
    const struct sortable *x = a, *y = b;
    int c = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static lily_status fill_added(const struct vocabulary *v, uint8_t *block, const struct image_layout *at,
                              struct lily_err *err)
{
    struct sortable *list = mem_new(v->n_added * sizeof *list);
    lily_status st = LILY_OK;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n_ids; i++)
        if (v->entries[i].flags & TOKEN_ADDED)
            list[n++] = (struct sortable){v->bytes + v->entries[i].at, v->entries[i].n, i};
    qsort(list, n, sizeof *list, by_text);
    for (uint32_t i = 0; i < n && st == LILY_OK; i++) {
        uint32_t base = *slot_of(v, list[i].text, list[i].n);
        uint32_t other = base != PIECE_EMPTY ? base : list[i].id;
        if (i && by_text(list + i - 1, list + i) == 0) other = list[i - 1].id;
        if (other != list[i].id)
            st = err_set(err, LILY_ERR_FORMAT, "added token \"%.*s\" has two ids, %u and %u",
                         text_shown(text_of(v, list[i].id)), (const char *)list[i].text, other, list[i].id);
        ((int32_t *)(void *)(block + at->added))[i] = (int32_t)list[i].id;
    }
    free(list);
    return st;
}

static lily_status fill_pairs(const struct vocabulary *v, uint8_t *block, const struct image_layout *at,
                              struct lily_err *err)
{
    const struct image_head *head = (const struct image_head *)(const void *)block;
    struct pair_slot *pairs = (struct pair_slot *)(void *)(block + at->pairs);
    uint32_t mask = (UINT32_C(1) << head->pair_bits) - 1;
    memset(pairs, 0xFF, sizeof *pairs << head->pair_bits);
    for (uint32_t rank = 0; rank < v->n_merges; rank++) {
        const struct rule *r = v->merges + rank;
        uint64_t key = pair_key(r->left, r->right);
        uint32_t i = pair_home(head, key);
        for (; pairs[i].key != PAIR_EMPTY; i = (i + 1) & mask)
            if (pairs[i].key == key)
                LILY_FAIL(err, LILY_ERR_FORMAT, "merges %u and %u join the same pair", pairs[i].merge.rank, rank);
        pairs[i] = (struct pair_slot){key, {rank, r->result}};
    }
    return LILY_OK;
}

static void fill_byte_pairs(uint8_t *block, const struct image_layout *at)
{
    struct image im;
    struct merge *merges = (struct merge *)(void *)(block + at->byte_pairs);
    image_view(block, at, &im);
    for (uint32_t i = 0; i < 256 * 256; i++)
        merges[i] = pair_find(&im, (uint32_t)im.byte_ids[i / 256], (uint32_t)im.byte_ids[i % 256]);
}

/* Sets the slots of a batch of base tokens whose merging is done: whole is what became itself again. */
static void set_pieces(const struct image *im, struct piece_slot *pieces, const uint32_t *tokens, struct bpe_batch *batch,
                       struct ids *ids)
{
    for (int i = 0; i < batch->n; i++) {
        size_t n;
        const uint8_t *p = image_token(im, tokens[i], &n);
        ids_clear(ids);
        bpe_batch_ids(im, batch, i, ids);
        bool whole = ids->n == 1 && ids->data[0] == (int32_t)tokens[i];
        struct piece_key key = piece_key(im->head->seed, p, n);
        pieces[piece_slot_of(im, key, p, n)] =
            (struct piece_slot){key.head, key.check, tokens[i] | (whole ? 0 : PIECE_PARTS)};
    }
    batch->n = 0;
}

/* Needs all other sections. */
static void fill_pieces(const struct vocabulary *v, uint8_t *block, const struct image_layout *at)
{
    struct image im;
    struct bpe_batch *batch = bpe_batch_new();
    struct ids ids = {0};
    uint32_t tokens[BPE_LANES];
    image_view(block, at, &im);
    struct piece_slot *pieces = (struct piece_slot *)(void *)(block + at->pieces);
    memset(pieces, 0xFF, sizeof *pieces << im.head->piece_bits);
    for (uint32_t id = 0; id < v->n_ids; id++) {
        size_t n;
        const uint8_t *p = image_token(&im, id, &n);
        if (!(im.flags[id] & TOKEN_BASE)) continue;
        tokens[batch->n] = id;
        bpe_batch_add(&im, batch, p, n);
        if (batch->n < BPE_LANES) continue;
        bpe_batch_run(&im, batch);
        set_pieces(&im, pieces, tokens, batch, &ids);
    }
    bpe_batch_run(&im, batch);
    set_pieces(&im, pieces, tokens, batch, &ids);
    bpe_batch_free(batch);
    ids_free(&ids);
}

lily_status vocabulary_build(struct vocabulary *v, bool nfc, void **block, size_t *size, struct lily_err *err)
{
    struct image_head head = {.magic = IMAGE_MAGIC, .seed = v->seed, .n_ids = v->n_ids, .n_merges = v->n_merges,
                              .n_added = v->n_added, .piece_bits = bits_for(v->n_base), .nfc = nfc,
                              .pair_bits = bits_for(v->n_merges)};
    for (uint32_t i = 0; i < v->n_ids; i++)
        if (v->entries[i].flags) head.n_bytes += v->entries[i].n;
    struct image_layout at;
    lily_status st;
    if (!image_lay_out(&head, &at)) LILY_FAIL(err, LILY_ERR_FORMAT, "the vocabulary is empty or too large");
    head.size = *size = at.size;
    LILY_TRY(mem_big(at.size, "the tokenizer", block, err));
    memcpy(*block, &head, sizeof head);
    fill_tokens(v, *block, &at);
    LILY_TRY_GOTO(fill_bytes(v, *block, &at, err), fail);
    LILY_TRY_GOTO(fill_added(v, *block, &at, err), fail);
    LILY_TRY_GOTO(fill_pairs(v, *block, &at, err), fail);
    fill_byte_pairs(*block, &at);
    fill_pieces(v, *block, &at);
    return LILY_OK;
fail:
    mem_big_free(*block, at.size);
    *block = NULL;
    return st;
}
