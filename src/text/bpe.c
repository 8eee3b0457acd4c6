/* Byte-pair merging: batches of short pieces step by step, long pieces with a heap of pairs. */
#include "text/bpe.h"

#include <stdlib.h>

#include "base/mem.h"

enum { SHORT_PIECE = 64, MAX_PIECE = 1 << 30, NO_MERGE = INT32_MAX, NO_PLACE = -1 };

/* A pair that waits for its slot in the table to arrive. */
struct waiting {
    int place; /* of the left token, or NO_PLACE */
    uint32_t home;
    uint64_t key;
};

/*
 * A piece of a batch. Up to 64 bytes: tokens stay where their first byte is, a bit per place says which are alive. order[i]
 * is the rank of the pair at i, then i, in one number, so that the smallest is the pair to merge next; made[i] is what that
 * makes. Longer ones wait for bpe_batch_ids.
 */
struct bpe_lane {
    const uint8_t *piece; /* view */
    size_t n;
    uint64_t alive;
    struct waiting left, right;
    uint32_t id[SHORT_PIECE], made[SHORT_PIECE];
    int32_t order[SHORT_PIECE];
};

/* One token of a long piece; links are numbered by their first byte and stay where they are. */
struct link {
    uint32_t id;
    struct merge merge;  /* of the pair with the next one */
    uint32_t prev, next; /* NOWHERE at the ends */
};
#define NOWHERE UINT32_MAX

struct bpe_long {
    struct link *links; /* owned */
    uint64_t *heap;     /* owned */
    size_t cap;         /* bytes of a piece that both have room for */
    uint64_t steps;
};

struct bpe_batch *bpe_batch_new(void)
{
    struct bpe_batch *b = mem_new(sizeof *b);
    b->lanes = mem_resize(NULL, BPE_LANES * sizeof *b->lanes);
    b->heap = mem_new(sizeof *b->heap);
    return b;
}

void bpe_batch_free(struct bpe_batch *b)
{
    if (!b) return;
    free(b->lanes);
    free(b->heap->links);
    free(b->heap->heap);
    free(b->heap);
    free(b);
}

/* ---- short pieces ---- */

static void note_pair(struct bpe_lane *lane, int place, struct merge m)
{
    _Static_assert(IMAGE_MAX_MERGES <= NO_MERGE / SHORT_PIECE, "a rank and a place share 31 bits");
    lane->order[place] = m.rank == RANK_NONE ? NO_MERGE : (int32_t)(m.rank * SHORT_PIECE + (uint32_t)place);
    lane->made[place] = m.result;
}

void bpe_batch_add(const struct image *im, struct bpe_batch *b, const uint8_t *piece, size_t n)
{
    struct bpe_lane *lane = b->lanes + b->n++;
    lane->piece = piece;
    lane->n = n;
    if (n > SHORT_PIECE) return;
    lane->alive = UINT64_MAX >> (64 - n);
    lane->left.place = lane->right.place = NO_PLACE;
    for (size_t i = 0; i < n; i++) lane->id[i] = (uint32_t)im->byte_ids[piece[i]];
    for (size_t i = 0; i + 1 < n; i++) note_pair(lane, (int)i, im->byte_pairs[piece[i] * 256 + piece[i + 1]]);
    lane->order[n - 1] = NO_MERGE;
}

static struct waiting ask(const struct image *im, const struct bpe_lane *lane, int place, int next)
{
    struct waiting w = {.place = place, .key = pair_key(lane->id[place], lane->id[next])};
    w.home = pair_home(im->head, w.key);
    __builtin_prefetch(im->pairs + w.home);
    return w;
}

static void answer(const struct image *im, struct bpe_lane *lane, struct waiting *w)
{
    if (w->place != NO_PLACE) note_pair(lane, w->place, pair_find_from(im, w->key, w->home));
    w->place = NO_PLACE;
}

/* One merge of a short piece; false when none is left. */
static bool step(const struct image *im, struct bpe_lane *lane)
{
    int32_t best = NO_MERGE;
    answer(im, lane, &lane->left);
    answer(im, lane, &lane->right);
    for (size_t i = 0; i < lane->n; i++) best = lane->order[i] < best ? lane->order[i] : best;
    if (best == NO_MERGE) return false;
    int at = best % SHORT_PIECE;
    uint64_t after = lane->alive & ~((UINT64_C(2) << at) - 1), before = lane->alive & ((UINT64_C(1) << at) - 1);
    int gone = __builtin_ctzll(after);
    after &= after - 1;
    lane->alive &= ~(UINT64_C(1) << gone);
    lane->id[at] = lane->made[at];
    lane->order[at] = lane->order[gone] = NO_MERGE;
    if (before) lane->left = ask(im, lane, 63 - __builtin_clzll(before), at);
    if (after) lane->right = ask(im, lane, at, __builtin_ctzll(after));
    return true;
}

