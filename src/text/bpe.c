/* Byte-pair merging: a plain scan for short pieces, a heap of pairs for long ones. */
#include "text/bpe.h"

#include <stdlib.h>

#include "base/mem.h"

enum { SHORT_PIECE = 48, MAX_PIECE = 1 << 30 };

/* One id of a long piece; links are positions of first bytes, which never move. */
struct bpe_link {
    uint32_t id;
    uint32_t rank;       /* of the pair with the next one */
    uint32_t prev, next; /* NOWHERE at the ends */
};
#define NOWHERE UINT32_MAX

void bpe_free(struct bpe_work *w)
{
    free(w->links);
    free(w->heap);
    memset(w, 0, sizeof *w);
}

static void encode_short(const struct image *im, const uint8_t *piece, size_t n, struct ids *out)
{
    uint32_t id[SHORT_PIECE], rank[SHORT_PIECE]; /* rank[i]: of the pair (i, i + 1) */
    for (size_t i = 0; i < n; i++) id[i] = (uint32_t)im->byte_ids[piece[i]];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = pair_rank(im, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == RANK_NONE) break;
        id[best] = im->results[rank[best]];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i - 1] = rank[i];
        }
        if (best + 1 < n) rank[best] = pair_rank(im, id[best], id[best + 1]);
        if (best > 0) rank[best - 1] = pair_rank(im, id[best - 1], id[best]);
    }
    for (size_t i = 0; i < n; i++) ids_add(out, (int32_t)id[i]);
}

/* The heap's entries are rank << 32 | position, so that the smallest is the lowest rank and of equals the leftmost. */
static size_t heap_push(struct bpe_work *w, size_t n, uint64_t entry)
{
    size_t i = n;
    for (; i > 0 && w->heap[(i - 1) / 2] > entry; i = (i - 1) / 2, w->steps++) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = entry;
    return n + 1;
}

static void heap_sink(struct bpe_work *w, size_t n, size_t i, uint64_t entry)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child, w->steps++) {
        if (child + 1 < n && w->heap[child + 1] < w->heap[child]) child++;
        if (w->heap[child] >= entry) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = entry;
}

/* Ranks the pair at `at` anew and puts it into the heap if there is such a merge. */
static size_t rank_pair(const struct image *im, struct bpe_work *w, size_t heaped, uint32_t at)
{
    struct bpe_link *l = w->links + at;
    l->rank = l->next == NOWHERE ? RANK_NONE : pair_rank(im, l->id, w->links[l->next].id);
    return l->rank == RANK_NONE ? heaped : heap_push(w, heaped, (uint64_t)l->rank << 32 | at);
}

/* Room for a piece: the heap starts with n - 1 pairs, and each merge takes one entry out and puts at most two in. */
static void reserve(struct bpe_work *w, size_t n)
{
    if (n <= w->cap) return;
    free(w->links);
    free(w->heap);
    w->links = mem_resize(NULL, n * sizeof(struct bpe_link));
    w->heap = mem_resize(NULL, 2 * n * sizeof *w->heap);
    w->cap = n;
}

static size_t begin_long(const struct image *im, struct bpe_work *w, const uint8_t *piece, uint32_t n)
{
    struct bpe_link *links = w->links;
    size_t heaped = 0;
    for (uint32_t i = 0; i < n; i++) {
        links[i] = (struct bpe_link){(uint32_t)im->byte_ids[piece[i]], RANK_NONE, i ? i - 1 : NOWHERE, i + 1};
        if (i) links[i - 1].rank = pair_rank(im, links[i - 1].id, links[i].id);
    }
    links[n - 1].next = NOWHERE;
    for (uint32_t i = 0; i < n; i++)
        if (links[i].rank != RANK_NONE) w->heap[heaped++] = (uint64_t)links[i].rank << 32 | i;
    for (size_t i = heaped / 2; i-- > 0;) heap_sink(w, heaped, i, w->heap[i]);
    return heaped;
}

static void encode_long(const struct image *im, struct bpe_work *w, const uint8_t *piece, uint32_t n, struct ids *out)
{
    reserve(w, n);
    struct bpe_link *links = w->links;
    size_t heaped = begin_long(im, w, piece, n);
    while (heaped) {
        uint64_t top = w->heap[0];
        uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
        heaped--;
        heap_sink(w, heaped, 0, w->heap[heaped]);
        /* An entry is stale when a merge has since changed one of its two ids. */
        if (links[at].rank != rank) continue;
        uint32_t gone = links[at].next;
        links[gone].rank = RANK_NONE;
        links[at].id = im->results[rank];
        links[at].next = links[gone].next;
        if (links[at].next != NOWHERE) links[links[at].next].prev = at;
        heaped = rank_pair(im, w, heaped, at);
        if (links[at].prev != NOWHERE) heaped = rank_pair(im, w, heaped, links[at].prev);
    }
    for (uint32_t i = 0; i != NOWHERE; i = links[i].next) ids_add(out, (int32_t)links[i].id);
}

void bpe_encode(const struct image *im, struct bpe_work *w, const uint8_t *piece, size_t n, struct ids *out)
{
    /* Positions are 32 bits wide; a piece of a gigabyte is cut. */
    for (; n > MAX_PIECE; piece += MAX_PIECE, n -= MAX_PIECE) encode_long(im, w, piece, MAX_PIECE, out);
    if (n <= SHORT_PIECE)
        encode_short(im, piece, n, out);
    else
        encode_long(im, w, piece, (uint32_t)n, out);
}
