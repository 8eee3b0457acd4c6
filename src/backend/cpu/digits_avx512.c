/*
 * Digit kernels, AVX-512 VNNI tier. Lane = row: a register holds four codes of each of the 16 rows of a block as bytes, a quad
 * of digits is broadcast to all lanes, and one instruction adds four products to each lane's whole number.
 *
 * Several activation rows pass over two row blocks at a time, so that a broadcast serves two products. A panel of rows keeps its
 * whole numbers in registers. The first one unpacks a group's 4-bit codes while it multiplies, and leaves them in the first-level
 * cache for the others (8-bit codes lie as they are wanted).
 */
#include "backend/cpu/digits.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/vec_avx512.h"
#include "base/cpu.h"

enum { CHUNK = 48, PANEL = 12, PAIR = 2, CODES = QUANT_GROUP * BLOCK_ROWS };

/* A quad of a word of a tile, which holds two: the odd one in the high nibbles. */
ALWAYS_INLINE __m512i unpack_quad(const uint8_t *word, int odd)
{
    __m512i w = _mm512_load_si512((const void *)word);
    return _mm512_and_si512(odd ? _mm512_srli_epi16(w, 4) : w, _mm512_set1_epi8(15));
}

ALWAYS_INLINE __m512i load_quad(const int8_t *d)
{
    int32_t x;
    memcpy(&x, d, sizeof x);
    return _mm512_set1_epi32(x);
}

/* Of the rows of a tile. */
struct weights {
    __m512 scale, bias;
};

ALWAYS_INLINE struct weights load_weights(const uint8_t *scales)
{
    return (struct weights){load16_bf16(scales), load16_bf16(scales + 32)};
}

/* y plus a group's whole numbers, which are `high` 65536 times and `low`. */
ALWAYS_INLINE __m512 add_group(__m512 y, struct weights w, __m512 high, __m512i low, float scale, float sum, int count)
{
    __m512 whole = _mm512_cvtepi32_ps(low);
    if (count == 3) whole = _mm512_fmadd_ps(high, _mm512_set1_ps(65536), whole);
    y = _mm512_fmadd_ps(w.scale, _mm512_mul_ps(whole, _mm512_set1_ps(scale)), y);
    return _mm512_fmadd_ps(w.bias, _mm512_set1_ps(sum), y);
}

/* ---- one row: bound by memory ---- */

/*
 * Four runs of row blocks side by side: each is a stream of its own for the processor's prefetchers, which stop at the end of a
 * page, and a quad of digits is broadcast once for all. Lines are asked for one by one between products,
 * but where the processor does better without.
 */
enum { STREAMS = 4, TILES_AHEAD = 4 };

struct stream {
    const uint8_t *tile, *ask; /* of the first; those of the others lie `step` and `ask_step` bytes behind each other */
    size_t step, ask_step;
};

/* y[k] += group t of stream k. */
ALWAYS_INLINE void row_groups(__m512 y[STREAMS], const struct stream *s, const struct digit_row *r, int t, int streams, int count, enum form f, bool asks)
{
    const int8_t *d = r->d + (long)t * count * QUANT_GROUP;
    const int scales = tile_bytes(f) - LINE, word_bytes = scales / 8;
    __m512i v[STREAMS][DIGITS_MAX + 1];
    UNROLL4(k, streams, {
        UNROLL4(i, count, v[k][i] = _mm512_setzero_si512();)
        if (asks) __builtin_prefetch(s->ask + k * s->ask_step + scales);
    })
#pragma GCC unroll 8
    for (int word = 0; word < 8; word++) {
        __m512i quads[STREAMS][2];
        UNROLL4(k, streams, {
            const uint8_t *at = s->tile + k * s->step, *ask = s->ask + k * s->ask_step + word_bytes * word;
            if (asks) __builtin_prefetch(ask);
            if (asks && f == Q8) __builtin_prefetch(ask + LINE);
            UNROLL2(h, 2, {
                if (f == Q4) quads[k][h] = unpack_quad(at + word_bytes * word, h);
                else quads[k][h] = _mm512_load_si512((const void *)(at + word_bytes * word + LINE * h));
            })
        })
        UNROLL4(i, count, UNROLL2(h, 2, {
            __m512i x = load_quad(d + i * QUANT_GROUP + 8 * word + 4 * h);
            UNROLL4(k, streams, v[k][i] = _mm512_dpbusd_epi32(v[k][i], quads[k][h], x);)
        }))
    }
    UNROLL4(k, streams, {
        __m512i low = count == 1 ? v[k][0] : _mm512_add_epi32(_mm512_slli_epi32(v[k][count - 2], 8), v[k][count - 1]);
        struct weights w = load_weights(s->tile + k * s->step + scales);
        y[k] = add_group(y[k], w, _mm512_cvtepi32_ps(v[k][0]), low, r->scales[t], r->sums[t], count);
    })
}

