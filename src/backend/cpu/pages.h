/*
 * KV pages: blocks of one size with a count of references, in one region that is reserved at the start, so that a decode step
 * allocates nothing. Resident are the pages in use: one that nobody holds any more goes back to the system at once.
 *
 * Engine thread only. Owned: kv_pages_free.
 */
#ifndef LILY_BACKEND_CPU_PAGES_H
#define LILY_BACKEND_CPU_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct kv_pages {
    size_t page_bytes;
    uint8_t *region; /* owned (mem_sparse): max pages */
    int max;
    int *refs;       /* owned; (max) references to each page */
    int *free_list;  /* owned; (max) the first n_free are numbers of unused pages */
    int n_free;
};

/* As many pages as fit into `bytes`. */
lily_status kv_pages_init(struct kv_pages *p, size_t page_bytes, size_t bytes, struct lily_err *err);
void kv_pages_free(struct kv_pages *p);

const uint8_t *kv_page_new(struct kv_pages *p); /* with one reference; NULL: all are in use */
void kv_page_ref(struct kv_pages *p, const uint8_t *page);
bool kv_page_unref(struct kv_pages *p, const uint8_t *page); /* true: that was the last reference */

#endif
