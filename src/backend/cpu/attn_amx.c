/*
 * Softmax attention of many query rows on AMX tiles, for the fast mode: queries, weights, keys and values in bf16, sums in fp32.
 *
 * A lane is a query row throughout. Scores of 16 keys x 16 rows are keys as they are stored times queries in pairs of dimensions;
 * outputs of 16 dimensions x 16 rows are values, transposed once for all rows of the call, times weights in pairs of keys. Lanes of
 * a product do not meet, so each row has its own maximum, sum and outputs, and its bits do not depend on company: a key that it may
 * not see has the weight zero, which adds nothing. A row's maximum is a whole power of two and follows its scores only when they
 * have outgrown it by 2^8: old weights and outputs are rescaled rarely, and exactly.
 *
 * Keys go by spans of a few pages at absolute positions. Page by page all rows take scores and weights, while the keys stay in the
 * first-level cache; then outputs are loaded, summed over the span and stored, a few dimensions at a time for the same reason.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/amx.h"
#include "base/num.h"

enum {
    SPAN = 4, /* pages */
    ROW_TILES = ATTN_TILE_ROWS / TILE_ROWS,
    STEP = 32, /* what a product sums over: dimensions of scores, keys of outputs */
    DIM_STEPS = HEAD_DIM / STEP,
    KEY_STEPS = GRID / STEP, /* of a page */
    AT_ONCE = 4, /* tiles of keys or dimensions with one of rows */
    AT_A_TIME = GRID / DIM_STEPS, /* keys whose weights are taken beside a step of products */
    OUT_SHARE = AT_ONCE * TILE_ROWS / (SPAN * KEY_STEPS), /* lines of the next outputs that are asked for with a step */
    KEY_BYTES = 2 * HEAD_DIM
};

typedef uint32_t pair_tile[TILE_ROWS][TILE_ROWS]; /* of two bf16 each */

struct attn_work {
    pair_tile q[ROW_TILES][DIM_STEPS];                      /* pairs of dimensions x rows: queries times log2 e */
    pair_tile weight[ROW_TILES][SPAN * KEY_STEPS];          /* pairs of keys x rows */
    pair_tile value[HEAD_DIM / TILE_ROWS][SPAN * KEY_STEPS]; /* dimensions x pairs of keys */
    float out[ROW_TILES][HEAD_DIM][TILE_ROWS];
    float score[2][GRID][TILE_ROWS]; /* of a tile of rows, and of the one before */
    float max[ATTN_TILE_ROWS], sum[ATTN_TILE_ROWS];
    int32_t sees[ATTN_TILE_ROWS];    /* a row's number of keys */
    uint16_t clean[GRID][HEAD_DIM];  /* values of a page that not every row sees, zero where they are not finite */
    uint64_t unclean[SPAN];          /* keys with values that are not finite, there */
    const struct attn_job *job;
    int rows, tiles, n_keys; /* n_keys: of the last row */
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct attn_work) <= ATTN_WORK_BYTES, "the caller's memory");

static const float *query(const struct attn_job *j, int r)
{
    return j->q + (long)(r / j->n_q) * j->ldq_row + (long)(r % j->n_q) * j->ldq;
}

/* A tile of query rows; behind the last they are zeros. */
static void take_queries(struct attn_work *w, int tile)
{
    const __m512 log2_e = _mm512_set1_ps(0x1.715476p+0f);
    for (int i = 0; i < HEAD_DIM; i += TILE_ROWS) {
        __m512i x[TILE_ROWS];
        for (int m = 0; m < TILE_ROWS; m++) {
            const int r = tile * TILE_ROWS + m;
            __m512 v = r < w->rows ? _mm512_mul_ps(_mm512_loadu_ps(query(w->job, r) + i), log2_e) : _mm512_setzero_ps();
            x[m] = round_bf16(_mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v, _mm512_set1_ps(NAN)));
        }
        transpose(x);
        uint32_t(*to)[TILE_ROWS] = w->q[tile][i / STEP] + i % STEP / 2;
        for (int p = 0; p < TILE_ROWS / 2; p++) _mm512_store_si512((void *)to[p], pair_upper(x[2 * p], x[2 * p + 1]));
    }
}