/* `blocks` row blocks of each stream, from block `first` on; behind them `next` is asked for. */
ALWAYS_INLINE void row_blocks(const struct digit_job *j, int first, int blocks, struct stream next, int streams, int count, enum form f, bool asks)
{
    const struct digit_row row = digit_row(j->act, j->rows ? j->rows[0] : 0, 0);
    const long ahead = TILES_AHEAD * tile_bytes(f);
    const size_t block_bytes = (size_t)j->col_tiles * (size_t)tile_bytes(f);
    struct stream s = {.tile = j->block + (size_t)first * block_bytes, .step = (size_t)blocks * block_bytes};
    const uint8_t *end = s.tile + s.step;
    for (int b = first; b < first + blocks; b++) {
        __m512 y[STREAMS];
        UNROLL4(k, streams, y[k] = _mm512_setzero_ps();)
        for (int t = 0; t < j->col_tiles; t++, s.tile += tile_bytes(f)) {
            const long left = end - s.tile;
            s.ask = left > ahead ? s.tile + ahead : next.tile + (ahead - left);
            s.ask_step = left > ahead ? s.step : next.step;
            row_groups(y, &s, &row, t, streams, count, f, asks);
        }
        UNROLL4(k, streams, _mm512_storeu_ps(j->y + (long)(b + k * blocks) * BLOCK_ROWS, y[k]);)
    }
}

ALWAYS_INLINE void row_streams(const struct digit_job *j, int count, enum form f, bool asks)
{
    const size_t block_bytes = (size_t)j->col_tiles * (size_t)tile_bytes(f);
    const int blocks = j->n_blocks / STREAMS, done = blocks * STREAMS, left = j->n_blocks - done;
    struct stream next = {.tile = j->block + (size_t)j->n_blocks * block_bytes, .step = (size_t)blocks * block_bytes};
    if (j->next) next = (struct stream){.tile = j->next, .step = (size_t)(j->next_blocks / STREAMS) * block_bytes};
    const struct stream rest = {.tile = j->block + (size_t)done * block_bytes};
    row_blocks(j, 0, blocks, left ? rest : next, STREAMS, count, f, asks);
    row_blocks(j, done, left, next, 1, count, f, asks);
}

ALWAYS_INLINE void one_row(const struct digit_job *j, int count, enum form f)
{
    if (cpu_features()->streams) row_streams(j, count, f, false);
    else row_streams(j, count, f, true);
}

/* ---- several rows ---- */

/* Up to PANEL rows that lie evenly apart; of three digits, half as many. */
struct panel {
    const int8_t *d;
    const float *scales, *sums;
    long step_d, step_scales; /* from row to row */
    int n;
};

/* One group of a pair of blocks. */
struct pair_group {
    uint8_t unpacked[PAIR][CODES]; /* what the first panel of rows leaves for the others */
    const uint8_t *tiles[PAIR], *codes[PAIR], *scales[PAIR]; /* codes: (16 quads, 16 rows, 4) */
    int t;
    const uint8_t *ask; /* coming bytes, asked for evenly over the work: there are but 16 buffers for requests */
    int ask_step;
} __attribute__((aligned(64)));

