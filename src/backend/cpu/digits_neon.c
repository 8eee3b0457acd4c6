/*
 * Digit kernels, NEON tier with dot products. Lane = row: four registers hold four codes of each of the 16 rows, and one
 * instruction adds the products with a quad of digits, picked from a register of four quads, to four rows' whole numbers.
 */
#include "backend/cpu/digits.h"
#include "backend/cpu/vec_neon.h"

enum { QUADS = QUANT_GROUP / 4, CHUNK = 64 };

/* A tile with a byte for each code: (16 quads, 16 rows, 4). */
struct codes {
    int8_t b[QUADS][64];
};

static void unpack(struct codes *c, const uint8_t *tile)
{
    for (int i = 0; i < QUADS / 2; i++)
        for (int v = 0; v < 64; v += 16) {
            uint8x16_t w = vld1q_u8(tile + 64 * i + v);
            vst1q_s8(c->b[2 * i] + v, vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(15))));
            vst1q_s8(c->b[2 * i + 1] + v, vreinterpretq_s8_u8(vshrq_n_u8(w, 4)));
        }
}

/* Tile t of a row block, unpacked. */
struct group {
    const struct codes *codes;
    const uint8_t *tile;
    int t;
};

/* The whole number of one row's digit sums, for four weight rows. */
ALWAYS_INLINE float32x4_t whole(const int32x4_t v[4][4], int part, int count)
{
    if (count == 1) return vcvtq_f32_s32(v[0][part]);
    float32x4_t low = vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(v[count - 2][part], 8), v[count - 1][part]));
    if (count == 2) return low;
    return vfmaq_f32(low, vcvtq_f32_s32(v[0][part]), vdupq_n_f32(65536));
}

/* y (rows, 16) += one group; rows * count <= 4. */
ALWAYS_INLINE void add_group(float *y, const struct group *g, const struct digit_rows *r, int rows, int count)
{
    const uint8_t *scales = g->tile + Q4_TILE_BYTES - 64;
    int32x4_t v[4][4][4];
    UNROLL4(i, rows, UNROLL4(d, count, UNROLL4(p, 4, v[i][d][p] = vdupq_n_s32(0);)))
    for (int q = 0; q < QUADS; q += 4) {
        int8x16_t x[4][4];
        UNROLL4(i, rows, UNROLL4(d, count, x[i][d] = vld1q_s8(r->d[i] + (g->t * count + d) * QUANT_GROUP + 4 * q);))
        UNROLL4(k, 4, UNROLL4(p, 4, {
            int8x16_t w = vld1q_s8(g->codes->b[q + k] + 16 * p);
            UNROLL4(i, rows, UNROLL4(d, count, v[i][d][p] = vdotq_laneq_s32(v[i][d][p], w, x[i][d], k);))
        }))
    }
    UNROLL4(i, rows, UNROLL4(p, 4, {
        float *out = y + i * BLOCK_ROWS + 4 * p;
        float32x4_t dot = vmulq_n_f32(whole(v[i], p, count), r->scales[i][g->t]);
        float32x4_t sum = vfmaq_f32(vld1q_f32(out), load4_bf16(scales + 8 * p), dot);
        vst1q_f32(out, vfmaq_n_f32(sum, load4_bf16(scales + 32 + 8 * p), r->sums[i][g->t]));
    }))
}

ALWAYS_INLINE void chunk(const struct digit_job *j, int from, int n, int count)
{
    const int at_once = count == 1 ? 4 : count == 2 ? 2 : 1;
    float y[CHUNK][BLOCK_ROWS] __attribute__((aligned(64)));
    struct digit_rows rows[CHUNK];
    memset(y, 0, (size_t)n * sizeof *y);
    for (int i = 0; i < n; i += at_once) take_digit_rows(&rows[i / at_once], j, from + i, n - i < at_once ? n - i : at_once);
    struct codes codes;
    struct group g = {.codes = &codes, .tile = j->block};
    for (; g.t < j->col_tiles; g.t++, g.tile += Q4_TILE_BYTES) {
        unpack(&codes, g.tile);
        int i = 0;
        for (; i + at_once <= n; i += at_once) add_group(y[i], &g, &rows[i / at_once], at_once, count);
        for (int k = 0; i + k < n; k++) {
            const struct digit_rows *r = &rows[i / at_once];
            struct digit_rows one = {{r->d[k]}, {r->scales[k]}, {r->sums[k]}};
            add_group(y[i + k], &g, &one, 1, count);
        }
    }
    for (int i = 0; i < n; i++) memcpy(j->y + (long)(from + i) * j->ldy, y[i], sizeof y[i]);
}

static void one_block(const struct digit_job *j)
{
    for (int from = 0; from < j->n; from += CHUNK) {
        int n = j->n - from < CHUNK ? j->n - from : CHUNK;
        switch (j->act->count) {
        case 1: chunk(j, from, n, 1); break;
        case 2: chunk(j, from, n, 2); break;
        default: chunk(j, from, n, 3); break;
        }
    }
}

static void matmul_q4_digits(const struct digit_job *j)
{
    each_block(j, one_block, Q4_TILE_BYTES);
}

void cpu_kernels_neon_digits(struct cpu_kernels *k)
{
    k->matmul_q4_digits = matmul_q4_digits;
}
