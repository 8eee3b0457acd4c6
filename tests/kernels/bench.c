/*
 * Speed of the kernels: GB/s of weights or state, its share of what a plain read of the same memory reaches, arithmetic
 * rate, and the ratio to the scalar tier. Matrices and states lie in an arena several times larger than the caches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/pool.h"
#include "check.h"

enum { MAX_THREADS = 256, ROWS = 512, WIDTH = 2048, KEYS = 4096, PASSES = 5, BLOCKS = 8 };
static const size_t arena_bytes = (size_t)192 << 20;

struct bench {
    struct pool *pool;
    uint8_t *arena;
    float *x, *sums, *out; /* activations (ROWS, WIDTH), their sums, one output (ROWS, WIDTH) for each thread */
    struct act act;
    struct digits digits[DIGITS_MAX + 1]; /* the same rows as 1 … 3 digits */
    double stream; /* GB/s */
    double cpu_seconds[MAX_THREADS];
    uint8_t *work; /* ATTN_WORK_BYTES for each thread */
};

/* One thing to time: `units` calls that are shared out among the threads. */
struct timing {
    struct bench *b;
    const struct cpu_kernels *k;
    const struct shape *shape;
    long units;
};

struct shape {
    const char *func, *label;
    void (*unit)(const struct timing *t, long unit, float *out);
    int n;             /* rows, tokens or keys */
    size_t unit_bytes; /* read from the arena by one unit */
    double unit_ops;   /* arithmetic operations of one unit */
    bool write;        /* the unit writes its bytes, too */
};

/* Processor time, so that other work on the machine is not counted; on a quiet machine it is the wall time. */
static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run_units(void *arg, int thread, int n_threads)
{
    const struct timing *t = arg;
    long lo, hi;
    pool_range(t->units, thread, n_threads, &lo, &hi);
    double start = cpu_now();
    for (long u = lo; u < hi; u++) t->shape->unit(t, u, t->b->out + (long)thread * ROWS * WIDTH);
    t->b->cpu_seconds[thread] = cpu_now() - start;
}

/* The slowest thread's time in the best of some passes. */
static double seconds(const struct timing *t, int passes)
{
    double best = INFINITY;
    for (int i = 0; i <= passes; i++) {
        double slowest = 0;
        pool_run(t->b->pool, run_units, (void *)(uintptr_t)t);
        for (int j = 0; j < pool_size(t->b->pool); j++) slowest = fmax(slowest, t->b->cpu_seconds[j]);
        if (i > 0 && slowest < best) best = slowest;
    }
    return best;
}

static void matmul_unit(const struct timing *t, long unit, float *out)
{
    const struct shape *s = t->shape;
    struct block_job j = {.block = t->b->arena + (size_t)unit * s->unit_bytes, .col_tiles = WIDTH / 64, .act = &t->b->act,
                          .n = s->n, .y = out, .ldy = 16};
    if (strcmp(s->func, "matmul_q4") == 0)
        t->k->matmul_q4(&j);
    else if (strcmp(s->func, "matmul_q8") == 0)
        t->k->matmul_q8(&j);
    else
        t->k->matmul_f32(&j);
}

/* The label ends with the number of digits. */
static void digits_unit(const struct timing *t, long unit, float *out)
{
    const struct shape *s = t->shape;
    struct digit_job j = {.block = t->b->arena + (size_t)unit * s->unit_bytes, .n_blocks = BLOCKS, .col_tiles = WIDTH / 64,
                          .act = &t->b->digits[s->label[strlen(s->label) - 1] - '0'], .n = s->n, .y = out, .ldy = BLOCKS * 16};
    if (strcmp(s->func, "matmul_q4_digits") == 0) t->k->matmul_q4_digits(&j);
    else t->k->matmul_q8_digits(&j);
}

static void split_unit(const struct timing *t, long unit, float *out)
{
    struct digits *d = &t->b->digits[t->shape->label[strlen(t->shape->label) - 1] - '0'];
    struct digit_row row = digit_row(d, unit % 16, 0);
    t->k->split_digits(&row, t->b->x + unit % 16 * WIDTH, WIDTH / 64);
    (void)out;
}

