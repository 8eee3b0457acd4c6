/* Limits of the machine (reading memory, integer products), and states without their computation. */
#include "backend/cpu/measure.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/busy.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"

/* ---- a state of n tokens ---- */

/* Numbers spread evenly over [-1.7, 1.7]: of size 1, as normed keys and values are. */
static float plausible(uint32_t seed, uint32_t i)
{
    uint32_t x = i * 0x9e3779b9u + seed;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return ((float)(x >> 8) * 0x1p-23f - 1) * 1.7f;
}

lily_status cpu_seq_fill(struct backend *be, struct seq *s, int n, uint64_t seed, struct lily_err *err)
{
    const struct state_pool *p = s->pool;
    const struct model_shape *shape = &be->shape;
    if (n < 0 || n % GRID) LILY_FAIL(err, LILY_ERR_USAGE, "a state of %d tokens: expected a multiple of %d", n, GRID);
    state_seq_reset(s);
    LILY_TRY(state_seq_reserve(s, n, err));
    for (int page = 0; page < s->n_pages; page++) {
        uint8_t *data = (uint8_t *)(uintptr_t)s->pages[page]; /* new pages, held by this sequence alone */
        uint32_t page_seed = (uint32_t)seed ^ (uint32_t)page * 0x85ebca6bu;
        size_t elements = p->pages.page_bytes / (p->kv_bf16 ? 2 : 4);
        if (p->kv_bf16)
            for (size_t i = 0; i < elements; i++) ((uint16_t *)(void *)data)[i] = bf16_from_f32(plausible(page_seed, (uint32_t)i));
        else
            for (size_t i = 0; i < elements; i++) ((float *)(void *)data)[i] = plausible(page_seed, (uint32_t)i);
    }
    size_t fixed = shape_recurrent_floats(shape) + shape_conv_floats(shape);
    for (size_t i = 0; i < fixed; i++) s->recurrent[i] = plausible((uint32_t)seed, (uint32_t)i) / 16; /* the convolution's follow */
    s->length = n;
    return LILY_OK;
}

/* ---- limits ---- */

enum { ARENA = 256 << 20, READ_PASSES = 24, PRODUCT_PASSES = 8 };

struct reading {
    const uint64_t *arena;
    uint64_t sums[256];
};

/* Four streams a thread: one alone leaves much of the memory's speed to the prefetcher's luck. */
static void read_part(void *arg, int part, int n_parts)
{
    struct reading *r = arg;
    long lo, hi;
    pool_range(ARENA / 4 / 64, part, n_parts, &lo, &hi); /* lines of 64 bytes of each quarter */
    uint64_t sum[8] = {0};
    const uint64_t *a = r->arena, *b = a + ARENA / 32, *c = b + ARENA / 32, *d = c + ARENA / 32;
    for (long i = lo * 8; i < hi * 8; i += 8)
        for (int k = 0; k < 8; k++) sum[k] += (a[i + k] ^ b[i + k]) + (c[i + k] ^ d[i + k]);
    for (int k = 1; k < 8; k++) sum[0] += sum[k];
    r->sums[part] = sum[0];
}

static lily_status measure_reads(struct pool *pool, double *gb_s, struct lily_err *err)
{
    void *arena;
    LILY_TRY(mem_big(ARENA, "the measurement of memory", &arena, err));
    memset(arena, 1, ARENA);
    struct reading r = {.arena = arena};
    double best = 0;
    for (int i = 0; i < READ_PASSES; i++) {
        double start = clock_ms();
        pool_run(pool, read_part, &r);
        double rate = ARENA / 1e6 / (clock_ms() - start);
        if (rate > best) best = rate;
    }
    mem_big_free(arena, ARENA);
    *gb_s = best;
    return LILY_OK;
}

typedef double (*products_fn)(long rounds);

struct product_run {
    products_fn fn;
    long rounds;
    double ops[256]; /* of all rounds of a part */
};

static void products_part(void *arg, int part, int n_parts)
{
    struct product_run *r = arg;
    (void)n_parts;
    r->ops[part] = r->fn(r->rounds) * (double)r->rounds;
}

static double measure_products(struct pool *pool, products_fn fn)
{
    struct product_run r = {.fn = fn, .rounds = 10000};
    double best = 0;
    for (int i = 0; i < PRODUCT_PASSES; i++) {
        double start = clock_ms(), ops = 0;
        pool_run(pool, products_part, &r);
        double ms = clock_ms() - start;
        for (int k = 0; k < pool_size(pool); k++) ops += r.ops[k];
        if (ops / 1e6 / ms > best) best = ops / 1e6 / ms;
        if (ms < 20) r.rounds *= 4; /* long enough that starting threads does not count */
    }
    return best;
}

double measure_products_scalar(long rounds)
{
    uint32_t sum = 0, a = 3;
    for (long r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+r"(a)); /* another operand each time, as far as the compiler knows */
        sum += a * 5;
    }
    __asm__ volatile("" ::"r"(sum));
    return 2;
}

/* The loop of a tier, and its name by the number of digits that a value takes. */
struct peak {
    products_fn fn;
    const char *what[3];
};

static const struct peak *peak_of(enum cpu_tier tier, bool bf16)
{
    static const struct peak scalar = {measure_products_scalar, {"integers one by one", NULL, NULL}};
#if defined(__x86_64__)
    static const struct peak avx512 = {measure_products_avx512,
                                       {"int8, AVX-512 VNNI", "int8, AVX-512 VNNI, one digit", "int8, AVX-512 VNNI, two digits"}},
                             avx2 = {measure_products_avx2, {"int8, AVX2", "int8, AVX2, one digit", "int8, AVX2, two digits"}};
    static const struct peak amx = {measure_products_amx, {"bf16, AMX tiles", NULL, NULL}};
    if (bf16) return &amx;
    if (tier == CPU_AVX512 || tier == CPU_AMX) return &avx512;
    if (tier == CPU_AVX2) return &avx2;
#elif defined(__aarch64__)
    (void)bf16;
    static const struct peak neon = {measure_products_neon, {"int8, NEON", "int8, NEON, one digit", "int8, NEON, two digits"}};
    if (tier == CPU_NEON) return &neon;
#endif
    return &scalar;
}

lily_status cpu_measure(struct backend *be, struct device_limits *out, struct lily_err *err)
{
    struct cpu_backend *c = (struct cpu_backend *)be;
    memset(out, 0, sizeof *out);
    LILY_TRY(measure_reads(c->pool, &out->read_gb_s, err));
    const struct digit_choice *form = &c->digits[PHASE_PREFILL][BETWEEN];
    const struct peak *peak = peak_of(c->kernels.tier, form->bf16);
    int digits = form->routed; /* the least that a value takes */
    out->matmul_gop_s = measure_products(c->pool, peak->fn) / (digits ? digits : 1);
    out->matmul_what = peak->what[digits];
    out->slow_below_gb_s = 25;
    return LILY_OK;
}

double cpu_joules(struct backend *be)
{
    (void)be;
    return energy_joules();
}
