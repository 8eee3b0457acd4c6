/* Checks of the digit kernels: splitting, products, and that every tier gives the bits of the scalar one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "check.h"

struct split_call {
    void (*kernel)(const struct digit_row *, const float *, int);
    struct digit_row out;
    const float *x;
    int groups;
};

static void call_split(void *arg)
{
    const struct split_call *c = arg;
    c->kernel(&c->out, c->x, c->groups);
}

static struct digit_row make_row(int groups, int count)
{
    return (struct digit_row){guarded((size_t)groups * (size_t)count * 64), guarded_floats(groups), guarded_floats(groups), count};
}

static int32_t value_of(const struct digit_row *row, int g, int k)
{
    int32_t v = 0;
    for (int i = 0; i < row->count; i++) v = v * 256 + row->d[((long)g * row->count + i) * 64 + k];
    return v;
}

/* Half a step of the group's scale, the rounding of x*factor and of the two factors. */
static void check_group(const struct digit_row *row, const float *x, int g)
{
    static const double tops[DIGITS_MAX + 1] = {0, 127, 32639, 8355328};
    double top = 0, sum = 0, scale = row->scales[g];
    for (int k = 0; k < 64; k++) /* no fmax: gcc 12 for aarch64 fails on it here */
        if (fabs((double)x[k]) > top) top = fabs((double)x[k]);
    if (top < 0x1p-100) top = 0;
    for (int k = 0; k < 64; k++) {
        int32_t v = value_of(row, g, k);
        double want = top > 0 ? x[k] : 0;
        sum += v;
        expect_close("scale*value", k, (float)(scale * v), want, top * (0.5 / tops[row->count] + 4 * UNIT_ROUNDOFF) + TINIEST);
    }
    expect_close("sum", g, row->sums[g], sum * scale, 2 * UNIT_ROUNDOFF * fabs(sum * scale) + TINIEST);
}

static void check_split(const struct cpu_kernels *k, struct random *r)
{
    struct cpu_kernels scalar;
    cpu_kernels_init(&scalar, CPU_SCALAR);
    for (int count = 1; count <= DIGITS_MAX; count++)
        for (int kind = 0; kind < INPUTS; kind++)
            for (int groups = 1; groups <= 9; groups += 2) {
                case_begin("split_digits", "%d digits, %d groups, %s input", count, groups, input_names[kind]);
                float *x = guarded_floats(64L * groups);
                fill(r, x, 64L * groups, (enum input)kind);
                int bad = kind == IN_PLAIN && groups > 1 ? random_int(r, 0, groups - 1) : -1;
                if (bad >= 0) x[bad * 64 + random_int(r, 0, 63)] = random_u64(r) & 1 ? NAN : -INFINITY;
                struct split_call c = {k->split_digits, make_row(groups, count), x, groups}, other = c;
                other.kernel = scalar.split_digits;
                other.out = make_row(groups, count);
                guarded_call(call_split, &c);
                guarded_call(call_split, &other);
                for (int g = 0; g < groups && !case_failed(); g++) {
                    if (g != bad) check_group(&c.out, x + 64 * g, g);
                    if (g == bad && !(isnan(c.out.scales[g]) && isnan(c.out.sums[g]))) case_fail("group %d has no NaN scale and sum", g);
                }
                expect_same_bits("scales", c.out.scales, other.out.scales, groups);
                expect_same_bits("sums", c.out.sums, other.out.sums, groups);
                if (memcmp(c.out.d, other.out.d, (size_t)groups * (size_t)count * 64) != 0) case_fail("digits differ from the scalar tier's");
                case_end();
            }
}

struct digit_case {
    struct digit_job job;
    struct digits act;
    void (*kernel)(const struct digit_job *);
    bool q8;
    int act_rows;
};

static size_t tile_bytes(const struct digit_case *c)
{
    return c->q8 ? Q8_TILE_BYTES : Q4_TILE_BYTES;
}

/* A tile's code by the layout's definition in kernels.h. */
static int code_of(const struct digit_case *c, const uint8_t *tile, int row, int k)
{
    if (c->q8) return tile[k / 4 * 64 + 4 * row + k % 4];
    const uint8_t *word = tile + k / 8 * 64 + 4 * row;
    return k % 8 < 4 ? word[k % 8] & 15 : word[k % 8 - 4] >> 4;
}

static void call_matmul(void *arg)
{
    const struct digit_case *c = arg;
    c->kernel(&c->job);
}

