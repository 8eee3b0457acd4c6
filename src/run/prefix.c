/* The radix tree: edges of whole blocks, split where prompts part, joined when nothing parts there any more. */
#include "run/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "spec/family.h"

struct prefix_node {
    struct prefix_node *parent, *child, *next; /* child: the first; next: of the same parent */
    int32_t *ids; /* owned; (n) tokens of the edge above, whole blocks */
    int n;
    int length; /* tokens from the root */
    void *value;
};

struct prefix_tree {
    struct prefix_node root;
    int tokens;
};

struct prefix_tree *prefix_new(void)
{
    return mem_new(sizeof(struct prefix_tree));
}

static void free_node(struct prefix_node *n)
{
    free(n->ids);
    free(n);
}

/* Frees what is below; goes down and up again, since a tree can be deep. */
static void free_below(struct prefix_node *root)
{
    struct prefix_node *n = root;
    while (root->child) {
        while (n->child) n = n->child;
        struct prefix_node *up = n->parent;
        up->child = n->next;
        free_node(n);
        n = up;
    }
}

void prefix_free(struct prefix_tree *t)
{
    if (!t) return;
    free_below(&t->root);
    free(t);
}

/* Equal tokens in whole blocks of two runs of at most n. */
static int common_blocks(const int32_t *a, const int32_t *b, int n)
{
    int i = 0;
    while (i + GRID <= n && memcmp(a + i, b + i, sizeof *a * GRID) == 0) i += GRID;
    return i;
}

/* The child whose edge begins with the block at ids, or NULL. */
static struct prefix_node *child_at(const struct prefix_node *n, const int32_t *ids)
{
    struct prefix_node *c = n->child;
    while (c && common_blocks(c->ids, ids, GRID) == 0) c = c->next;
    return c;
}

static struct prefix_node *add_child(struct prefix_node *parent, const int32_t *ids, int n)
{
    struct prefix_node *c = mem_new(sizeof *c);
    c->ids = mem_new(sizeof *ids * (size_t)n);
    memcpy(c->ids, ids, sizeof *ids * (size_t)n);
    c->n = n;
    c->length = parent->length + n;
    c->parent = parent;
    c->next = parent->child;
    parent->child = c;
    return c;
}

static struct prefix_node **link_to(struct prefix_node *n)
{
    struct prefix_node **at = &n->parent->child;
    while (*at != n) at = &(*at)->next;
    return at;
}

/* Parts the edge of n after `at` of its tokens: a new node stands above n, which keeps its address. */
static struct prefix_node *split(struct prefix_node *n, int at)
{
    struct prefix_node *upper = mem_new(sizeof *upper), **link = link_to(n);
    upper->ids = mem_new(sizeof *n->ids * (size_t)at);
    memcpy(upper->ids, n->ids, sizeof *n->ids * (size_t)at);
    upper->n = at;
    upper->length = n->length - n->n + at;
    upper->parent = n->parent;
    upper->next = n->next;
    upper->child = n;
    *link = upper;
    n->parent = upper;
    n->next = NULL;
    n->n -= at;
    memmove(n->ids, n->ids + at, sizeof *n->ids * (size_t)n->n);
    return upper;
}

struct prefix_node *prefix_put(struct prefix_tree *t, const int32_t *ids, int length, void *value)
{
    struct prefix_node *n = &t->root;
    assert(length >= GRID && length % GRID == 0 && value);
    while (n->length < length) {
        int rest = length - n->length;
        struct prefix_node *c = child_at(n, ids + n->length);
        if (!c) {
            n = add_child(n, ids + n->length, rest);
            t->tokens += rest;
            break;
        }
        int same = common_blocks(c->ids, ids + n->length, c->n < rest ? c->n : rest);
        n = same < c->n ? split(c, same) : c;
    }
    n->value = value;
    return n;
}

/* A node without value and with one child is no place where prompts part: the child takes its edge. */
static void join(struct prefix_node *n)
{
    struct prefix_node *c = n->child, **link = link_to(n);
    n->ids = mem_resize(n->ids, sizeof *n->ids * (size_t)(n->n + c->n));
    memcpy(n->ids + n->n, c->ids, sizeof *n->ids * (size_t)c->n);
    free(c->ids);
    c->ids = n->ids;
    c->n += n->n;
    c->parent = n->parent;
    c->next = n->next;
    *link = c;
    free(n);
}

void prefix_remove(struct prefix_tree *t, struct prefix_node *n)
{
    n->value = NULL;
    if (!n->child) {
        struct prefix_node *up = n->parent;
        *link_to(n) = n->next;
        t->tokens -= n->n;
        free_node(n);
        n = up;
    }
    if (n != &t->root && !n->value && n->child && !n->child->next) join(n);
}

/* Walks down as far as whole edges agree, at most n tokens; *rest: the child that agrees in part, and how far. */
static const struct prefix_node *walk(const struct prefix_tree *t, const int32_t *ids, int n, struct prefix_node **part, int *same)
{
    const struct prefix_node *at = &t->root;
    *part = NULL;
    *same = 0;
    while (at->length + GRID <= n) {
        struct prefix_node *c = child_at(at, ids + at->length);
        if (!c) return at;
        int limit = n - at->length < c->n ? n - at->length : c->n;
        *same = common_blocks(c->ids, ids + at->length, limit);
        if (*same < c->n) {
            *part = c;
            return at;
        }
        at = c;
    }
    return at;
}

static struct prefix_node *with_value(const struct prefix_node *n)
{
    while (n->parent && !n->value) n = n->parent;
    return n->parent ? (struct prefix_node *)(uintptr_t)n : NULL; /* the tree is the caller's to change */
}

struct prefix_node *prefix_find(const struct prefix_tree *t, const int32_t *ids, int length)
{
    struct prefix_node *part;
    int same;
    const struct prefix_node *n = walk(t, ids, length, &part, &same);
    return n->length == length && n->value ? (struct prefix_node *)(uintptr_t)n : NULL;
}

struct prefix_node *prefix_deepest(const struct prefix_tree *t, const int32_t *ids, int n)
{
    struct prefix_node *part;
    int same;
    return with_value(walk(t, ids, n - 1, &part, &same));
}

int prefix_common(const struct prefix_tree *t, const int32_t *ids, int n, struct prefix_node **through)
{
    struct prefix_node *part;
    int same;
    const struct prefix_node *at = walk(t, ids, n, &part, &same);
    int length = at->length + (part ? same : 0);
    const struct prefix_node *down = part ? part : at;
    *through = NULL;
    if (!length) return 0;
    while (!down->value) down = down->child; /* a leaf has a value */
    *through = (struct prefix_node *)(uintptr_t)down;
    return length;
}

void *prefix_value(const struct prefix_node *n)
{
    return n->value;
}

int prefix_length(const struct prefix_node *n)
{
    return n->length;
}

struct prefix_node *prefix_above(const struct prefix_node *n)
{
    return with_value(n->parent);
}

int prefix_own(const struct prefix_node *n)
{
    if (n->child) return 0;
    int own = n->n;
    for (n = n->parent; n->parent && !n->value && !n->child->next; n = n->parent) own += n->n;
    return own;
}

void prefix_ids(const struct prefix_node *n, int32_t *out)
{
    for (; n->parent; n = n->parent) memcpy(out + n->length - n->n, n->ids, sizeof *out * (size_t)n->n);
}

int prefix_tokens(const struct prefix_tree *t)
{
    return t->tokens;
}
