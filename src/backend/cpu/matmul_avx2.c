/*
 * Matrix kernels, AVX2 tier. Lane = row: a tile is two halves of 8 rows.
 *
 * Codes stay where they lie in their 32-bit word: byte b of a masked word is code * 2^(8b), which converts to float
 * exactly, so unpacking is one AND and one conversion. The dot product of a group is therefore kept as four sums, one per
 * byte b, each a chain over its 16 values in the order of k; they are folded with 2^-8b, then scaled. Every path below
 * does these same operations in this order, so a row's bits do not depend on how many rows are computed together.
 */
#include <string.h>

#include "backend/cpu/rows.h"
#include "backend/cpu/vec_avx2.h"

enum { PANEL = 6, PANELS = 8 };

/* The words of quad q + odd, q even: k = 4q … 4q+3, for the 8 rows of a half; Q4 codes in the low nibbles. */
ALWAYS_INLINE __m256i quad_words(const uint8_t *tile, int q, int odd, int half, enum form f)
{
    const uint8_t *p = tile + (f == Q4 ? q / 2 : q + odd) * LINE + half * 32;
    __m256i w = _mm256_load_si256((const __m256i *)(const void *)p);
    return f == Q4 && odd ? _mm256_srli_epi32(w, 4) : w;
}

/* Code times 2^(8b); the top byte of Q8 moves down, since bit 31 is a sign to the conversion. */
ALWAYS_INLINE __m256 quad_codes(__m256i w, int b, enum form f)
{
    if (f == Q8 && b == 3) return _mm256_cvtepi32_ps(_mm256_srli_epi32(w, 24));
    return _mm256_cvtepi32_ps(_mm256_and_si256(w, _mm256_set1_epi32((f == Q4 ? 15 : 255) << 8 * b)));
}

/* The weights of byte b of a quad as floats: codes, or for F32 the values of line b. */
ALWAYS_INLINE __m256 quad_weights(const uint8_t *lines, __m256i w, int b, int half, enum form f)
{
    if (f == F32) return _mm256_load_ps((const float *)(const void *)lines + b * BLOCK_ROWS + half * 8);
    return quad_codes(w, b, f);
}

ALWAYS_INLINE float fold_factor(int b, enum form f)
{
    if (f == F32 || b == 0 || (f == Q8 && b == 3)) return 1;
    return b == 1 ? 0x1p-8f : b == 2 ? 0x1p-16f : 0x1p-24f;
}

/* y += scale * dot + bias * sum */
ALWAYS_INLINE __m256 add_group(__m256 y, __m256 dot, const uint8_t *tile, int half, float sum, enum form f)
{
    if (f == F32) return _mm256_add_ps(y, dot);
    const uint8_t *scales = tile + tile_bytes(f) - LINE + half * 16;
    y = _mm256_fmadd_ps(load_bf16(scales), dot, y);
    return _mm256_fmadd_ps(load_bf16(scales + 32), _mm256_set1_ps(sum), y);
}

/*
 * One or two rows are bound by memory: the tiles that come next, whose row blocks lie behind each other, are asked for early
 * enough for a memory access and late enough to stay in the first-level cache.
 */
enum { AHEAD = 2304 };

ALWAYS_INLINE void prefetch_tile(const uint8_t *tile, enum form f)
{
    for (int i = 0; i < tile_bytes(f); i += LINE) __builtin_prefetch(tile + AHEAD + i);
}

/* One row is done with both halves of the tile at once, more rows with one half at a time: registers. */
ALWAYS_INLINE int halves_at_once(int count)
{
    return count == 1 ? 2 : 1;
}

/* dot[h*count + i]: row i with half first + h, unpacking in registers; count <= 3. */
ALWAYS_INLINE void group_dots(__m256 dot[8], const struct group *g, const struct rows *r, int first, int count, enum form f)
{
    if (first == 0) prefetch_tile(g->tile, f);
    const int halves = halves_at_once(count);
    __m256 acc[4][4];
    UNROLL4(i, halves * count, UNROLL4(b, 4, acc[i][b] = _mm256_setzero_ps();))
    for (int q = 0; q < QUADS; q += 2)
        UNROLL2(odd, 2, {
            const int at = 4 * (q + odd);
            __m256i words[2];
            UNROLL2(h, halves, words[h] = f == F32 ? _mm256_setzero_si256() : quad_words(g->tile, q, odd, first + h, f);)
            UNROLL4(b, 4, UNROLL2(h, halves, {
                __m256 w = quad_weights(g->tile + at * LINE, words[h], b, first + h, f);
                UNROLL4(i, count, {
                    __m256 x = _mm256_broadcast_ss(r->x[i] + g->t * QUANT_GROUP + at + b);
                    acc[h * count + i][b] = _mm256_fmadd_ps(w, x, acc[h * count + i][b]);
                })
            }))
        })
    UNROLL4(i, halves * count, {
        dot[i] = acc[i][0];
        UNROLL4(b, 4, if (b > 0) dot[i] = _mm256_fmadd_ps(acc[i][b], _mm256_set1_ps(fold_factor(b, f)), dot[i]);)
    })
}

