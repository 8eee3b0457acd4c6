/* Checks of attention: exact, of one row, and with bf16 queries and weights. MODEL.md, Full attention. */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "check.h"

enum { MAX_PAGES = 12, MAX_HEADS = 16 };
#define BF16_ROUNDOFF 0x1p-8

struct attn_case {
    const char *func;
    bool fast; /* attention_fast */
    struct attn_job job;
    void (*kernel)(const struct attn_job *);
    const uint8_t *pages[MAX_PAGES];
};

static void call_attention(void *arg)
{
    const struct attn_case *c = arg;
    c->kernel(&c->job);
}

static double element(const struct attn_case *c, int key, int i, size_t offset)
{
    const uint8_t *base = c->pages[key / GRID] + offset;
    long at = (long)(key % GRID) * HEAD_DIM + i;
    return c->job.bf16 ? bf16_to_f32(load_u16(base + 2 * at)) : f32_from_bits(load_u32(base + 4 * at));
}

/* What attention_fast makes of a query's number: log2 e of it as bf16, ties away from zero. */
static double rounded_query(float q)
{
    float scaled = q * 0x1.715476p+0f;
    return bf16_to_f32((uint16_t)((f32_bits(scaled) + 0x8000) >> 16)) * 0.693147180559945309417;
}

/*
 * Softmax in double with a first-order error bound: each score may be off by its dot product's roundings, each weight by
 * that plus the exponential's own error (its argument is rounded once) and the rescaling at every block; the maximum
 * cancels between numerator and sum. The fast form rounds weights to bf16, for the sum, too, and takes what is below 2^-126 of
 * its maximum, which is within 2^9 of the real one, for zero, as it does all such numbers.
 */
static void check_head(const struct attn_case *c, int t, int h)
{
    const struct attn_job *j = &c->job;
    const float *q = j->q + (long)t * j->ldq_row + (long)h * j->ldq, *result = j->out + (long)t * j->ldo_row + (long)h * j->ldo;
    double score[MAX_PAGES * GRID], wrong[MAX_PAGES * GRID], top = -INFINITY, sum = 0, sum_wrong = 0;
    const double tiny = c->fast ? 0x1p-110 : TINIEST, exp_error = c->fast ? 0x1p-18 : 0;
    int n_keys = j->n_keys + t, blocks = (n_keys + GRID - 1) / GRID;
    for (int s = 0; s < n_keys; s++) {
        double dot = 0, magnitude = 0;
        for (int i = 0; i < HEAD_DIM; i++) {
            double p = (c->fast && !isnan(q[i]) ? rounded_query(q[i]) : q[i]) * element(c, s, i, j->k_offset);
            dot += p, magnitude += fabs(p) + tiny;
        }
        score[s] = dot;
        wrong[s] = HEAD_DIM * UNIT_ROUNDOFF * magnitude;
        if (dot > top) top = dot;
    }
    for (int s = 0; s < n_keys; s++) {
        wrong[s] = expm1(wrong[s] + UNIT_ROUNDOFF * fabs(score[s] - top) * (1 + blocks)) + (4 + 6.0 * blocks) * UNIT_ROUNDOFF + exp_error;
        score[s] = exp(score[s] - top);
        sum += score[s], sum_wrong += score[s] * (wrong[s] + (GRID + blocks) * UNIT_ROUNDOFF) + tiny;
    }
    for (int i = 0; i < HEAD_DIM; i++) {
        double out = 0, out_wrong = 0;
        for (int s = 0; s < n_keys; s++) {
            double v = element(c, s, i, j->v_offset), p = score[s] * v;
            out += p;
            out_wrong += fabs(p) * (wrong[s] + (GRID + blocks + 2) * UNIT_ROUNDOFF) + 4 * tiny * (1 + (c->fast ? fabs(v) : 0));
        }
        for (int s = 0; c->fast && s < n_keys; s++) out_wrong += BF16_ROUNDOFF * score[s] * fabs(element(c, s, i, j->v_offset) - out / sum);
        double tolerance = out_wrong / sum + fabs(out / sum) * (sum_wrong / sum + 2 * UNIT_ROUNDOFF);
        expect_close("out", (result - j->out) + i, result[i], out / sum, tolerance + 0x1p-120 * fabs(out / sum) + tiny);
    }
}

