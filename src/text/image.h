/*
 * The image: everything a tokenizer looks up, as one block of memory without pointers, so that the compiled form in the
 * cache folder is this block as it is, mapped.
 *
 * Nouns: a *piece* is what the split pattern cuts; a *base* token can come out of merges, an *added* one is matched in the
 * text; a base token is *whole* when encoding its own bytes gives just it (some tokens are in no merge: those never come
 * out). A *pair* is two adjacent ids that some merge joins; its *rank* is the merge's place in the list.
 *
 * Layout: struct image_head, then the sections in the order of struct image, each on a multiple of 64 bytes. Native byte
 * order; the magic word tells a foreign one. Threads: immutable once built. Lifetime: struct image is a set of views.
 */
#ifndef LILY_TEXT_IMAGE_H
#define LILY_TEXT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

enum {
    IMAGE_MAX_IDS = 1 << 19,
    IMAGE_MAX_MERGES = 1 << 20,
    IMAGE_MAX_ADDED = 4096,
    IMAGE_MAX_ADDED_BYTES = 256,   /* of one added token's text */
    TOKEN_BASE = 1,                /* flags of a token; none of BASE and ADDED: a hole */
    TOKEN_ADDED = 2,
    TOKEN_SPECIAL = 4
};
#define IMAGE_MAGIC UINT64_C(0x376567616d696b74)
#define PIECE_EMPTY UINT32_MAX
#define PIECE_PARTS UINT32_C(0x80000000) /* in piece_slot.id: not whole */
#define PIECE_LONG UINT32_C(0x80000000)  /* in piece_slot.check */
#define PAIR_EMPTY UINT64_MAX
#define RANK_NONE UINT32_MAX

struct image_head {
    uint64_t magic;
    uint64_t seed;      /* of both hashes: from the source files, so that nobody can choose colliding tokens */
    uint64_t size;      /* bytes of the whole image */
    uint32_t n_ids;     /* 1 … IMAGE_MAX_IDS */
    uint32_t n_merges;
    uint32_t n_added;
    uint32_t n_bytes;
    uint32_t piece_bits; /* log2 of the slots of the piece table */
    uint32_t pair_bits;
    uint32_t nfc;       /* 1: text is normalized, 0: taken as it is */
    uint32_t reserved;
};

struct piece_slot {
    uint64_t head;  /* the first eight bytes, padded with zeros: up to there no look at the token's bytes is needed */
    uint32_t check; /* up to eight bytes: how many; more: PIECE_LONG and 31 bits of the hash */
    uint32_t id;    /* PIECE_EMPTY, or an id with or without PIECE_PARTS */
};

/* What joining two ids is: rank RANK_NONE when no merge does. */
struct merge {
    uint32_t rank;
    uint32_t result; /* the token it makes */
};

struct pair_slot {
    uint64_t key; /* left << 32 | right, or PAIR_EMPTY */
    struct merge merge;
};

struct image {
    const struct image_head *head;
    const uint32_t *offsets;         /* (n_ids + 1): where a token's bytes begin */
    const int32_t *byte_ids;         /* (256): the token of each single byte */
    const int32_t *added;            /* (n_added): ids in the order of their text */
    const struct piece_slot *pieces; /* (1 << piece_bits): base tokens by their bytes, linear probing */
    const struct pair_slot *pairs;   /* (1 << pair_bits): linear probing */
    const struct merge *byte_pairs;  /* (256, 256): of the tokens of two single bytes, [left][right] */
    const uint8_t *flags;            /* (n_ids): TOKEN_* */
    const uint8_t *bytes;            /* (n_bytes): of all tokens, by id */
};

/* Offsets of the sections behind a head and the size of the whole; false when the head's numbers are out of range. */
struct image_layout {
    size_t offsets, byte_ids, added, pieces, pairs, byte_pairs, flags, bytes, size;
};
bool image_lay_out(const struct image_head *head, struct image_layout *out);

/* Sets the views over a block that image_lay_out describes. No check of the contents. */
void image_view(const void *block, const struct image_layout *layout, struct image *out);

