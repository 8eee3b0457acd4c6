/*
 * Products on bf16 tiles, for the fast mode. Weights are unpacked to bf16, activations lie as bf16 (struct bf16_run), sums stay
 * in fp32 tiles over the whole of K: one tile multiply is 16 activation rows x 16 weight rows x 32 columns. So scales cost
 * nothing per product, but each tile of codes must be unpacked: once for all panels of a job.
 *
 * A step takes two row blocks by one panel: tiles 0 … 3 are sums, by 2 * (tile of rows) + row block; 4 and 5 activations; 6 and 7
 * weights. While the first panel is multiplied, vectors unpack the codes a few groups ahead of
 * the tiles; further panels find them unpacked. A row's sums are added in the order of its columns, whatever is beside it.
 *
 * Tiles of further panels come from the second-level cache, where a tile load that has to wait holds up those behind it. So all
 * loads of a strip stand before its products, and the rows of the next group are asked for between these. (Not its weights: on a
 * core of one's own the loads that ask would cost more than the waiting.) Lines of memory keep the few buffers that tile loads
 * need, too, so all panels of two row blocks share the requests for the codes of the next two.
 */
#include "backend/cpu/amx.h"

enum {
    LINE = TILE_LINE,
    TILE_BYTES = TILE_ROWS * LINE,
    STRIPS = QUANT_GROUP / STRIP_COLS,
    AHEAD = 2,         /* groups between unpacking and use; col_tiles is at least that */
    RING = 4,          /* groups that are kept when no further panel needs them: they stay in the first-level cache */
    ASK = 64,          /* groups between a request to memory and unpacking, where one panel has all requests */
    PAIR_LINES = 2 * Q4_TILE_BYTES / LINE, /* of a group's codes in two row blocks */
    MAX_GROUPS = 128,  /* of a row that is unpacked at once */
};

/* A group of a row block, ready to multiply: pair p of columns, row r at bytes 64p + 4r of its strip. */
typedef uint8_t group_tiles[STRIPS][TILE_BYTES];

struct bf16_work {
    group_tiles weights[MAX_GROUPS][2]; /* of two row blocks, side by side: far apart, their stores fall on the same places of a cache */
} __attribute__((aligned(64)));

/* The code in nibble i of each word, 2 to 4, as the number 1 + code * 2^(4i - 23): (word & mask) | one. */
#define CODE(words, i) \
    _mm512_castsi512_ps(_mm512_ternarylogic_epi32(words, _mm512_set1_epi32(15 << 4 * (i)), _mm512_castps_si512(_mm512_set1_ps(1)), 0xea))

/* Numbers cut to bf16, as pairs. */
ALWAYS_INLINE __m512i pair_cut(__m512 a, __m512 b)
{
    return pair_upper(_mm512_castps_si512(a), _mm512_castps_si512(b));
}

/* For the second-level cache. */
ALWAYS_INLINE void ask_for(const uint8_t *line)
{
    __builtin_prefetch(line, 0, 2);
}

/* A tile on its way from codes to weights: w = (1 + code * 2^-m) * (scale * 2^m) + (bias - scale * 2^m), m by the place of a code. */
struct unpacking {
    const uint8_t *tile, *ask; /* the tile to request meanwhile; NULL: none */
    uint8_t *out;
    __m512 s2, s3, s4, b2, b3, b4; /* factors and terms for nibbles 2, 3 and 4 of a word */
};

/*
 * Weights are cut to bf16, which is half a unit of the last place too small on average: 0.72 * 2^-8 of the value, averaged
 * over all mantissas. Scale and bias make up for that, for nothing; the error is 5% above that of rounding.
 */
ALWAYS_INLINE struct unpacking begin_unpacking(group_tiles *out, const uint8_t *tile, const uint8_t *ask)
{
    struct unpacking u = {.tile = tile, .ask = ask, .out = (uint8_t *)out};
    const __m512 up = _mm512_set1_ps(1 + 0.72f / 256);
    const __m512 scale = _mm512_mul_ps(load16_bf16(tile + 8 * LINE), up), bias = _mm512_mul_ps(load16_bf16(tile + 8 * LINE + LINE / 2), up);
    if (ask) ask_for(ask + 8 * LINE);
    u.s2 = _mm512_mul_ps(scale, _mm512_set1_ps(0x1p15f)), u.b2 = _mm512_sub_ps(bias, u.s2);
    u.s3 = _mm512_mul_ps(scale, _mm512_set1_ps(0x1p11f)), u.b3 = _mm512_sub_ps(bias, u.s3);
    u.s4 = _mm512_mul_ps(scale, _mm512_set1_ps(0x1p7f)), u.b4 = _mm512_sub_ps(bias, u.s4);
    return u;
}

