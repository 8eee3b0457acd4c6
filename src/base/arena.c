/* Chunks of some huge pages, cut up from the front. */
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* What a chunk leaves unused was never touched and takes no memory. The address sanitizer watches blocks of their own. */
#ifdef LILY_SAN
enum { LINE = 64, ALIGNED = 1, CHUNK = 0 };
#else
enum { LINE = 64, ALIGNED = 2 << 20 /* a huge page */, CHUNK = 32 << 20 };
#endif

struct arena_chunk {
    struct arena_chunk *next;
    void *block; /* owned (mem_big) */
    size_t n_bytes;
};

static lily_status new_chunk(struct arena *a, size_t n_bytes, const char *what, struct arena_chunk **out, struct lily_err *err)
{
    void *block;
    size_t room = n_bytes > SIZE_MAX / 2 ? n_bytes : (n_bytes < CHUNK ? CHUNK : n_bytes) + ALIGNED - 1; /* too much either way */
    LILY_TRY(mem_big(room, what, &block, err));
    struct arena_chunk *c = mem_new(sizeof *c);
    *c = (struct arena_chunk){a->chunks, block, room};
    *out = a->chunks = c;
    return LILY_OK;
}

lily_status arena_take(struct arena *a, size_t n_bytes, const char *what, void **out, struct lily_err *err)
{
    struct arena_chunk *c;
    size_t need = n_bytes > SIZE_MAX / 2 ? n_bytes : (n_bytes + LINE - 1) / LINE * LINE;
    *out = NULL;
    if (need > a->rest) {
        LILY_TRY(new_chunk(a, need, what, &c, err));
        size_t skip = (ALIGNED - (uintptr_t)c->block % ALIGNED) % ALIGNED, rest = c->n_bytes - skip - need;
        uint8_t *at = (uint8_t *)c->block + skip;
        *out = at;
        if (rest <= a->rest) return LILY_OK; /* the small ones go on where they were */
        a->at = at + need;
        a->rest = rest;
        return LILY_OK;
    }
    *out = a->at;
    a->at += need;
    a->rest -= need;
    return LILY_OK;
}

void arena_free(struct arena *a)
{
    while (a->chunks) {
        struct arena_chunk *c = a->chunks;
        a->chunks = c->next;
        mem_big_free(c->block, c->n_bytes);
        free(c);
    }
    memset(a, 0, sizeof *a);
}
