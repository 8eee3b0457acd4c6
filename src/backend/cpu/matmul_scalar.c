/* Matrix kernels, scalar tier: the reference of all others. Each output is a plain sum in the order of k. */
#include "backend/cpu/scalar.h"
#include "base/num.h"

static const float *act_row(const struct block_job *j, int i, const float **sums)
{
    long row = j->rows ? j->rows[i] : i;
    *sums = j->act->sums + row * (j->act->ld / QUANT_GROUP);
    return j->act->x + row * j->act->ld;
}

static inline int q4_code(const uint8_t *tile, int r, int k)
{
    uint8_t byte = tile[k / 8 * 64 + 4 * r + k % 4];
    return k % 8 < 4 ? byte & 15 : byte >> 4;
}

static inline int q8_code(const uint8_t *tile, int r, int k)
{
    return tile[k / 4 * 64 + 4 * r + k % 4];
}

typedef int (*code_fn)(const uint8_t *tile, int r, int k);

static inline void matmul_quantized(const struct block_job *j, code_fn code, size_t tile_bytes)
{
    for (int i = 0; i < j->n; i++) {
        const float *sums, *x = act_row(j, i, &sums);
        for (int r = 0; r < BLOCK_ROWS; r++) {
            float y = 0;
            for (int t = 0; t < j->col_tiles; t++) {
                const uint8_t *tile = j->block + (size_t)t * tile_bytes, *scales = tile + tile_bytes - 64;
                float dot = 0;
                for (int k = 0; k < QUANT_GROUP; k++) dot += (float)code(tile, r, k) * x[t * QUANT_GROUP + k];
                y += bf16_to_f32(load_u16(scales + 2 * r)) * dot + bf16_to_f32(load_u16(scales + 32 + 2 * r)) * sums[t];
            }
            j->y[(long)i * j->ldy + r] = y;
        }
    }
}

static void matmul_q4(const struct block_job *j)
{
    matmul_quantized(j, q4_code, Q4_TILE_BYTES);
}

static void matmul_q8(const struct block_job *j)
{
    matmul_quantized(j, q8_code, Q8_TILE_BYTES);
}

static void matmul_f32(const struct block_job *j)
{
    const float *w = (const float *)(const void *)j->block; /* blocks are 64-byte aligned */
    for (int i = 0; i < j->n; i++) {
        const float *sums, *x = act_row(j, i, &sums);
        for (int r = 0; r < BLOCK_ROWS; r++) {
            float y = 0;
            for (int k = 0; k < j->col_tiles * QUANT_GROUP; k++) y += w[(long)k * BLOCK_ROWS + r] * x[k];
            j->y[(long)i * j->ldy + r] = y;
        }
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
