/*
 * The CPU kernels: one table of typed function pointers. The scalar tier fills it, each higher tier overwrites what it
 * does better. A call covers a row block, a head or a row, never an element.
 *
 * Packed matrices (cpu/matrix.h): a row block is 16 rows; along K it is a run of tiles of 16 x 64 weights.
 *   Q4 tile, 576 bytes: 8 lines of 64 bytes, then 16 bf16 scales, then 16 bf16 biases. Line i holds k = 8i … 8i+7: the
 *     32-bit word of row r at byte 4r; its byte b has k = 8i+b in the low nibble and k = 8i+4+b in the high nibble.
 *   Q8 tile, 1088 bytes: 16 lines of 64 bytes, scales, biases. Line i holds k = 4i … 4i+3; byte 4r+b is k = 4i+b of row r.
 *   F32 tile, 4096 bytes: 64 lines of 16 floats; line k has the weight of row r at float r. No scales.
 * A weight is w = q*scale + bias, so y = sum over groups of scale * sum(q*x) + bias * sum(x).
 *
 * Numerics: activations exact in fp32; a result's bits depend only on its own weights and its own activation row, never on
 * n, on other rows, or on which thread runs the call. Pointers: blocks are aligned to 64 bytes, fp32 rows to 64 bytes when
 * their leading dimension is a multiple of 16. Inputs and outputs do not overlap unless said. Any thread.
 */
#ifndef LILY_BACKEND_CPU_KERNELS_H
#define LILY_BACKEND_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "spec/family.h"

enum {
    BLOCK_ROWS = 16,
    Q4_TILE_BYTES = 576,
    Q8_TILE_BYTES = 1088,
    F32_TILE_BYTES = 4096
};

/*
 * Activation rows as integers, for Q4 matrices, and Q8 matrices where there are three digits: in each group of 64 values x is close to scale * v, where v is `count` signed
 * digits of base 256. One digit is off by at most 1/254 of the group's largest value, two by 1/65000, three by 2^-23, which
 * is what fp32 itself rounds away. Products with codes are then sums of whole numbers: exact, in any order, the same
 * bits on every tier.
 */
struct digits {
    int8_t *d;     /* (n) rows of digits_row_bytes, each (ld/64, count, 64): the most significant digit first */
    float *scales; /* (n, ld/64) */
    float *sums;   /* (n, ld/64): of scale * v */
    int ld, count; /* ld: multiple of 128; count: 1 … DIGITS_MAX */
};
enum { DIGITS_MAX = 3 };

/*
 * Activation rows as bf16, for products on tiles. The n rows of a run (a batch, or the rows of one expert) are cut into panels
 * of at most PANEL_ROWS rows, as equal as can be. A panel of m rows lies in strips of 32 columns, (ld/32, m, 32), so that a
 * tile of 16 rows is one stretch of memory. x points to the run's first row: rows before it take ld values each.
 */
struct bf16_run {
    uint16_t *x;
    int ld; /* multiple of 128 */
    int n;  /* 0: not made */
};
enum { PANEL_ROWS = 32, STRIP_COLS = 32 };

static inline int panel_count(int n)
{
    return (n + PANEL_ROWS - 1) / PANEL_ROWS;
}

/* The first row of panel i of n rows; of the last panel + 1: n. */
static inline int panel_row(int n, int i)
{
    return (int)((long)n * i / panel_count(n));
}

/* The panel in which a row lies. */
static inline int panel_of(int n, int row)
{
    return (int)(((row + 1L) * panel_count(n) - 1) / n);
}

/* Activation rows as the matrix kernels read them. */
struct act {
    float *x;    /* (n, ld) fp32, zero from the logical width to ld */
    float *sums; /* (n, ld/64): the sum of each group of 64 */
    int ld;      /* multiple of 128 */
    struct digits digits; /* the same rows as integers; count 0: not made */
    struct bf16_run bf16; /* the same rows as bf16 */
};

/* One row block times n activation rows. */
struct block_job {
    const uint8_t *block; /* col_tiles tiles */
    int col_tiles;        /* at most act->ld / 64 */
    const struct act *act;
    const int32_t *rows;  /* (n) rows of act to use; NULL: 0 … n-1 */
    int n;
    float *y;             /* y[i*ldy + r], r < 16: all 16 are written */
    int ldy;
};

/* The groups of one row from a certain one on; pointers as in struct digits. */
struct digit_row {
    int8_t *d;
    float *scales, *sums;
    int count;
};

