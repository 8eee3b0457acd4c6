/* Sequence state: pages, recurrent and convolution memory, borders. */
#include "backend/cpu/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"

enum { PAGE_HEADER = 64 };

static struct kv_page *page_of(const uint8_t *payload)
{
    return (struct kv_page *)(void *)(uintptr_t)(payload - PAGE_HEADER);
}

static void page_unref(struct state_pool *p, const uint8_t *payload)
{
    struct kv_page *page = page_of(payload);
    if (--page->refs) return;
    free(page);
    p->n_pages--;
}

static const uint8_t *page_new(struct state_pool *p)
{
    if (p->max_pages && p->n_pages >= p->max_pages) return NULL;
    size_t bytes = (PAGE_HEADER + p->page_bytes + 63) / 64 * 64;
    struct kv_page *page = aligned_alloc(64, bytes);
    if (!page) return NULL;
    page->refs = 1;
    p->n_pages++;
    return (const uint8_t *)page + PAGE_HEADER;
}

void state_pool_init(struct state_pool *p, const struct model_shape *shape, bool kv_bf16, long max_pages)
{
    memset(p, 0, sizeof *p);
    p->shape = shape;
    p->kv_bf16 = kv_bf16;
    p->head_bytes = (size_t)GRID * HEAD_DIM * (kv_bf16 ? 2 : 4);
    p->page_bytes = (size_t)shape->n_full * (size_t)shape->n_kv_heads * 2 * p->head_bytes;
    p->max_pages = max_pages;
}

static size_t recurrent_bytes(const struct state_pool *p)
{
    return shape_recurrent_floats(p->shape) * sizeof(float);
}

static size_t conv_bytes(const struct state_pool *p)
{
    return shape_conv_floats(p->shape) * sizeof(float);
}

/* Both fixed states in one block, so that a border is one allocation. */
static lily_status alloc_fixed(const struct state_pool *p, float **recurrent, float **conv, struct lily_err *err)
{
    size_t n = (recurrent_bytes(p) + conv_bytes(p) + 63) / 64 * 64;
    float *block = aligned_alloc(64, n ? n : 64);
    if (!block) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for a sequence's state: %zu bytes", n);
    *recurrent = block;
    *conv = block + shape_recurrent_floats(p->shape);
    return LILY_OK;
}

static void copy_fixed(const struct state_pool *p, float *to, const float *from)
{
    memcpy(to, from, recurrent_bytes(p) + conv_bytes(p));
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
    free(s->pages);
    free(s->recurrent);
    free(s);
}

void state_seq_reset(struct seq *s)
{
    drop_pages(s);
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
            LILY_FAIL(err, LILY_ERR_MEMORY, "no KV page left for token %d: all %ld pages of %d tokens are in use",
                      s->length + n, s->pool->n_pages, GRID);
        s->pages[s->n_pages++] = page;
    }
    return LILY_OK;
}

lily_status state_border_save(const struct seq *s, struct border **out, struct lily_err *err)
{
    *out = NULL;
    if (s->length % GRID)
        LILY_FAIL(err, LILY_ERR_USAGE, "a border at token %d: expected a multiple of %d", s->length, GRID);
    struct border *b = mem_new(sizeof *b);
    b->pool = s->pool;
    lily_status st = alloc_fixed(s->pool, &b->recurrent, &b->conv, err);
    if (st != LILY_OK) {
        free(b);
        return st;
    }
    copy_fixed(s->pool, b->recurrent, s->recurrent);
    b->length = s->length;
    b->n_pages = s->length / GRID;
    b->pages = mem_new(sizeof *b->pages * (size_t)(b->n_pages + 1));
    for (int i = 0; i < b->n_pages; i++) {
        b->pages[i] = s->pages[i];
        page_of(b->pages[i])->refs++;
    }
    *out = b;
    return LILY_OK;
}

void state_border_restore(struct seq *s, const struct border *b)
{
    for (int i = 0; i < b->n_pages; i++) page_of(b->pages[i])->refs++;
    drop_pages(s);
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
    free(b->recurrent);
    free(b);
}

size_t state_border_bytes(const struct state_pool *p)
{
    return recurrent_bytes(p) + conv_bytes(p);
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
