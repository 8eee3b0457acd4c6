/* A trie of the added tokens' texts. */
#include "text/added.h"

#include <stdlib.h>

#include "base/mem.h"

struct node {
    uint8_t byte;
    int32_t id;            /* the token that ends here, or -1 */
    uint32_t child, other; /* first child; next alternative to this byte; 0: none */
};

struct added {
    struct node *nodes;    /* owned; nodes[0] is the root */
    uint32_t n;
    uint32_t first[256];   /* the root's child for a byte, or 0 */
    int only;              /* the one byte that all tokens begin with, else -1 */
};

static void insert(struct added *a, const uint8_t *text, size_t n, int32_t id)
{
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = a->nodes[at].child;
        while (next && a->nodes[next].byte != text[i]) next = a->nodes[next].other;
        if (!next) {
            next = a->n++;
            a->nodes[next] = (struct node){text[i], -1, 0, a->nodes[at].child};
            a->nodes[at].child = next;
        }
        at = next;
    }
    a->nodes[at].id = id;
}

struct added *added_new(const struct image *im)
{
    struct added *a = mem_new(sizeof *a);
    size_t total = 1, n;
    for (uint32_t i = 0; i < im->head->n_added; i++) {
        image_token(im, (uint32_t)im->added[i], &n);
        total += n;
    }
    a->nodes = mem_new(total * sizeof *a->nodes);
    a->n = 1;
    for (uint32_t i = 0; i < im->head->n_added; i++) {
        const uint8_t *text = image_token(im, (uint32_t)im->added[i], &n);
        insert(a, text, n, im->added[i]);
    }
    int starts = 0;
    a->only = -1;
    for (uint32_t c = a->nodes[0].child; c; c = a->nodes[c].other, starts++) {
        a->first[a->nodes[c].byte] = c;
        a->only = a->nodes[c].byte;
    }
    if (starts != 1) a->only = -1;
    return a;
}

void added_free(struct added *a)
{
    if (!a) return;
    free(a->nodes);
    free(a);
}

/* The longest token that begins at text; 0 if none. */
static size_t match(const struct added *a, const uint8_t *text, size_t n, int32_t *id)
{
    size_t best = 0;
    uint32_t at = a->first[text[0]];
    for (size_t i = 1; at; i++) {
        if (a->nodes[at].id >= 0) {
            best = i;
            *id = a->nodes[at].id;
        }
        if (i == n) break;
        at = a->nodes[at].child;
        while (at && a->nodes[at].byte != text[i]) at = a->nodes[at].other;
    }
    return best;
}

size_t added_find(const struct added *a, const char *text, size_t n, size_t from, size_t *len, int32_t *id)
{
    if (a->n == 1) return n;
    for (size_t i = from; i < n; i++) {
        if (a->only >= 0) {
            const char *p = memchr(text + i, a->only, n - i);
            if (!p) return n;
            i = (size_t)(p - text);
        }
        *len = match(a, (const uint8_t *)text + i, n - i, id);
        if (*len) return i;
    }
    return n;
}
