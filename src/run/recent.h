/*
 * The prompts that were read lately, to say why a new one had to be read: where it parts from the most similar one, or that
 * the state it needed is no longer kept. Bounded in number and bytes. One thread. Owned: recent_free.
 */
#ifndef LILY_RUN_RECENT_H
#define LILY_RUN_RECENT_H

#include <stddef.h>
#include <stdint.h>

enum miss_kind {
    MISS_NONE,    /* what earlier prompts have in common with this one was all there */
    MISS_NEW,     /* no recent prompt begins like this one */
    MISS_DIFFERS, /* the most similar one differs inside a message that both have */
    MISS_DROPPED, /* the state was not kept, or given up for room */
    MISS_OFF      /* nothing is kept */
};
const char *miss_name(enum miss_kind k); /* NULL, "new", "differs", "dropped", "off" */

enum { MISS_TOKENS = 6 };
struct cache_miss {
    enum miss_kind kind;
    int at; /* MISS_DIFFERS: the first token that differs */
    int32_t was[MISS_TOKENS], now[MISS_TOKENS]; /* what follows there in the earlier prompt, and in this one */
    int n_was, n_now; /* n_was 0: the earlier prompt ended there, or was another client's */
};

struct recent_prompt {
    const int32_t *ids;
    int n;
    const int *marks; /* (n_marks) rising */
    int n_marks;
    int owner; /* whose it is: texts of one client are not shown to another */
};

struct recent;
struct recent *recent_new(size_t max_bytes); /* 0: none are kept */
void recent_free(struct recent *r);          /* NULL is fine */
size_t recent_bytes(const struct recent *r); /* of the prompts that are remembered now */
/* Explains a prompt of which `reused` tokens were there, then remembers it. */
void recent_add(struct recent *r, const struct recent_prompt *p, int reused, struct cache_miss *out);

#endif