static void begin(struct attn_work *w, const struct attn_job *j)
{
    w->job = j;
    w->rows = j->n_rows * j->n_q;
    w->tiles = (w->rows + TILE_ROWS - 1) / TILE_ROWS;
    w->n_keys = j->n_keys + j->n_rows - 1;
    for (int r = 0; r < w->tiles * TILE_ROWS; r++) {
        w->max[r] = -INFINITY, w->sum[r] = 0;
        w->sees[r] = j->n_keys + r / j->n_q;
    }
    for (int t = 0; t < w->tiles; t++) take_queries(w, t);
}

/*
 * Values of a page that some row may not see: zeros for what is not finite, since zero times that is no zero, and behind the last
 * key. Keys that had such values are noted.
 */
static const uint8_t *clean_values(struct attn_work *w, const uint8_t *values, int first, uint64_t *unclean)
{
    *unclean = 0;
    for (int s = 0; s < GRID; s++)
        for (int i = 0; i < HEAD_DIM; i++) {
            uint16_t v = first + s < w->n_keys ? load_u16(values + s * KEY_BYTES + 2 * i) : 0;
            bool finite = (v & 0x7f80) != 0x7f80;
            w->clean[s][i] = finite ? v : 0;
            *unclean |= (uint64_t)!finite << s;
        }
    return (const uint8_t *)w->clean;
}

/* Of 32 keys and 32 dimensions, 4 dimensions of each 8: the lower or the upper ones. */
ALWAYS_INLINE void transpose_values(struct attn_work *w, const uint8_t *values, int step, int dim, const bool upper)
{
    __m512i x[TILE_ROWS];
#pragma GCC unroll 16
    for (int k = 0; k < TILE_ROWS; k++) {
        const uint8_t *at = values + 2 * k * KEY_BYTES + 2 * dim;
        __m512i even = _mm512_loadu_si512(at), odd = _mm512_loadu_si512(at + KEY_BYTES);
        x[k] = upper ? _mm512_unpackhi_epi16(even, odd) : _mm512_unpacklo_epi16(even, odd);
    }
    transpose(x);
#pragma GCC unroll 16
    for (int k = 0; k < TILE_ROWS; k++) {
        int i = dim + k / 4 * 8 + upper * 4 + k % 4;
        _mm512_store_si512((void *)w->value[i / TILE_ROWS][step][i % TILE_ROWS], x[k]);
    }
}

/* Part `part` of `parts` of a page's values. */
ALWAYS_INLINE void take_values(struct attn_work *w, const uint8_t *values, int page, int part, int parts)
{
    for (int i = 2 * DIM_STEPS * part / parts; i < 2 * DIM_STEPS * (part + 1) / parts; i++) {
        const int s = i / DIM_STEPS, dim = i % DIM_STEPS * STEP;
        transpose_values(w, values + s * STEP * KEY_BYTES, page * KEY_STEPS + s, dim, false);
        transpose_values(w, values + s * STEP * KEY_BYTES, page * KEY_STEPS + s, dim, true);
    }
}

/*
 * Four tiles of sums += four of keys or dimensions, `next` bytes apart, times one of rows, which is asked for from the second-level
 * cache past the first: there the others stay.
 */
ALWAYS_INLINE void multiply(const void *left, size_t next, size_t stride, const void *rows)
{
    const uint8_t *at = left;
    _tile_stream_loadd(6, rows, TILE_LINE);
    _tile_loadd(4, at, stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, at + next, stride);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(4, at + 2 * next, stride);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(5, at + 3 * next, stride);
    _tile_dpbf16ps(3, 5, 6);
}

