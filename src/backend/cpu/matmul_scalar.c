/* Matrix kernels, scalar tier: the reference of all others. Each output is a plain sum in the order of k. */
#include <string.h>

#include "backend/cpu/scalar.h"
#include "base/num.h"

static const float *act_row(const struct block_job *j, int i, const float **sums)
{
    long row = j->rows ? j->rows[i] : i;
    *sums = j->act->sums + row * (j->act->ld / QUANT_GROUP);
    return j->act->x + row * j->act->ld;
}

/* The codes of a tile as floats, (64, 16): unpacked once for all rows of activations. */
typedef void (*unpack_fn)(const uint8_t *tile, float codes[QUANT_GROUP][BLOCK_ROWS]);

static void unpack_q4(const uint8_t *tile, float codes[QUANT_GROUP][BLOCK_ROWS])
{
    for (int k = 0; k < QUANT_GROUP; k++) {
        const uint8_t *byte = tile + k / 8 * 64 + k % 4;
        int shift = k % 8 < 4 ? 0 : 4;
        for (int r = 0; r < BLOCK_ROWS; r++) codes[k][r] = (float)(byte[4 * r] >> shift & 15);
    }
}

static void unpack_q8(const uint8_t *tile, float codes[QUANT_GROUP][BLOCK_ROWS])
{
    for (int k = 0; k < QUANT_GROUP; k++) {
        const uint8_t *byte = tile + k / 4 * 64 + k % 4;
        for (int r = 0; r < BLOCK_ROWS; r++) codes[k][r] = (float)byte[4 * r];
    }
}

/* y += scale * (codes . x) + bias * sum for one tile and one row of activations. */
static void add_tile(float codes[QUANT_GROUP][BLOCK_ROWS], const uint8_t *scales, const float *x, float sum, float *y)
{
    float dot[BLOCK_ROWS] = {0};
    for (int k = 0; k < QUANT_GROUP; k++)
        for (int r = 0; r < BLOCK_ROWS; r++) dot[r] += codes[k][r] * x[k];
    for (int r = 0; r < BLOCK_ROWS; r++)
        y[r] += bf16_to_f32(load_u16(scales + 2 * r)) * dot[r] + bf16_to_f32(load_u16(scales + 32 + 2 * r)) * sum;
}

static void matmul_quantized(const struct block_job *j, unpack_fn unpack, size_t tile_bytes)
{
    float codes[QUANT_GROUP][BLOCK_ROWS];
    for (int i = 0; i < j->n; i++) memset(j->y + (long)i * j->ldy, 0, sizeof(float) * BLOCK_ROWS);
    for (int t = 0; t < j->col_tiles; t++) {
        const uint8_t *tile = j->block + (size_t)t * tile_bytes;
        unpack(tile, codes);
        for (int i = 0; i < j->n; i++) {
            const float *sums, *x = act_row(j, i, &sums);
            add_tile(codes, tile + tile_bytes - 64, x + t * QUANT_GROUP, sums[t], j->y + (long)i * j->ldy);
        }
    }
}

static void matmul_q4(const struct block_job *j)
{
    matmul_quantized(j, unpack_q4, Q4_TILE_BYTES);
}

static void matmul_q8(const struct block_job *j)
{
    matmul_quantized(j, unpack_q8, Q8_TILE_BYTES);
}

static void matmul_f32(const struct block_job *j)
{
    const float *w = (const float *)(const void *)j->block; /* blocks are 64-byte aligned */
    for (int i = 0; i < j->n; i++) {
        const float *sums, *x = act_row(j, i, &sums);
        float y[BLOCK_ROWS] = {0};
        for (int k = 0; k < j->col_tiles * QUANT_GROUP; k++)
            for (int r = 0; r < BLOCK_ROWS; r++) y[r] += w[(long)k * BLOCK_ROWS + r] * x[k];
        memcpy(j->y + (long)i * j->ldy, y, sizeof y);
    }
}

static void group_sums(float *sums, const float *x, int n_groups)
{
    for (int g = 0; g < n_groups; g++) {
        float s = 0;
        for (int k = 0; k < QUANT_GROUP; k++) s += x[g * QUANT_GROUP + k];
        sums[g] = s;
    }
}

void cpu_kernels_scalar_matmul(struct cpu_kernels *k)
{
    k->matmul_q4 = matmul_q4;
    k->matmul_q8 = matmul_q8;
    k->matmul_f32 = matmul_f32;
    k->group_sums = group_sums;
}