/* An odd number of lines, so that rows of a power of two do not fall on the same places of a cache. */
static inline long digits_row_bytes(int ld, int count)
{
    return (long)ld * count + QUANT_GROUP;
}

static inline struct digit_row digit_row(const struct digits *a, long row, int group)
{
    long at = row * (a->ld / QUANT_GROUP) + group;
    int8_t *d = a->d + row * digits_row_bytes(a->ld, a->count) + (long)group * a->count * QUANT_GROUP;
    return (struct digit_row){d, a->scales + at, a->sums + at, a->count};
}

/* As block_job, for n_blocks row blocks behind each other: block b's outputs are y[i*ldy + 16*b + r]. */
struct digit_job {
    const uint8_t *block;
    int n_blocks, col_tiles;
    const struct digits *act;
    const int32_t *rows;
    int n;
    float *y;
    int ldy;
    const uint8_t *next; /* row blocks that will be read after these, as a hint; NULL: those that lie behind */
    int next_blocks;     /* their number */
};

/* Where the caller will add outputs: row i's at x + rows[i]*ld, rows NULL: in order. Asked for meanwhile; x NULL: nothing. */
struct later_sums {
    float *x;
    const int32_t *rows;
    int ld;
};

/* The panels first … last-1 of a run times n_blocks row blocks; y is the place of the first of these rows. */
struct bf16_job {
    const uint8_t *block;
    int n_blocks, col_tiles;
    const struct bf16_run *act;
    int first, last;
    float *y; /* as of digit_job */
    int ldy;
    struct later_sums sums; /* x: of the first row block; rows: of the first row */
    const uint8_t *next; /* as of digit_job */
};

/* The gated delta rule of one value head over n tokens, for the value columns v_lo … v_hi-1 (multiples of 16). */
struct gdn_job {
    float *state; /* (128 k, 128 v) fp32, updated */
    int v_lo, v_hi;
    const float *q, *k; /* row t at q + t*ldqk: normalised, q scaled by 1/sqrt(128) */
    const float *v;     /* row t at v + t*ldv */
    int ldqk, ldv;
    const float *g, *beta; /* decay and write strength of token t at [t*ldg] */
    int ldg;
    int n;
    float *o; /* row t at o + t*ldo, columns v_lo … v_hi-1 are written */
    int ldo;
};

/* The same over up to 64 tokens of one chunk of the grid, for all columns of a few value heads that share q and k. */
struct gdn_chunk {
    float *state;       /* (heads, 128 k, 128 v) fp32, updated */
    const float *q, *k; /* row t at q + t*ldqk */
    const float *v;     /* (heads, 128) of token t at v + t*ldv */
    int ldqk, ldv;
    const float *g, *beta; /* (heads) of token t at g + t*ldg */
    int ldg;
    int heads, n;
    float *o; /* (heads, 128) of token t at o + t*ldo */
    int ldo;
};

static inline struct gdn_job gdn_of_chunk(const struct gdn_chunk *c, int head)
{
    return (struct gdn_job){.state = c->state + (long)head * GDN_DIM * GDN_DIM,
                            .v_hi = GDN_DIM,
                            .q = c->q,
                            .k = c->k,
                            .v = c->v + head * GDN_DIM,
                            .ldqk = c->ldqk,
                            .ldv = c->ldv,
                            .g = c->g + head,
                            .beta = c->beta + head,
                            .ldg = c->ldg,
                            .n = c->n,
                            .o = c->o + head * GDN_DIM,
                            .ldo = c->ldo};
}

/*
 * Softmax attention of n_q query heads that share one KV head, for n_rows consecutive tokens: the first sees keys
 * 0 … n_keys-1, each later one a key more. Keys lie in pages of 64 tokens.
 */
struct attn_job {
    const float *q;            /* head h of row t at q + t*ldq_row + h*ldq: 256 values, normalised, rotated, scaled by 1/16 */
    int ldq, ldq_row;
    int n_q, n_rows;           /* n_q * n_rows <= ATTN_MAX_ROWS; attention_fast: ATTN_TILE_ROWS */
    const uint8_t *const *pages;
    size_t k_offset, v_offset; /* bytes from a page's start to its K and V of this layer and head: (64, 256) elements */
    bool bf16;                 /* element type of K and V: bf16, else fp32 */
    int n_keys;
    float *out;                /* head h of row t at out + t*ldo_row + h*ldo: 256 values */
    int ldo, ldo_row;
    void *work;                /* attention_fast: ATTN_WORK_BYTES of the caller's, 64-byte aligned */
};
enum { ATTN_MAX_ROWS = 64, ATTN_TILE_ROWS = 512, ATTN_WORK_BYTES = 1280 << 10 };

