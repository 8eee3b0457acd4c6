/* Wrappers that fail once, when told. */
#include "inject.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>

const char *const inject_names[INJECT_CALLS] = {"mem_try", "mem_try_resize", "mmap",   "open",     "read",
                                                "write",   "fsync",          "rename", "mkostemp", "pthread_create"};

static int countdown[INJECT_CALLS]; /* 0: idle, 1: the next call fails */
static int carried_errno;
static bool carried_out;

void inject_fail(enum inject_call call, int nth, int error)
{
    countdown[call] = nth + 1;
    carried_errno = error;
    carried_out = false;
}

bool inject_end(void)
{
    for (int i = 0; i < INJECT_CALLS; i++) countdown[i] = 0;
    return carried_out;
}

static bool fails(enum inject_call call)
{
    if (countdown[call] == 0 || --countdown[call] > 0) return false;
    carried_out = true;
    errno = carried_errno;
    return true;
}

void *__real_mem_try(size_t n, size_t size);
void *__wrap_mem_try(size_t n, size_t size);
void *__wrap_mem_try(size_t n, size_t size)
{
    return fails(INJECT_MEM_TRY) ? NULL : __real_mem_try(n, size);
}

void *__real_mem_try_resize(void *p, size_t n, size_t size);
void *__wrap_mem_try_resize(void *p, size_t n, size_t size);
void *__wrap_mem_try_resize(void *p, size_t n, size_t size)
{
    return fails(INJECT_MEM_TRY_RESIZE) ? NULL : __real_mem_try_resize(p, n, size);
}

size_t inject_sure_bytes;

static size_t sure(size_t n)
{
    if (n > inject_sure_bytes) inject_sure_bytes = n;
    return n;
}

void *__real_mem_new(size_t n);
void *__wrap_mem_new(size_t n);
void *__wrap_mem_new(size_t n)
{
    return __real_mem_new(sure(n));
}

void *__real_mem_resize(void *p, size_t n);
void *__wrap_mem_resize(void *p, size_t n);
void *__wrap_mem_resize(void *p, size_t n)
{
    return __real_mem_resize(p, sure(n));
}

char *__real_mem_dup(const char *s, size_t n);
char *__wrap_mem_dup(const char *s, size_t n);
char *__wrap_mem_dup(const char *s, size_t n)
{
    return __real_mem_dup(s, sure(n));
}

void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return fails(INJECT_MMAP) ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, offset);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    return fails(INJECT_OPEN) ? -1 : __real_open(path, flags, mode);
}

ssize_t __real_read(int fd, void *out, size_t n);
ssize_t __wrap_read(int fd, void *out, size_t n);
ssize_t __wrap_read(int fd, void *out, size_t n)
{
    if (!fails(INJECT_READ)) return __real_read(fd, out, n);
    return carried_errno ? -1 : __real_read(fd, out, (n + 1) / 2);
}

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    return fails(INJECT_WRITE) ? -1 : __real_write(fd, data, n);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails(INJECT_FSYNC) ? -1 : __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    return fails(INJECT_RENAME) ? -1 : __real_rename(from, to);
}

int __real_mkostemp(char *path, int flags);
int __wrap_mkostemp(char *path, int flags);
int __wrap_mkostemp(char *path, int flags)
{
    return fails(INJECT_MKOSTEMP) ? -1 : __real_mkostemp(path, flags);
}

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return fails(INJECT_PTHREAD_CREATE) ? errno : __real_pthread_create(out, attr, fn, arg);
}
