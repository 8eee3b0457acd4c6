/* Sequence state: pages, recurrent and convolution memory, borders. */
#include "backend/cpu/state.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/num.h"

static const uint8_t *page_new(struct state_pool *p)
{
    if (p->used + p->pages.page_bytes > p->budget) return NULL;
    const uint8_t *page = kv_page_new(&p->pages);
    if (page) p->used += p->pages.page_bytes;
    return page;
}

static void page_unref(struct state_pool *p, const uint8_t *page)
{
    if (kv_page_unref(&p->pages, page)) p->used -= p->pages.page_bytes;
}

static void page_ref(struct state_pool *p, const uint8_t *page)
{
    kv_page_ref(&p->pages, page);
}

lily_status state_pool_init(struct state_pool *p, const struct model_shape *shape, bool kv_bf16, size_t budget,
                            struct lily_err *err)
{
    memset(p, 0, sizeof *p);
    p->shape = shape;
    p->kv_bf16 = kv_bf16;
    p->head_bytes = (size_t)GRID * HEAD_DIM * (kv_bf16 ? 2 : 4);
    p->budget = budget;
    return kv_pages_init(&p->pages, (size_t)shape->n_full * (size_t)shape->n_kv_heads * 2 * p->head_bytes, budget, err);
}

void state_pool_free(struct state_pool *p)
{
    kv_pages_free(&p->pages);
}

static size_t recurrent_bytes(const struct state_pool *p)
{
    return shape_recurrent_floats(p->shape) * sizeof(float);
}

static size_t conv_bytes(const struct state_pool *p)
{
    return shape_conv_floats(p->shape) * sizeof(float);
}

/*
 * Both fixed states in one block, so that a border is one allocation: a mapping of its own, since in a heap of small things what
 * is freed would stay resident.
 */
static lily_status alloc_fixed(struct state_pool *p, float **recurrent, float **conv, struct lily_err *err)
{
    size_t n = recurrent_bytes(p) + conv_bytes(p);
    void *block;
    if (p->used + n > p->budget)
        LILY_FAIL(err, LILY_ERR_MEMORY, "the memory for states is used up: %zu of %zu bytes, %zu more needed", p->used,
                  p->budget, n);
    LILY_TRY(mem_big(n, "a sequence's state", &block, err));
    p->used += n;
    *recurrent = block;
    *conv = *recurrent + shape_recurrent_floats(p->shape);
    return LILY_OK;
}

static void free_fixed(struct state_pool *p, float *recurrent)
{
    size_t n = recurrent_bytes(p) + conv_bytes(p);
    mem_big_free(recurrent, n);
    p->used -= n;
}

static void copy_fixed(const struct state_pool *p, float *to, const float *from)
{
    memcpy(to, from, recurrent_bytes(p) + conv_bytes(p));
}

static void forget_kept(struct seq *s)
{
    if (s->kept) free_fixed(s->pool, s->kept);
    s->kept = NULL;
}

lily_status state_seq_new(struct state_pool *p, struct seq **out, struct lily_err *err)
{
    struct seq *s = mem_new(sizeof *s);
    s->pool = p;
    lily_status st = alloc_fixed(p, &s->recurrent, &s->conv, err);
    if (st != LILY_OK) {
        free(s);
        s = NULL;
    } else {
        state_seq_reset(s);
    }
    *out = s;
    return st;
}

static void drop_pages(struct seq *s)
{
    for (int i = 0; i < s->n_pages; i++) page_unref(s->pool, s->pages[i]);
    s->n_pages = 0;
}

void state_seq_free(struct seq *s)
{
    if (!s) return;
    drop_pages(s);
    forget_kept(s);
    free(s->pages);
    free_fixed(s->pool, s->recurrent);
    free(s);
}

void state_seq_reset(struct seq *s)
{
    drop_pages(s);
    forget_kept(s);
    s->length = 0;
    memset(s->recurrent, 0, recurrent_bytes(s->pool) + conv_bytes(s->pool));
}

static void grow_page_array(struct seq *s, int n)
{
    if (n <= s->cap_pages) return;
    s->cap_pages = n + n / 2 + 8;
    s->pages = mem_resize(s->pages, sizeof *s->pages * (size_t)s->cap_pages);
}

lily_status state_seq_reserve(struct seq *s, int n, struct lily_err *err)
{
    int need = (s->length + n + GRID - 1) / GRID;
    grow_page_array(s, need);
    while (s->n_pages < need) {
        const uint8_t *page = page_new(s->pool);
        if (!page)
            LILY_FAIL(err, LILY_ERR_MEMORY, "no KV page left for token %d: %zu of %zu bytes for states are in use",
                      s->length + n, s->pool->used, s->pool->budget);
        s->pages[s->n_pages++] = page;
    }
    return LILY_OK;
}

/* A border of the sequence's first `length` tokens, whose fixed state is moved into it. */
static struct border *border_of(const struct seq *s, int length, float *moved)
{
    struct border *b = mem_new(sizeof *b);
    b->pool = s->pool;
    b->recurrent = moved;
    b->conv = moved + shape_recurrent_floats(s->pool->shape);
    b->length = length;
    b->n_pages = length / GRID;
    b->pages = mem_new(sizeof *b->pages * (size_t)(b->n_pages + 1));
    for (int i = 0; i < b->n_pages; i++) {
        b->pages[i] = s->pages[i];
        page_ref(s->pool, b->pages[i]);
    }
    return b;
}

