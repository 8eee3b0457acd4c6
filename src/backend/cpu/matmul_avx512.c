/*
 * Matrix kernels, AVX-512 tier. Lane = row: one register holds the 16 rows of a block.
 *
 * A 4-bit code becomes a float by a 16-entry table in a register (its index uses the low four bits, so a shift is all
 * the unpacking); an 8-bit code by shift, AND and conversion. The dot product of a group is kept as four sums, one for
 * each k mod 4, every one a chain over its 16 values in the order of k, added at the end of the group. Every path below
 * does these same operations in this order, so a row's bits do not depend on how many rows are computed together.
 */
#include <string.h>

#include "backend/cpu/rows.h"
#include "backend/cpu/vec_avx512.h"

enum { PANEL = 8, PANELS = 8 };

ALWAYS_INLINE __m512i load_words(const uint8_t *line)
{
    return _mm512_load_si512((const void *)line);
}

/* The weights of k = 4q+b as floats. `words` is the line that holds quad q; of Q4, an odd quad is in the high nibbles. */
ALWAYS_INLINE __m512 weights(__m512i words, int odd, int b, enum form f)
{
    if (f == Q4) {
        const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        return _mm512_permutexvar_ps(_mm512_srli_epi32(words, (unsigned)(8 * b + 4 * odd)), table);
    }
    __m512i code = _mm512_and_si512(_mm512_srli_epi32(words, (unsigned)(8 * b)), _mm512_set1_epi32(255));
    return _mm512_cvtepi32_ps(code);
}

ALWAYS_INLINE __m512 load_line(const float *lines, int k)
{
    return _mm512_load_ps(lines + k * BLOCK_ROWS);
}

/* y += scale * dot + bias * sum */
ALWAYS_INLINE __m512 add_group(__m512 y, __m512 dot, const uint8_t *tile, float sum, enum form f)
{
    if (f == F32) return _mm512_add_ps(y, dot);
    const uint8_t *scales = tile + tile_bytes(f) - LINE;
    y = _mm512_fmadd_ps(load16_bf16(scales), dot, y);
    return _mm512_fmadd_ps(load16_bf16(scales + 32), _mm512_set1_ps(sum), y);
}

/* dot[i]: row i with one group, unpacking in registers; count <= 4. */
ALWAYS_INLINE void group_dots(__m512 dot[4], const struct group *g, const struct rows *r, int count, enum form f)
{
    __m512 acc[4][4];
    UNROLL4(i, count, UNROLL4(b, 4, acc[i][b] = _mm512_setzero_ps();))
    for (int q = 0; q < QUADS; q += 2)
        UNROLL2(odd, 2, {
            const int at = 4 * (q + odd);
            __m512i words = f == F32 ? _mm512_setzero_si512() : load_words(g->tile + (f == Q4 ? q / 2 : q + odd) * LINE);
            UNROLL4(b, 4, {
                __m512 w = f == F32 ? load_line((const float *)(const void *)g->tile, at + b) : weights(words, odd, b, f);
                UNROLL4(i, count, {
                    acc[i][b] = _mm512_fmadd_ps(w, _mm512_set1_ps(r->x[i][g->t * QUANT_GROUP + at + b]), acc[i][b]);
                })
            })
        })
    UNROLL4(i, count, {
        dot[i] = acc[i][0];
        UNROLL4(b, 4, if (b > 0) dot[i] = _mm512_add_ps(dot[i], acc[i][b]);)
    })
}

/* One to four rows: no buffer; the unpacking hides beside the multiply-adds. */
ALWAYS_INLINE void few_rows(const struct block_job *j, int from, int count, enum form f)
{
    struct rows r;
    take_rows(&r, j, from, count);
    __m512 total[4];
    UNROLL4(i, count, total[i] = _mm512_setzero_ps();)
    struct group g = {.tile = j->block};
    for (; g.t < j->col_tiles; g.t++, g.tile += tile_bytes(f)) {
        __m512 dot[4];
        group_dots(dot, &g, &r, count, f);
        UNROLL4(i, count, total[i] = add_group(total[i], dot[i], g.tile, r.sums[i][g.t], f);)
    }
    UNROLL4(i, count, _mm512_storeu_ps(r.y[i], total[i]);)
}

ALWAYS_INLINE const float *unpack(float *buffer, const uint8_t *tile, enum form f)
{
    if (f == F32) return (const float *)(const void *)tile;
    for (int q = 0; q < QUADS; q += 2)
        UNROLL2(odd, 2, {
            __m512i words = load_words(tile + (f == Q4 ? q / 2 : q + odd) * LINE);
            float *lines = buffer + 4 * (q + odd) * BLOCK_ROWS;
            UNROLL4(b, 4, _mm512_store_ps(lines + b * BLOCK_ROWS, weights(words, odd, b, f));)
        })
    return buffer;
}