/* v += the products with one digit. */
ALWAYS_INLINE void add_digit(__m512i v[PANEL][PAIR], const struct pair_group *g, const int8_t *d, long step, int rows, bool ask)
{
    const uint8_t *coming = g->ask;
    const int8_t *at[PANEL / 3] = {d, d + 3 * step, d + 6 * step, d + 9 * step}; /* few pointers for many rows */
    for (int q = 0; q < QUANT_GROUP; q += 4) {
        __m512i w[PAIR];
        if (ask) __builtin_prefetch(coming, 0, 2);
        coming += g->ask_step;
        UNROLL2(b, PAIR, w[b] = _mm512_load_si512((const void *)(g->codes[b] + BLOCK_ROWS * q));)
        UNROLL12(i, rows, {
            __m512i x = load_quad(at[i / 3] + i % 3 * step + q);
            UNROLL2(b, PAIR, v[i][b] = _mm512_dpbusd_epi32(v[i][b], w[b], x);)
        })
    }
}

/*
 * The same of packed codes, which are left unpacked. Between products their stores wait for nobody. A word is loaded for each of
 * its quads, since registers are short.
 */
ALWAYS_INLINE void unpack_digit(__m512i v[PANEL][PAIR], struct pair_group *g, const int8_t *d, long step, int rows)
{
    const uint8_t *coming = g->ask, *const tiles[PAIR] = {g->tiles[0], g->tiles[1]};
    const int8_t *at[PANEL / 3] = {d, d + 3 * step, d + 6 * step, d + 9 * step};
    const int ask_step = g->ask_step;
    for (int q = 0; q < QUANT_GROUP; q += 8)
        UNROLL2(h, 2, {
            __m512i w[PAIR];
            __builtin_prefetch(coming, 0, 2);
            coming += ask_step;
            UNROLL2(b, PAIR, {
                w[b] = unpack_quad(tiles[b] + LINE / 8 * q, h);
                _mm512_store_si512((void *)(g->unpacked[b] + BLOCK_ROWS * (q + 4 * h)), w[b]);
            })
            UNROLL12(i, rows, {
                __m512i x = load_quad(at[i / 3] + i % 3 * step + q + 4 * h);
                UNROLL2(b, PAIR, v[i][b] = _mm512_dpbusd_epi32(v[i][b], w[b], x);)
            })
        })
}

/* y (rows, PAIR, 16) += one group. A digit's sums are shifted before those of the next are added to them. */
ALWAYS_INLINE void add_panel(float *y, const struct panel *p, struct pair_group *g, int rows, int count, bool first)
{
    const int8_t *d = p->d + (long)g->t * count * QUANT_GROUP;
    __m512i v[PANEL][PAIR];
    __m512 high[PANEL][PAIR];
    UNROLL12(i, rows, UNROLL2(b, PAIR, v[i][b] = _mm512_setzero_si512(); high[i][b] = _mm512_setzero_ps();))
    if (first) unpack_digit(v, g, d, p->step_d, rows);
    else add_digit(v, g, d, p->step_d, rows, true);
    if (count == 3) {
        UNROLL12(i, rows, UNROLL2(b, PAIR, high[i][b] = _mm512_cvtepi32_ps(v[i][b]); v[i][b] = _mm512_setzero_si512();))
        add_digit(v, g, d + QUANT_GROUP, p->step_d, rows, false);
    }
    if (count > 1) {
        UNROLL12(i, rows, UNROLL2(b, PAIR, v[i][b] = _mm512_slli_epi32(v[i][b], 8);))
        add_digit(v, g, d + (count - 1) * QUANT_GROUP, p->step_d, rows, false);
    }
    const float *scales = p->scales + g->t, *sums = p->sums + g->t;
    const long step = p->step_scales;
    const struct weights w[PAIR] = {load_weights(g->scales[0]), load_weights(g->scales[1])};
    UNROLL12(i, rows, UNROLL2(b, PAIR, {
        float *out = y + (i * PAIR + b) * BLOCK_ROWS;
        _mm512_store_ps(out, add_group(_mm512_load_ps(out), w[b], high[i][b], v[i][b], scales[i * step], sums[i * step], count));
    }))
}

