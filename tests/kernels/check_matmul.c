/* Checks of the matrix kernels and the group sums. */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "check.h"

enum form { Q4, Q8, F32 };
static const char *const form_names[] = {"matmul_q4", "matmul_q8", "matmul_f32"};
static const int form_bytes[] = {Q4_TILE_BYTES, Q8_TILE_BYTES, F32_TILE_BYTES};

/* One matrix block, its activation rows and the exact answer. */
struct matmul_case {
    enum form form;
    struct block_job job;
    struct act act;
    void (*kernel)(const struct block_job *);
    int act_rows;
    const uint8_t *block;
};

static void make_block(struct random *r, uint8_t *block, int tiles, enum form form)
{
    for (int t = 0; t < tiles; t++) {
        uint8_t *tile = block + (long)t * form_bytes[form];
        if (form == F32) {
            fill(r, (float *)(void *)tile, F32_TILE_BYTES / 4, IN_PLAIN);
            continue;
        }
        int codes = form_bytes[form] - 64;
        for (int i = 0; i < codes; i++) tile[i] = (uint8_t)random_u64(r);
        for (int i = 0; i < BLOCK_ROWS; i++) {
            float scale = random_float(r) * 0.02f, top = form == Q4 ? 15 : 255;
            uint16_t s = bf16_from_f32(scale), b = bf16_from_f32(-scale * top * (0.5f + 0.1f * random_float(r)));
            memcpy(tile + codes + 2 * i, &s, 2);
            memcpy(tile + codes + 32 + 2 * i, &b, 2);
        }
    }
}

/* The weight's code (or value) by the layout's definition in kernels.h, worked out per element. */
static double code_of(const uint8_t *tile, int row, int k, enum form form)
{
    if (form == F32) return ((const float *)(const void *)tile)[k * 16 + row];
    if (form == Q8) return tile[k / 4 * 64 + 4 * row + k % 4];
    const uint8_t *word = tile + k / 8 * 64 + 4 * row;
    return k % 8 < 4 ? word[k % 8] & 15 : word[k % 8 - 4] >> 4;
}

static void reference(const struct matmul_case *c, int i, int row, double *want, double *tolerance)
{
    long at = c->job.rows ? c->job.rows[i] : i;
    const float *x = c->act.x + at * c->act.ld, *sums = c->act.sums + at * (c->act.ld / 64);
    double y = 0, magnitude = 0, scales = 1;
    for (int t = 0; t < c->job.col_tiles; t++) {
        const uint8_t *tile = c->block + (long)t * form_bytes[c->form], *tail = tile + form_bytes[c->form] - 64;
        double scale = 1, bias = 0, dot = 0, absolute = 0;
        if (c->form != F32) scale = bf16_to_f32(load_u16(tail + 2 * row)), bias = bf16_to_f32(load_u16(tail + 32 + 2 * row));
        for (int k = 0; k < 64; k++) {
            double p = code_of(tile, row, k, c->form) * x[t * 64 + k];
            dot += p;
            absolute += fabs(p);
        }
        y += scale * dot + (c->form != F32 ? bias * sums[t] : 0);
        magnitude += fabs(scale) * absolute + fabs(bias * sums[t]);
        scales += fabs(scale) * 70 + 2;
    }
    /* Any order of summing: 64 roundings in a group, a fold of four, two for each group's scale and bias. */
    *want = y;
    *tolerance = (64 + 4 + 2.0 * c->job.col_tiles + 2) * UNIT_ROUNDOFF * magnitude + scales * TINIEST;
    if (c->form == F32) *tolerance += 64.0 * (c->job.col_tiles - 1) * UNIT_ROUNDOFF * magnitude;
}

static void call_kernel(void *arg)
{
    const struct matmul_case *c = arg;
    c->kernel(&c->job);
}

static void make_case(struct matmul_case *c, struct random *r, int tiles, int act_rows, enum input kind)
{
    c->act_rows = act_rows;
    c->act.ld = tiles * 64;
    c->act.x = guarded_floats((long)act_rows * c->act.ld);
    c->act.sums = guarded_floats((long)act_rows * tiles);
    fill(r, c->act.x, (long)act_rows * c->act.ld, kind);
    for (long g = 0; g < (long)act_rows * tiles; g++) {
        double s = 0;
        for (int k = 0; k < 64; k++) s += c->act.x[g * 64 + k];
        c->act.sums[g] = (float)s;
    }
    uint8_t *block = guarded((size_t)tiles * (size_t)form_bytes[c->form]);
    make_block(r, block, tiles, c->form);
    c->block = block;
    c->job = (struct block_job){.block = block, .col_tiles = tiles, .act = &c->act};
}

/* Random rows, some twice, in any order. */
static void choose_rows(struct matmul_case *c, struct random *r, int n, bool listed)
{
    c->job.n = n;
    c->job.rows = NULL;
    if (!listed) return;
    int32_t *rows = guarded((size_t)n * sizeof *rows);
    for (int i = 0; i < n; i++) rows[i] = random_int(r, 0, c->act_rows - 1);
    c->job.rows = rows;
}