lily_status state_border_save(const struct seq *s, struct border **out, struct lily_err *err)
{
    float *recurrent = NULL, *conv;
    *out = NULL;
    if (s->length % GRID)
        LILY_FAIL(err, LILY_ERR_USAGE, "a border at token %d: expected a multiple of %d", s->length, GRID);
    LILY_TRY(alloc_fixed(s->pool, &recurrent, &conv, err));
    copy_fixed(s->pool, recurrent, s->recurrent);
    *out = border_of(s, s->length, recurrent);
    return LILY_OK;
}

lily_status state_seq_keep(struct seq *s, int length, struct lily_err *err)
{
    float *conv;
    if (length % GRID || length <= s->length)
        LILY_FAIL(err, LILY_ERR_USAGE, "a state kept at token %d: expected a multiple of %d beyond %d", length, GRID, s->length);
    if (!s->kept) LILY_TRY(alloc_fixed(s->pool, &s->kept, &conv, err));
    s->kept_at = length;
    return LILY_OK;
}

lily_status state_border_kept(struct seq *s, int length, struct border **out)
{
    *out = NULL;
    if (!s->kept || s->kept_at != length || length > s->length) return LILY_OK;
    *out = border_of(s, length, s->kept);
    s->kept = NULL;
    return LILY_OK;
}

void state_border_restore(struct seq *s, const struct border *b)
{
    for (int i = 0; i < b->n_pages; i++) page_ref(s->pool, b->pages[i]);
    drop_pages(s);
    forget_kept(s);
    grow_page_array(s, b->n_pages);
    if (b->n_pages) memcpy(s->pages, b->pages, sizeof *b->pages * (size_t)b->n_pages);
    s->n_pages = b->n_pages;
    s->length = b->length;
    copy_fixed(s->pool, s->recurrent, b->recurrent);
}

void state_border_free(struct border *b)
{
    if (!b) return;
    for (int i = 0; i < b->n_pages; i++) page_unref(b->pool, b->pages[i]);
    free(b->pages);
    free_fixed(b->pool, b->recurrent);
    free(b);
}

size_t state_border_bytes(const struct state_pool *p)
{
    return recurrent_bytes(p) + conv_bytes(p);
}

void state_seq_share(struct seq *s, const struct border *b, int n)
{
    for (int i = 0; i < n && i < b->n_pages; i++) {
        if (s->pages[i] == b->pages[i]) continue;
        page_ref(s->pool, b->pages[i]);
        page_unref(s->pool, s->pages[i]);
        s->pages[i] = b->pages[i];
    }
}

const uint8_t *state_border_part(const struct border *b, int part)
{
    return part == BORDER_FIXED ? (const uint8_t *)b->recurrent : b->pages[part];
}

static lily_status read_part(const struct border_source *src, int part, size_t bytes, uint8_t *out, struct lily_err *err)
{
    for (size_t at = 0; at < bytes; at += BORDER_SLICE) {
        size_t n = bytes - at < BORDER_SLICE ? bytes - at : BORDER_SLICE;
        LILY_TRY(src->read(src->ctx, part, at, n, out + at, err));
    }
    return LILY_OK;
}

/* The parts that are read; the border is released by the caller when one cannot be. */
static lily_status import_parts(struct border *b, int first, const struct border_source *src, struct lily_err *err)
{
    struct state_pool *p = b->pool;
    for (int n = b->length / GRID; b->n_pages < n;) {
        const uint8_t *page = page_new(p);
        if (!page) LILY_FAIL(err, LILY_ERR_MEMORY, "no KV page left for a saved state: %zu of %zu bytes are in use", p->used, p->budget);
        b->pages[b->n_pages++] = page;
    }
    for (int i = first; i < b->n_pages; i++) LILY_TRY(read_part(src, i, p->pages.page_bytes, (uint8_t *)(uintptr_t)b->pages[i], err));
    return read_part(src, BORDER_FIXED, state_border_bytes(p), (uint8_t *)b->recurrent, err);
}

lily_status state_border_import(struct state_pool *p, const struct border_shape *shape, const struct border_source *src,
                                struct border **out, struct lily_err *err)
{
    *out = NULL;
    if (shape->length % GRID || shape->length < 0 || shape->n_shared * GRID > shape->length)
        LILY_FAIL(err, LILY_ERR_USAGE, "a saved state of %d tokens: expected a multiple of %d", shape->length, GRID);
    struct border *b = mem_new(sizeof *b);
    b->pool = p;
    lily_status st = alloc_fixed(p, &b->recurrent, &b->conv, err);
    if (st != LILY_OK) {
        free(b);
        return st;
    }
    b->length = shape->length;
    b->pages = mem_new(sizeof *b->pages * (size_t)(b->length / GRID + 1));
    for (int i = 0; i < shape->n_shared; i++) {
        b->pages[b->n_pages++] = shape->base->pages[i];
        page_ref(p, shape->base->pages[i]);
    }
    st = import_parts(b, shape->n_shared, src, err);
    if (st == LILY_OK) *out = b;
    else state_border_free(b);
    return st;
}

void state_kv_store(const struct seq *s, size_t offset, int pos, const float *row)
{
    uint8_t *page = (uint8_t *)(uintptr_t)s->pages[pos / GRID] + offset; /* pages being written are never shared */
    size_t at = (size_t)(pos % GRID) * HEAD_DIM;
    if (!s->pool->kv_bf16) {
        memcpy(page + 4 * at, row, sizeof(float) * HEAD_DIM);
        return;
    }
    uint16_t *to = (uint16_t *)(void *)page + at;
    for (int i = 0; i < HEAD_DIM; i++) to[i] = bf16_from_f32(row[i]);
}
