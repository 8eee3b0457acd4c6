/* Checks of the gated delta rule by chunks, against the recurrence in double. MODEL.md, Gated DeltaNet. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"

enum { D = GDN_DIM, C = GRID, HEADS_MAX = 3 };

struct chunk_case {
    struct gdn_chunk job;
    void (*kernel)(const struct gdn_chunk *);
    const float *before; /* (heads, 128, 128) */
};

static void call_chunk(void *arg)
{
    const struct chunk_case *c = arg;
    c->kernel(&c->job);
}

/* What one value head's error bounds are made of, by the formulas of the chunked form; e_x bounds the error of x. */
struct bounds {
    double kk[C][C], qk[C][C], e_kk[C][C], e_qk[C][C];
    double lower[C][C], e_lower[C][C], t[C][C], e_t[C][C], a[C][C], e_a[C][C];
    double r[C], e_r[C], d[C], e_d[C];
    double decay[C], between[C][C]; /* c_i; L_ij */
    double error, size; /* sums of squares over the outputs */
};

#define RMS_BAR 5e-5 /* of the error over that of the outputs; a quarter of what the exact prefill may be off in a step */

/*
 * A product of two bf16 parts each leaves out less than 3·2^-16 of it: the product of the small parts and what is rounded away; a
 * sum of n adds the roundings of 3n terms. Numbers below the normal range count as zero.
 */
static double product_error(int n)
{
    return 3 * 0x1p-16 + 3 * n * 2 * UNIT_ROUNDOFF;
}
#define FLUSHED (0x1p-126 * 512)

static double dot(const float *a, const float *b, double *magnitude)
{
    double s = 0;
    *magnitude = 0;
    for (int i = 0; i < D; i++) s += (double)a[i] * b[i], *magnitude += fabs((double)a[i] * b[i]);
    return s;
}

static void bound_keys(struct bounds *b, const struct gdn_chunk *j, int head)
{
    const double u = UNIT_ROUNDOFF;
    for (int i = 0; i < j->n; i++) {
        double g = j->g[(long)i * j->ldg + head], beta = j->beta[(long)i * j->ldg + head], size;
        b->decay[i] = g * (i ? b->decay[i - 1] : 1);
        for (int k = 0; k <= i; k++) {
            b->between[i][k] = k == i ? 1 : b->between[i - 1][k] * g;
            b->kk[i][k] = dot(j->k + (long)i * j->ldqk, j->k + (long)k * j->ldqk, &size);
            b->e_kk[i][k] = product_error(D) * size + FLUSHED;
            b->qk[i][k] = dot(j->q + (long)i * j->ldqk, j->k + (long)k * j->ldqk, &size);
            b->e_qk[i][k] = product_error(D) * size + FLUSHED;
            /* up to 64 roundings of a product of decays, which is 0 below 2^-100 */
            double l = b->between[i][k], e_l = 66 * u * l + 0x1p-126;
            b->a[i][k] = l * b->qk[i][k], b->e_a[i][k] = l * b->e_qk[i][k] + e_l * fabs(b->qk[i][k]);
            b->lower[i][k] = k < i ? beta * l * b->kk[i][k] : 0;
            b->e_lower[i][k] = k < i ? fabs(beta) * (l * b->e_kk[i][k] + (e_l + 2 * u * l) * fabs(b->kk[i][k])) : 0;
        }
    }
}

/* T by rows, and of the first order T dM T, where dM holds the roundings of the inversion, too. */
static void bound_inverse(struct bounds *b, int n)
{
    static double half[C][C];
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++) {
            b->t[i][k] = i == k;
            for (int m = k; m < i; m++) b->t[i][k] -= b->lower[i][m] * b->t[m][k];
        }
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++) {
            half[i][k] = 0;
            for (int m = k; m <= i; m++) half[i][k] += (b->e_lower[i][m] + 256 * UNIT_ROUNDOFF * (fabs(b->lower[i][m]) + (i == m))) * fabs(b->t[m][k]);
        }
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++) {
            b->e_t[i][k] = 0;
            for (int m = k; m <= i; m++) b->e_t[i][k] += fabs(b->t[i][m]) * half[m][k];
        }
}

