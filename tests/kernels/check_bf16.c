/* Checks of the bf16 kernels: rounding of rows into panels, and products on tiles. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "check.h"

static struct bf16_run make_run(int n, int groups)
{
    return (struct bf16_run){guarded((size_t)n * (size_t)groups * QUANT_GROUP * sizeof(uint16_t)), groups * QUANT_GROUP, n};
}

/* Where column k of a row lies. */
static uint16_t *place_of(const struct bf16_run *run, int row, int k)
{
    int panel = panel_of(run->n, row), first = panel_row(run->n, panel), m = panel_row(run->n, panel + 1) - first;
    return run->x + (long)first * run->ld + (long)(k / STRIP_COLS) * m * STRIP_COLS + (row - first) * STRIP_COLS + k % STRIP_COLS;
}

struct round_call {
    void (*kernel)(const struct bf16_run *, int, int, const float *, int);
    struct bf16_run run;
    int row, group, groups;
    const float *x;
};

static void call_round(void *arg)
{
    const struct round_call *c = arg;
    c->kernel(&c->run, c->row, c->group, c->x, c->groups);
}

/* The nearest bf16; what is below the normal range is zero, as it is for the products. */
static float rounded(float x)
{
    return fabsf(x) < 0x1p-126f ? 0 : isnan(x) ? x : bf16_to_f32(bf16_from_f32(x));
}

/* Every row once, in pieces; all places must be written, each with its nearest bf16. */
static void check_rounding(const struct cpu_kernels *k, struct random *r)
{
    static const int rows[] = {1, 2, 16, 17, 31, 32, 33, 65, 130};
    if (!k->round_bf16) return;
    for (unsigned s = 0; s < sizeof rows / sizeof *rows; s++)
        for (int kind = 0; kind < INPUTS; kind++) {
            const int n = rows[s], groups = 2 * random_int(r, 1, 3), first = 2 * random_int(r, 0, groups / 2 - 1);
            case_begin("round_bf16", "%d rows, %d groups, %s input", n, groups, input_names[kind]);
            struct round_call c = {.kernel = k->round_bf16, .run = make_run(n, groups)};
            float *x = guarded_floats((long)n * groups * QUANT_GROUP);
            fill(r, x, (long)n * groups * QUANT_GROUP, (enum input)kind);
            if (kind == IN_PLAIN) x[random_int(r, 0, n * groups * QUANT_GROUP - 1)] = NAN;
            for (c.row = 0; c.row < n; c.row++)
                for (c.group = 0; c.group < groups; c.group += c.groups) {
                    c.groups = c.group < first ? first - c.group : groups - c.group;
                    c.x = x + ((long)c.row * groups + c.group) * QUANT_GROUP;
                    guarded_call(call_round, &c);
                }
            for (int row = 0; row < n && !case_failed(); row++)
                for (int i = 0; i < groups * QUANT_GROUP; i++) {
                    float want = x[(long)row * groups * QUANT_GROUP + i], got = bf16_to_f32(*place_of(&c.run, row, i));
                    expect_close("x", row * 10000L + i, got, rounded(want), 0);
                }
            case_end();
        }
}

struct place_call {
    void (*kernel)(const struct bf16_run *, int, const uint16_t *);
    struct bf16_run run;
    int row;
    const uint16_t *x;
};

static void call_place(void *arg)
{
    const struct place_call *c = arg;
    c->kernel(&c->run, c->row, c->x);
}

/* Rows of their own, put into a run in any order. */
static void check_placing(const struct cpu_kernels *k, struct random *r)
{
    static const int rows[] = {1, 2, 17, 33, 130};
    if (!k->place_bf16) return;
    for (unsigned s = 0; s < sizeof rows / sizeof *rows; s++) {
        const int n = rows[s], groups = 2 * random_int(r, 1, 3), width = groups * QUANT_GROUP;
        case_begin("place_bf16", "%d rows, %d groups", n, groups);
        struct place_call c = {.kernel = k->place_bf16, .run = make_run(n, groups)};
        uint16_t *x = (uint16_t *)(void *)guarded((size_t)n * (size_t)width * sizeof *x);
        for (int i = 0; i < n * width; i++) x[i] = (uint16_t)random_u64(r);
        for (int i = 0; i < n; i++) {
            c.row = n - 1 - i, c.x = x + (long)c.row * width;
            guarded_call(call_place, &c);
        }
        for (int row = 0; row < n && !case_failed(); row++)
            for (int i = 0; i < width; i++)
                if (*place_of(&c.run, row, i) != x[(long)row * width + i]) {
                    case_fail("row %d, column %d is 0x%04x, expected 0x%04x", row, i, *place_of(&c.run, row, i), x[(long)row * width + i]);
                    break;
                }
        case_end();
    }
}