/* Causal depthwise convolution of width 4 and SiLU over one run of channels. */
struct conv_job {
    float *history;      /* (3, ld_h) rows before the first token, oldest first; replaced by the last three of the run */
    const float *u;      /* (n, ld_u) new rows */
    const float *weight; /* (channels, 4) */
    float *out;          /* (n, ld_out) */
    int ld_h, ld_u, ld_out;
    int channels, n;     /* channels: multiple of 16; pointers are already at the first channel */
};

struct cpu_kernels {
    enum cpu_tier tier;
    void (*matmul_q4)(const struct block_job *job);
    void (*matmul_q8)(const struct block_job *job);
    void (*matmul_f32)(const struct block_job *job);
    void (*matmul_q4_digits)(const struct digit_job *job);
    void (*matmul_q8_digits)(const struct digit_job *job); /* of three digits */
    /* Weights rounded to bf16, sums in fp32. NULL on tiers that have no tiles. */
    void (*matmul_q4_bf16)(const struct bf16_job *job);
    /* Rounds n_groups groups of a row of a run, from `group` on. NULL as above. */
    void (*round_bf16)(const struct bf16_run *out, int row, int group, const float *x, int n_groups);
    /* Copies what round_bf16 made of a whole row in a run of its own, (ld), to a row of another run. NULL as above. */
    void (*place_bf16)(const struct bf16_run *out, int row, const uint16_t *x);
    /* Splits n_groups groups of x. A group below 2^-100 becomes 0; one with NaN or infinity gets a NaN scale. */
    void (*split_digits)(const struct digit_row *out, const float *x, int n_groups);
    void (*gdn)(const struct gdn_job *job);
    void (*gdn_chunk)(const struct gdn_chunk *job); /* NULL: gdn does as well */
    void (*attention)(const struct attn_job *job);
    /* The same for one row of bf16 keys and values, with sums in another order: for decode. NULL: attention does as well. */
    void (*attention_row)(const struct attn_job *job);
    /* The same as attention with queries and weights rounded to bf16, for many rows of bf16 keys and values; NULL where nothing is faster. */
    void (*attention_fast)(const struct attn_job *job);
    void (*conv_silu)(const struct conv_job *job);
    /* out = x / sqrt(mean(x^2) + eps) * w; n multiple of 16; out may be x. */
    void (*rms_norm)(float *out, const float *x, const float *w, int n, float eps);
    /* out = x / sqrt(sum(x^2) + 1e-6) * scale over one head of 128 (MODEL.md, GDN 3); out may be x. */
    void (*l2_norm)(float *out, const float *x, float scale);
    /* out = rms(o) * w * silu(z) over one head of 128 (MODEL.md, GDN 6); out may be o. */
    void (*gated_norm)(float *out, const float *o, const float *w, const float *z, float eps);
    void (*silu_mul)(float *out, const float *gate, const float *up, int n);    /* silu(gate) * up; n multiple of 16 */
    void (*sigmoid_mul)(float *out, const float *x, const float *gate, int n);  /* x * sigmoid(gate); out may be x */
    void (*add_scaled)(float *y, const float *x, float a, int n);               /* y += a*x; n multiple of 16 */
    /* Where the 8 highest of n numbers lie, 8 <= n <= MAX_EXPERTS: best first, the lower place on a tie; NaN is below all others. */
    void (*top_experts)(int32_t *top, const float *x, int n);
    void (*group_sums)(float *sums, const float *x, int n_groups);              /* sums of 64 consecutive values */
};

/* The kernels of the highest tier up to `tier` that this processor runs. */
void cpu_kernels_init(struct cpu_kernels *k, enum cpu_tier tier);

/* Each tier's own function overwrites the pointers it improves; called in rising order by cpu_kernels_init. */
void cpu_kernels_scalar(struct cpu_kernels *k);
void cpu_kernels_avx2(struct cpu_kernels *k);
void cpu_kernels_avx512(struct cpu_kernels *k);
void cpu_kernels_amx(struct cpu_kernels *k);
void cpu_kernels_neon(struct cpu_kernels *k);

#endif