/* The same in double without any bound, from queries as they are. */
static void exact_head(const struct attn_case *c, int t, int h, double *out)
{
    const float *q = c->job.q + (long)t * c->job.ldq_row + (long)h * c->job.ldq;
    double sum = 0;
    for (int i = 0; i < HEAD_DIM; i++) out[i] = 0;
    for (int s = 0; s < c->job.n_keys + t; s++) {
        double dot = 0;
        for (int i = 0; i < HEAD_DIM; i++) dot += q[i] * element(c, s, i, c->job.k_offset);
        sum += exp(dot);
        for (int i = 0; i < HEAD_DIM; i++) out[i] += exp(dot) * element(c, s, i, c->job.v_offset);
    }
    for (int i = 0; i < HEAD_DIM; i++) out[i] /= sum;
}

/* K and V of one page; what lies behind the last key keeps its NaN canary. */
static uint8_t *make_page(struct attn_case *c, struct random *r, int keys, enum input kind)
{
    size_t size = c->job.bf16 ? 2 : 4, bytes = GRID * HEAD_DIM * size;
    size_t last = c->job.k_offset > c->job.v_offset ? c->job.k_offset : c->job.v_offset;
    uint8_t *page = guarded(last + bytes);
    float row[HEAD_DIM];
    for (int part = 0; part < 2; part++)
        for (int s = 0; s < keys; s++) {
            uint8_t *at = page + (part ? c->job.v_offset : c->job.k_offset) + (size_t)s * HEAD_DIM * size;
            fill(r, row, HEAD_DIM, part || kind != IN_LARGE ? kind : IN_PLAIN);
            for (int i = 0; i < HEAD_DIM; i++) {
                uint16_t half = bf16_from_f32(row[i]);
                memcpy(at + (size_t)i * size, c->job.bf16 ? (void *)&half : (void *)&row[i], size);
            }
        }
    return page;
}

/* One past the last float that rows and heads of these distances reach. */
static long reach(const struct attn_job *j, int ld_row, int ld)
{
    return (long)(j->n_rows - 1) * ld_row + (long)(j->n_q - 1) * ld + HEAD_DIM;
}

static void make_attention(struct attn_case *c, struct random *r, int n_q, int n_rows, int n_keys, enum input kind)
{
    size_t bytes = (size_t)GRID * HEAD_DIM * (c->job.bf16 ? 2 : 4);
    bool v_first = random_u64(r) & 1;
    c->job.k_offset = (v_first ? bytes : 0) + 64 * (size_t)random_int(r, 0, 3);
    c->job.v_offset = v_first ? 0 : c->job.k_offset + bytes + 64;
    c->job.n_q = n_q, c->job.n_rows = n_rows, c->job.n_keys = n_keys;
    c->job.ldq = HEAD_DIM * random_int(r, 1, 2), c->job.ldo = HEAD_DIM + 16 * random_int(r, 0, 1);
    c->job.ldq_row = n_q * c->job.ldq + 16 * random_int(r, 0, 1), c->job.ldo_row = n_q * c->job.ldo;
    for (int p = 0; p * GRID < n_keys + n_rows - 1; p++) {
        int left = n_keys + n_rows - 1 - p * GRID;
        c->pages[p] = make_page(c, r, left < GRID ? left : GRID, kind);
    }
    c->job.pages = c->pages;
    float *q = guarded_floats(reach(&c->job, c->job.ldq_row, c->job.ldq));
    /* Queries long enough that the weights differ by orders of magnitude, short enough for a useful bound. */
    for (int h = 0; h < n_q * n_rows; h++)
        for (int i = 0; i < HEAD_DIM; i++)
            q[(long)(h / n_q) * c->job.ldq_row + (long)(h % n_q) * c->job.ldq + i] = random_float(r) * (kind == IN_OUTLIERS ? 0.01f : 1.5f);
    c->job.q = q;
    c->job.out = guarded_floats(reach(&c->job, c->job.ldo_row, c->job.ldo));
    c->job.work = c->fast ? guarded(ATTN_WORK_BYTES) : NULL;
}

