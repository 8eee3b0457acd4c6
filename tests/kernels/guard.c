/* The checker's memory, faults, cases and comparisons. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/num.h"
#include "counts.h"

struct counts counts;
const char *const input_names[INPUTS] = {"plain", "zero", "denormal", "large", "outliers", "small"};

enum { CANARY = 0xff, NAME = 200 };

static struct region {
    uint8_t *map, *user;
    size_t map_bytes, bytes;
} regions[GUARDED_MAX];
static int n_regions;
static bool flush_front, failed;
static char name[NAME];

uint64_t random_u64(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int random_int(struct random *r, int lo, int hi)
{
    return lo + (int)(random_u64(r) % (uint64_t)(hi - lo + 1));
}

float random_float(struct random *r)
{
    return (float)((int64_t)(random_u64(r) >> 39) - (1 << 24)) * 0x1p-24f;
}

void fill(struct random *r, float *x, long n, enum input kind)
{
    for (long i = 0; i < n; i++) {
        float v = random_float(r);
        switch (kind) {
        case IN_ZERO: v = random_u64(r) & 1 ? 0.0f : -0.0f; break;
        case IN_DENORMAL: v *= 0x1p-130f; break;
        case IN_LARGE: v *= 0x1p60f; break;
        case IN_OUTLIERS: v *= random_u64(r) % 50 ? 0.01f : 300.0f; break;
        case IN_SMALL: v *= 0x1p-60f; break;
        default: break;
        }
        x[i] = v;
    }
}

void canary_fill(void *p, size_t n)
{
    memset(p, CANARY, n);
}

bool canary_intact(const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        if (b[i] != CANARY) return false;
    return true;
}

void *guarded(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + 63 + page) / page * page;
    if (n_regions == GUARDED_MAX) {
        fprintf(stderr, "check_kernels: a case uses more than %d buffers\n", GUARDED_MAX);
        _exit(2);
    }
    uint8_t *map = mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, body, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "check_kernels: no memory for a buffer of %zu bytes\n", n);
        _exit(2);
    }
    struct region *g = &regions[n_regions++];
    *g = (struct region){map, map + page, body + 2 * page, n};
    if (!flush_front) g->user += (body - n) & ~(size_t)63;
    canary_fill(map + page, body);
    return g->user;
}

float *guarded_floats(long n)
{
    return guarded((size_t)n * sizeof(float));
}

bool selected(const char *func)
{
    return !options.func || strstr(func, options.func);
}

bool left_out(long products)
{
    return options.quick && products > 100000;
}

void case_begin(const char *func, const char *fmt, ...)
{
    int at = snprintf(name, sizeof name, "%s ", func);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name + at, sizeof name - (size_t)at, fmt, ap);
    va_end(ap);
    failed = false;
    flush_front = !flush_front;
}

void case_fail(const char *fmt, ...)
{
    if (failed) return;
    failed = true;
    if (counts.quiet) return;
    va_list ap;
    va_start(ap, fmt);
    printf("FAIL %s %s: ", counts.tier, name);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

bool case_failed(void)
{
    return failed;
}

void case_end(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < n_regions; i++) {
        const struct region *g = &regions[i];
        uint8_t *body = g->map + page, *body_end = g->map + g->map_bytes - page;
        if (!canary_intact(body, (size_t)(g->user - body))) case_fail("wrote before buffer %d", i);
        if (!canary_intact(g->user + g->bytes, (size_t)(body_end - g->user) - g->bytes)) case_fail("wrote behind buffer %d", i);
        munmap(g->map, g->map_bytes);
    }
    n_regions = 0;
    if (failed)
        counts.failed++;
    else
        counts.passed++;
    if (options.verbose && !failed) printf("ok %s %s\n", counts.tier, name);
}

static sigjmp_buf fault_jump;

static void on_fault(int sig)
{
    siglongjmp(fault_jump, sig);
}

void guarded_call(void (*call)(void *), void *arg)
{
    struct sigaction catch = {.sa_handler = on_fault}, segv, bus;
    sigaction(SIGSEGV, &catch, &segv);
    sigaction(SIGBUS, &catch, &bus);
    int sig = sigsetjmp(fault_jump, 1);
    if (sig == 0)
        call(arg);
    else
        case_fail("touched memory outside its buffers (signal %d)", sig);
    sigaction(SIGSEGV, &segv, NULL);
    sigaction(SIGBUS, &bus, NULL);
}

void expect_close(const char *what, long at, float got, double want, double tolerance)
{
    counts.values++;
    if (isnan(want) ? isnan(got) : fabs((double)got - want) <= tolerance) {
        if (tolerance > 0 && fabs((double)got - want) / tolerance > counts.worst)
            counts.worst = fabs((double)got - want) / tolerance;
        return;
    }
    case_fail("%s[%ld] is %.9g, expected %.9g, off by %.3g, allowed %.3g", what, at, (double)got, want,
              fabs((double)got - want), tolerance);
}

void expect_same_bits(const char *what, const float *a, const float *b, long n)
{
    for (long i = 0; i < n; i++)
        if (f32_bits(a[i]) != f32_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            case_fail("%s[%ld]: the same row gave the bits %08x and %08x (%.9g, %.9g)", what, i, f32_bits(a[i]),
                      f32_bits(b[i]), (double)a[i], (double)b[i]);
}