/* A value column: the answers D, the outputs and the new state, each compared. */
static void check_column(struct bounds *b, const struct chunk_case *c, int head, int column)
{
    const struct gdn_chunk *j = &c->job;
    const float *s = c->before + (long)head * D * D + column;
    const double u = UNIT_ROUNDOFF;
    double e_tokens = product_error(C);
    for (int i = 0; i < j->n; i++) {
        double ks = 0, size = 0, beta = j->beta[(long)i * j->ldg + head], v = j->v[(long)i * j->ldv + head * D + column];
        for (int k = 0; k < D; k++) ks += (double)s[(long)k * D] * j->k[(long)i * j->ldqk + k], size += fabs((double)s[(long)k * D] * j->k[(long)i * j->ldqk + k]);
        b->r[i] = beta * (v - b->decay[i] * ks);
        b->e_r[i] = fabs(beta) * ((b->decay[i] + 0x1p-126) * (product_error(D) * size + FLUSHED) + (66 * u * b->decay[i] + 0x1p-126) * fabs(ks) + 3 * u * fabs(v));
        b->d[i] = b->e_d[i] = 0;
        for (int k = 0; k <= i; k++) {
            b->d[i] += b->t[i][k] * b->r[k];
            b->e_d[i] += fabs(b->t[i][k]) * (b->e_r[k] + e_tokens * fabs(b->r[k])) + b->e_t[i][k] * (fabs(b->r[k]) + b->e_r[k]);
        }
        b->e_d[i] += FLUSHED;
        double qs = 0, o, e_o;
        size = 0;
        for (int k = 0; k < D; k++) qs += (double)s[(long)k * D] * j->q[(long)i * j->ldqk + k], size += fabs((double)s[(long)k * D] * j->q[(long)i * j->ldqk + k]);
        o = b->decay[i] * qs, e_o = (b->decay[i] + 0x1p-126) * (product_error(D) * size + FLUSHED) + (66 * u * b->decay[i] + 0x1p-126) * fabs(qs) + FLUSHED;
        for (int k = 0; k <= i; k++) {
            o += b->a[i][k] * b->d[k];
            e_o += fabs(b->a[i][k]) * (b->e_d[k] + e_tokens * fabs(b->d[k])) + b->e_a[i][k] * (fabs(b->d[k]) + b->e_d[k]);
        }
        long at = (long)i * j->ldo + head * D + column;
        expect_close("o", at, j->o[at], o, 1.01 * e_o + 4 * u * fabs(o));
        b->error += (j->o[at] - o) * (j->o[at] - o), b->size += o * o;
    }
    for (int k = 0; k < D; k++) {
        const int last = j->n - 1;
        double want = b->decay[last] * s[(long)k * D], e = (66 * u * b->decay[last] + 0x1p-126) * fabs((double)s[(long)k * D]) + FLUSHED;
        for (int i = 0; i < j->n; i++) {
            double key = j->k[(long)i * j->ldqk + k], l = b->between[last][i];
            want += key * l * b->d[i];
            e += fabs(key) * (l * (b->e_d[i] + (e_tokens + 66 * u) * fabs(b->d[i])) + 0x1p-126 * fabs(b->d[i]));
        }
        long at = ((long)head * D + k) * D + column;
        expect_close("state", at, j->state[at], want, 1.01 * e + 4 * u * fabs(want));
    }
}

static float *unit_rows(struct random *r, int n, int ld, float length)
{
    float *x = guarded_floats((long)(n - 1) * ld + D), common[D];
    fill(r, common, D, IN_PLAIN);
    for (int t = 0; t < n; t++) {
        float *row = x + (long)t * ld;
        double sum = 0;
        fill(r, row, D, IN_PLAIN);
        for (int i = 0; i < D; i++) row[i] += 0.5f * common[i], sum += (double)row[i] * row[i]; /* keys of a text are alike */
        for (int i = 0; i < D; i++) row[i] = (float)(row[i] * length / sqrt(sum));
    }
    return x;
}

static void make_chunk(struct chunk_case *c, struct random *r, int n, int heads, enum input kind)
{
    struct gdn_chunk *j = &c->job;
    *j = (struct gdn_chunk){.heads = heads, .n = n, .ldqk = D + 16 * random_int(r, 0, 1), .ldv = heads * D + 16 * random_int(r, 0, 1),
                            .ldg = heads + random_int(r, 0, 1), .ldo = heads * D + 16 * random_int(r, 0, 1)};
    long floats = (long)heads * D * D, n_v = (long)(n - 1) * j->ldv + heads * D, n_g = (long)(n - 1) * j->ldg + heads;
    float *before = guarded_floats(floats), *v = guarded_floats(n_v), *g = guarded_floats(n_g), *beta = guarded_floats(n_g);
    j->state = guarded_floats(floats);
    fill(r, before, floats, kind);
    memcpy(j->state, before, (size_t)floats * sizeof *before);
    for (int t = 0; t < n; t++) {
        fill(r, v + (long)t * j->ldv, heads * D, kind);
        for (int h = 0; h < heads; h++) {
            g[(long)t * j->ldg + h] = random_u64(r) % 8 ? 0.9f + 0.1f * fabsf(random_float(r)) : fabsf(random_float(r));
            beta[(long)t * j->ldg + h] = fabsf(random_float(r));
        }
    }
    if (n > 4) g[2 * j->ldg] = 0, g[3 * j->ldg] = 1e-30f;
    j->q = unit_rows(r, n, j->ldqk, 0.08838835f), j->k = unit_rows(r, n, j->ldqk, 1);
    j->v = v, j->g = g, j->beta = beta, c->before = before;
    j->o = guarded_floats((long)(n - 1) * j->ldo + heads * D);
}