/* Two functions for each number of rows, so that sums have registers of their own in each: for the first panel, and for the others. */
typedef void (*panel_fn)(float *y, const struct panel *p, struct pair_group *g);
#define PANEL_FN(count, rows)                                                                                          \
    static NOINLINE void first_##count##_##rows(float *y, const struct panel *p, struct pair_group *g)                 \
    {                                                                                                                  \
        add_panel(y, p, g, rows, count, true);                                                                         \
    }                                                                                                                  \
    static NOINLINE void panel_##count##_##rows(float *y, const struct panel *p, struct pair_group *g)                 \
    {                                                                                                                  \
        add_panel(y, p, g, rows, count, false);                                                                        \
    }
#define PANEL_FNS(count, of) of(count, 1) of(count, 2) of(count, 3) of(count, 4) of(count, 5) of(count, 6)
#define MORE_PANEL_FNS(count, of) of(count, 7) of(count, 8) of(count, 9) of(count, 10) of(count, 11) of(count, 12)
PANEL_FNS(1, PANEL_FN)
MORE_PANEL_FNS(1, PANEL_FN)
PANEL_FNS(2, PANEL_FN)
MORE_PANEL_FNS(2, PANEL_FN)
PANEL_FNS(3, PANEL_FN)
#define FIRST_NAME(count, rows) first_##count##_##rows,
#define PANEL_NAME(count, rows) panel_##count##_##rows,
#define PANEL_TABLE(of) {{PANEL_FNS(1, of) MORE_PANEL_FNS(1, of)}, {PANEL_FNS(2, of) MORE_PANEL_FNS(2, of)}, {PANEL_FNS(3, of)}}
static const panel_fn first_fns[DIGITS_MAX][PANEL] = PANEL_TABLE(FIRST_NAME), panel_fns[DIGITS_MAX][PANEL] = PANEL_TABLE(PANEL_NAME);

/* Rows of a job whose sums stay in the first-level cache. */
struct chunk {
    int from, n, n_panels;
    struct panel panels[CHUNK];
};

/* Cuts the rows into panels of about one size. Any two rows lie evenly apart, so listed ones go by twos. */
static void cut_panels(struct chunk *c, const struct digit_job *j)
{
    int most = j->rows ? 2 : j->act->count == 3 ? PANEL / 2 : PANEL, first = c->from;
    c->n_panels = (c->n + most - 1) / most;
    for (int i = 0; i < c->n_panels; first += c->panels[i++].n) {
        int left = c->n_panels - i, size = (c->from + c->n - first + left - 1) / left;
        struct digit_row a = digit_row(j->act, j->rows ? j->rows[first] : first, 0), b = a;
        if (size > 1) b = digit_row(j->act, j->rows ? j->rows[first + 1] : first + 1, 0);
        c->panels[i] = (struct panel){a.d, a.scales, a.sums, b.d - a.d, b.scales - a.scales, size};
    }
}

/* Asks for the outputs of the rows whose turn it is in group t, so that storing them will not wait. */
ALWAYS_INLINE void ask_outputs(const struct digit_job *j, int b, const struct chunk *c, int t)
{
    for (int i = t * c->n / j->col_tiles; i < (t + 1) * c->n / j->col_tiles; i++) {
        const float *y = j->y + (long)(c->from + i) * j->ldy + (long)b * BLOCK_ROWS;
        __builtin_prefetch(y, 1, 2);
        __builtin_prefetch(y + BLOCK_ROWS, 1, 2);
    }
}

