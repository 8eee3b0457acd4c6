/* Checks of the gated delta rule and the convolution. MODEL.md, Gated DeltaNet. */
#include <math.h>
#include <string.h>

#include "check.h"

enum { D = GDN_DIM };

/* One value head: inputs, the state before, and the exact answers with error bounds. */
struct gdn_case {
    struct gdn_job job;
    void (*kernel)(const struct gdn_job *);
    const float *before; /* (128, 128) */
};

static void call_gdn(void *arg)
{
    const struct gdn_case *c = arg;
    c->kernel(&c->job);
}

/*
 * The recurrence of one column in double. `bound` is the 2-norm of the possible error of the column's state: the map
 * S -> g(S - beta k (k.S)) does not stretch it by more than g*max(1, |1 - beta k.k|), and each step adds its roundings.
 */
static void check_column(const struct gdn_case *c, int column)
{
    const struct gdn_job *j = &c->job;
    double s[D], bound = 0;
    for (int i = 0; i < D; i++) s[i] = c->before[i * D + column];
    for (int t = 0; t < j->n; t++) {
        const float *q = j->q + (long)t * j->ldqk, *k = j->k + (long)t * j->ldqk;
        double g = j->g[(long)t * j->ldg], beta = j->beta[(long)t * j->ldg], v = j->v[(long)t * j->ldv + column];
        double predicted = 0, magnitude = 0, kk = 0, qq = 0;
        for (int i = 0; i < D; i++) {
            predicted += s[i] * k[i], magnitude += fabs(s[i] * k[i]);
            kk += (double)k[i] * k[i], qq += (double)q[i] * q[i];
        }
        double e = beta * (v - g * predicted);
        double e_error = beta * g * (D + 3) * UNIT_ROUNDOFF * magnitude + 3 * UNIT_ROUNDOFF * fabs(beta * v) + 200 * TINIEST;
        double out = 0, out_magnitude = 0, step = 0;
        for (int i = 0; i < D; i++) {
            double rounding = 3 * UNIT_ROUNDOFF * (fabs(g * s[i]) + fabs(e * k[i])) + 4 * TINIEST;
            s[i] = g * s[i] + e * k[i];
            step += rounding * rounding;
            out += s[i] * q[i];
            out_magnitude += fabs(s[i] * q[i]);
        }
        bound = bound * g * fmax(1, fabs(1 - beta * kk)) * (1 + 4 * D * UNIT_ROUNDOFF) + e_error * sqrt(kk) + sqrt(step);
        expect_close("o", (long)t * j->ldo + column, j->o[(long)t * j->ldo + column], out,
                     bound * sqrt(qq) * 1.001 + (D + 2) * UNIT_ROUNDOFF * out_magnitude + 200 * TINIEST);
    }
    for (int i = 0; i < D; i++) expect_close("state", i * D + column, j->state[i * D + column], s[i], bound * 1.001);
}

static float *unit_rows(struct random *r, int n, int ld, float length, enum input kind)
{
    float *x = guarded_floats((long)(n - 1) * ld + D);
    for (int t = 0; t < n; t++) {
        float *row = x + (long)t * ld;
        double sum = 0;
        fill(r, row, D, kind == IN_OUTLIERS ? IN_OUTLIERS : IN_PLAIN);
        for (int i = 0; i < D; i++) sum += (double)row[i] * row[i];
        for (int i = 0; i < D; i++) row[i] = (float)(row[i] * length / sqrt(sum));
    }
    return x;
}

static void make_gdn(struct gdn_case *c, struct random *r, int n, enum input kind)
{
    int ldqk = D + 16 * random_int(r, 0, 2), ldv = D + 16 * random_int(r, 0, 2), ldg = random_int(r, 1, 3);
    float *state = guarded_floats(D * D), *before = guarded_floats(D * D), *v = guarded_floats((long)(n - 1) * ldv + D);
    float *g = guarded_floats((long)(n - 1) * ldg + 1), *beta = guarded_floats((long)(n - 1) * ldg + 1);
    fill(r, state, D * D, kind);
    memcpy(before, state, D * D * sizeof *state);
    for (int t = 0; t < n; t++) {
        fill(r, v + (long)t * ldv, D, kind);
        g[(long)t * ldg] = random_u64(r) % 8 ? 0.9f + 0.1f * fabsf(random_float(r)) : fabsf(random_float(r));
        beta[(long)t * ldg] = fabsf(random_float(r));
    }
    c->before = before;
    c->job = (struct gdn_job){.state = state, .v_hi = D, .v = v, .ldqk = ldqk, .ldv = ldv, .g = g, .beta = beta, .ldg = ldg, .n = n};
    c->job.q = unit_rows(r, n, ldqk, 0.08838835f, kind);
    c->job.k = unit_rows(r, n, ldqk, 1, kind);
    c->job.ldo = D + 16 * random_int(r, 0, 2);
    c->job.o = guarded_floats((long)(n - 1) * c->job.ldo + D);
}

