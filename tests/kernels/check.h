/*
 * The kernel checker: what its parts share. A *case* is one call pattern of one kernel of one tier; it is begun, compared
 * and ended, and counts once. Buffers live between pages that fault, and what no kernel may write is filled with a canary
 * that is also a NaN, so that reading it shows. One thread.
 */
#ifndef LILY_TESTS_KERNELS_CHECK_H
#define LILY_TESTS_KERNELS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels.h"

#define UNIT_ROUNDOFF 0x1p-24
#define TINIEST 0x1p-149 /* the smallest step below the normal range */

struct options {
    uint64_t seed;
    int repeat;
    const char *func; /* borrowed; NULL: all */
    int tier;         /* -1: all that run */
    bool bench, json, self_test, verbose;
    bool quick;       /* leave out the cases that take long to check */
    int threads;      /* for --bench; 0: all */
};
extern struct options options;

/* --- random numbers: splitmix64 --- */
struct random { uint64_t state; };
uint64_t random_u64(struct random *r);
int random_int(struct random *r, int lo, int hi); /* lo … hi */
float random_float(struct random *r);             /* -1 … 1 */

/* Kinds of input that every kernel sees. */
enum input { IN_PLAIN, IN_ZERO, IN_DENORMAL, IN_LARGE, IN_OUTLIERS, IN_SMALL, INPUTS };
extern const char *const input_names[INPUTS];
void fill(struct random *r, float *x, long n, enum input kind);

/* --- guarded memory --- */
enum { GUARDED_MAX = 64 };
/*
 * A buffer of n bytes aligned to 64 between two pages that fault, flush with the one behind it, or with the one before it
 * when the current case asks so. Everything around it is canary. Owned by the case: freed by case_end.
 */
void *guarded(size_t n);
float *guarded_floats(long n);     /* n floats, canary inside too */
void canary_fill(void *p, size_t n);
bool canary_intact(const void *p, size_t n);

/* --- cases --- */
bool selected(const char *func);                /* by --func */
bool left_out(long products);                   /* by --quick: a case whose reference takes so many products */
void case_begin(const char *func, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void case_end(void);                            /* checks the canaries, frees the buffers, counts */
void case_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool case_failed(void);
/* Runs call(arg) so that a fault becomes a failure of the case. */
void guarded_call(void (*call)(void *), void *arg);
/* |got - want| <= tolerance, and NaN exactly where want is NaN. */
void expect_close(const char *what, long at, float got, double want, double tolerance);
void expect_same_bits(const char *what, const float *a, const float *b, long n);

/* --- what is checked; one function per kernel --- */
struct suite {
    const char *func;
    void (*run)(const struct cpu_kernels *k, struct random *r);
};
/* Each ended by func == NULL. */
extern const struct suite matmul_suites[], digit_suites[], bf16_suites[], mix_suites[], chunk_suites[], attention_suites[], elem_suites[];

/* A table whose every kernel has one planted fault of the given kind; see faults.c. */
enum fault { FAULT_VALUE, FAULT_BITS, FAULT_WRITE, FAULT_READ, FAULTS };
extern const char *const fault_names[FAULTS];
void fault_kernels(struct cpu_kernels *k, enum fault fault);
bool fault_applies(const char *func, enum fault fault);

int bench(void); /* exit status */

/* The decode kernels of a CUDA card, another tier; says when none answers (check_cuda.c). */
enum { TIER_CUDA = CPU_TIERS };
void check_cuda(void);

#endif