/*
 * Line i, four pairs of columns: a code becomes a weight in one multiply-add where it lies, without a shift to the lowest place
 * and a conversion. Lines to come are requested one by one: nine in a row would wait for the buffers.
 */
ALWAYS_INLINE void unpack_line(const struct unpacking *u, int i)
{
    if (u->ask) ask_for(u->ask + LINE * i);
    const __m512i w = _mm512_load_si512((const void *)(u->tile + LINE * i));
    const __m512i low = _mm512_slli_epi32(w, 12), high = _mm512_srli_epi32(w, 12);
    uint8_t *to = u->out + 4 * LINE * i;
    const __m512 k0 = _mm512_fmadd_ps(CODE(low, 3), u->s3, u->b3), k4 = _mm512_fmadd_ps(CODE(low, 4), u->s4, u->b4);
    const __m512 k1 = _mm512_fmadd_ps(CODE(w, 2), u->s2, u->b2), k5 = _mm512_fmadd_ps(CODE(w, 3), u->s3, u->b3);
    const __m512 k2 = _mm512_fmadd_ps(CODE(w, 4), u->s4, u->b4), k6 = _mm512_fmadd_ps(CODE(high, 2), u->s2, u->b2);
    const __m512 k3 = _mm512_fmadd_ps(CODE(high, 3), u->s3, u->b3), k7 = _mm512_fmadd_ps(CODE(high, 4), u->s4, u->b4);
    _mm512_store_si512((void *)to, pair_cut(k0, k1));
    _mm512_store_si512((void *)(to + LINE), pair_cut(k2, k3));
    _mm512_store_si512((void *)(to + 2 * LINE), pair_cut(k4, k5));
    _mm512_store_si512((void *)(to + 3 * LINE), pair_cut(k6, k7));
}

/* One panel by one or two row blocks. Groups are counted on into the next two blocks. */
struct panel {
    const struct bf16_job *job;
    int block, blocks; /* the first row block, and how many */
    int first, end;    /* rows of the run */
    int rows, tiles;   /* of a tile; one or two tiles, which may share some rows */
    int begin, index, count; /* the first panel of those that share the blocks, which of them this one is, and how many they are */
    int slot;          /* where it is alone: the place of its first group in the ring */
    int from, to;      /* groups that it unpacks */
};

/* A panel alone unpacks into a ring; several keep all groups. */
ALWAYS_INLINE bool is_ring(const struct panel *p)
{
    return p->count == 1;
}

ALWAYS_INLINE group_tiles *group_weights(struct bf16_work *w, const struct panel *p, int group)
{
    const int groups = p->job->col_tiles;
    return w->weights[is_ring(p) ? (p->slot + group) & (RING - 1) : group < groups ? group : group - groups];
}

/* The codes at a place behind the first row block, or where the next matrix begins; NULL: nothing comes. */
ALWAYS_INLINE const uint8_t *codes_at(const struct bf16_job *j, size_t at)
{
    const size_t end = (size_t)j->n_blocks * (size_t)j->col_tiles * Q4_TILE_BYTES;
    if (at < end) return j->block + at;
    return j->next ? j->next + (at - end) : NULL;
}

/* Row block b of a group of p. */
ALWAYS_INLINE struct unpacking begin_group(struct bf16_work *w, const struct panel *p, int group, int b)
{
    const struct bf16_job *j = p->job;
    const int groups = j->col_tiles, block = p->block + (group < groups ? 0 : 2) + b;
    const size_t at = ((size_t)block * (size_t)groups + (size_t)(group < groups ? group : group - groups)) * Q4_TILE_BYTES;
    return begin_unpacking(&group_weights(w, p, group)[b], j->block + at, is_ring(p) ? codes_at(j, at + ASK * Q4_TILE_BYTES) : NULL);
}

ALWAYS_INLINE void unpack_group(struct bf16_work *w, const struct panel *p, int group, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        const struct unpacking u = begin_group(w, p, group, b);
        UNROLL8(i, 8, unpack_line(&u, i);)
    }
}

/* Lines from … from+n-1 of a tile, if one is unpacked. The compiler keeps their place between tile instructions. */
#define LINES(from, n)                                                        \
    if (u) {                                                                  \
        MEMORY_BARRIER();                                                     \
        UNROLL4(i, n, unpack_line(u, (from) + i);)                            \
        MEMORY_BARRIER();                                                     \
    }

/* A strip of one panel: its tiles of rows and of weights. */
struct strip {
    const uint8_t *x[2], *w[2];
};

/*
 * Multiplies a strip. Between products a line or more is unpacked (u): vectors then work while tiles do, where a whole group at
 * once would fill the queue and make tiles wait. With u NULL, the rows of a coming strip are asked for.
 */
