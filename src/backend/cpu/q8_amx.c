/*
 * Products of 8-bit codes with three digits on AMX tiles: the router's. Codes lie in the packed tile as a right factor wants
 * them. The digits of 16 rows and one group stay in three tiles while all row blocks pass by; whole numbers and sums are
 * those of the other tiers, bit for bit. While a row block is multiplied, vectors add the whole numbers of the one before.
 */
#include "backend/cpu/amx.h"

enum { WINDOW = 20 }; /* row blocks whose sums stay in the first-level cache */

typedef int32_t whole[DIGITS_MAX][TILE_ROWS][BLOCK_ROWS];

struct q8_work {
    whole sums[2];                               /* of a row block and of the one before */
    float y[WINDOW][TILE_ROWS][BLOCK_ROWS];
} __attribute__((aligned(64)));

/* Up to 16 rows and WINDOW row blocks. */
struct panel {
    const uint8_t *block;
    int n_blocks, col_tiles, n;
    struct digits act; /* from the first row on */
};

ALWAYS_INLINE const uint8_t *tile_of(const struct panel *p, int block, int t)
{
    return p->block + ((size_t)block * (size_t)p->col_tiles + (size_t)t) * Q8_TILE_BYTES;
}

/* Tiles 0 … 2 are the digits, 3 … 5 sums, 7 codes. Sums of the row block before are stored just before a product needs their tile. */
ALWAYS_INLINE void multiply(const uint8_t *codes, whole before, bool first, bool last)
{
    MEMORY_BARRIER();
    if (!last) _tile_loadd(7, codes, TILE_LINE);
    if (!first) _tile_stored(3, before[0], TILE_LINE);
    if (!last) {
        _tile_zero(3);
        _tile_dpbsud(3, 0, 7);
    }
    if (!first) _tile_stored(4, before[1], TILE_LINE);
    if (!last) {
        _tile_zero(4);
        _tile_dpbsud(4, 1, 7);
    }
    if (!first) _tile_stored(5, before[2], TILE_LINE);
    if (!last) {
        _tile_zero(5);
        _tile_dpbsud(5, 2, 7);
    }
    MEMORY_BARRIER();
}

/* y (n, 16) += one group of a row block; of the first group, y begins. */
ALWAYS_INLINE void add_group(float (*y)[BLOCK_ROWS], whole sums, const struct panel *p, const uint8_t *tile, int t)
{
    const struct digit_row row = digit_row(&p->act, 0, t);
    const long ld = p->act.ld / QUANT_GROUP;
    const __m512 scale = load16_bf16(tile + Q8_TILE_BYTES - 64), bias = load16_bf16(tile + Q8_TILE_BYTES - 32);
    for (int i = 0; i < p->n; i++) {
        __m512i low = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512((const void *)sums[1][i]), 8), _mm512_load_si512((const void *)sums[2][i]));
        __m512 high = _mm512_cvtepi32_ps(_mm512_load_si512((const void *)sums[0][i]));
        __m512 dot = _mm512_fmadd_ps(high, _mm512_set1_ps(65536), _mm512_cvtepi32_ps(low));
        __m512 sum = t ? _mm512_load_ps(y[i]) : _mm512_setzero_ps();
        sum = _mm512_fmadd_ps(scale, _mm512_mul_ps(dot, _mm512_set1_ps(row.scales[i * ld])), sum);
        _mm512_store_ps(y[i], _mm512_fmadd_ps(bias, _mm512_set1_ps(row.sums[i * ld]), sum));
    }
}

static void multiply_panel(struct q8_work *w, const struct panel *p)
{
    const size_t stride = (size_t)digits_row_bytes(p->act.ld, DIGITS_MAX);
    for (int t = 0; t < p->col_tiles; t++) {
        const int8_t *digits = digit_row(&p->act, 0, t).d;
        MEMORY_BARRIER();
        _tile_loadd(0, digits, stride);
        _tile_loadd(1, digits + TILE_LINE, stride);
        _tile_loadd(2, digits + 2 * TILE_LINE, stride);
        multiply(tile_of(p, 0, t), NULL, true, false);
        for (int b = 1; b < p->n_blocks; b++) {
            multiply(tile_of(p, b, t), w->sums[b & 1], false, false);
            if (b > 1) add_group(w->y[b - 2], w->sums[~b & 1], p, tile_of(p, b - 2, t), t);
        }
        multiply(NULL, w->sums[p->n_blocks & 1], false, true);
        for (int b = p->n_blocks > 1 ? p->n_blocks - 2 : 0; b < p->n_blocks; b++)
            add_group(w->y[b], w->sums[~b & 1], p, tile_of(p, b, t), t);
    }
}

/* Few rows, and those that lie anywhere, are left to the vectors: the bits are the same. */
void cpu_q8_digits_amx(const struct digit_job *j)
{
    if (j->n < 3 || j->rows) {
        cpu_q8_digits_avx512(j);
        return;
    }
    struct q8_work w;
    struct panel p = {.col_tiles = j->col_tiles};
    for (int from = 0; from < j->n; from += TILE_ROWS) {
        struct digit_row first = digit_row(j->act, from, 0);
        p.act = (struct digits){first.d, first.scales, first.sums, j->act->ld, DIGITS_MAX};
        p.n = j->n - from < TILE_ROWS ? j->n - from : TILE_ROWS;
        tiles_configure(6, p.n);
        for (int b = 0; b < j->n_blocks; b += WINDOW) {
            p.block = j->block + (size_t)b * (size_t)j->col_tiles * Q8_TILE_BYTES;
            p.n_blocks = j->n_blocks - b < WINDOW ? j->n_blocks - b : WINDOW;
            multiply_panel(&w, &p);
            for (int k = 0; k < p.n_blocks; k++)
                for (int i = 0; i < p.n; i++)
                    _mm512_storeu_ps(j->y + (long)(from + i) * j->ldy + (b + k) * BLOCK_ROWS, _mm512_load_ps(w.y[k][i]));
        }
    }
    _tile_release();
}