static void gdn_unit(const struct timing *t, long unit, float *out)
{
    static const float g[ROWS] = {0}, beta[ROWS] = {0};
    float *state = (float *)(void *)(t->b->arena + (size_t)unit * t->shape->unit_bytes);
    struct gdn_job j = {.state = state, .v_hi = GDN_DIM, .q = t->b->x, .k = t->b->x + 128, .v = t->b->x + 256, .ldqk = WIDTH,
                        .ldv = WIDTH, .g = g, .beta = beta, .ldg = 1, .n = t->shape->n, .o = out, .ldo = GDN_DIM};
    t->k->gdn(&j);
}

static void chunk_unit(const struct timing *t, long unit, float *out)
{
    static const float g[2 * GRID] = {0}, beta[2 * GRID] = {0};
    struct gdn_chunk j = {.state = (float *)(void *)(t->b->arena + (size_t)unit * t->shape->unit_bytes), .q = t->b->x, .k = t->b->x + 128,
                          .v = t->b->x + 256, .ldqk = WIDTH, .ldv = WIDTH, .g = g, .beta = beta, .ldg = 2, .heads = 2, .n = t->shape->n, .o = out,
                          .ldo = 2 * GDN_DIM};
    if (t->k->gdn_chunk) t->k->gdn_chunk(&j);
    else for (int h = 0; h < 2; h++) t->k->gdn(&(struct gdn_job[]){gdn_of_chunk(&j, h)}[0]);
}

/* A row as in decode, several as in prefill. */
static void attention_unit(const struct timing *t, long unit, float *out)
{
    const uint8_t *pages[KEYS / GRID], *base = t->b->arena + (size_t)unit * t->shape->unit_bytes;
    bool bf16 = strncmp(t->shape->label, "bf16", 4) == 0;
    size_t half = (size_t)GRID * HEAD_DIM * (bf16 ? 2 : 4);
    for (int p = 0; p < KEYS / GRID; p++) pages[p] = base + (size_t)p * 2 * half;
    struct attn_job j = {.q = t->b->x, .ldq = HEAD_DIM, .ldq_row = WIDTH, .n_q = 8, .n_rows = t->shape->n, .pages = pages,
                         .v_offset = half, .bf16 = bf16, .n_keys = KEYS - 8, .out = out, .ldo = HEAD_DIM, .ldo_row = WIDTH};
    if (bf16 && j.n_rows == 1 && t->k->attention_row) t->k->attention_row(&j);
    else t->k->attention(&j);
}

/* In prefill, against the scalar tier's exact form; the work memory is that of the thread whose output it is. */
static void attention_fast_unit(const struct timing *t, long unit, float *out)
{
    const uint8_t *pages[KEYS / GRID], *base = t->b->arena + (size_t)unit * t->shape->unit_bytes;
    const size_t half = (size_t)GRID * HEAD_DIM * 2;
    for (int p = 0; p < KEYS / GRID; p++) pages[p] = base + (size_t)p * 2 * half;
    struct attn_job j = {.q = t->b->x, .ldq = HEAD_DIM, .ldq_row = WIDTH, .n_q = 8, .n_rows = t->shape->n, .pages = pages,
                         .v_offset = half, .bf16 = true, .n_keys = KEYS - t->shape->n + 1, .out = out, .ldo = HEAD_DIM, .ldo_row = WIDTH,
                         .work = t->b->work + (out - t->b->out) / (ROWS * WIDTH) * ATTN_WORK_BYTES};
    if (t->k->tier == CPU_SCALAR) t->k->attention(&j);
    else t->k->attention_fast(&j);
}

static void conv_unit(const struct timing *t, long unit, float *out)
{
    float *base = (float *)(void *)(t->b->arena + (size_t)unit * t->shape->unit_bytes);
    struct conv_job j = {.history = base, .u = t->b->x, .weight = base + 3 * WIDTH, .out = out, .ld_h = WIDTH, .ld_u = WIDTH,
                         .ld_out = WIDTH, .channels = WIDTH, .n = t->shape->n};
    t->k->conv_silu(&j);
}

