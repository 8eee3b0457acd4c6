/*
 * Heap memory. Small host allocations (mem_new, mem_dup…) end the process with a message when memory is exhausted:
 * nothing sensible can be done for a few bytes. Everything whose size comes from a file, a request or a model goes
 * through mem_try or mem_big, or a buffer that tries (base/buf.h), which can fail. Any thread.
 */
#ifndef LILY_BASE_MEM_H
#define LILY_BASE_MEM_H

#include <stddef.h>

#include "base/err.h"

void *mem_new(size_t n_bytes);                  /* zeroed; owned by the caller, freed with free(); never NULL */
void *mem_new_lines(size_t n_bytes);            /* the same on cache lines (64 bytes) of its own, which nothing else shares */
void *mem_resize(void *p, size_t n_bytes);      /* realloc that never returns NULL */
char *mem_dup(const char *s, size_t n);         /* copy of n bytes plus a NUL; owned by the caller */
char *mem_dupz(const char *s);                  /* copy of a C string; owned by the caller */
void mem_on_end(void (*fn)(void));              /* how a program ends after that message, from any thread; without: abort */
void *mem_try(size_t n, size_t size);           /* zeroed n*size bytes, or NULL on overflow or lack of memory */
void *mem_try_resize(void *p, size_t n, size_t size); /* realloc to n*size bytes, or NULL likewise: then p is as before */

/*
 * A large block aligned to 64 bytes, on huge pages where the system offers them; zeroed. Freed with mem_big_free with
 * the same size. Fails with LILY_ERR_MEMORY naming `what`.
 */
lily_status mem_big(size_t n_bytes, const char *what, void **out, struct lily_err *err);
void mem_big_free(void *p, size_t n_bytes);

/*
 * The same in small pages, of which those are resident that were touched and not dropped since; what is dropped (only whole pages of
 * the system are) reads as zero. Freed with mem_big_free.
 */
lily_status mem_sparse(size_t n_bytes, const char *what, void **out, struct lily_err *err);
void mem_sparse_drop(void *p, size_t n_bytes);

#endif