/* The first tokens alone, and a head alone, must give the same bits. */
static void check_alone(const struct chunk_case *c, struct random *r)
{
    struct chunk_case other = *c;
    const int head = random_int(r, 0, c->job.heads - 1), heads = 1, n = random_int(r, 1, c->job.n);
    other.job.heads = heads, other.job.n = n;
    other.job.state = guarded_floats(D * D);
    other.job.o = guarded_floats((long)(n - 1) * c->job.ldo + D);
    other.job.v += head * D, other.job.g += head, other.job.beta += head;
    memcpy(other.job.state, c->before + (long)head * D * D, D * D * sizeof(float));
    guarded_call(call_chunk, &other);
    for (int t = 0; t < n && !case_failed(); t++)
        expect_same_bits("o", c->job.o + (long)t * c->job.ldo + head * D, other.job.o + (long)t * c->job.ldo, D);
    if (n == c->job.n) expect_same_bits("state", c->job.state + (long)head * D * D, other.job.state, D * D);
}

static void check_case(struct chunk_case *c, struct random *r, struct bounds *b)
{
    const struct gdn_chunk *j = &c->job;
    guarded_call(call_chunk, c);
    b->error = b->size = 0;
    for (int h = 0; h < j->heads && !case_failed(); h++) {
        bound_keys(b, j, h);
        bound_inverse(b, j->n);
        for (int x = 0; x < D && !case_failed(); x++) check_column(b, c, h, x);
    }
    for (int t = 0; t + 1 < j->n; t++)
        if (!canary_intact(j->o + (long)t * j->ldo + j->heads * D, (size_t)(j->ldo - j->heads * D) * 4)) case_fail("wrote between the rows of o, behind row %d", t);
    if (!case_failed()) check_alone(c, r);
}

/* What is not a number in a value column stays there; that of earlier tokens of the chunk is lost with it. */
static void check_nan(struct chunk_case *c, struct random *r)
{
    const int token = random_int(r, 0, c->job.n - 1), column = random_int(r, 0, D - 1);
    ((float *)(uintptr_t)c->job.v)[(long)token * c->job.ldv + column] = NAN;
    guarded_call(call_chunk, c);
    for (int t = 0; t < c->job.n && !case_failed(); t++)
        for (int x = 0; x < c->job.heads * D; x++) {
            bool nan = isnan(c->job.o[(long)t * c->job.ldo + x]);
            if (x != column ? nan : t >= token && !nan) case_fail("token %d, column %d: %s", t, x, nan ? "NaN" : "a number");
        }
}

static void check_chunks(const struct cpu_kernels *k, struct random *r)
{
    static const int tokens[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64};
    struct chunk_case c = {.kernel = k->gdn_chunk};
    if (!c.kernel) return;
    struct bounds *b = mem_new(sizeof *b);
    for (unsigned i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (int kind = 0; kind < INPUTS; kind++) {
            int n = tokens[i], heads = random_int(r, 1, HEADS_MAX);
            if (kind != IN_PLAIN && n != 33 && n != 64) continue;
            case_begin("gdn_chunk", "%d tokens, %d heads, %s input", n, heads, input_names[kind]);
            make_chunk(&c, r, n, heads, (enum input)kind);
            check_case(&c, r, b);
            if (kind == IN_PLAIN && !(b->error <= RMS_BAR * RMS_BAR * b->size)) case_fail("off by %.2e of the rms, at most %.0e", sqrt(b->error / b->size), RMS_BAR);
            case_end();
        }
    case_begin("gdn_chunk", "a NaN value");
    make_chunk(&c, r, 40, 2, IN_PLAIN);
    check_nan(&c, r);
    case_end();
    free(b);
}

const struct suite chunk_suites[] = {{"gdn_chunk", check_chunks}, {NULL, NULL}};
