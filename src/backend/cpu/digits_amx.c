/*
 * Digit products on AMX tiles. One tile multiply is 16 activation rows x 16 weight rows x one group of 64: A holds one digit
 * of each activation row as it lies in struct digits, B the codes as bytes in quads, C whole numbers with a lane for each
 * weight row. The numbers are exact, so bits are those of the other tiers. Tiles are configured and released in each call.
 *
 * A unit is a strip of STRIP groups of one row block with 16 rows. Up to 32 rows keep their digits of a strip in the first-level
 * cache while all row blocks of a window pass by; between strips their sums wait in memory. While the tiles of a unit are
 * multiplied, vectors unpack the codes of the row block behind it and add the whole numbers of the unit before, so that neither
 * waits for the other: tiles cannot be loaded before the stores of their bytes have reached the cache, and a product takes as
 * long as a group.
 */
#include "backend/cpu/amx.h"
#include "backend/cpu/digits.h"

enum { STRIP = 4, WINDOW = 8, MAX_TILES = 2, LINE = TILE_LINE };
typedef int32_t tile_sums[TILE_ROWS][BLOCK_ROWS];

struct amx_work {
    uint8_t codes[2][STRIP][TILE_ROWS * LINE]; /* of a row block and of the next */
    tile_sums sums[2][STRIP][2];               /* by group and digit, of a unit and of the one before */
    float y[WINDOW][MAX_TILES][TILE_ROWS][BLOCK_ROWS]; /* between strips */
} __attribute__((aligned(64)));

/* One or two tiles of rows, which may share some, and up to WINDOW row blocks. */
struct panel {
    const uint8_t *block, *ahead; /* the first tile; the first of those to ask for meanwhile */
    int n_blocks, col_tiles;
    struct digits act; /* from the first row on */
    int tiles, n, second; /* rows of a tile, the first one of the second */
    float *y;
    int ldy;
};

/* Where a unit begins: its tile of rows, row block and first group; units follow each other in that order. */
struct unit {
    int tile, block, t;
};

ALWAYS_INLINE size_t unit_offset(const struct panel *p, struct unit u)
{
    return ((size_t)u.block * (size_t)p->col_tiles + (size_t)u.t) * Q4_TILE_BYTES;
}

ALWAYS_INLINE struct unit unit_after(const struct panel *p, struct unit u, int strip)
{
    if (++u.tile < p->tiles) return u;
    u.tile = 0;
    if (++u.block == p->n_blocks) u.block = 0, u.t += strip;
    return u;
}

ALWAYS_INLINE void unpack(uint8_t *codes, const uint8_t *tile)
{
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __m512i w = _mm512_load_si512((const void *)(tile + LINE * i));
        _mm512_store_si512((void *)(codes + 2 * LINE * i), _mm512_and_si512(w, low));
        _mm512_store_si512((void *)(codes + 2 * LINE * i + LINE), _mm512_and_si512(_mm512_srli_epi16(w, 4), low));
    }
}

/* For the second-level cache: a window lies between asking and use. */
ALWAYS_INLINE void ask_for(const uint8_t *tile)
{
#pragma GCC unroll 9
    for (int i = 0; i < Q4_TILE_BYTES; i += LINE) __builtin_prefetch(tile + i, 0, 2);
}

/* Codes of group g of the unit u of panel p, and a request for what lies a window ahead. */
ALWAYS_INLINE void unpack_group(struct amx_work *w, const struct panel *p, struct unit u, int slot, int g)
{
    size_t at = unit_offset(p, u) + (size_t)g * Q4_TILE_BYTES;
    ask_for(p->ahead + at);
    unpack(w->codes[slot][g], p->block + at);
}

/* A group's products: those of even groups go to C tiles 0 and 1, of odd ones to 2 and 3. 4 and 5 are A, 6 and 7 B. */
ALWAYS_INLINE void multiply(const int8_t *digits, size_t stride, const uint8_t *codes, int odd, int count)
{
    MEMORY_BARRIER();
    _tile_loadd(4, digits, stride);
    if (count == 2) _tile_loadd(5, digits + LINE, stride);
    if (odd) {
        _tile_loadd(7, codes, LINE);
        _tile_zero(2);
        _tile_dpbsud(2, 4, 7);
        if (count < 2) return;
        _tile_zero(3);
        _tile_dpbsud(3, 5, 7);
    } else {
        _tile_loadd(6, codes, LINE);
        _tile_zero(0);
        _tile_dpbsud(0, 4, 6);
        if (count < 2) return;
        _tile_zero(1);
        _tile_dpbsud(1, 5, 6);
    }
}

/* Stores what multiply left. */
ALWAYS_INLINE void store_sums(tile_sums *sums, int odd, int count)
{
    if (odd) {
        _tile_stored(2, sums[0], LINE);
        if (count == 2) _tile_stored(3, sums[1], LINE);
    } else {
        _tile_stored(0, sums[0], LINE);
        if (count == 2) _tile_stored(1, sums[1], LINE);
    }
    MEMORY_BARRIER();
}

/* A unit's scales, and where the sums of its rows come from and go to. */
struct adding {
    __m512 scale[STRIP], bias[STRIP];
    const float *scales, *sums; /* of the tile's first row, from the unit's first group on */
    long ld;
    const float *from; /* NULL: nothing yet */
    float *to;
    int ld_to;
};