static void rms_unit(const struct timing *t, long unit, float *out)
{
    t->k->rms_norm(out, t->b->x + unit % 16 * WIDTH, t->b->x + 16 * WIDTH, WIDTH, 1e-6f);
}

static void silu_unit(const struct timing *t, long unit, float *out)
{
    t->k->silu_mul(out, t->b->x + unit % 16 * WIDTH, t->b->x + 16 * WIDTH, WIDTH);
}

static void gated_unit(const struct timing *t, long unit, float *out)
{
    t->k->gated_norm(out, t->b->x + unit % 16 * WIDTH, t->b->x + 16 * WIDTH, t->b->x + 17 * WIDTH, 1e-6f);
}

static void top_unit(const struct timing *t, long unit, float *out)
{
    int32_t top[8];
    t->k->top_experts(top, t->b->x + unit % 4096 * 256, 256);
    *out = (float)top[7];
}

static void sums_unit(const struct timing *t, long unit, float *out)
{
    t->k->group_sums(out, t->b->x + unit % 16 * WIDTH, WIDTH / 64);
}

#define Q4_BLOCK ((size_t)Q4_TILE_BYTES * WIDTH / 64)
#define Q8_BLOCK ((size_t)Q8_TILE_BYTES * WIDTH / 64)
#define F32_BLOCK ((size_t)F32_TILE_BYTES * WIDTH / 64)
#define MATMUL(func, n, bytes) {func, "K 2048, n " #n, matmul_unit, n, bytes, 2.0 * 16 * WIDTH * n, false}
#define DIGITS(n, count) {"matmul_q4_digits", "K 2048, n " #n ", digits " #count, digits_unit, n, BLOCKS * Q4_BLOCK, BLOCKS * 2.0 * 16 * WIDTH * n, false}
#define DIGITS_Q8(n) {"matmul_q8_digits", "K 2048, n " #n ", digits 3", digits_unit, n, BLOCKS * Q8_BLOCK, BLOCKS * 2.0 * 16 * WIDTH * n, false}
#define STATE ((size_t)GDN_DIM * GDN_DIM * 4)
static const struct shape shapes[] = {
    MATMUL("matmul_q4", 1, Q4_BLOCK),   MATMUL("matmul_q4", 2, Q4_BLOCK),   MATMUL("matmul_q4", 3, Q4_BLOCK),
    MATMUL("matmul_q4", 4, Q4_BLOCK),   MATMUL("matmul_q4", 8, Q4_BLOCK),   MATMUL("matmul_q4", 16, Q4_BLOCK),
    MATMUL("matmul_q4", 64, Q4_BLOCK),  MATMUL("matmul_q4", 512, Q4_BLOCK), MATMUL("matmul_q8", 1, Q8_BLOCK),
    MATMUL("matmul_q8", 16, Q8_BLOCK),  MATMUL("matmul_q8", 64, Q8_BLOCK),  MATMUL("matmul_f32", 1, F32_BLOCK), MATMUL("matmul_f32", 16, F32_BLOCK),
    DIGITS(1, 1), DIGITS(1, 2), DIGITS(1, 3), DIGITS(8, 2), DIGITS(16, 1), DIGITS(16, 2), DIGITS(64, 1), DIGITS(64, 2), DIGITS(512, 2),
    DIGITS_Q8(1), DIGITS_Q8(8), DIGITS_Q8(16), DIGITS_Q8(64),
    {"split_digits", "2048, digits 2", split_unit, 1, 0, WIDTH * 3.0, false},
    {"gdn", "1 token", gdn_unit, 1, STATE, 7.0 * GDN_DIM * GDN_DIM, true},
    {"gdn", "64 tokens", gdn_unit, 64, STATE, 64 * 7.0 * GDN_DIM * GDN_DIM, true},
    {"gdn_chunk", "64 tokens, 2 heads", chunk_unit, 64, 2 * STATE, 128 * 7.0 * GDN_DIM * GDN_DIM, true},
    {"attention", "bf16, 4K keys, 1 row", attention_unit, 1, (size_t)KEYS * HEAD_DIM * 4, 8 * 4.0 * KEYS * HEAD_DIM, false},
    {"attention", "bf16, 4K keys, 8 rows", attention_unit, 8, (size_t)KEYS * HEAD_DIM * 4, 64 * 4.0 * KEYS * HEAD_DIM, false},
    {"attention", "f32, 4K keys, 1 row", attention_unit, 1, (size_t)KEYS * HEAD_DIM * 8, 8 * 4.0 * KEYS * HEAD_DIM, false},
    {"attention_fast", "bf16, 4K keys, 64 rows", attention_fast_unit, 64, (size_t)KEYS * HEAD_DIM * 4, 512 * 4.0 * KEYS * HEAD_DIM, false},
    {"conv_silu", "2048 channels, 1 token", conv_unit, 1, 7 * WIDTH * 4, WIDTH * 8.0, false},
    {"conv_silu", "2048 channels, 64 tokens", conv_unit, 64, 7 * WIDTH * 4, 64 * WIDTH * 8.0, false},
    {"rms_norm", "2048", rms_unit, 1, 0, WIDTH * 4.0, false},
    {"silu_mul", "2048", silu_unit, 1, 0, WIDTH * 3.0, false},
    {"gated_norm", "128", gated_unit, 1, 0, GDN_DIM * 7.0, false},
    {"top_experts", "256", top_unit, 1, 0, 256 * 1.0, false},
    {"group_sums", "2048", sums_unit, 1, 0, WIDTH * 1.0, false},
};