/* Columns outside the strip must be as before. */
static void check_outside(const struct gdn_case *c)
{
    const struct gdn_job *j = &c->job;
    for (int x = 0; x < D; x++) {
        if (x >= j->v_lo && x < j->v_hi) continue;
        for (int i = 0; i < D; i++)
            if (memcmp(&j->state[i * D + x], &c->before[i * D + x], 4) != 0) case_fail("changed state column %d outside its strip", x);
        for (int t = 0; t < j->n; t++)
            if (!canary_intact(&j->o[(long)t * j->ldo + x], 4)) case_fail("wrote o column %d outside its strip", x);
    }
}

/* The same tokens in strips of random widths, and token by token, must give the same bits. */
static void check_splits(const struct gdn_case *c, struct random *r)
{
    struct gdn_case other = *c;
    long n_o = (long)(c->job.n - 1) * c->job.ldo + D;
    other.job.state = guarded_floats(D * D);
    other.job.o = guarded_floats(n_o);
    memcpy(other.job.state, c->before, D * D * sizeof(float));
    for (int lo = 0, hi; lo < D; lo = hi) {
        hi = lo + 16 * random_int(r, 1, (D - lo) / 16);
        for (int t = 0, count; t < c->job.n; t += count) {
            struct gdn_case part = other;
            count = random_int(r, 1, c->job.n - t);
            part.job.v_lo = lo, part.job.v_hi = hi, part.job.n = count;
            part.job.q += (long)t * part.job.ldqk, part.job.k += (long)t * part.job.ldqk, part.job.v += (long)t * part.job.ldv;
            part.job.g += (long)t * part.job.ldg, part.job.beta += (long)t * part.job.ldg, part.job.o += (long)t * part.job.ldo;
            guarded_call(call_gdn, &part);
            if (case_failed()) return;
        }
    }
    expect_same_bits("state", c->job.state, other.job.state, D * D);
    for (int t = 0; t < c->job.n; t++)
        expect_same_bits("o", c->job.o + (long)t * c->job.ldo, other.job.o + (long)t * c->job.ldo, D);
}