ALWAYS_INLINE struct adding begin_adding(struct amx_work *w, const struct panel *p, struct unit u, int strip)
{
    const int first = u.tile * p->second;
    struct digit_row row = digit_row(&p->act, first, u.t);
    float *y = w->y[u.block][u.tile][0];
    bool last = u.t + strip == p->col_tiles;
    struct adding a = {.scales = row.scales, .sums = row.sums, .ld = p->act.ld / QUANT_GROUP, .from = u.t ? y : NULL};
    a.to = last ? p->y + (long)first * p->ldy + u.block * BLOCK_ROWS : y;
    a.ld_to = last ? p->ldy : BLOCK_ROWS;
    UNROLL4(g, strip, {
        const uint8_t *scales = p->block + unit_offset(p, u) + (g + 1) * Q4_TILE_BYTES - LINE;
        a.scale[g] = load16_bf16(scales);
        a.bias[g] = load16_bf16(scales + LINE / 2);
    })
    return a;
}

/* The sums of the rows lo … hi-1 += a unit's whole numbers. */
ALWAYS_INLINE void add_rows(const struct adding *a, tile_sums (*sums)[2], int lo, int hi, const int strip, const int count)
{
    for (int i = lo; i < hi; i++) {
        __m512 y = a->from ? _mm512_load_ps(a->from + i * BLOCK_ROWS) : _mm512_setzero_ps();
        UNROLL4(g, strip, {
            __m512i v = _mm512_load_si512((const void *)sums[g][0][i]);
            if (count == 2) v = _mm512_add_epi32(_mm512_slli_epi32(v, 8), _mm512_load_si512((const void *)sums[g][1][i]));
            __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(a->scales[i * a->ld + g]));
            y = _mm512_fmadd_ps(a->scale[g], dot, y);
            y = _mm512_fmadd_ps(a->bias[g], _mm512_set1_ps(a->sums[i * a->ld + g]), y);
        })
        _mm512_storeu_ps(a->to + (long)i * a->ld_to, y);
    }
}

/*
 * Unit by unit, group by group: products of this unit, codes of the row block behind, sums of the unit before. A group's
 * products are stored after those of the next group were begun. All tiles of a row block use one unpacking, each does its share
 * of the next, spread evenly, as are the requests for coming weights.
 */
ALWAYS_INLINE void multiply_panel(struct amx_work *w, const struct panel *p, int strip, int count)
{
    const int blocks = p->col_tiles / strip * p->n_blocks, units = blocks * p->tiles;
    const size_t stride = (size_t)digits_row_bytes(p->act.ld, count);
    struct unit done = {0, 0, 0}, now = done, next = done, behind = {p->tiles - 1, 0, 0};
    for (int g = 0; g < strip; g++) unpack_group(w, p, now, 0, g);
    behind = unit_after(p, behind, strip);
    for (int i = 0, block = 0; i <= units; i++) {
        const int slot = i & 1, rows = i > 0 ? p->n : 0;
        done = now, now = next, next = unit_after(p, next, strip);
        const int8_t *digits = digit_row(&p->act, now.tile * p->second, now.t).d;
        const struct adding a = begin_adding(w, p, done, strip);
        UNROLL4(g, strip, {
            if (i < units) multiply(digits + g * count * LINE, stride, w->codes[block & 1][g], g % 2, count);
            if (i < units || g == 0) store_sums(g ? w->sums[slot][g - (g > 0)] : w->sums[!slot][strip - 1], !(g % 2), count);
            const int share = now.tile * strip + g;
            if (block + 1 < blocks && share % p->tiles == 0) unpack_group(w, p, behind, ~block & 1, share / p->tiles);
            add_rows(&a, w->sums[!slot], rows * g / strip, rows * (g + 1) / strip, strip, count);
        })
        if (next.tile == 0) {
            block++;
            behind = unit_after(p, (struct unit){p->tiles - 1, next.block, next.t}, strip);
        }
    }
}

/* Up to 32 rows of a job from `from` on, in tiles of one size. */
static void multiply_tiles(struct amx_work *w, const struct digit_job *j, struct panel *p, int from, int n)
{
    struct digit_row first = digit_row(j->act, from, 0);
    p->act = (struct digits){first.d, first.scales, first.sums, j->act->ld, j->act->count};
    p->tiles = n > TILE_ROWS ? 2 : 1;
    p->n = (n + p->tiles - 1) / p->tiles;
    p->second = n - p->n;
    tiles_configure(6, p->n);
    if (j->col_tiles % STRIP == 0 && j->act->count == 2) multiply_panel(w, p, STRIP, 2);
    else if (j->col_tiles % STRIP == 0) multiply_panel(w, p, STRIP, 1);
    else if (j->act->count == 2) multiply_panel(w, p, STRIP / 2, 2);
    else multiply_panel(w, p, STRIP / 2, 1);
}

/* Few rows, those that lie anywhere, and three digits, are left to the vectors: the bits are the same. */
void cpu_q4_digits_amx(const struct digit_job *j)
{
    if (j->n < 3 || j->rows || j->act->count > 2) {
        cpu_digits_avx512(j);
        return;
    }
    const size_t block_bytes = (size_t)j->col_tiles * Q4_TILE_BYTES;
    const int parts = (j->n + MAX_TILES * TILE_ROWS - 1) / (MAX_TILES * TILE_ROWS);
    struct amx_work w;
    for (int b = 0; b < j->n_blocks; b += WINDOW) {
        struct panel p = {.block = j->block + (size_t)b * block_bytes, .col_tiles = j->col_tiles, .ldy = j->ldy};
        p.n_blocks = j->n_blocks - b < WINDOW ? j->n_blocks - b : WINDOW;
        p.ahead = j->next && b + WINDOW >= j->n_blocks ? j->next : p.block + (size_t)p.n_blocks * block_bytes;
        for (int i = 0; i < parts; i++) {
            const int from = j->n * i / parts;
            p.y = j->y + (long)from * j->ldy + b * BLOCK_ROWS;
            multiply_tiles(&w, j, &p, from, j->n * (i + 1) / parts - from);
        }
    }
    _tile_release();
}