static volatile uint64_t sink;

static void stream_unit(const struct timing *t, long unit, float *out)
{
    const uint64_t *p = (const uint64_t *)(const void *)(t->b->arena + ((size_t)unit << 20));
    uint64_t s[8] = {0};
    for (size_t i = 0; i < (1 << 20) / 8; i += 8)
        for (int j = 0; j < 8; j++) s[j] += p[i + (size_t)j];
    sink = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
    (void)out;
}

static double measure_stream(struct bench *b)
{
    static const struct shape shape = {"stream", "read", stream_unit, 1, 1 << 20, 0, false};
    struct timing t = {.b = b, .shape = &shape, .units = (long)(arena_bytes >> 20)};
    return (double)arena_bytes / seconds(&t, 8) / 1e9;
}

/* Seconds for one unit; large shapes are timed over part of the arena. */
static double unit_seconds(struct timing *t, double budget_ops, int passes)
{
    const struct shape *s = t->shape;
    long most = s->unit_bytes ? (long)(arena_bytes / s->unit_bytes) : 100000, want = (long)(budget_ops / s->unit_ops) + 1;
    long least = 2 * pool_size(t->b->pool);
    t->units = want < most ? want : most;
    if (t->units < least) t->units = least < most ? least : most;
    return seconds(t, passes) / (double)t->units;
}

static void bench_shape(struct bench *b, const struct cpu_kernels *k, const struct cpu_kernels *scalar, const struct shape *s)
{
    struct timing t = {.b = b, .k = k, .shape = s};
    double each = unit_seconds(&t, 4e9, PASSES);
    double gb = (double)s->unit_bytes * (s->write ? 2 : 1) / each / 1e9, gops = s->unit_ops / each / 1e9;
    t.k = scalar;
    double ratio = unit_seconds(&t, 4e8, 1) / each;
    if (options.json)
        printf("{\"tier\":\"%s\",\"kernel\":\"%s\",\"shape\":\"%s\",\"threads\":%d,\"us\":%.4g,\"gb_s\":%.4g,\"stream_gb_s\":%.4g,"
               "\"gops\":%.4g,\"to_scalar\":%.3g}\n",
               cpu_tier_name(k->tier), s->func, s->label, pool_size(b->pool), each * 1e6, gb, b->stream, gops, ratio);
    else
        printf("%-7s %-11s %-25s %10.2f us  %6.2f GB/s %4.0f%%  %7.1f Gop/s  %6.1fx\n", cpu_tier_name(k->tier), s->func, s->label,
               each * 1e6, gb, 100 * gb / b->stream, gops, ratio);
}