/* Rows and heads in groups of random sizes must give the same bits. */
static void check_groups(const struct attn_case *c, struct random *r)
{
    const struct attn_job *j = &c->job;
    struct attn_case part = *c;
    float *all = guarded_floats(reach(j, j->ldo_row, j->ldo));
    for (int t = 0, rows; t < j->n_rows; t += rows) {
        rows = random_int(r, 1, j->n_rows - t);
        for (int h = 0, count; h < j->n_q; h += count) {
            count = random_int(r, 1, j->n_q - h);
            part.job.q = j->q + (long)t * j->ldq_row + (long)h * j->ldq;
            part.job.out = all + (long)t * j->ldo_row + (long)h * j->ldo;
            part.job.n_q = count, part.job.n_rows = rows, part.job.n_keys = j->n_keys + t;
            guarded_call(call_attention, &part);
            if (case_failed()) return;
        }
    }
    for (int t = 0; t < j->n_rows; t++)
        for (int h = 0; h < j->n_q; h++) {
            long at = (long)t * j->ldo_row + (long)h * j->ldo;
            expect_same_bits("out", j->out + at, all + at, HEAD_DIM);
        }
}

static void run_attention(struct attn_case *c, struct random *r)
{
    const struct attn_job *j = &c->job;
    guarded_call(call_attention, c);
    for (int t = 0; t < j->n_rows; t++)
        for (int h = 0; h < j->n_q && !case_failed(); h++) {
            check_head(c, t, h);
            if (t + 1 == j->n_rows && h + 1 == j->n_q) break;
            if (!canary_intact(j->out + (long)t * j->ldo_row + (long)h * j->ldo + HEAD_DIM, (size_t)(j->ldo - HEAD_DIM) * 4))
                case_fail("wrote between the heads of out, behind head %d of row %d", h, t);
        }
    if (!case_failed()) check_groups(c, r);
}

/* One row over many lengths, as in decode; the last page ends with the last key. */
static void check_decode(struct attn_case *c, struct random *r)
{
    for (int n_keys = 1; n_keys <= 200; n_keys += n_keys < 9 || (n_keys % 64 > 61) || n_keys % 64 < 3 ? 1 : random_int(r, 1, 7)) {
        int n_q = n_keys % 3 ? random_int(r, 1, MAX_HEADS) : 8;
        if (left_out(2L * HEAD_DIM * n_q * n_keys)) continue;
        case_begin(c->func, "%d heads, %d keys, %s", n_q, n_keys, c->job.bf16 ? "bf16" : "f32");
        make_attention(c, r, n_q, 1, n_keys, IN_PLAIN);
        run_attention(c, r);
        case_end();
    }
}

/* Many rows, as in prefill, from places before, on and behind the grid. */
static void check_prefill(struct attn_case *c, struct random *r)
{
    static const int heads[] = {1, 2, 4, 8, 8, 8, 16, 5};
    for (int n_keys = 1; n_keys <= 150; n_keys += n_keys < 3 || n_keys % 64 < 2 ? 1 : random_int(r, 5, 20)) {
        int n_q = heads[random_int(r, 0, 7)], n_rows = random_int(r, 2, ATTN_MAX_ROWS / n_q);
        if (left_out(2L * HEAD_DIM * n_q * n_rows * (n_keys + n_rows))) continue;
        case_begin(c->func, "%d heads, %d rows from key %d, %s", n_q, n_rows, n_keys, c->job.bf16 ? "bf16" : "f32");
        make_attention(c, r, n_q, n_rows, n_keys, IN_PLAIN);
        run_attention(c, r);
        case_end();
    }
}

