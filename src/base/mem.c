/* Heap memory: small allocations that never fail, large ones that may. */
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void (*ending)(void);

void mem_on_end(void (*fn)(void))
{
    ending = fn;
}

static void die(size_t n)
{
    fprintf(stderr, "lily: not enough memory: %zu bytes were refused by the system\n", n);
    if (ending) ending();
    abort();
}

void *mem_new(size_t n_bytes)
{
    void *p = calloc(1, n_bytes ? n_bytes : 1);
    if (!p) die(n_bytes);
    return p;
}

void *mem_new_lines(size_t n_bytes)
{
    size_t rounded = (n_bytes + 63) / 64 * 64;
    void *p = aligned_alloc(64, rounded ? rounded : 64);
    if (!p) die(n_bytes);
    return memset(p, 0, rounded);
}

void *mem_resize(void *p, size_t n_bytes)
{
    void *q = realloc(p, n_bytes ? n_bytes : 1);
    if (!q) die(n_bytes);
    return q;
}

char *mem_dup(const char *s, size_t n)
{
    char *p = mem_new(n + 1);
    if (n) memcpy(p, s, n);
    return p;
}

char *mem_dupz(const char *s)
{
    return mem_dup(s, strlen(s));
}

void *mem_try(size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size) return NULL;
    return calloc(n ? n : 1, size ? size : 1);
}

void *mem_try_resize(void *p, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size) return NULL;
    return realloc(p, n && size ? n * size : 1);
}

/* The address sanitizer watches the heap, not mappings: there, big blocks come from it. */
#if defined(LILY_SAN) && !defined(__SANITIZE_THREAD__)
static void *map_big(size_t n_bytes)
{
    size_t rounded = n_bytes > SIZE_MAX - 64 ? 0 : (n_bytes + 63) / 64 * 64;
    void *p = rounded ? aligned_alloc(64, rounded) : NULL;
    return p ? memset(p, 0, rounded) : NULL;
}

static void unmap_big(void *p, size_t n_bytes)
{
    (void)n_bytes;
    free(p);
}

static void *map_sparse(size_t n_bytes)
{
    return map_big(n_bytes);
}

void mem_sparse_drop(void *p, size_t n_bytes)
{
    memset(p, 0, n_bytes);
}
#else
enum { HUGE_PAGE = 2 << 20 };

static void *map(size_t n_bytes)
{
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void *map_big(size_t n_bytes)
{
    void *p = map(n_bytes);
    if (p && n_bytes >= HUGE_PAGE) madvise(p, n_bytes, MADV_HUGEPAGE);
    return p;
}

/* A huge page would be resident as a whole for the sake of any part of it. */
static void *map_sparse(size_t n_bytes)
{
    void *p = map(n_bytes);
    if (p) madvise(p, n_bytes, MADV_NOHUGEPAGE);
    return p;
}

void mem_sparse_drop(void *p, size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), ahead = (page - (uintptr_t)p % page) % page;
    if (n_bytes >= ahead + page) madvise((char *)p + ahead, (n_bytes - ahead) / page * page, MADV_DONTNEED);
}

static void unmap_big(void *p, size_t n_bytes)
{
    munmap(p, n_bytes);
}
#endif

static lily_status check_big(const void *p, size_t n_bytes, const char *what, struct lily_err *err)
{
    if (!p) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for %s: %zu bytes were refused by the system", what, n_bytes);
    return LILY_OK;
}

lily_status mem_big(size_t n_bytes, const char *what, void **out, struct lily_err *err)
{
    *out = map_big(n_bytes ? n_bytes : 1);
    return check_big(*out, n_bytes, what, err);
}

lily_status mem_sparse(size_t n_bytes, const char *what, void **out, struct lily_err *err)
{
    *out = map_sparse(n_bytes ? n_bytes : 1);
    return check_big(*out, n_bytes, what, err);
}

void mem_big_free(void *p, size_t n_bytes)
{
    if (p) unmap_big(p, n_bytes ? n_bytes : 1);
}
