/*
 * Matrix kernels, NEON tier. Lane = row: a tile is two halves of 8 rows, a half is two vectors.
 *
 * Codes stay where they lie in their 32-bit word: byte b of a masked word is code * 2^(8b), and the conversion from fixed
 * point takes the factor away, so unpacking is one AND and one conversion. The dot product of a group is kept as four
 * sums, one for each k mod 4, every one a chain over its 16 values in the order of k, added at the end of the group. Every
 * path below does these same operations in this order, so a row's bits do not depend on how many are computed together.
 */
#include <string.h>

#include "backend/cpu/rows.h"
#include "backend/cpu/vec_neon.h"

enum { PANEL = 6, PANELS = 8, VECTORS = BLOCK_ROWS / LANES };

/* The words of quad q + odd, q even: k = 4q … 4q+3, for the rows of vector v; Q4 codes in the low nibbles. */
ALWAYS_INLINE uint32x4_t quad_words(const uint8_t *tile, int q, int odd, int v, enum form f)
{
    const uint8_t *p = tile + (f == Q4 ? q / 2 : q + odd) * LINE + v * 16;
    uint32x4_t w = vreinterpretq_u32_u8(vld1q_u8(p));
    return f == Q4 && odd ? vshrq_n_u32(w, 4) : w;
}

ALWAYS_INLINE float32x4_t quad_codes(uint32x4_t w, int b, enum form f)
{
    const uint32_t mask = f == Q4 ? 15 : 255;
    switch (b) {
    case 0: return vcvtq_f32_u32(vandq_u32(w, vdupq_n_u32(mask)));
    case 1: return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(mask << 8)), 8);
    case 2: return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(mask << 16)), 16);
    default: return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(mask << 24)), 24);
    }
}

ALWAYS_INLINE float32x4_t load_line(const float *lines, int k, int v)
{
    return vld1q_f32(lines + k * BLOCK_ROWS + v * LANES);
}

/* y += scale * dot + bias * sum, for the rows of vector v */
ALWAYS_INLINE float32x4_t add_group(float32x4_t y, float32x4_t dot, const struct group *g, int v, float sum, enum form f)
{
    if (f == F32) return vaddq_f32(y, dot);
    const uint8_t *scales = g->tile + tile_bytes(f) - LINE + v * 8;
    y = vfmaq_f32(y, load4_bf16(scales), dot);
    return vfmaq_n_f32(y, load4_bf16(scales + 32), sum);
}

/* acc += weights of byte b times lane b of x */
ALWAYS_INLINE float32x4_t add_lane(float32x4_t acc, float32x4_t w, float32x4_t x, int b)
{
    switch (b) {
    case 0: return vfmaq_laneq_f32(acc, w, x, 0);
    case 1: return vfmaq_laneq_f32(acc, w, x, 1);
    case 2: return vfmaq_laneq_f32(acc, w, x, 2);
    default: return vfmaq_laneq_f32(acc, w, x, 3);
    }
}

/* One row is done with the whole block at once, more rows with half of it at a time: registers. */
ALWAYS_INLINE int vectors_at_once(int count)
{
    return count == 1 ? VECTORS : VECTORS / 2;
}

/* dot[v*count + i]: row i with vector first + v, unpacking in registers; count <= 2. */
ALWAYS_INLINE void group_dots(float32x4_t dot[4], const struct group *g, const struct rows *r, int first, int count, enum form f)
{
    const int vectors = vectors_at_once(count);
    float32x4_t acc[4][4];
    UNROLL4(i, 4, UNROLL4(b, 4, acc[i][b] = vdupq_n_f32(0);))
    for (int q = 0; q < QUADS; q += 2)
        UNROLL2(odd, 2, UNROLL4(v, vectors, {
            const int at = 4 * (q + odd);
            uint32x4_t words = f == F32 ? vdupq_n_u32(0) : quad_words(g->tile, q, odd, first + v, f);
            UNROLL4(b, 4, {
                float32x4_t w = f == F32 ? load_line((const float *)(const void *)g->tile, at + b, first + v) : quad_codes(words, b, f);
                UNROLL2(i, count, {
                    float32x4_t x = vld1q_f32(r->x[i] + g->t * QUANT_GROUP + at);
                    acc[(v * count + i) % 4][b] = add_lane(acc[(v * count + i) % 4][b], w, x, b);
                })
            })
        }))
    UNROLL4(i, 4, {
        dot[i] = acc[i][0];
        UNROLL4(b, 4, if (b > 0) dot[i] = vaddq_f32(dot[i], acc[i][b]);)
    })
}