/* What is not a number in one place must stay there: in its query head, or in the rows that see its key. */
static void check_nan(struct attn_case *c, struct random *r)
{
    case_begin(c->func, "a NaN query head, %s", c->job.bf16 ? "bf16" : "f32");
    make_attention(c, r, 7, 3, 70, IN_PLAIN);
    ((float *)(uintptr_t)c->job.q)[(long)c->job.ldq_row * random_int(r, 0, 2) + (long)c->job.ldq * random_int(r, 0, 6) + 5] = NAN;
    run_attention(c, r);
    case_end();
    for (int value = 0; value < 2; value++) {
        case_begin(c->func, "a NaN %s of a later row, %s", value ? "value" : "key", c->job.bf16 ? "bf16" : "f32");
        make_attention(c, r, 8, 8, 60, IN_PLAIN);
        uint8_t *at = (uint8_t *)(uintptr_t)c->pages[1] + (value ? c->job.v_offset : c->job.k_offset);
        memset(at + (size_t)HEAD_DIM * (c->job.bf16 ? 2 : 4), 0xff, 4); /* key 65: seen by the last two rows */
        run_attention(c, r);
        case_end();
    }
}

static void check_inputs(struct attn_case *c, struct random *r, int most)
{
    for (int kind = 1; kind < INPUTS; kind++)
        for (int n_keys = 5; n_keys < 150; n_keys += 70) {
            case_begin(c->func, "8 heads, %d keys, %s, %s input", n_keys, c->job.bf16 ? "bf16" : "f32", input_names[kind]);
            make_attention(c, r, 8, 1 + n_keys % most, n_keys, (enum input)kind);
            run_attention(c, r);
            case_end();
        }
}

static void check_attention(const struct cpu_kernels *k, struct random *r)
{
    struct attn_case c = {.func = "attention", .kernel = k->attention};
    for (int bf16 = 0; bf16 < 2; bf16++) {
        c.job.bf16 = bf16;
        check_decode(&c, r);
        check_prefill(&c, r);
        check_inputs(&c, r, 3);
        check_nan(&c, r);
    }
}

/* Whether a case of so many rows takes too long: an emulator is slow, but knows whole tiles only. */
static bool left_out_fast(int rows, int keys)
{
    return left_out(2L * HEAD_DIM * rows * keys / 200);
}

/* Up to as many rows as a call takes, from places before, on and behind the ends of pages and of spans of four. */
static void check_many_rows(struct attn_case *c, struct random *r)
{
    static const int starts[] = {1, 2, 40, 63, 64, 65, 128, 193, 250, 255, 256, 257, 319, 449, 512, 513}, heads[] = {1, 2, 4, 8, 8, 8, 16, 5};
    for (unsigned i = 0; i < 2 * sizeof starts / sizeof *starts; i++) {
        int n_q = heads[random_int(r, 0, 7)], most = ATTN_TILE_ROWS / n_q, n_keys = starts[i / 2];
        int n_rows = random_int(r, 1, i % 2 || most > 128 ? 128 / n_q : most);
        if (i == 6 * 2) n_q = 8, n_rows = 64;
        if (left_out_fast(n_q * n_rows, n_keys + n_rows)) continue;
        case_begin(c->func, "%d heads, %d rows from key %d", n_q, n_rows, n_keys);
        make_attention(c, r, n_q, n_rows, n_keys, IN_PLAIN);
        run_attention(c, r);
        case_end();
    }
}