struct bf16_case {
    void (*kernel)(const struct bf16_job *);
    struct bf16_job job;
    struct bf16_run run;
};

static void call_products(void *arg)
{
    const struct bf16_case *c = arg;
    c->kernel(&c->job);
}

static void make_case(struct bf16_case *c, struct random *r, int n, enum input kind)
{
    const int all = c->job.n_blocks * c->job.col_tiles, cols = c->job.col_tiles * QUANT_GROUP;
    uint8_t *block = guarded((size_t)all * Q4_TILE_BYTES);
    for (int i = 0; i < all * Q4_TILE_BYTES; i++) block[i] = (uint8_t)random_u64(r);
    for (int i = 0; i < all * 32; i++) {
        uint16_t s = bf16_from_f32(random_float(r) * 0.1f);
        memcpy(block + (long)(i / 32) * Q4_TILE_BYTES + 512 + i % 32 * 2, &s, 2);
    }
    c->run = make_run(n, c->job.col_tiles);
    float x[QUANT_GROUP];
    for (int row = 0; row < n; row++)
        for (int k = 0; k < cols; k++) {
            if (k % QUANT_GROUP == 0) fill(r, x, QUANT_GROUP, kind);
            *place_of(&c->run, row, k) = bf16_from_f32(x[k % QUANT_GROUP]);
        }
    c->job.block = block;
    c->job.act = &c->run;
}

/* The weights as the kernel has them, (K, 16 n_blocks): those of column k are the products of a row that is 1 there. */
static float *weights_of(const struct bf16_case *c)
{
    const int cols = c->job.col_tiles * QUANT_GROUP, width = 16 * c->job.n_blocks;
    struct bf16_case unit = *c;
    unit.run = make_run(cols, c->job.col_tiles);
    memset(unit.run.x, 0, (size_t)cols * (size_t)cols * sizeof *unit.run.x);
    for (int k = 0; k < cols; k++) *place_of(&unit.run, k, k) = bf16_from_f32(1);
    unit.job.act = &unit.run, unit.job.first = 0, unit.job.last = panel_count(cols);
    unit.job.y = guarded_floats((long)cols * width), unit.job.ldy = width;
    guarded_call(call_products, &unit);
    return unit.job.y;
}

/* Off by at most a unit of bf16's last place, 2^-7 of the value, and by what cancels when it is unpacked, 2^16 scales. */
static void check_weights(const struct bf16_case *c, const float *weights)
{
    const int tiles = c->job.col_tiles, width = 16 * c->job.n_blocks;
    double bias = 0, sum = 0;
    for (int k = 0; k < tiles * QUANT_GROUP && !case_failed(); k++)
        for (int out = 0; out < width; out++) {
            const uint8_t *tile = c->job.block + ((long)(out / 16) * tiles + k / QUANT_GROUP) * Q4_TILE_BYTES, *word = tile + k % QUANT_GROUP / 8 * 64 + 4 * (out % 16);
            const int code = k % 8 < 4 ? word[k % 8] & 15 : word[k % 8 - 4] >> 4;
            const double scale = bf16_to_f32(load_u16(tile + 512 + 2 * (out % 16))), want = code * scale + bf16_to_f32(load_u16(tile + 544 + 2 * (out % 16)));
            const float got = weights[(long)k * width + out];
            expect_close("weight", (long)k * width + out, got, want, fabs(want) / 128 + fabs(scale) * 0x1p16 * UNIT_ROUNDOFF);
            bias += fabs((double)got) - fabs(want), sum += fabs(want);
        }
    if (tiles > 2 && fabs(bias) > sum * 0x1p-12) case_fail("weights are %.2e too large on average", bias / sum);
}

