/* Threads with a stack that kernels can rely on. */
#ifndef LILY_BASE_THREAD_H
#define LILY_BASE_THREAD_H

#include <pthread.h>

/* What a thread has that computes: rows that experts and attention work on take 2 MB of it. Memory is used as it is touched. */
enum { STACK_BYTES = 8 << 20 };

/* As pthread_create, with that stack: the system's default follows `ulimit -s`, and is 2 MB where that is unlimited. */
int thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

#endif