ALWAYS_INLINE void multiply(const struct strip *now, int tiles, int blocks, const struct strip *later, const struct unpacking *u, int first, int lines)
{
    const int each = lines / 4;
    MEMORY_BARRIER();
    _tile_loadd(4, now->x[0], LINE);
    _tile_loadd(6, now->w[0], LINE);
    if (blocks == 2) _tile_loadd(7, now->w[1], LINE);
    if (tiles == 2) _tile_loadd(5, now->x[1], LINE);
    _tile_dpbf16ps(0, 4, 6);
    LINES(first, each)
    if (!u) ask_for_tile(later->x[0]);
    if (blocks == 2) _tile_dpbf16ps(1, 4, 7);
    LINES(first + each, each)
    if (!u && tiles == 2) ask_for_tile(later->x[1]);
    if (tiles == 2) _tile_dpbf16ps(2, 5, 6);
    LINES(first + 2 * each, each)
    if (tiles == 2 && blocks == 2) _tile_dpbf16ps(3, 5, 7);
    LINES(first + 3 * each, each)
}

ALWAYS_INLINE void store_sums(const struct panel *p, int tiles, int blocks)
{
    const struct bf16_job *j = p->job;
    const int skipped = panel_row(j->act->n, j->first);
    float *y0 = j->y + (long)(p->first - skipped) * j->ldy + p->block * BLOCK_ROWS, *y1 = j->y + (long)(p->end - p->rows - skipped) * j->ldy + p->block * BLOCK_ROWS;
    const size_t stride = (size_t)j->ldy * sizeof(float);
    _tile_stored(0, y0, stride);
    if (blocks == 2) _tile_stored(1, y0 + BLOCK_ROWS, stride);
    if (tiles == 2) _tile_stored(2, y1, stride);
    if (tiles == 2 && blocks == 2) _tile_stored(3, y1 + BLOCK_ROWS, stride);
    MEMORY_BARRIER();
}

/*
 * Asks for the outputs of row i of the job, so that storing them will not wait: stores behind them would, too. Where they are
 * added to something afterwards, they lie in a cache, and that is asked for.
 */
ALWAYS_INLINE void ask_outputs(const struct panel *p, int i, int blocks)
{
    const struct bf16_job *j = p->job;
    const float *y = j->y + (long)i * j->ldy;
    if (j->sums.x) y = j->sums.x + (long)(j->sums.rows ? j->sums.rows[i] : i) * j->sums.ld;
    y += p->block * BLOCK_ROWS;
    __builtin_prefetch(y, 1, 2);
    if (blocks == 2) __builtin_prefetch(y + BLOCK_ROWS, 1, 2);
}

/* What a panel asks memory for, evenly while its groups are multiplied: the outputs of its rows, and its share of the next codes. */
struct requests {
    int row, rows_due;   /* the next row; in parts of 1 / groups */
    const uint8_t *code; /* the next line; NULL: none */
    int lines_due;       /* in parts of 1 / panels */
};

ALWAYS_INLINE struct requests begin_requests(const struct panel *p)
{
    const struct bf16_job *j = p->job;
    struct requests r = {.row = p->first - panel_row(j->act->n, j->first)};
    if (!is_ring(p)) r.code = codes_at(j, (size_t)(p->block + 2) * (size_t)j->col_tiles * Q4_TILE_BYTES);
    if (r.code) r.code += p->index * j->col_tiles * PAIR_LINES / p->count * LINE;
    return r;
}

/* Those of one group. */
ALWAYS_INLINE void ask_memory(struct requests *r, const struct panel *p, int blocks)
{
    const int groups = p->job->col_tiles;
    for (r->rows_due += p->end - p->first; r->rows_due >= groups; r->rows_due -= groups) ask_outputs(p, r->row++, blocks);
    if (!r->code) return;
    for (r->lines_due += PAIR_LINES; r->lines_due >= p->count; r->lines_due -= p->count, r->code += LINE) ask_for(r->code);
}

/* Strip s of a group whose rows begin at x, with `rows` of them from tile to tile, and that has these weights. */
ALWAYS_INLINE struct strip strip_of(const uint8_t *x, size_t strip_bytes, long rows, group_tiles *weights, int s)
{
    const uint8_t *first = x + (size_t)s * strip_bytes;
    return (struct strip){{first, first + rows * LINE}, {weights[0][s], weights[1][s]}};
}