static void make_digits(struct digit_case *c, struct random *r, enum input kind)
{
    struct cpu_kernels scalar;
    cpu_kernels_init(&scalar, CPU_SCALAR);
    int tiles = c->job.col_tiles;
    long groups = (long)c->act_rows * tiles;
    int all = c->job.n_blocks * tiles;
    const size_t bytes = tile_bytes(c);
    uint8_t *block = guarded((size_t)all * bytes);
    for (size_t i = 0; i < (size_t)all * bytes; i++) block[i] = (uint8_t)random_u64(r);
    for (int i = 0; i < all * 32; i++) {
        uint16_t s = bf16_from_f32(random_float(r) * 0.1f);
        memcpy(block + (size_t)(i / 32 + 1) * bytes - 64 + i % 32 * 2, &s, 2);
    }
    c->act = (struct digits){guarded((size_t)c->act_rows * (size_t)digits_row_bytes(64 * tiles, c->act.count) - 64), guarded_floats(groups), guarded_floats(groups),
                             tiles * 64, c->act.count};
    float x[64];
    for (long g = 0; g < groups; g++) {
        struct digit_row row = digit_row(&c->act, g / tiles, (int)(g % tiles));
        fill(r, x, 64, kind);
        scalar.split_digits(&row, x, 1);
    }
    c->job.block = block;
    c->job.act = &c->act;
}

/* Whole numbers are exact; each group then costs one conversion, one product and two multiply-adds. */
static void check_value(const struct digit_case *c, int i, int block, int row)
{
    long at = c->job.rows ? c->job.rows[i] : i;
    double y = 0, magnitude = 0;
    for (int t = 0; t < c->job.col_tiles; t++) {
        const uint8_t *tile = c->job.block + (size_t)(block * c->job.col_tiles + t) * tile_bytes(c), *scales = tile + tile_bytes(c) - 64;
        struct digit_row act = digit_row(&c->act, at, t);
        double dot = 0, high = 0, scale = bf16_to_f32(load_u16(scales + 2 * row)), bias = bf16_to_f32(load_u16(scales + 32 + 2 * row));
        for (int k = 0; k < 64; k++) {
            int code = code_of(c, tile, row, k);
            dot += (double)code * value_of(&act, 0, k);
            high += (double)code * 256 * act.d[(act.count > 2 ? 1 : 0) * 64 + k]; /* the part that is converted on its own */
        }
        y += scale * dot * act.scales[0] + bias * act.sums[0];
        magnitude += fabs(scale) * (fabs(dot) + fabs(high) + (c->q8 ? 0x1p21 : 65536)) * act.scales[0] + fabs(bias * act.sums[0]);
    }
    expect_close("y", (long)i * 16 * c->job.n_blocks + 16 * block + row, c->job.y[(long)i * c->job.ldy + 16 * block + row], y,
                 (4 + 2.0 * c->job.col_tiles) * UNIT_ROUNDOFF * magnitude + 4 * c->job.col_tiles * TINIEST);
}

/* The scalar tier, and each row alone, must give the same bits. */
static void check_same(const struct digit_case *c)
{
    struct digit_case other = *c;
    struct cpu_kernels scalar;
    const int width = 16 * c->job.n_blocks;
    cpu_kernels_init(&scalar, CPU_SCALAR);
    other.kernel = c->q8 ? scalar.matmul_q8_digits : scalar.matmul_q4_digits;
    other.job.y = guarded_floats((long)c->job.n * width);
    other.job.ldy = width;
    other.job.next = other.job.block, other.job.next_blocks = 1;
    guarded_call(call_matmul, &other);
    for (int i = 0; i < c->job.n; i++) expect_same_bits("y and the scalar tier's y", c->job.y + (long)i * c->job.ldy, other.job.y + (long)width * i, width);
    other.kernel = c->kernel;
    other.job.n = 1;
    for (int i = 0; i < c->job.n && !case_failed(); i++) {
        int32_t row = c->job.rows ? c->job.rows[i] : i;
        other.job.rows = &row;
        guarded_call(call_matmul, &other);
        expect_same_bits("y", c->job.y + (long)i * c->job.ldy, other.job.y, width);
    }
}

static void check_products(struct digit_case *c, struct random *r, enum input kind)
{
    const int width = 16 * c->job.n_blocks;
    c->job.ldy = width + 16 * random_int(r, 0, 1);
    c->job.rows = NULL;
    if (c->act_rows != c->job.n) {
        int32_t *rows = guarded((size_t)c->job.n * sizeof *rows);
        for (int i = 0; i < c->job.n; i++) rows[i] = random_int(r, 0, c->act_rows - 1);
        c->job.rows = rows;
    }
    c->job.y = guarded_floats((long)(c->job.n - 1) * c->job.ldy + width);
    make_digits(c, r, kind);
    guarded_call(call_matmul, c);
    for (int i = 0; i < c->job.n && !case_failed(); i++)
        for (int row = 0; row < width; row++) check_value(c, i, row / 16, row % 16);
    for (int i = 0; i + 1 < c->job.n; i++)
        if (!canary_intact(c->job.y + (long)i * c->job.ldy + width, (size_t)(c->job.ldy - width) * 4))
            case_fail("wrote between the rows of y, behind row %d", i);
    if (!case_failed()) check_same(c);
}

