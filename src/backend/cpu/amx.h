/* Inside the AMX tier: its parts, and what its tile kernels share. For *_amx.c alone. */
#ifndef LILY_BACKEND_CPU_AMX_H
#define LILY_BACKEND_CPU_AMX_H

#include "backend/cpu/vec_avx512.h"

/* The parts of the tier, for cpu_kernels_amx alone. */
void cpu_q4_digits_amx(const struct digit_job *job);
void cpu_q8_digits_amx(const struct digit_job *job);
void cpu_q4_bf16_amx(const struct bf16_job *job);
void cpu_round_bf16_amx(const struct bf16_run *out, int row, int group, const float *x, int n_groups);
void cpu_gdn_chunk_amx(const struct gdn_chunk *job);

#ifdef __AVX512F__

enum { TILE_ROWS = 16, TILE_LINE = 64, TILES = 8 };

/* The first n_left tiles (sums and left factors) have `rows` rows, the others 16; each row has 64 bytes. */
ALWAYS_INLINE void tiles_configure(int n_left, int rows)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } c __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < TILES; i++) c.row_bytes[i] = TILE_LINE, c.rows[i] = (uint8_t)(i < n_left ? rows : TILE_ROWS);
    __asm__ volatile("" : : "r"(&c) : "memory"); /* gcc 12 thinks that only the first 8 bytes are read */
    _tile_loadconfig(&c);
}

/* gcc 12 does not know that tile loads read memory. */
#define MEMORY_BARRIER() __asm__ volatile("" : : : "memory")

#endif
#endif