/* Each sum rounds once, and numbers below the normal range count as zero. */
static void check_product(const struct bf16_case *c, const float *weights, int row, int out)
{
    const int cols = c->job.col_tiles * QUANT_GROUP, width = 16 * c->job.n_blocks;
    double y = 0, tolerance = TINIEST;
    for (int k = 0; k < cols; k++) {
        const double x = bf16_to_f32(*place_of(&c->run, row, k)), w = weights[(long)k * width + out];
        y += x * w;
        tolerance += cols * UNIT_ROUNDOFF * fabs(x * w) + 0x1p-126 * (1 + fabs(x) + fabs(w));
    }
    const int at = row - panel_row(c->run.n, c->job.first);
    expect_close("y", (long)row * width + out, c->job.y[(long)at * c->job.ldy + out], y, tolerance);
}

/* A row alone must give the same bits: as a run of its own. */
static void check_alone(const struct bf16_case *c, int row)
{
    const int cols = c->job.col_tiles * QUANT_GROUP;
    struct bf16_case one = *c;
    one.run = make_run(1, c->job.col_tiles);
    one.job.act = &one.run, one.job.first = 0, one.job.last = 1;
    one.job.y = guarded_floats(16L * c->job.n_blocks);
    for (int k = 0; k < cols; k++) one.run.x[k] = *place_of(&c->run, row, k);
    guarded_call(call_products, &one);
    expect_same_bits("y", c->job.y + (long)(row - panel_row(c->run.n, c->job.first)) * c->job.ldy, one.job.y, 16L * c->job.n_blocks);
}

static void run_case(struct bf16_case *c, struct random *r, int n, enum input kind)
{
    make_case(c, r, n, kind);
    const int width = 16 * c->job.n_blocks, from = panel_row(n, c->job.first), rows = panel_row(n, c->job.last) - from;
    c->job.ldy = width + 16 * random_int(r, 0, 1);
    c->job.y = guarded_floats((long)(rows - 1) * c->job.ldy + width);
    guarded_call(call_products, c);
    const float *weights = weights_of(c);
    if (!case_failed()) check_weights(c, weights);
    for (int row = 0; row < rows && !case_failed(); row++)
        for (int out = 0; out < width; out++) check_product(c, weights, from + row, out);
    for (int row = 0; row + 1 < rows; row++)
        if (!canary_intact(c->job.y + (long)row * c->job.ldy + width, (size_t)(c->job.ldy - width) * 4))
            case_fail("wrote between the rows of y, behind row %d", row);
    for (int i = 0; i < 4 && !case_failed(); i++) check_alone(c, from + random_int(r, 0, rows - 1));
}

static void check_products(const struct cpu_kernels *k, struct random *r)
{
    static const int rows[] = {1, 2, 3, 5, 8, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 97, 130};
    if (!k->matmul_q4_bf16) return;
    struct bf16_case c = {.kernel = k->matmul_q4_bf16};
    for (unsigned s = 0; s < sizeof rows / sizeof *rows; s++)
        for (int tiles = 2; tiles <= 32; tiles *= 4) {
            const int n = rows[s];
            c.job.col_tiles = tiles;
            c.job.n_blocks = random_int(r, 1, 6);
            c.job.first = random_int(r, 0, panel_count(n) - 1), c.job.last = random_int(r, c.job.first + 1, panel_count(n));
            if (n * tiles > 600 || left_out(1024L * (n + 64L * tiles) * tiles * c.job.n_blocks)) continue;
            case_begin("matmul_q4_bf16", "n %d, panels %d to %d, %d tiles, %d blocks", n, c.job.first, c.job.last, tiles, c.job.n_blocks);
            run_case(&c, r, n, IN_PLAIN);
            case_end();
        }
    c.job.first = 0, c.job.last = 1, c.job.n_blocks = 2;
    for (int kind = 1; kind < INPUTS; kind++) {
        c.job.col_tiles = 6;
        case_begin("matmul_q4_bf16", "n 5, %s input", input_names[kind]);
        run_case(&c, r, 5, (enum input)kind);
        case_end();
    }
    c.job.col_tiles = 130, c.job.last = 2, c.job.n_blocks = 5; /* more than is kept unpacked */
    case_begin("matmul_q4_bf16", "n 33, 130 tiles");
    run_case(&c, r, 33, IN_PLAIN);
    case_end();
}

const struct suite bf16_suites[] = {{"round_bf16", check_rounding}, {"place_bf16", check_placing}, {"matmul_q4_bf16", check_products}, {NULL, NULL}};