static void check_count(struct digit_case *c, struct random *r, const char *func, int count)
{
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 31, 32, 33, 63, 64, 65, 130};
    c->act.count = count;
    for (unsigned s = 0; s < sizeof rows / sizeof *rows; s++)
        for (int tiles = 2; tiles <= 32; tiles *= 4) {
            c->job.n = rows[s];
            c->job.n_blocks = c->q8 && s % 8 == 3 ? 21 : random_int(r, 1, rows[s] == 1 ? 9 : 3); /* one row may pass over several at once */
            if (c->job.n * tiles > 600 || left_out(1024L * c->job.n * tiles * count * c->job.n_blocks)) continue;
            c->job.col_tiles = tiles;
            c->act_rows = random_u64(r) & 1 ? c->job.n : random_int(r, 1, c->job.n + 3);
            case_begin(func, "%d digits, n %d, %d tiles, %d blocks%s", count, c->job.n, tiles, c->job.n_blocks, c->act_rows != c->job.n ? ", row list" : "");
            check_products(c, r, IN_PLAIN);
            case_end();
        }
    for (int kind = 1; kind < INPUTS; kind++) {
        c->job.n = c->act_rows = 5, c->job.col_tiles = 6, c->job.n_blocks = 2;
        case_begin(func, "%d digits, n 5, %s input", count, input_names[kind]);
        check_products(c, r, (enum input)kind);
        case_end();
    }
}

static void check_q8(const struct cpu_kernels *k, struct random *r)
{
    struct digit_case c = {.kernel = k->matmul_q8_digits, .q8 = true};
    check_count(&c, r, "matmul_q8_digits", DIGITS_MAX);
}

/*
 * What digits cost one product of 2,048 columns: rms of the error over rms of the row, against exact activations. Weights are
 * centred as a quantizer leaves them; activations are normal, with or without one outlier of 100 times in 64.
 */
static double product_error(const struct cpu_kernels *k, struct random *r, int count, bool outliers)
{
    enum { TILES = 32, REPEATS = 8 };
    double error = 0, size = 0;
    for (int n = 0; n < REPEATS; n++) {
        struct digit_case c = {.job = {.n = 1, .n_blocks = 1, .col_tiles = TILES, .ldy = 16}, .act = {.count = count}, .act_rows = 1};
        float *x = guarded_floats(64L * TILES);
        make_digits(&c, r, IN_PLAIN);
        for (int i = 0; i < 64 * TILES; i++) {
            x[i] = 0;
            for (int s = 0; s < 12; s++) x[i] += random_float(r);
            if (outliers && i % 64 == 7) x[i] *= 100;
        }
        struct split_call split = {k->split_digits, digit_row(&c.act, 0, 0), x, TILES};
        c.kernel = k->matmul_q4_digits;
        guarded_call(call_split, &split);
        for (int i = 0; i < TILES * 16; i++) {
            uint8_t *tile = (uint8_t *)(uintptr_t)c.job.block + (long)(i / 16) * Q4_TILE_BYTES;
            float s = 0.01f + 0.01f * fabsf(random_float(r));
            uint16_t scale = bf16_from_f32(s), bias = bf16_from_f32(-7.5f * s);
            memcpy(tile + 512 + i % 16 * 2, &scale, 2);
            memcpy(tile + 544 + i % 16 * 2, &bias, 2);
        }
        c.job.y = guarded_floats(16);
        guarded_call(call_matmul, &c);
        if (case_failed()) return NAN;
        for (int r16 = 0; r16 < 16; r16++) {
            double want = 0;
            for (int i = 0; i < 64 * TILES; i++) {
                const uint8_t *tile = c.job.block + (long)(i / 64) * Q4_TILE_BYTES;
                want += (double)x[i] * (code_of(&c, tile, r16, i % 64) * (double)bf16_to_f32(load_u16(tile + 512 + 2 * r16)) + (double)bf16_to_f32(load_u16(tile + 544 + 2 * r16)));
            }
            error += (c.job.y[r16] - want) * (c.job.y[r16] - want), size += want * want;
        }
    }
    return sqrt(error / size);
}

/* The bars of the exact prefill (2 digits, with outliers too), of exact decode (3), and of the fast mode (1). */
static void check_quality(const struct cpu_kernels *k, struct random *r)
{
    static const struct { int count; bool outliers; double bar; } bars[] = {{1, false, 8e-3}, {2, false, 2e-4}, {2, true, 2e-4}, {3, false, 1e-5}, {3, true, 1e-5}};
    for (unsigned i = 0; i < sizeof bars / sizeof *bars; i++) {
        case_begin("matmul_q4_digits", "quality of %d digits%s", bars[i].count, bars[i].outliers ? ", outliers" : "");
        double e = product_error(k, r, bars[i].count, bars[i].outliers);
        if (options.verbose) printf("quality of %d digits%s: %.2e\n", bars[i].count, bars[i].outliers ? ", outliers" : "", e);
        if (!(e <= bars[i].bar)) case_fail("off by %.2e of the row's rms, at most %.0e", e, bars[i].bar);
        case_end();
    }
}

static void check_q4(const struct cpu_kernels *k, struct random *r)
{
    struct digit_case c = {.kernel = k->matmul_q4_digits};
    for (int count = 1; count <= DIGITS_MAX; count++) check_count(&c, r, "matmul_q4_digits", count);
    check_quality(k, r);
}

const struct suite digit_suites[] = {{"split_digits", check_split}, {"matmul_q4_digits", check_q4}, {"matmul_q8_digits", check_q8}, {NULL, NULL}};