static void check_values(const struct matmul_case *c)
{
    for (int i = 0; i < c->job.n; i++) {
        for (int row = 0; row < BLOCK_ROWS; row++) {
            double want, tolerance;
            reference(c, i, row, &want, &tolerance);
            expect_close("y", (long)i * 16 + row, c->job.y[(long)i * c->job.ldy + row], want, tolerance);
        }
        if (i + 1 < c->job.n && !canary_intact(c->job.y + (long)i * c->job.ldy + 16, (size_t)(c->job.ldy - 16) * 4))
            case_fail("wrote between the rows of y, behind row %d", i);
    }
}

/* Each row alone must give the bits that it gave among the others. */
static void check_alone(const struct matmul_case *c)
{
    float *y = guarded_floats(16);
    for (int i = 0; i < c->job.n && !case_failed(); i++) {
        int32_t row = c->job.rows ? c->job.rows[i] : i;
        struct matmul_case one = *c;
        one.job.rows = &row;
        one.job.n = 1;
        one.job.y = y;
        one.job.ldy = 16;
        guarded_call(call_kernel, &one);
        expect_same_bits("y", c->job.y + (long)i * c->job.ldy, y, 16);
    }
}

static void run_case(struct matmul_case *c, struct random *r, int n, int extra)
{
    c->job.ldy = 16 + extra;
    c->job.y = guarded_floats((long)(n - 1) * c->job.ldy + 16);
    (void)r;
    guarded_call(call_kernel, c);
    if (!case_failed()) check_values(c);
    if (!case_failed()) check_alone(c);
}

/* A NaN in one activation row makes that row's results NaN and leaves the others alone. */
static void check_nan(struct matmul_case *c, struct random *r, int n)
{
    case_begin(form_names[c->form], "one NaN among %d rows", n);
    make_case(c, r, 4, n, IN_PLAIN);
    choose_rows(c, r, n, false);
    int bad = random_int(r, 0, n - 1);
    c->act.x[(long)bad * c->act.ld + random_int(r, 0, c->act.ld - 1)] = NAN;
    run_case(c, r, n, 0);
    case_end();
}

static void check_form(enum form form, void (*kernel)(const struct block_job *), struct random *r)
{
    static const int counts_of_rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 17, 31, 47, 48, 49, 50, 51, 52, 63, 64, 65, 97, 200};
    static const int tiles[] = {2, 4, 8, 32};
    struct matmul_case c = {.form = form, .kernel = kernel};
    for (unsigned s = 0; s < sizeof counts_of_rows / sizeof *counts_of_rows; s++)
        for (unsigned w = 0; w < sizeof tiles / sizeof *tiles; w++) {
            int n = counts_of_rows[s];
            if (n * tiles[w] > 1600 || left_out(1024L * n * tiles[w])) continue;
            bool listed = random_u64(r) & 1;
            int extra = random_int(r, 0, 2) * 16, act_rows = listed ? random_int(r, 1, n + 3) : n;
            case_begin(form_names[form], "n %d, %d tiles, %s, ldy %d", n, tiles[w], listed ? "row list" : "all rows", 16 + extra);
            make_case(&c, r, tiles[w], act_rows, IN_PLAIN);
            choose_rows(&c, r, n, listed);
            run_case(&c, r, n, extra);
            case_end();
        }
    for (int kind = 1; kind < INPUTS; kind++)
        for (int n = 1; n <= 9; n += 2) {
            case_begin(form_names[form], "n %d, %s input", n, input_names[kind]);
            make_case(&c, r, 6, n, (enum input)kind);
            choose_rows(&c, r, n, false);
            run_case(&c, r, n, 16);
            case_end();
        }
    for (int n = 1; n <= 7; n++) check_nan(&c, r, n);
}

static void check_q4(const struct cpu_kernels *k, struct random *r)
{
    check_form(Q4, k->matmul_q4, r);
}

static void check_q8(const struct cpu_kernels *k, struct random *r)
{
    check_form(Q8, k->matmul_q8, r);
}

static void check_f32(const struct cpu_kernels *k, struct random *r)
{
    check_form(F32, k->matmul_f32, r);
}

struct sums_call {
    void (*kernel)(float *, const float *, int);
    float *sums, *x;
    int n;
};

static void call_sums(void *arg)
{
    const struct sums_call *c = arg;
    c->kernel(c->sums, c->x, c->n);
}

static void check_sums(const struct cpu_kernels *k, struct random *r)
{
    for (int kind = 0; kind < INPUTS; kind++)
        for (int n = 1; n <= 33; n += n < 9 ? 1 : 8) {
            case_begin("group_sums", "%d groups, %s input", n, input_names[kind]);
            struct sums_call c = {k->group_sums, guarded_floats(n), guarded_floats(64L * n), n};
            fill(r, c.x, 64L * n, (enum input)kind);
            guarded_call(call_sums, &c);
            for (int g = 0; g < n && !case_failed(); g++) {
                double want = 0, magnitude = 0;
                for (int i = 0; i < 64; i++) want += c.x[g * 64 + i], magnitude += fabs((double)c.x[g * 64 + i]);
                expect_close("sums", g, c.sums[g], want, 63 * UNIT_ROUNDOFF * magnitude);
            }
            case_end();
        }
}

const struct suite matmul_suites[] = {
    {"matmul_q4", check_q4}, {"matmul_q8", check_q8}, {"matmul_f32", check_f32}, {"group_sums", check_sums}, {NULL, NULL}};