void bpe_batch_run(const struct image *im, struct bpe_batch *b)
{
    struct bpe_lane *busy[BPE_LANES];
    int n = 0;
    for (int i = 0; i < b->n; i++)
        if (b->lanes[i].n <= SHORT_PIECE) busy[n++] = b->lanes + i;
    while (n) {
        int left = 0;
        for (int i = 0; i < n; i++)
            if (step(im, busy[i])) busy[left++] = busy[i];
        n = left;
    }
}

/* ---- long pieces ---- */

/* The heap's entries are rank << 32 | place, so that the smallest is the lowest rank and of equals the leftmost. */
static size_t heap_push(struct bpe_long *w, size_t n, uint64_t entry)
{
    size_t i = n;
    for (; i > 0 && w->heap[(i - 1) / 2] > entry; i = (i - 1) / 2, w->steps++) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = entry;
    return n + 1;
}

static void heap_sink(struct bpe_long *w, size_t n, size_t i, uint64_t entry)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child, w->steps++) {
        if (child + 1 < n && w->heap[child + 1] < w->heap[child]) child++;
        if (w->heap[child] >= entry) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = entry;
}

/* Looks the pair at `at` up anew and puts it into the heap if there is such a merge. */
static size_t note_link(const struct image *im, struct bpe_long *w, size_t heaped, uint32_t at)
{
    struct link *l = w->links + at;
    l->merge.rank = RANK_NONE;
    if (l->next == NOWHERE) return heaped;
    l->merge = pair_find(im, l->id, w->links[l->next].id);
    return l->merge.rank == RANK_NONE ? heaped : heap_push(w, heaped, (uint64_t)l->merge.rank << 32 | at);
}

/* Room for n bytes: the heap starts with n - 1 pairs, and each merge takes one entry out and puts at most two in. */
static bool reserve(struct bpe_long *w, size_t n)
{
    if (n <= w->cap) return true;
    free(w->links);
    free(w->heap);
    w->links = mem_try_resize(NULL, n, sizeof *w->links);
    w->heap = mem_try_resize(NULL, 2 * n, sizeof *w->heap);
    w->cap = w->links && w->heap ? n : 0;
    return w->cap > 0;
}

static size_t begin_long(const struct image *im, struct bpe_long *w, const uint8_t *piece, uint32_t n)
{
    struct link *links = w->links;
    size_t heaped = 0;
    for (uint32_t i = 0; i < n; i++)
        links[i] = (struct link){(uint32_t)im->byte_ids[piece[i]], {RANK_NONE, 0}, i ? i - 1 : NOWHERE, i + 1};
    links[n - 1].next = NOWHERE;
    for (uint32_t i = 0; i + 1 < n; i++) {
        links[i].merge = im->byte_pairs[piece[i] * 256 + piece[i + 1]];
        if (links[i].merge.rank != RANK_NONE) w->heap[heaped++] = (uint64_t)links[i].merge.rank << 32 | i;
    }
    for (size_t i = heaped / 2; i-- > 0;) heap_sink(w, heaped, i, w->heap[i]);
    return heaped;
}

static bool encode_long(const struct image *im, struct bpe_long *w, const uint8_t *piece, uint32_t n, struct ids *out)
{
    if (!reserve(w, n)) return false;
    struct link *links = w->links;
    size_t heaped = begin_long(im, w, piece, n);
    while (heaped) {
        uint64_t top = w->heap[0];
        uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
        heaped--;
        heap_sink(w, heaped, 0, w->heap[heaped]);
        /* An entry is stale when a merge has since changed one of its two ids. */
        if (links[at].merge.rank != rank) continue;
        uint32_t gone = links[at].next;
        links[gone].merge.rank = RANK_NONE;
        links[at].id = links[at].merge.result;
        links[at].next = links[gone].next;
        if (links[at].next != NOWHERE) links[links[at].next].prev = at;
        heaped = note_link(im, w, heaped, at);
        if (links[at].prev != NOWHERE) heaped = note_link(im, w, heaped, links[at].prev);
    }
    for (uint32_t i = 0; i != NOWHERE; i = links[i].next)
        if (!ids_try_append(out, &(int32_t){(int32_t)links[i].id}, 1)) return false;
    return true;
}

bool bpe_batch_ids(const struct image *im, struct bpe_batch *b, int i, struct ids *out)
{
    const struct bpe_lane *lane = b->lanes + i;
    if (lane->n <= SHORT_PIECE) {
        int32_t ids[SHORT_PIECE];
        size_t n = 0;
        for (uint64_t alive = lane->alive; alive; alive &= alive - 1) ids[n++] = (int32_t)lane->id[__builtin_ctzll(alive)];
        return ids_try_append(out, ids, n);
    }
    /* Places are 32 bits wide; a piece of gigabytes is cut. */
    for (size_t at = 0, n; at < lane->n; at += n) {
        n = lane->n - at < MAX_PIECE ? lane->n - at : MAX_PIECE;
        if (!encode_long(im, b->heap, lane->piece + at, (uint32_t)n, out)) return false;
    }
    b->steps = b->heap->steps;
    return true;
}
