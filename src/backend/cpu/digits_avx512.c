/*
 * Digit kernels, AVX-512 VNNI tier. Lane = row: a register holds four codes of each of the 16 rows as bytes, a quad of digits
 * is broadcast to all lanes, and one instruction adds four products to each lane's whole number.
 */
#include "backend/cpu/digits.h"
#include "backend/cpu/vec_avx512.h"

enum { CHUNK = 64, AHEAD = 2304 };

/* Quad q of a tile: words hold two quads, the odd one in the high nibbles. */
ALWAYS_INLINE __m512i quad_codes(const uint8_t *tile, int q)
{
    __m512i w = _mm512_load_si512((const void *)(tile + q / 2 * 64));
    return _mm512_and_si512(q % 2 ? _mm512_srli_epi16(w, 4) : w, _mm512_set1_epi8(15));
}

ALWAYS_INLINE __m512i load_quad(const int8_t *d)
{
    int32_t x;
    memcpy(&x, d, sizeof x);
    return _mm512_set1_epi32(x);
}

/* The whole number of one row's digit sums. */
ALWAYS_INLINE __m512 whole(const __m512i v[DIGITS_MAX + 1], int count)
{
    if (count == 1) return _mm512_cvtepi32_ps(v[0]);
    __m512 low = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(v[count - 2], 8), v[count - 1]));
    if (count == 2) return low;
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(v[0]), _mm512_set1_ps(65536), low);
}

/* Tile t of a row block, and its codes as bytes (16 quads, 16 rows, 4); NULL: unpack in registers. */
struct group {
    const uint8_t *tile, *codes;
    int t;
};

/* y (rows, 16) += one group. */
ALWAYS_INLINE void add_group(float *y, const struct group *g, const struct digit_rows *r, int rows, int count)
{
    const uint8_t *scales = g->tile + Q4_TILE_BYTES - 64;
    const long at = (long)g->t * count * QUANT_GROUP;
    __m512i v[8][DIGITS_MAX + 1];
    UNROLL8(i, rows, UNROLL4(d, count, v[i][d] = _mm512_setzero_si512();))
#pragma GCC unroll 4
    for (int q = 0; q < QUANT_GROUP / 4; q++) {
        __m512i w = g->codes ? _mm512_load_si512((const void *)(g->codes + 64 * q)) : quad_codes(g->tile, q);
        UNROLL8(i, rows, UNROLL4(d, count, {
            v[i][d] = _mm512_dpbusd_epi32(v[i][d], w, load_quad(r->d[i] + at + d * QUANT_GROUP + 4 * q));
        }))
    }
    __m512 scale = load16_bf16(scales), bias = load16_bf16(scales + 32);
    UNROLL8(i, rows, {
        float *out = y + i * BLOCK_ROWS;
        __m512 dot = _mm512_mul_ps(whole(v[i], count), _mm512_set1_ps(r->scales[i][g->t]));
        __m512 sum = _mm512_fmadd_ps(scale, dot, _mm512_load_ps(out));
        _mm512_store_ps(out, _mm512_fmadd_ps(bias, _mm512_set1_ps(r->sums[i][g->t]), sum));
    })
}

/* One row, bound by memory: codes are unpacked in registers, coming tiles are asked for. */
ALWAYS_INLINE void one_row(const struct digit_job *j, int from, int count)
{
    float y[BLOCK_ROWS] __attribute__((aligned(64))) = {0};
    struct digit_rows row;
    take_digit_rows(&row, j, from, 1);
    struct group g = {.tile = j->block};
    for (; g.t < j->col_tiles; g.t++, g.tile += Q4_TILE_BYTES) {
        prefetch_tile(g.tile, AHEAD);
        add_group(y, &g, &row, 1, count);
    }
    memcpy(j->y + (long)from * j->ldy, y, sizeof y);
}

/* Up to CHUNK rows: every tile is unpacked once, the sums stay in the first-level cache. */
ALWAYS_INLINE void chunk(const struct digit_job *j, int from, int n, int count)
{
    const int at_once = count == 3 ? 4 : 8;
    float y[CHUNK][BLOCK_ROWS] __attribute__((aligned(64)));
    uint8_t codes[QUANT_GROUP / 4 * 64] __attribute__((aligned(64)));
    struct digit_rows rows[CHUNK / 4];
    memset(y, 0, (size_t)n * sizeof *y);
    for (int i = 0; i < n; i += at_once) take_digit_rows(&rows[i / at_once], j, from + i, n - i < at_once ? n - i : at_once);
    struct group g = {.codes = codes, .tile = j->block};
    for (; g.t < j->col_tiles; g.t++, g.tile += Q4_TILE_BYTES) {
        prefetch_tile(g.tile, AHEAD);
        for (int q = 0; q < QUANT_GROUP / 4; q++) _mm512_store_si512((void *)(codes + 64 * q), quad_codes(g.tile, q));
        int i = 0;
        for (; i + at_once <= n; i += at_once) add_group(y[i], &g, &rows[i / at_once], at_once, count);
        for (int k = 0; i + k < n;) {
            const struct digit_rows *r = &rows[i / at_once];
            int left = n - i - k < 2 ? 1 : 2;
            struct digit_rows few = {{r->d[k], r->d[k + left - 1]}, {r->scales[k], r->scales[k + left - 1]}, {r->sums[k], r->sums[k + left - 1]}};
            if (left == 2)
                add_group(y[i + k], &g, &few, 2, count);
            else
                add_group(y[i + k], &g, &few, 1, count);
            k += left;
        }
    }
    for (int i = 0; i < n; i++) memcpy(j->y + (long)(from + i) * j->ldy, y[i], sizeof y[i]);
}

ALWAYS_INLINE void matmul(const struct digit_job *j, int count)
{
    for (int from = 0, n; from < j->n; from += n) {
        n = j->n - from < CHUNK ? j->n - from : CHUNK;
        if (n == 1)
            one_row(j, from, count);
        else
            chunk(j, from, n, count);
    }
}

void cpu_digits_avx512(const struct digit_job *j)
{
    switch (j->act->count) {
    case 1: matmul(j, 1); break;
    case 2: matmul(j, 2); break;
    default: matmul(j, 3); break;
    }
}
