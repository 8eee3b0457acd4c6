/*
 * The most heap memory that was in use at once, measured by standing in for malloc. Include it in the one .c file of a
 * program: it defines malloc and its family. Under a sanitizer, which has an allocator of its own, nothing is measured.
 */
#ifndef LILY_TESTS_ALLOC_PEAK_H
#define LILY_TESTS_ALLOC_PEAK_H

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

#if defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ALLOC_PEAK_OFF 1
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define ALLOC_PEAK_OFF 1
#endif

static atomic_long alloc_live, alloc_peak;

static inline void alloc_peak_reset(void)
{
    atomic_store(&alloc_peak, atomic_load(&alloc_live));
}

/* Bytes above what was in use at the reset. */
static inline long alloc_peak_since(long live_at_reset)
{
    return atomic_load(&alloc_peak) - live_at_reset;
}

#ifndef ALLOC_PEAK_OFF
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

static void *alloc_note(void *p, long was)
{
    long live = atomic_fetch_add(&alloc_live, (p ? (long)malloc_usable_size(p) : 0) - was);
    live += (p ? (long)malloc_usable_size(p) : 0) - was;
    if (live > atomic_load(&alloc_peak)) atomic_store(&alloc_peak, live);
    return p;
}

void *malloc(size_t n)
{
    return alloc_note(__libc_malloc(n), 0);
}

void *calloc(size_t n, size_t size)
{
    return alloc_note(__libc_calloc(n, size), 0);
}

void *realloc(void *p, size_t n)
{
    long was = p ? (long)malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, n);
    if (!q && n) return NULL;
    return alloc_note(q, was);
}

void *memalign(size_t align, size_t n)
{
    return alloc_note(__libc_memalign(align, n), 0);
}

void *aligned_alloc(size_t align, size_t n)
{
    return memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    *out = memalign(align, n);
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    if (p) atomic_fetch_sub(&alloc_live, (long)malloc_usable_size(p));
    __libc_free(p);
}
#endif
#endif
