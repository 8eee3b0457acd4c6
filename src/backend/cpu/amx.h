/* Inside the AMX tier: its parts, and what its tile kernels share. For *_amx.c alone. */
#ifndef LILY_BACKEND_CPU_AMX_H
#define LILY_BACKEND_CPU_AMX_H

#include "backend/cpu/vec_avx512.h"

/* The parts of the tier, for cpu_kernels_amx alone. */
void cpu_q4_digits_amx(const struct digit_job *job);
void cpu_q8_digits_amx(const struct digit_job *job);
void cpu_q4_bf16_amx(const struct bf16_job *job);
void cpu_round_bf16_amx(const struct bf16_run *out, int row, int group, const float *x, int n_groups);
void cpu_place_bf16_amx(const struct bf16_run *out, int row, const uint16_t *x);
void cpu_gdn_chunk_amx(const struct gdn_chunk *job);
void cpu_attention_amx(const struct attn_job *job);

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

/* A tile for the first-level cache. The compiler keeps the requests' place between tile instructions. */
ALWAYS_INLINE void ask_for_tile(const void *tile)
{
    const char *line = tile;
    MEMORY_BARRIER();
    for (int i = 0; i < TILE_ROWS; i++) __builtin_prefetch(line + i * TILE_LINE, 0, 3);
    MEMORY_BARRIER();
}

/* The nearest bf16 in the upper half of a lane; the lower one is left over. Ties go away from zero; no NaN of full length. */
ALWAYS_INLINE __m512i round_bf16(__m512 x)
{
    return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

ALWAYS_INLINE __m512 upper_half(__m512i x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)));
}

/* Upper halves of a below those of b. */
ALWAYS_INLINE __m512i pair_upper(__m512i a, __m512i b)
{
    const __m512i upper = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
    return _mm512_mask_shuffle_epi8(b, 0x3333333333333333, a, upper);
}

/* Of 16 x 16 lanes rows become columns. */
ALWAYS_INLINE void transpose(__m512i r[16])
{
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            r[i + 2 * k] = _mm512_unpacklo_epi64(t[i + k], t[i + k + 2]);
            r[i + 2 * k + 1] = _mm512_unpackhi_epi64(t[i + k], t[i + k + 2]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (int k = 0; k < 16; k += 8) {
            t[i + k] = _mm512_shuffle_i32x4(r[i + k], r[i + k + 4], 0x88);
            t[i + k + 4] = _mm512_shuffle_i32x4(r[i + k], r[i + k + 4], 0xdd);
        }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

#endif
#endif