/* y (count, 16) += one group of `count` rows with an unpacked tile. */
ALWAYS_INLINE void panel(float *y, const struct group *g, const struct rows *r, int count, enum form f)
{
    __m512 dot[8];
    UNROLL8(i, count, dot[i] = _mm512_setzero_ps();)
    for (int b = 0; b < 4; b++) {
        __m512 acc[8];
        UNROLL8(i, count, acc[i] = _mm512_setzero_ps();)
        for (int k = b; k < QUANT_GROUP; k += 4) {
            __m512 w = load_line(g->w, k);
            UNROLL8(i, count, acc[i] = _mm512_fmadd_ps(w, _mm512_set1_ps(r->x[i][g->t * QUANT_GROUP + k]), acc[i]);)
        }
        UNROLL8(i, count, dot[i] = _mm512_add_ps(dot[i], acc[i]);)
    }
    UNROLL8(i, count, {
        float *out = y + i * BLOCK_ROWS;
        _mm512_store_ps(out, add_group(_mm512_load_ps(out), dot[i], g->tile, r->sums[i][g->t], f));
    })
}

ALWAYS_INLINE void any_panel(float *y, const struct group *g, const struct rows *r, int count, enum form f)
{
    switch (count) {
    case 4: panel(y, g, r, 4, f); break;
    case 5: panel(y, g, r, 5, f); break;
    case 6: panel(y, g, r, 6, f); break;
    case 7: panel(y, g, r, 7, f); break;
    default: panel(y, g, r, 8, f); break;
    }
}

/* Calls, lest a compiler keep the unpacked tile's values across panels in memory of its own. */
static NOINLINE void panel_q4(float *y, const struct group *g, const struct rows *r, int count)
{
    any_panel(y, g, r, count, Q4);
}

static NOINLINE void panel_q8(float *y, const struct group *g, const struct rows *r, int count)
{
    any_panel(y, g, r, count, Q8);
}

static NOINLINE void panel_f32(float *y, const struct group *g, const struct rows *r, int count)
{
    any_panel(y, g, r, count, F32);
}

/* 5 to PANEL*PANELS rows: every tile is unpacked once, the sums stay in the first-level cache. */
ALWAYS_INLINE void many_rows(const struct block_job *j, int from, int count, enum form f)
{
    float y[PANEL * PANELS][BLOCK_ROWS] __attribute__((aligned(64)));
    float buffer[F32_TILE_BYTES / 4] __attribute__((aligned(64)));
    struct rows rows[PANELS];
    int n_panels = (count + PANEL - 1) / PANEL, start[PANELS + 1];
    for (int p = 0; p <= n_panels; p++) start[p] = count * p / n_panels;
    for (int p = 0; p < n_panels; p++) take_rows(&rows[p], j, from + start[p], start[p + 1] - start[p]);
    memset(y, 0, (size_t)count * sizeof *y);
    struct group g = {.tile = j->block};
    for (; g.t < j->col_tiles; g.t++, g.tile += tile_bytes(f)) {
        g.w = unpack(buffer, g.tile, f);
        for (int p = 0; p < n_panels; p++) {
            int size = start[p + 1] - start[p];
            if (f == Q4)
                panel_q4(y[start[p]], &g, &rows[p], size);
            else if (f == Q8)
                panel_q8(y[start[p]], &g, &rows[p], size);
            else
                panel_f32(y[start[p]], &g, &rows[p], size);
        }
    }
    for (int i = 0; i < count; i++) memcpy(j->y + (long)(from + i) * j->ldy, y[i], sizeof y[i]);
}

ALWAYS_INLINE void matmul(const struct block_job *j, enum form f)
{
    for (int from = 0, count; from < j->n; from += count) {
        count = j->n - from < PANEL * PANELS ? j->n - from : PANEL * PANELS;
        switch (count) {
        case 1: few_rows(j, from, 1, f); break;
        case 2: few_rows(j, from, 2, f); break;
        case 3: few_rows(j, from, 3, f); break;
        case 4: few_rows(j, from, 4, f); break;
        default: many_rows(j, from, count, f); break;
        }
    }
}

static void matmul_q4(const struct block_job *j)
{
    matmul(j, Q4);
}

static void matmul_q8(const struct block_job *j)
{
    matmul(j, Q8);
}

static void matmul_f32(const struct block_job *j)
{
    matmul(j, F32);
}

void cpu_kernels_avx512_matmul(struct cpu_kernels *k)
{
    k->matmul_q4 = matmul_q4;
    k->matmul_q8 = matmul_q8;
    k->matmul_f32 = matmul_f32;
}