/* Blocks b and b+1; the last of an odd number is its own pair. */
static void add_pair(const struct digit_job *j, int b, const struct chunk *c, enum form f)
{
    float y[CHUNK][PAIR][BLOCK_ROWS] __attribute__((aligned(64)));
    struct pair_group g;
    const size_t bytes = (size_t)tile_bytes(f), block_bytes = (size_t)j->col_tiles * bytes;
    const int here = j->n_blocks - b < PAIR ? j->n_blocks - b : PAIR;
    const panel_fn *fns = panel_fns[j->act->count - 1], *first = f == Q4 ? first_fns[j->act->count - 1] : fns;
    const uint8_t *next = j->block + (size_t)(b + here) * block_bytes;
    if (j->next && b + here == j->n_blocks) next = j->next;
    for (int i = 0; i < c->n; i++) UNROLL2(k, PAIR, _mm512_store_ps(y[i][k], _mm512_setzero_ps());)
    g.ask = next, g.ask_step = (PAIR * tile_bytes(f)) / (16 * c->n_panels);
    for (g.t = 0; g.t < j->col_tiles; g.t++) {
        float *out = y[0][0];
        ask_outputs(j, b, c, g.t);
        for (int i = 0; i < PAIR; i++) {
            const uint8_t *tile = j->block + (size_t)(b + (i < here ? i : 0)) * block_bytes + (size_t)g.t * bytes;
            g.tiles[i] = tile;
            g.codes[i] = f == Q4 ? g.unpacked[i] : tile;
            g.scales[i] = tile + bytes - LINE;
        }
        for (int i = 0; i < c->n_panels; out += c->panels[i++].n * PAIR * BLOCK_ROWS) {
            (i ? fns : first)[c->panels[i].n - 1](out, &c->panels[i], &g);
            g.ask += 16 * g.ask_step;
        }
    }
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < here; k++)
            _mm512_storeu_ps(j->y + (long)(c->from + i) * j->ldy + (long)(b + k) * BLOCK_ROWS, _mm512_load_ps(y[i][k]));
}

static void several_rows(const struct digit_job *j, enum form f)
{
    struct chunk c;
    for (c.from = 0; c.from < j->n; c.from += CHUNK) {
        c.n = j->n - c.from < CHUNK ? j->n - c.from : CHUNK;
        cut_panels(&c, j);
        for (int b = 0; b < j->n_blocks; b += PAIR) add_pair(j, b, &c, f);
    }
}

void cpu_digits_avx512(const struct digit_job *j)
{
    if (j->n > 1) several_rows(j, Q4);
    else if (j->act->count == 1) one_row(j, 1, Q4);
    else if (j->act->count == 2) one_row(j, 2, Q4);
    else one_row(j, 3, Q4);
}

void cpu_q8_digits_avx512(const struct digit_job *j)
{
    if (j->n > 1) several_rows(j, Q8);
    else one_row(j, 3, Q8);
}

/* ---- splitting ---- */

ALWAYS_INLINE void split_group(const struct digit_row *out, int g, const float *x, int count)
{
    __m512 v[4];
    __m512i top = _mm512_setzero_si512(), whole[4], sum = top;
    UNROLL4(i, 4, {
        v[i] = _mm512_loadu_ps(x + 16 * i);
        top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff)));
    })
    float factor, scale = digits_scale((uint32_t)_mm512_reduce_max_epi32(top), count, &factor);
    UNROLL4(i, 4, {
        whole[i] = factor > 0 ? _mm512_cvtps_epi32(_mm512_mul_ps(v[i], _mm512_set1_ps(factor))) : _mm512_setzero_si512();
        sum = _mm512_add_epi32(sum, whole[i]);
    })
    for (int d = count - 1; d >= 0; d--) {
        int8_t *to = out->d + ((long)g * count + d) * QUANT_GROUP;
        UNROLL4(i, 4, {
            _mm_storeu_si128((void *)(to + 16 * i), _mm512_cvtepi32_epi8(whole[i]));
            /* The digit is the low byte as a signed number: what is left is rounded, not cut. */
            whole[i] = _mm512_srai_epi32(_mm512_add_epi32(whole[i], _mm512_set1_epi32(128)), 8);
        })
    }
    out->scales[g] = scale;
    out->sums[g] = (float)_mm512_reduce_add_epi32(sum) * scale;
}

void cpu_split_digits_avx512(const struct digit_row *out, const float *x, int n_groups)
{
    for (int g = 0; g < n_groups; g++, x += QUANT_GROUP) {
        if (out->count == 1) split_group(out, g, x, 1);
        else if (out->count == 2) split_group(out, g, x, 2);
        else split_group(out, g, x, 3);
    }
}