/* One to three rows: no buffer; the unpacking hides beside the multiply-adds. */
ALWAYS_INLINE void few_rows(const struct block_job *j, int from, int count, enum form f)
{
    const int halves = halves_at_once(count);
    struct rows r;
    take_rows(&r, j, from, count);
    __m256 total[2][4];
    UNROLL4(i, count, total[0][i] = total[1][i] = _mm256_setzero_ps();)
    struct group g = {.tile = j->block};
    for (; g.t < j->col_tiles; g.t++, g.tile += tile_bytes(f))
        UNROLL2(pass, 2 / halves, {
            __m256 dot[8];
            const int first = pass * halves;
            group_dots(dot, &g, &r, first, count, f);
            UNROLL2(h, halves, UNROLL4(i, count, {
                __m256 *y = &total[first + h][i];
                *y = add_group(*y, dot[h * count + i], g.tile, first + h, r.sums[i][g.t], f);
            }))
        })
    UNROLL4(i, count, {
        _mm256_storeu_ps(r.y[i], total[0][i]);
        _mm256_storeu_ps(r.y[i] + 8, total[1][i]);
    })
}

ALWAYS_INLINE const float *unpack(float *buffer, const uint8_t *tile, enum form f)
{
    if (f == F32) return (const float *)(const void *)tile;
    for (int q = 0; q < QUADS; q += 2)
        UNROLL2(odd, 2, UNROLL2(h, 2, {
            __m256i words = quad_words(tile, q, odd, h, f);
            float *line = buffer + 4 * (q + odd) * BLOCK_ROWS + h * 8;
            UNROLL4(b, 4, _mm256_store_ps(line + b * BLOCK_ROWS, quad_codes(words, b, f));)
        }))
    return buffer;
}

/* y (count, 16) += one group of `count` rows with an unpacked tile. */
ALWAYS_INLINE void panel(float *y, const struct group *g, const struct rows *r, int count, enum form f)
{
    float dot[8][BLOCK_ROWS] __attribute__((aligned(32)));
    UNROLL8(i, count, UNROLL2(h, 2, _mm256_store_ps(dot[i] + 8 * h, _mm256_setzero_ps());))
    for (int b = 0; b < 4; b++) {
        __m256 acc[8][2], factor = _mm256_set1_ps(fold_factor(b, f));
        UNROLL8(i, count, acc[i][0] = acc[i][1] = _mm256_setzero_ps();)
        for (int k = b; k < QUANT_GROUP; k += 4) {
            const float *w = g->w + k * BLOCK_ROWS;
            __m256 w0 = _mm256_load_ps(w), w1 = _mm256_load_ps(w + 8);
            UNROLL8(i, count, {
                __m256 x = _mm256_broadcast_ss(r->x[i] + g->t * QUANT_GROUP + k);
                acc[i][0] = _mm256_fmadd_ps(w0, x, acc[i][0]);
                acc[i][1] = _mm256_fmadd_ps(w1, x, acc[i][1]);
            })
        }
        UNROLL8(i, count, UNROLL2(h, 2, {
            float *d = dot[i] + 8 * h;
            _mm256_store_ps(d, _mm256_fmadd_ps(acc[i][h], factor, _mm256_load_ps(d)));
        }))
    }
    for (int i = 0; i < count; i++)
        for (int h = 0; h < 2; h++) {
            float *out = y + i * BLOCK_ROWS + 8 * h;
            __m256 d = _mm256_load_ps(dot[i] + 8 * h);
            _mm256_store_ps(out, add_group(_mm256_load_ps(out), d, g->tile, h, r->sums[i][g->t], f));
        }
}

ALWAYS_INLINE void any_panel(float *y, const struct group *g, const struct rows *r, int count, enum form f)
{
    switch (count) {
    case 3: panel(y, g, r, 3, f); break;
    case 4: panel(y, g, r, 4, f); break;
    case 5: panel(y, g, r, 5, f); break;
    default: panel(y, g, r, 6, f); break;
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

/* 4 to PANEL*PANELS rows: every tile is unpacked once, the sums stay in the first-level cache. */
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

void cpu_kernels_avx2_matmul(struct cpu_kernels *k)
{
    k->matmul_q4 = matmul_q4;
    k->matmul_q8 = matmul_q8;
    k->matmul_f32 = matmul_f32;
}