/*
 * Views of a block that may hold anything (64-byte aligned): LILY_ERR_FORMAT unless every index in it is in range, both
 * tables have room to end a search, and the flags agree. After LILY_OK no lookup leaves the block.
 */
lily_status image_check(const void *block, size_t size, struct image *out, struct lily_err *err);

static inline uint64_t image_load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint32_t image_load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static inline uint64_t image_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Up to eight bytes (n > 0), padded with zeros. Native byte order, like all of the image. */
static inline uint64_t image_load_head(const uint8_t *p, size_t n)
{
    if (n >= 8) return image_load64(p);
    uint8_t padded[8] = {0};
    if (n >= 4) {
        memcpy(padded, p, 4);
        memcpy(padded + n - 4, p + n - 4, 4);
    } else {
        padded[0] = p[0];
        padded[n / 2] = p[n / 2];
        padded[n - 1] = p[n - 1];
    }
    return image_load64(padded);
}

/* What a piece is looked up by. */
struct piece_key {
    uint64_t head;
    uint64_t hash;
    uint32_t check;
};

static inline struct piece_key piece_key(uint64_t seed, const uint8_t *p, size_t n)
{
    const uint64_t k0 = UINT64_C(0x9E3779B97F4A7C15), k1 = UINT64_C(0xD6E8FEB86659FD93);
    struct piece_key key = {.head = image_load_head(p, n), .check = (uint32_t)n};
    key.hash = image_mix(key.head ^ seed, k0 + n * k1);
    if (n > 8) {
        size_t i = 8;
        for (; i + 8 < n; i += 8) key.hash = image_mix(key.hash ^ image_load64(p + i), k1);
        key.hash = image_mix(key.hash ^ image_load64(p + n - 8), k1);
        key.check = PIECE_LONG | (uint32_t)key.hash;
    }
    return key;
}

/* Where the bytes of a token lie. id < n_ids. */
static inline const uint8_t *image_token(const struct image *im, uint32_t id, size_t *n)
{
    *n = im->offsets[id + 1] - im->offsets[id];
    return im->bytes + im->offsets[id];
}

/* Searches begin at the first of the four slots of a cache line: most end in that line. */
static inline uint32_t image_home(uint64_t hash, uint32_t bits)
{
    return (uint32_t)(hash >> (64 - bits)) & ~UINT32_C(3);
}

static inline uint32_t piece_home(const struct image_head *head, struct piece_key key)
{
    return image_home(key.hash, head->piece_bits);
}

/* The slot of the base token with these bytes (n > 0), or the empty slot that ends the search. */
static inline uint32_t piece_slot_of(const struct image *im, struct piece_key key, const uint8_t *p, size_t n)
{
    uint32_t mask = (UINT32_C(1) << im->head->piece_bits) - 1;
    for (uint32_t i = piece_home(im->head, key);; i = (i + 1) & mask) {
        const struct piece_slot *s = im->pieces + i;
        if (s->id == PIECE_EMPTY) return i;
        if (s->head != key.head || s->check != key.check) continue;
        if (n <= 8) return i;
        size_t len;
        const uint8_t *q = image_token(im, s->id & ~PIECE_PARTS, &len);
        if (len == n && memcmp(p + 8, q + 8, n - 8) == 0) return i;
    }
}

static inline uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* Where the search for a pair begins. */
static inline uint32_t pair_home(const struct image_head *head, uint64_t key)
{
    return image_home(image_mix(key ^ head->seed, UINT64_C(0x9E3779B97F4A7C15)), head->pair_bits);
}

static inline struct merge pair_find_from(const struct image *im, uint64_t key, uint32_t home)
{
    uint32_t mask = (UINT32_C(1) << im->head->pair_bits) - 1;
    for (uint32_t i = home;; i = (i + 1) & mask) {
        const struct pair_slot *s = im->pairs + i;
        if (s->key == key) return s->merge;
        if (s->key == PAIR_EMPTY) return (struct merge){RANK_NONE, 0};
    }
}

static inline struct merge pair_find(const struct image *im, uint32_t left, uint32_t right)
{
    uint64_t key = pair_key(left, right);
    return pair_find_from(im, key, pair_home(im->head, key));
}

#endif
