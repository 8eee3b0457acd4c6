/* KV pages in a region whose unused parts are not resident. */
#include "backend/cpu/pages.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

lily_status kv_pages_init(struct kv_pages *p, size_t page_bytes, size_t bytes, struct lily_err *err)
{
    size_t n = page_bytes ? bytes / page_bytes : 0;
    void *region;
    memset(p, 0, sizeof *p);
    p->page_bytes = page_bytes;
    p->max = n < INT_MAX / 2 ? (int)n : INT_MAX / 2;
    LILY_TRY(mem_sparse((size_t)p->max * page_bytes, "the KV cache", &region, err));
    p->region = region;
    p->refs = mem_new(sizeof *p->refs * (size_t)p->max);
    p->free_list = mem_new(sizeof *p->free_list * (size_t)p->max);
    while (p->n_free < p->max) { /* the lowest page is taken first */
        p->free_list[p->n_free] = p->max - 1 - p->n_free;
        p->n_free++;
    }
    return LILY_OK;
}

void kv_pages_free(struct kv_pages *p)
{
    mem_big_free(p->region, (size_t)p->max * p->page_bytes);
    free(p->refs);
    free(p->free_list);
    memset(p, 0, sizeof *p);
}

static int number_of(const struct kv_pages *p, const uint8_t *page)
{
    return (int)((size_t)(page - p->region) / p->page_bytes);
}

const uint8_t *kv_page_new(struct kv_pages *p)
{
    if (!p->n_free) return NULL;
    int i = p->free_list[--p->n_free];
    p->refs[i] = 1;
    return p->region + (size_t)i * p->page_bytes;
}

void kv_page_ref(struct kv_pages *p, const uint8_t *page)
{
    p->refs[number_of(p, page)]++;
}

bool kv_page_unref(struct kv_pages *p, const uint8_t *page)
{
    int i = number_of(p, page);
    if (--p->refs[i]) return false;
    mem_sparse_drop(p->region + (size_t)i * p->page_bytes, p->page_bytes);
    p->free_list[p->n_free++] = i;
    return true;
}