ALWAYS_INLINE void zero_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

ALWAYS_INLINE void store_sums(float (*to)[TILE_ROWS])
{
    _tile_stored(0, to, TILE_LINE);
    _tile_stored(1, to + TILE_ROWS, TILE_LINE);
    _tile_stored(2, to + 2 * TILE_ROWS, TILE_LINE);
    _tile_stored(3, to + 3 * TILE_ROWS, TILE_LINE);
    MEMORY_BARRIER();
}

/* Takes the scores of keys from `first` on that a row may not see away. */
static void mask_scores(float score[GRID][TILE_ROWS], const int32_t *sees, int first)
{
    for (int s = 0; s < GRID; s++)
        for (int r = 0; r < TILE_ROWS; r++)
            if (first + s >= sees[r]) score[s][r] = -INFINITY;
}

/* 2^x to 3e-6, zero for minus infinity. */
ALWAYS_INLINE __m512 exp2_ps(__m512 x)
{
    __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), p = _mm512_set1_ps(0x1.bb7cd4p-7f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.aa13fp-5f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ee798ap-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62d166p-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.00002cp+0f));
    return _mm512_scalef_ps(p, x);
}

/* A tile's weights of this span's earlier pages, and outputs of the spans before, for new maxima; `keep` holds powers of two. */
static void rescale(struct attn_work *w, int tile, int span, int page, __m512 keep)
{
    for (int i = 0; i < page * GRID / 2; i++) {
        void *at = w->weight[tile][i / TILE_ROWS][i % TILE_ROWS];
        __m512i pair = _mm512_load_si512(at);
        __m512 low = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)), keep), high = _mm512_mul_ps(upper_half(pair), keep);
        _mm512_store_si512(at, pair_upper(round_bf16(low), round_bf16(high)));
    }
    for (int i = 0; span && i < HEAD_DIM; i++)
        _mm512_store_ps(w->out[tile][i], _mm512_mul_ps(_mm512_load_ps(w->out[tile][i]), keep));
}

