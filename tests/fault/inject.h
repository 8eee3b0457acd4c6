/*
 * Failing calls of the library on demand. Fault programs are linked with --wrap for the calls below (mk/tests.mk), so that
 * these wrappers stand between lily and the system. Counting and failing are for one thread at a time.
 */
#ifndef LILY_TESTS_INJECT_H
#define LILY_TESTS_INJECT_H

#include <stdbool.h>
#include <stddef.h>

enum inject_call {
    INJECT_MEM_TRY,
    INJECT_MEM_TRY_RESIZE,
    INJECT_MMAP,
    INJECT_OPEN,
    INJECT_READ,
    INJECT_WRITE,
    INJECT_FSYNC,
    INJECT_RENAME,
    INJECT_MKOSTEMP,
    INJECT_PTHREAD_CREATE,
    INJECT_CALLS
};

extern const char *const inject_names[INJECT_CALLS];

/* The largest request of mem_new, mem_resize or mem_dup, which end the process when they are refused, since this was set to 0. */
extern size_t inject_sure_bytes;

/* The nth call from now (0: the next one) fails with that errno, all others go through. A read with errno 0 gives half. */
void inject_fail(enum inject_call call, int nth, int error);
/* Forgets the order; true when it was carried out. */
bool inject_end(void);

#endif