/* Codes are random; scales, biases, states and keys small floats of the type that reads them, never NaN. */
static void fill_arena(struct bench *b, struct random *r)
{
    float *f = (float *)(void *)b->arena;
    for (size_t i = 0; i < arena_bytes / 4; i++) {
        uint32_t bits = (uint32_t)random_u64(r);
        f[i] = f32_from_bits((bits & 0x807f807f) | 0x3c003c00); /* as float, and as two bf16: 0.0078 … 0.015 */
    }
}

static void fill_digits(struct bench *b)
{
    struct cpu_kernels k;
    cpu_kernels_init(&k, cpu_best_tier());
    for (int count = 1; count <= DIGITS_MAX; count++) {
        b->digits[count] = (struct digits){mem_new(ROWS * (size_t)digits_row_bytes(WIDTH, count)), mem_new(sizeof(float) * ROWS * WIDTH / 64),
                                           mem_new(sizeof(float) * ROWS * WIDTH / 64), WIDTH, count};
        for (int i = 0; i < ROWS; i++) {
            struct digit_row row = digit_row(&b->digits[count], i, 0);
            k.split_digits(&row, b->x + (long)i * WIDTH, WIDTH / 64);
        }
    }
}

static int prepare(struct bench *b)
{
    struct lily_err err;
    struct random r = {options.seed};
    int threads = options.threads > 0 ? options.threads : cpu_count();
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    options.threads = threads;
    void *arena, *x, *sums, *out, *work;
    if (pool_create(threads, &b->pool, &err) || mem_big(arena_bytes, "the arena", &arena, &err) ||
        mem_big(sizeof(float) * ROWS * WIDTH, "activations", &x, &err) ||
        mem_big(sizeof(float) * ROWS * WIDTH / 64, "sums", &sums, &err) ||
        mem_big(sizeof(float) * ROWS * WIDTH * (size_t)threads, "outputs", &out, &err) ||
        mem_big((size_t)ATTN_WORK_BYTES * (size_t)threads, "work memory", &work, &err)) {
        fprintf(stderr, "check_kernels: %s\n", err.msg);
        return 1;
    }
    b->arena = arena, b->x = x, b->sums = sums, b->out = out, b->work = work;
    fill(&r, b->x, (long)ROWS * WIDTH, IN_PLAIN);
    b->act = (struct act){.x = b->x, .sums = b->sums, .ld = WIDTH};
    fill_arena(b, &r);
    fill_digits(b);
    b->stream = measure_stream(b);
    return 0;
}

/* --func also chooses by label: "gdn, 1 token". A tier may lack a kernel. */
static bool wanted(const struct cpu_kernels *k, const struct shape *s)
{
    if (strcmp(s->func, "attention_fast") == 0 && !k->attention_fast) return false;
    char name[128];
    snprintf(name, sizeof name, "%s, %s", s->func, s->label);
    return selected(name);
}

int bench(void)
{
    struct bench b = {0};
    char model[128];
    if (prepare(&b)) return 1;
    cpu_model_name(model, sizeof model);
    if (!options.json)
        printf("%s, %d threads, stream read %.2f GB/s; GB/s, share of the stream, ratio to scalar\n", model, pool_size(b.pool), b.stream);
    struct cpu_kernels scalar, k;
    cpu_kernels_init(&scalar, CPU_SCALAR);
    for (int tier = CPU_SCALAR + 1; tier < CPU_TIERS; tier++) {
        if (!cpu_tier_runs((enum cpu_tier)tier) || (options.tier >= 0 && options.tier != tier)) continue;
        cpu_kernels_init(&k, (enum cpu_tier)tier);
        for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (wanted(&k, &shapes[i])) bench_shape(&b, &k, &scalar, &shapes[i]);
    }
    for (int i = 1; i <= DIGITS_MAX; i++) free(b.digits[i].d), free(b.digits[i].scales), free(b.digits[i].sums);
    pool_free(b.pool);
    mem_big_free(b.arena, arena_bytes);
    mem_big_free(b.x, sizeof(float) * ROWS * WIDTH);
    mem_big_free(b.sums, sizeof(float) * ROWS * WIDTH / 64);
    mem_big_free(b.work, (size_t)ATTN_WORK_BYTES * (size_t)options.threads);
    mem_big_free(b.out, sizeof(float) * ROWS * WIDTH * (size_t)options.threads);
    return 0;
}