/* The maxima of a tile of rows with a page's scores. */
ALWAYS_INLINE __m512 take_maxima(struct attn_work *w, const float (*score)[TILE_ROWS], int tile, int span, int page)
{
    float *sum = w->sum + tile * TILE_ROWS;
    __m512 top[4], max = _mm512_load_ps(w->max + tile * TILE_ROWS);
    UNROLL4(k, 4, top[k] = _mm512_load_ps(score[k]);)
    for (int s = 4; s < GRID; s += 4) UNROLL4(k, 4, top[k] = _mm512_max_ps(_mm512_load_ps(score[s + k]), top[k]);)
    top[0] = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
    unsigned outgrown = _mm512_cmplt_ps_mask(_mm512_add_ps(max, _mm512_set1_ps(8)), top[0]);
    if (!outgrown) return max;
    __m512 now = _mm512_mask_blend_ps(outgrown, max, _mm512_roundscale_ps(top[0], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    __m512 keep = _mm512_mask_blend_ps(outgrown, _mm512_set1_ps(1), _mm512_scalef_ps(_mm512_set1_ps(1), _mm512_sub_ps(max, now)));
    rescale(w, tile, span, page, keep);
    _mm512_store_ps(sum, _mm512_mul_ps(_mm512_load_ps(sum), keep));
    _mm512_store_ps(w->max + tile * TILE_ROWS, now);
    return now;
}

/* Scores of a few keys become weights, which are added up as they are rounded. */
ALWAYS_INLINE void take_weights(uint32_t (*weight)[TILE_ROWS], const float (*score)[TILE_ROWS], __m512 max, __m512 sum[2])
{
    UNROLL4(k, AT_A_TIME / 2, {
        __m512i a = round_bf16(exp2_ps(_mm512_sub_ps(_mm512_load_ps(score[2 * k]), max)));
        __m512i b = round_bf16(exp2_ps(_mm512_sub_ps(_mm512_load_ps(score[2 * k + 1]), max)));
        sum[0] = _mm512_add_ps(sum[0], upper_half(a));
        sum[1] = _mm512_add_ps(sum[1], upper_half(b));
        _mm512_store_si512((void *)weight[k], pair_upper(a, b));
    })
}

/* A page for all rows: where its scores and weights come from and go to. */
struct page {
    const uint8_t *keys, *values, *next_keys, *next_values; /* next: to be asked for meanwhile */
    int first, span, index; /* position of the first key; the page of its span */
    bool masked;
};

/*
 * Scores of a tile of rows, and weights of the one before: while tiles are multiplied, vectors are computed. Before the first
 * and behind the last tile one of the two is missing.
 */
ALWAYS_INLINE void take_tile(struct attn_work *w, const struct page *p, int tile, const bool scores, const bool weights)
{
    float(*score)[TILE_ROWS] = w->score[tile & 1], (*before)[TILE_ROWS] = w->score[~tile & 1];
    __m512 max = _mm512_setzero_ps(), sum[2] = {max, max};
    if (weights) {
        if (p->masked) mask_scores(before, w->sees + (tile - 1) * TILE_ROWS, p->first);
        max = take_maxima(w, (const float(*)[TILE_ROWS])before, tile - 1, p->span, p->index);
    }
    if (scores) zero_sums();
    for (int i = 0; i < DIM_STEPS; i++) {
        if (scores) multiply(p->keys + 2 * i * STEP, TILE_ROWS * KEY_BYTES, KEY_BYTES, w->q[tile][i]);
        if (!weights) continue;
        uint32_t(*weight)[TILE_ROWS] = w->weight[tile - 1][p->index * KEY_STEPS + i * AT_A_TIME / STEP] + i * AT_A_TIME % STEP / 2;
        take_weights(weight, (const float(*)[TILE_ROWS])before + i * AT_A_TIME, max, sum);
    }
    if (scores) store_sums(score);
    if (!weights) return;
    float *total = w->sum + (tile - 1) * TILE_ROWS;
    _mm512_store_ps(total, _mm512_add_ps(_mm512_load_ps(total), _mm512_add_ps(sum[0], sum[1])));
}

/* Part `part` of `parts` of a page's keys or values, for the second-level cache. */
ALWAYS_INLINE void ask_for(const uint8_t *rows, int part, int parts)
{
    for (int i = GRID * part / parts; i < GRID * (part + 1) / parts; i++)
        for (int k = 0; k < KEY_BYTES; k += TILE_LINE) __builtin_prefetch(rows + i * KEY_BYTES + k, 0, 2);
}

static void take_page(struct attn_work *w, int span, int index)
{
    const struct attn_job *j = w->job;
    struct page p = {.first = (span * SPAN + index) * GRID, .span = span, .index = index};
    const uint8_t *at = j->pages[p.first / GRID], *next = p.first + GRID < w->n_keys ? j->pages[p.first / GRID + 1] : at;
    p.keys = at + j->k_offset, p.values = at + j->v_offset;
    p.masked = p.first + GRID > j->n_keys;
    w->unclean[index] = 0;
    if (p.masked) p.values = clean_values(w, p.values, p.first, &w->unclean[index]);
    MEMORY_BARRIER();
    for (int t = 0; t < w->tiles; t++) {
        if (t) take_tile(w, &p, t, true, true);
        else take_tile(w, &p, t, true, false);
        ask_for(next + j->k_offset, t, w->tiles);
        ask_for(next + j->v_offset, t, w->tiles);
        take_values(w, p.values, index, t, w->tiles);
    }
    take_tile(w, &p, w->tiles, false, true);
}

/* Some dimensions of a tile of rows over a span of `steps`; those of the next tile are asked for meanwhile. */
ALWAYS_INLINE void add_outputs(struct attn_work *w, int tile, int dim, int span, int steps)
{
    float(*out)[TILE_ROWS] = w->out[tile] + dim, (*next)[TILE_ROWS] = w->out[tile + 1 < w->tiles ? tile + 1 : tile] + dim;
    if (span) {
        _tile_loadd(0, out, TILE_LINE);
        _tile_loadd(1, out + TILE_ROWS, TILE_LINE);
        _tile_loadd(2, out + 2 * TILE_ROWS, TILE_LINE);
        _tile_loadd(3, out + 3 * TILE_ROWS, TILE_LINE);
    } else {
        zero_sums();
    }
    for (int s = 0; s < steps; s++) {
        for (int k = 0; k < OUT_SHARE; k++) __builtin_prefetch(next[OUT_SHARE * s + k], 1, 3);
        multiply(w->value[dim / TILE_ROWS][s], sizeof w->value[0], TILE_LINE, w->weight[tile][s]);
    }
    store_sums(out);
}

/* What is not finite in the values of a page's key s, for the rows that see it: as their tiles would have added it. */
static void add_unclean(struct attn_work *w, int span, int page, int s)
{
    const int key = (span * SPAN + page) * GRID + s;
    const uint8_t *values = w->job->pages[key / GRID] + w->job->v_offset + s * KEY_BYTES;
    for (int r = 0; r < w->rows; r++) {
        const int tile = r / TILE_ROWS, lane = r % TILE_ROWS;
        if (key >= w->sees[r]) continue;
        uint32_t pair = w->weight[tile][page * KEY_STEPS + s / STEP][s % STEP / 2][lane];
        float weight = bf16_to_f32((uint16_t)(s % 2 ? pair >> 16 : pair));
        for (int i = 0; i < HEAD_DIM; i++) {
            float v = bf16_to_f32(load_u16(values + 2 * i));
            if (!isfinite(v)) w->out[tile][i][lane] += (weight < 0x1p-126f ? 0 : weight) * v;
        }
    }
}

static void take_outputs(struct attn_work *w, int span, int pages)
{
    MEMORY_BARRIER();
    for (int dim = 0; dim < HEAD_DIM; dim += AT_ONCE * TILE_ROWS)
        for (int t = 0; t < w->tiles; t++) add_outputs(w, t, dim, span, pages * KEY_STEPS);
    for (int page = 0; page < pages; page++)
        for (int s = 0; w->unclean[page] && s < GRID; s++)
            if (w->unclean[page] >> s & 1) add_unclean(w, span, page, s);
}

/* A tile's outputs, over the sums of the weights. */
static void finish(const struct attn_work *w, int tile)
{
    const struct attn_job *j = w->job;
    const __m512 share = _mm512_div_ps(_mm512_set1_ps(1), _mm512_load_ps(w->sum + tile * TILE_ROWS));
    for (int d = 0; d < HEAD_DIM; d += TILE_ROWS) {
        __m512i x[TILE_ROWS];
        for (int i = 0; i < TILE_ROWS; i++) x[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(w->out[tile][d + i]), share));
        transpose(x);
        for (int m = 0, r = tile * TILE_ROWS; m < TILE_ROWS && r < w->rows; m++, r++)
            _mm512_storeu_si512(j->out + (long)(r / j->n_q) * j->ldo_row + (long)(r % j->n_q) * j->ldo + d, x[m]);
    }
}

void cpu_attention_amx(const struct attn_job *j)
{
    struct attn_work *w = j->work;
    tiles_configure(0, TILE_ROWS);
    begin(w, j);
    const int pages = (w->n_keys + GRID - 1) / GRID;
    for (int span = 0; span * SPAN < pages; span++) {
        const int left = pages - span * SPAN, n = left < SPAN ? left : SPAN;
        for (int page = 0; page < n; page++) take_page(w, span, page);
        take_outputs(w, span, n);
    }
    for (int t = 0; t < w->tiles; t++) finish(w, t);
    _tile_release();
}