/* One or two rows: no buffer. */
ALWAYS_INLINE void few_rows(const struct block_job *j, int from, int count, enum form f)
{
    const int vectors = vectors_at_once(count);
    struct rows r;
    take_rows(&r, j, from, count);
    float32x4_t total[2][4];
    UNROLL2(i, count, UNROLL4(v, VECTORS, total[i][v] = vdupq_n_f32(0);))
    struct group g = {.tile = j->block};
    for (; g.t < j->col_tiles; g.t++, g.tile += tile_bytes(f))
        UNROLL2(pass, VECTORS / vectors, {
            float32x4_t dot[4];
            group_dots(dot, &g, &r, pass * vectors, count, f);
            UNROLL4(v, vectors, UNROLL2(i, count, {
                float32x4_t *y = &total[i][(pass * vectors + v) % 4];
                *y = add_group(*y, dot[(v * count + i) % 4], &g, pass * vectors + v, r.sums[i][g.t], f);
            }))
        })
    UNROLL2(i, count, UNROLL4(v, VECTORS, vst1q_f32(r.y[i] + v * LANES, total[i][v]);))
}

ALWAYS_INLINE const float *unpack(float *buffer, const uint8_t *tile, enum form f)
{
    if (f == F32) return (const float *)(const void *)tile;
    for (int q = 0; q < QUADS; q += 2)
        UNROLL2(odd, 2, UNROLL4(v, VECTORS, {
            uint32x4_t words = quad_words(tile, q, odd, v, f);
            float *line = buffer + 4 * (q + odd) * BLOCK_ROWS + v * LANES;
            UNROLL4(b, 4, vst1q_f32(line + b * BLOCK_ROWS, quad_codes(words, b, f));)
        }))
    return buffer;
}

/* y (count, 16) += one group of `count` rows with an unpacked tile. */
ALWAYS_INLINE void panel(float *y, const struct group *g, const struct rows *r, int count, enum form f)
{
    float dot[PANEL_MAX][BLOCK_ROWS];
    UNROLL8(i, count, UNROLL4(v, VECTORS, vst1q_f32(dot[i] + v * LANES, vdupq_n_f32(0));))
    for (int b = 0; b < 4; b++) {
        float32x4_t acc[PANEL_MAX][4];
        UNROLL8(i, count, UNROLL4(v, VECTORS, acc[i][v] = vdupq_n_f32(0);))
        for (int k = b; k < QUANT_GROUP; k += 4) {
            float32x4_t w[4];
            UNROLL4(v, VECTORS, w[v] = load_line(g->w, k, v);)
            UNROLL8(i, count, {
                float32x4_t x = vld1q_dup_f32(r->x[i] + g->t * QUANT_GROUP + k);
                UNROLL4(v, VECTORS, acc[i][v] = vfmaq_f32(acc[i][v], w[v], x);)
            })
        }
        UNROLL8(i, count, UNROLL4(v, VECTORS, {
            float *d = dot[i] + v * LANES;
            vst1q_f32(d, vaddq_f32(vld1q_f32(d), acc[i][v]));
        }))
    }
    for (int i = 0; i < count; i++)
        for (int v = 0; v < VECTORS; v++) {
            float *out = y + i * BLOCK_ROWS + v * LANES;
            float32x4_t d = vld1q_f32(dot[i] + v * LANES);
            vst1q_f32(out, add_group(vld1q_f32(out), d, g, v, r->sums[i][g->t], f));
        }
}

ALWAYS_INLINE void any_panel(float *y, const struct group *g, const struct rows *r, int count, enum form f)
{
    switch (count) {
    case 2: panel(y, g, r, 2, f); break;
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

/* 3 to PANEL*PANELS rows: every tile is unpacked once, the sums stay in the first-level cache. */
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

void cpu_kernels_neon_matmul(struct cpu_kernels *k)
{
    k->matmul_q4 = matmul_q4;
    k->matmul_q8 = matmul_q8;
    k->matmul_f32 = matmul_f32;
}