ALWAYS_INLINE void multiply_panel(struct bf16_work *w, const struct panel *p, int tiles, int blocks)
{
    const int groups = p->job->col_tiles;
    const size_t strip = (size_t)(p->end - p->first) * LINE;
    const long second = p->end - p->rows - p->first; /* row of the second tile */
    const uint8_t *x = (const uint8_t *)(p->job->act->x + (size_t)p->first * (size_t)p->job->act->ld);
    struct requests requests = begin_requests(p);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int g = p->from; g < AHEAD; g++) unpack_group(w, p, g, blocks);
    for (int g = 0; g < groups; g++, x += STRIPS * strip) {
        const bool unpacking = g + AHEAD >= p->from && g + AHEAD < p->to;
        group_tiles *weights = group_weights(w, p, g);
        ask_memory(&requests, p, blocks);
        UNROLL2(s, STRIPS, {
            const struct strip now = strip_of(x, strip, second, weights, s);
            if (unpacking) {
                const struct unpacking u = begin_group(w, p, g + AHEAD, blocks == 2 ? s : 0);
                multiply(&now, tiles, blocks, NULL, &u, blocks == 2 ? 0 : 4 * s, blocks == 2 ? 8 : 4);
            } else { /* the next panel begins where this one ends */
                const struct strip later = strip_of(x + STRIPS * strip, strip, second, weights, s);
                multiply(&now, tiles, blocks, &later, NULL, 0, 0);
            }
        })
    }
    store_sums(p, tiles, blocks);
}

/* One function for each shape of a step, so that tiles are constants. */
#define SHAPE(tiles, blocks)                                                                     \
    NOINLINE static void multiply_##tiles##_##blocks(struct bf16_work *w, const struct panel *p) \
    {                                                                                            \
        multiply_panel(w, p, tiles, blocks);                                                     \
    }
SHAPE(1, 1)
SHAPE(1, 2)
SHAPE(2, 1)
SHAPE(2, 2)

/*
 * The panels of p by its row blocks, whose first groups up to p->from are unpacked. The first panel unpacks for all; while the last
 * one ends, the first groups of the next two blocks are unpacked, if two follow and their places are free by then.
 */
static void multiply_blocks(struct bf16_work *w, struct panel *p)
{
    static void (*const shapes[2][2])(struct bf16_work *, const struct panel *) = {{multiply_1_1, multiply_1_2}, {multiply_2_1, multiply_2_2}};
    const struct bf16_job *j = p->job;
    const int groups = j->col_tiles, on = j->n_blocks - p->block >= 4 && (is_ring(p) || groups > AHEAD) ? AHEAD : 0;
    for (p->index = 0; p->index < p->count; p->index++) {
        const int panel = p->begin + p->index;
        p->first = panel_row(j->act->n, panel), p->end = panel_row(j->act->n, panel + 1);
        p->to = groups + (p->index + 1 == p->count ? on : 0);
        shapes[p->tiles - 1][p->blocks - 1](w, p);
        p->from = groups;
    }
    p->from = on;
    p->slot = (p->slot + groups) & (RING - 1);
}

void cpu_q4_bf16_amx(const struct bf16_job *j)
{
    const int n = j->act->n, most = (n + panel_count(n) - 1) / panel_count(n);
    struct panel p = {.job = j, .tiles = most > TILE_ROWS ? 2 : 1, .count = j->col_tiles <= MAX_GROUPS ? j->last - j->first : 1};
    p.rows = (most + p.tiles - 1) / p.tiles;
    struct bf16_work w;
    tiles_configure(6, p.rows);
    for (p.begin = j->first; p.begin < j->last; p.begin += p.count)
        for (p.block = 0; p.block < j->n_blocks; p.block += p.blocks) {
            p.blocks = j->n_blocks - p.block > 1 ? 2 : 1;
            multiply_blocks(&w, &p);
        }
    _tile_release();
}

/* A row's first strip, and how far the next ones lie apart. */
struct strips {
    uint16_t *first;
    long step;
};

ALWAYS_INLINE struct strips row_strips(const struct bf16_run *run, int row)
{
    const int panel = panel_of(run->n, row), first = panel_row(run->n, panel), m = panel_row(run->n, panel + 1) - first;
    return (struct strips){run->x + (long)first * run->ld + (row - first) * STRIP_COLS, (long)m * STRIP_COLS};
}

void cpu_place_bf16_amx(const struct bf16_run *out, int row, const uint16_t *x)
{
    const struct strips to = row_strips(out, row);
    for (long i = 0; i < out->ld / STRIP_COLS; i++) _mm512_store_si512(to.first + i * to.step, _mm512_load_si512(x + i * STRIP_COLS));
}

/* To the nearest, ties to even; NaN stays NaN, and subnormal numbers are zeros, as tiles would take them. */
void cpu_round_bf16_amx(const struct bf16_run *out, int row, int group, const float *x, int n_groups)
{
    const struct strips strips = row_strips(out, row);
    uint16_t *to = strips.first + group * STRIPS * strips.step;
    for (int i = 0; i < n_groups * STRIPS; i++, to += strips.step, x += STRIP_COLS)
        _mm512_store_si512(to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x)));
}