/* Keys that grow from page to page: maxima are outgrown within spans and between them. */
static void check_growing(struct attn_case *c, struct random *r, int most)
{
    for (int n_rows = 1; n_rows <= most; n_rows += 7) {
        case_begin(c->func, "growing keys, %d rows", n_rows);
        make_attention(c, r, 8, n_rows, 400, IN_PLAIN);
        for (int s = 0; s < 399 + n_rows; s++)
            for (int i = 0; i < HEAD_DIM; i++) {
                uint8_t *at = (uint8_t *)(uintptr_t)c->pages[s / GRID] + c->job.k_offset + ((size_t)(s % GRID) * HEAD_DIM + (size_t)i) * 2;
                uint16_t grown = bf16_from_f32(ldexpf(bf16_to_f32(load_u16(at)), s / GRID - 4));
                memcpy(at, &grown, sizeof grown);
            }
        run_attention(c, r);
        case_end();
    }
}

/* Values that are not numbers or infinite, anywhere: a row's bits are still its own. */
static void check_infinite(struct attn_case *c, struct random *r)
{
    static const uint16_t bits[] = {0x7f80, 0xff80, 0x7fc0};
    case_begin(c->func, "infinite values");
    make_attention(c, r, 8, 40, 100, IN_PLAIN);
    for (int i = 0; i < 20; i++) {
        int s = random_int(r, 90, 138);
        memcpy((uint8_t *)(uintptr_t)c->pages[s / GRID] + c->job.v_offset + ((size_t)(s % GRID) * HEAD_DIM + (size_t)random_int(r, 0, 255)) * 2,
               &bits[i % 3], 2);
    }
    guarded_call(call_attention, c);
    check_groups(c, r);
    case_end();
}

/* What rounding costs: rows as norms leave them, against the sums of unrounded queries. */
static void check_rounding(struct attn_case *c, struct random *r)
{
    case_begin(c->func, "rounding");
    make_attention(c, r, 8, 8, 300, IN_PLAIN);
    float *q = (float *)(uintptr_t)c->job.q;
    for (long i = 0; i < reach(&c->job, c->job.ldq_row, c->job.ldq); i++) q[i] = random_float(r) * (3.0f / 16); /* scores of 0.5 to 2 */
    guarded_call(call_attention, c);
    double wrong = 0, square = 0, want[HEAD_DIM];
    for (int t = 0; t < c->job.n_rows; t++)
        for (int h = 0; h < c->job.n_q; h++) {
            const float *out = c->job.out + (long)t * c->job.ldo_row + (long)h * c->job.ldo;
            exact_head(c, t, h, want);
            for (int i = 0; i < HEAD_DIM; i++) wrong += (out[i] - want[i]) * (out[i] - want[i]), square += want[i] * want[i];
        }
    expect_close("rms of the error", 0, (float)sqrt(wrong / square), 0, 8e-3);
    case_end();
}

static void check_attention_fast(const struct cpu_kernels *k, struct random *r)
{
    struct attn_case c = {.func = "attention_fast", .fast = true, .kernel = k->attention_fast, .job.bf16 = true};
    if (!c.kernel) return;
    check_many_rows(&c, r);
    check_growing(&c, r, 15);
    check_inputs(&c, r, 3);
    check_nan(&c, r);
    check_infinite(&c, r);
    check_rounding(&c, r);
}

static void check_attention_row(const struct cpu_kernels *k, struct random *r)
{
    struct attn_case c = {.func = "attention_row", .kernel = k->attention_row, .job.bf16 = true};
    if (!c.kernel) return;
    check_decode(&c, r);
    check_growing(&c, r, 1);
    check_inputs(&c, r, 1);
    for (int key = 0; key < 130; key += 43) {
        case_begin(c.func, "a NaN in key %d", key);
        make_attention(&c, r, 8, 1, 131, IN_PLAIN);
        memset((uint8_t *)(uintptr_t)c.pages[key / GRID] + c.job.k_offset + (size_t)(key % GRID) * HEAD_DIM * 2, 0xff, 4);
        run_attention(&c, r);
        case_end();
    }
}

const struct suite attention_suites[] = {{"attention", check_attention}, {"attention_fast", check_attention_fast}, {"attention_row", check_attention_row}, {NULL, NULL}};
