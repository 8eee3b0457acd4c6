/* Checks of the row kernels: norms, gates, scaled sum. */
#include <math.h>
#include <string.h>

#include "check.h"

/* A call of any of the row kernels; unused members stay NULL. */
struct row_call {
    const struct cpu_kernels *k;
    enum op { RMS, L2, GATED, SILU, SIGMOID, ADD, OPS } op;
    float *out;
    const float *x, *w, *z;
    int n;
    float a; /* eps, scale or factor */
};
static const char *const op_names[OPS] = {"rms_norm", "l2_norm", "gated_norm", "silu_mul", "sigmoid_mul", "add_scaled"};

static void call_row(void *arg)
{
    const struct row_call *c = arg;
    switch (c->op) {
    case RMS: c->k->rms_norm(c->out, c->x, c->w, c->n, c->a); break;
    case L2: c->k->l2_norm(c->out, c->x, c->a); break;
    case GATED: c->k->gated_norm(c->out, c->x, c->w, c->z, c->a); break;
    case SILU: c->k->silu_mul(c->out, c->x, c->w, c->n); break;
    case SIGMOID: c->k->sigmoid_mul(c->out, c->x, c->w, c->n); break;
    default: c->k->add_scaled(c->out, c->x, c->a, c->n); break;
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double mean_square(const float *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += (double)x[i] * x[i];
    return s / n;
}

/* The exact value of element i; *tolerance from the number of roundings; `before` is what out held (add_scaled). */
static double exact(const struct row_call *c, const float *x, const float *before, int i, double *tolerance)
{
    const double u = UNIT_ROUNDOFF, gate_error = 7 * u; /* exponential 2, sum, quotient, and their products */
    double want = 0;
    switch (c->op) {
    case RMS: want = x[i] / sqrt(mean_square(x, c->n) + c->a) * c->w[i]; *tolerance = 3 * u * fabs(want); break;
    case L2: want = x[i] * (double)c->a / sqrt(mean_square(x, GDN_DIM) * GDN_DIM + 1e-6); *tolerance = 2 * u * fabs(want); break;
    case GATED:
        want = x[i] / sqrt(mean_square(x, GDN_DIM) + c->a) * c->w[i] * c->z[i] * sigmoid(c->z[i]);
        *tolerance = (5 * u + gate_error) * fabs(want) + 0x1p-124 * fabs((double)c->z[i] * c->w[i]) * 12;
        break;
    case SILU:
        want = c->x[i] * sigmoid(c->x[i]) * c->w[i];
        *tolerance = (2 * u + gate_error) * fabs(want) + 0x1p-125 * fabs((double)c->x[i] * c->w[i]);
        break;
    case SIGMOID:
        want = x[i] * sigmoid(c->w[i]);
        *tolerance = (u + gate_error) * fabs(want) + 0x1p-125 * fabs((double)x[i]);
        break;
    default:
        want = before[i] + (double)c->a * x[i];
        *tolerance = 2 * u * (fabs((double)before[i]) + fabs((double)c->a * x[i]));
        break;
    }
    /* A product of two factors that each lie below the normal range loses more than one step. */
    *tolerance += 4 * TINIEST * (1 + (c->w ? fabs((double)c->w[i]) : 0) + (c->z ? fabs((double)c->z[i]) : 0));
    return want;
}

static bool may_alias(enum op op)
{
    return op == RMS || op == L2 || op == GATED || op == SIGMOID;
}

static void check_row(struct row_call *c, struct random *r, enum input kind, bool alias)
{
    float *x = guarded_floats(c->n), *w = guarded_floats(c->n), *z = guarded_floats(c->n);
    float *before = guarded_floats(c->n), *kept = guarded_floats(c->n);
    fill(r, x, c->n, kind);
    fill(r, w, c->n, c->op == SILU ? kind : IN_PLAIN);
    fill(r, z, c->n, IN_PLAIN);
    fill(r, before, c->n, kind);
    float width = random_u64(r) & 1 ? 4 : 110; /* both ends of the sigmoid, beyond the normal range */
    float *gate = c->op == SILU ? x : c->op == SIGMOID ? w : z;
    if (kind == IN_PLAIN)
        for (int i = 0; i < c->n; i++) gate[i] *= width;
    memcpy(kept, x, (size_t)c->n * 4);
    c->x = x;
    c->w = c->op == L2 || c->op == ADD ? NULL : w;
    c->z = c->op == GATED ? z : NULL;
    c->out = alias ? x : guarded_floats(c->n);
    if (c->op == ADD) memcpy(c->out, before, (size_t)c->n * 4);
    c->a = c->op == RMS || c->op == GATED ? 1e-6f : 0.3f;
    guarded_call(call_row, c);
    for (int i = 0; i < c->n && !case_failed(); i++) {
        double tolerance, want = exact(c, kept, before, i, &tolerance);
        expect_close("out", i, c->out[i], want, tolerance);
    }
}

static void check_nan_row(struct row_call *c, struct random *r)
{
    float *x = guarded_floats(c->n), *w = guarded_floats(c->n);
    fill(r, x, c->n, IN_PLAIN);
    fill(r, w, c->n, IN_PLAIN);
    int bad = random_int(r, 0, c->n - 1);
    x[bad] = NAN;
    c->x = x, c->w = w, c->z = w, c->out = guarded_floats(c->n), c->a = 1e-6f;
    fill(r, c->out, c->n, IN_PLAIN);
    guarded_call(call_row, c);
    bool whole_row = c->op == RMS || c->op == L2 || c->op == GATED;
    for (int i = 0; i < c->n; i++)
        if (isnan(c->out[i]) != (whole_row || i == bad)) case_fail("out[%d] is %g, NaN was at %d", i, (double)c->out[i], bad);
}

/* Gates at the ends of the range, where a careless exponential gives NaN. */
static void check_ends(struct row_call *c)
{
    static const float ends[16] = {0, -0.0f, 1e-40f, -1e-40f, 88, -88, 89, -89, 104, -104, 1e4f, -1e4f, 3e38f, -3e38f, 1, -1};
    float *gate = guarded_floats(16), *other = guarded_floats(16);
    c->n = 16, c->out = guarded_floats(16);
    for (int i = 0; i < 16; i++) gate[i] = ends[i], other[i] = c->op == SILU ? 0x1p-10f : 1;
    c->x = c->op == SILU ? gate : other;
    c->w = c->op == SILU ? other : gate;
    c->z = NULL;
    guarded_call(call_row, c);
    for (int i = 0; i < 16 && !case_failed(); i++) {
        double tolerance, want = exact(c, c->x, NULL, i, &tolerance);
        expect_close("out", i, c->out[i], want, tolerance);
    }
}

static void check_op(const struct cpu_kernels *k, struct random *r, enum op op)
{
    struct row_call c = {.k = k, .op = op};
    bool head = op == L2 || op == GATED;
    static const int sizes[] = {16, 32, 48, 112, 128, 512, 2048};
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int kind = 0; kind < INPUTS; kind++)
            for (int alias = 0; alias <= may_alias(op); alias++) {
                c.n = head ? GDN_DIM : sizes[s];
                case_begin(op_names[op], "n %d, %s input%s", c.n, input_names[kind], alias ? ", in place" : "");
                check_row(&c, r, (enum input)kind, alias);
                case_end();
            }
    for (int i = 0; i < 4; i++) {
        c.n = head ? GDN_DIM : 64;
        case_begin(op_names[op], "one NaN");
        check_nan_row(&c, r);
        case_end();
    }
    if (op != SILU && op != SIGMOID) return;
    case_begin(op_names[op], "ends of the range");
    check_ends(&c);
    case_end();
}

#define OP_CHECK(name, op)                                                                                             \
    static void name(const struct cpu_kernels *k, struct random *r)                                                    \
    {                                                                                                                  \
        check_op(k, r, op);                                                                                            \
    }
OP_CHECK(check_rms, RMS)
OP_CHECK(check_l2, L2)
OP_CHECK(check_gated, GATED)
OP_CHECK(check_silu, SILU)
OP_CHECK(check_sigmoid, SIGMOID)
OP_CHECK(check_add, ADD)

struct top_call {
    void (*kernel)(int32_t *, const float *, int);
    int32_t *top;
    const float *x;
    int n;
};

static void call_top(void *arg)
{
    const struct top_call *c = arg;
    c->kernel(c->top, c->x, c->n);
}

/* Whether place a comes before place b: NaN last, else the higher, on a tie the lower place. */
static bool comes_before(const float *x, int a, int b)
{
    if (isnan(x[a]) || isnan(x[b])) return isnan(x[a]) == isnan(x[b]) ? a < b : !isnan(x[a]);
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* A place's rank is how many come before it. */
static void check_top_of(const struct cpu_kernels *k, const float *x, int n)
{
    struct top_call c = {k->top_experts, guarded(8 * sizeof(int32_t)), x, n};
    guarded_call(call_top, &c);
    for (int a = 0; a < n && !case_failed(); a++) {
        int rank = 0;
        for (int b = 0; b < n; b++) rank += comes_before(x, b, a);
        if (rank < 8 && c.top[rank] != a) case_fail("place %d is number %d of %d, found %d there", a, rank, n, c.top[rank]);
    }
}

enum top_kind { TOP_PLAIN, TOP_TIES, TOP_NANS, TOP_INFINITE, TOP_RISING, TOP_ALL_NAN, TOP_KINDS };

static float top_value(struct random *r, enum top_kind kind, int i)
{
    static const float few[] = {0.0f, -0.0f, 1, -1, 2};
    float v = random_float(r);
    switch (kind) {
    case TOP_TIES: return few[random_int(r, 0, 4)];
    case TOP_NANS: return random_u64(r) % 3 ? NAN : v;
    case TOP_INFINITE: return random_u64(r) % 40 ? -INFINITY : random_u64(r) % 2 ? INFINITY : v;
    case TOP_RISING: return (float)i;
    case TOP_ALL_NAN: return NAN;
    default: return v;
    }
}

static void check_top(const struct cpu_kernels *k, struct random *r)
{
    static const int sizes[] = {8, 9, 15, 16, 17, 60, 64, 128, 255, 256, 512, 1024};
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int kind = 0; kind < TOP_KINDS; kind++) {
            case_begin("top_experts", "of %d, kind %d", sizes[s], kind);
            float *x = guarded_floats(sizes[s]);
            for (int i = 0; i < sizes[s]; i++) x[i] = top_value(r, (enum top_kind)kind, i);
            check_top_of(k, x, sizes[s]);
            case_end();
        }
}

const struct suite elem_suites[] = {{"rms_norm", check_rms},     {"l2_norm", check_l2},         {"gated_norm", check_gated},
                                    {"silu_mul", check_silu},    {"sigmoid_mul", check_sigmoid}, {"add_scaled", check_add},
                                    {"top_experts", check_top},
                                    {NULL, NULL}};