static void check_gdn(const struct cpu_kernels *k, struct random *r)
{
    static const int tokens[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 63, 64, 65, 200};
    struct gdn_case c = {.kernel = k->gdn};
    for (unsigned i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (int kind = 0; kind < INPUTS; kind++) {
            if (kind != IN_PLAIN && tokens[i] > 9) continue;
            if (left_out(4L * D * D * tokens[i])) continue;
            bool strip = random_u64(r) & 1;
            case_begin("gdn", "%d tokens, %s input%s", tokens[i], input_names[kind], strip ? ", a strip" : "");
            make_gdn(&c, r, tokens[i], (enum input)kind);
            if (strip) c.job.v_lo = 16 * random_int(r, 0, 7), c.job.v_hi = c.job.v_lo + 16 * random_int(r, 1, 8 - c.job.v_lo / 16);
            guarded_call(call_gdn, &c);
            for (int x = c.job.v_lo; x < c.job.v_hi && !case_failed(); x++) check_column(&c, x);
            if (!case_failed()) check_outside(&c);
            if (!case_failed() && !strip) check_splits(&c, r);
            case_end();
        }
    case_begin("gdn", "a NaN value column");
    make_gdn(&c, r, 3, IN_PLAIN);
    ((float *)(uintptr_t)c.job.v)[20] = NAN;
    guarded_call(call_gdn, &c);
    for (int x = 0; x < D && !case_failed(); x++) check_column(&c, x);
    case_end();
}

struct conv_case {
    struct conv_job job;
    void (*kernel)(const struct conv_job *);
    const float *before; /* (3, ld_h) */
};

static void call_conv(void *arg)
{
    const struct conv_case *c = arg;
    c->kernel(&c->job);
}

/* Row t of the history followed by u; t counts from the oldest history row. */
static float conv_input(const struct conv_case *c, int t, int channel)
{
    if (t < 3) return c->before[(long)t * c->job.ld_h + channel];
    return c->job.u[(long)(t - 3) * c->job.ld_u + channel];
}

static void check_channel(const struct conv_case *c, int channel)
{
    const struct conv_job *j = &c->job;
    for (int t = 0; t < j->n; t++) {
        double y = 0, magnitude = 0;
        for (int i = 0; i < CONV_WIDTH; i++) {
            double p = (double)j->weight[channel * CONV_WIDTH + i] * conv_input(c, t + i, channel);
            y += p, magnitude += fabs(p);
        }
        double want = y > -700 ? y / (1 + exp(-y)) : isnan(y) ? y : -0.0;
        /* |silu'| <= 1.1; then the sigmoid's own error, and what underflows in it far left of zero. */
        double tolerance = 1.1 * 4 * UNIT_ROUNDOFF * magnitude + 8 * UNIT_ROUNDOFF * fabs(want) + 0x1p-125 * magnitude + 8 * TINIEST;
        expect_close("out", (long)t * j->ld_out + channel, j->out[(long)t * j->ld_out + channel], want, tolerance);
    }
    for (int i = 0; i < CONV_HISTORY; i++)
        if (memcmp(&j->history[(long)i * j->ld_h + channel], &(float){conv_input(c, j->n + i, channel)}, 4) != 0)
            case_fail("history row %d of channel %d is not the input row", i, channel);
}

static void make_conv(struct conv_case *c, struct random *r, int channels, int n, enum input kind)
{
    struct conv_job *j = &c->job;
    *j = (struct conv_job){.channels = channels, .n = n};
    j->ld_h = channels + 16 * random_int(r, 0, 2), j->ld_u = channels + 16 * random_int(r, 0, 2);
    j->ld_out = channels + 16 * random_int(r, 0, 2);
    long n_h = 2L * j->ld_h + channels, n_u = (long)(n - 1) * j->ld_u + channels;
    float *before = guarded_floats(n_h), *u = guarded_floats(n_u), *weight = guarded_floats(4L * channels);
    j->history = guarded_floats(n_h);
    j->out = guarded_floats((long)(n - 1) * j->ld_out + channels);
    for (int i = 0; i < 3; i++) fill(r, before + (long)i * j->ld_h, channels, kind);
    for (int t = 0; t < n; t++) fill(r, u + (long)t * j->ld_u, channels, kind);
    fill(r, weight, 4L * channels, IN_PLAIN);
    memcpy(j->history, before, (size_t)n_h * 4);
    j->u = u, j->weight = weight, c->before = before;
}

static void check_conv(const struct cpu_kernels *k, struct random *r)
{
    static const int tokens[] = {1, 2, 3, 4, 5, 9, 64, 130};
    struct conv_case c = {.kernel = k->conv_silu};
    for (unsigned i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (int kind = 0; kind < INPUTS; kind++) {
            int channels = 16 * random_int(r, 1, 9), n = tokens[i];
            case_begin("conv_silu", "%d tokens, %d channels, %s input", n, channels, input_names[kind]);
            make_conv(&c, r, channels, n, (enum input)kind);
            if (kind == IN_PLAIN && i % 2) ((float *)(uintptr_t)c.job.u)[random_int(r, 0, channels - 1)] = i % 4 == 1 ? NAN : 4000.0f;
            guarded_call(call_conv, &c);
            for (int x = 0; x < channels && !case_failed(); x++) check_channel(&c, x);
            for (int t = 0; t + 1 < n; t++)
                if (!canary_intact(c.job.out + (long)t * c.job.ld_out + channels, (size_t)(c.job.ld_out - channels) * 4))
                    case_fail("wrote between the rows of out, behind row %d", t);
            case_end();
        }
}

const struct suite mix_suites[] = {{"gdn", check_gdn}, {"conv_silu", check_conv}, {NULL, NULL}};
