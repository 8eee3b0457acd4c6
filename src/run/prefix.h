/*
 * A radix tree over token ids: which beginnings of prompts are kept. Its unit is the block of 64 tokens, since states lie on
 * the grid; an edge holds a run of blocks, and a node with a value stands for all the tokens from the root to it.
 *
 * Every leaf has a value. So the blocks of all edges are the KV pages that the kept states hold, each counted once.
 * Threads: one. Lifetime: a node lives until prefix_remove, at the same address; values are the caller's. Owned: prefix_free.
 */
#ifndef LILY_RUN_PREFIX_H
#define LILY_RUN_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prefix_tree;
struct prefix_node;

struct prefix_tree *prefix_new(void);
void prefix_free(struct prefix_tree *t); /* NULL is fine */

/* Gives ids[0 … length-1] a value (not NULL), or another one. length is a multiple of 64 and at least 64. */
struct prefix_node *prefix_put(struct prefix_tree *t, const int32_t *ids, int length, void *value);
void prefix_remove(struct prefix_tree *t, struct prefix_node *n);

/* The node with a value that stands for exactly these tokens, or NULL. */
struct prefix_node *prefix_find(const struct prefix_tree *t, const int32_t *ids, int length);
/* The longest one that is a proper prefix of ids[0 … n-1] (shorter than n), or NULL. */
struct prefix_node *prefix_deepest(const struct prefix_tree *t, const int32_t *ids, int n);
/*
 * How many of the first tokens, in whole blocks of at most n, some kept prompt begins with too: the result, and in *through
 * the nearest node with a value that does (NULL when 0).
 */
int prefix_common(const struct prefix_tree *t, const int32_t *ids, int n, struct prefix_node **through);

void *prefix_value(const struct prefix_node *n);
int prefix_length(const struct prefix_node *n);
struct prefix_node *prefix_above(const struct prefix_node *n); /* the longest proper prefix that has a value, or NULL */
int prefix_own(const struct prefix_node *n);                   /* tokens that no other node with a value holds */
void prefix_ids(const struct prefix_node *n, int32_t *out);    /* (length) */

int prefix_tokens(const struct prefix_tree *t); /* on all edges */

#endif
