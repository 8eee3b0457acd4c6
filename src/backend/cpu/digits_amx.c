/*
 * Digit products on AMX tiles. One tile multiply is 16 activation rows x 16 weight rows x one group of 64: A holds one digit
 * of each activation row as it lies in struct digits, B the codes as bytes in quads, C whole numbers with a lane for each
 * weight row. The numbers are exact, so bits are those of the other tiers. Tiles are configured and released in each call.
 */
#include "backend/cpu/digits.h"
#include "backend/cpu/vec_avx512.h"

enum { CHUNK = 64, TILE_ROWS = 16, LINE = 64, AHEAD = 4608 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 … 3 are C, 4 and 5 are A, of `rows` rows; 7 is B. */
static void configure(int rows)
{
    struct tile_config c __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 8; i++) c.row_bytes[i] = LINE, c.rows[i] = (uint8_t)(i == 7 ? TILE_ROWS : rows);
    __asm__ volatile("" : : "r"(&c) : "memory"); /* gcc 12 thinks that only the first 8 bytes are read */
    _tile_loadconfig(&c);
}

static void unpack(uint8_t *codes, const uint8_t *tile)
{
    const __m512i low = _mm512_set1_epi8(15);
    for (int i = 0; i < 8; i++) {
        __m512i w = _mm512_load_si512((const void *)(tile + LINE * i));
        _mm512_store_si512((void *)(codes + 2 * LINE * i), _mm512_and_si512(w, low));
        _mm512_store_si512((void *)(codes + 2 * LINE * i + LINE), _mm512_and_si512(_mm512_srli_epi16(w, 4), low));
    }
}

/* The rows of one tile. */
struct amx_rows {
    const int8_t *d[TILE_ROWS];
    const float *scales[TILE_ROWS], *sums[TILE_ROWS];
    int first, n, skip; /* rows of the chunk; the first `skip` belong to the tile before */
    size_t stride;      /* bytes from row to row; 0: they lie anywhere and are gathered */
};

/*
 * A step is one tile of rows with one group. Its whole numbers are added to y DELAY steps later, so that the way through load,
 * multiply and store is hidden behind the additions of earlier steps.
 */
enum { DELAY = 4, RING = 8 };

struct amx_state {
    float y[CHUNK][BLOCK_ROWS];
    uint8_t codes[2][TILE_ROWS * LINE]; /* of this group and of the next */
    int8_t gathered[2][TILE_ROWS][LINE];
    int32_t sums[RING][2][TILE_ROWS][BLOCK_ROWS];
    struct amx_rows tile[CHUNK / TILE_ROWS];
    const struct digit_job *job;
} __attribute__((aligned(64)));

/* The line of digit d of the tile's first row; rows that lie anywhere are copied together. */
ALWAYS_INLINE const int8_t *digit_lines(struct amx_state *a, const struct amx_rows *r, int t, int d, int count)
{
    long at = ((long)t * count + d) * LINE;
    if (r->stride) return r->d[0] + at;
    for (int i = 0; i < r->n; i++) _mm512_store_si512((void *)a->gathered[d][i], _mm512_loadu_si512((const void *)(r->d[i] + at)));
    return a->gathered[d][0];
}

/* gcc 12 does not know that tile loads read memory. */
#define MEMORY_BARRIER() __asm__ volatile("" : : : "memory")

/* Whole numbers of one step into `out`, by the C tiles c0 and c1 (numbers as they are written). */
#define TILE_SUMS(a, r, t, count, out, c0, c1)                                                                         \
    do {                                                                                                               \
        size_t stride = (r)->stride ? (r)->stride : LINE;                                                              \
        const int8_t *high = digit_lines(a, r, t, 0, count), *low = (count) == 2 ? digit_lines(a, r, t, 1, count) : high; \
        MEMORY_BARRIER();                                                                                              \
        _tile_loadd(4, high, stride);                                                                                  \
        _tile_zero(c0);                                                                                                \
        _tile_dpbsud(c0, 4, 7);                                                                                        \
        if ((count) == 2) {                                                                                            \
            _tile_loadd(5, low, stride);                                                                               \
            _tile_zero(c1);                                                                                            \
            _tile_dpbsud(c1, 5, 7);                                                                                    \
        }                                                                                                              \
        _tile_stored(c0, (out)[0], LINE);                                                                              \
        if ((count) == 2) _tile_stored(c1, (out)[1], LINE);                                                            \
        MEMORY_BARRIER();                                                                                              \
    } while (0)

/* y of the step's rows += its whole numbers. */
ALWAYS_INLINE void add_sums(struct amx_state *a, int step, int tiles, int count)
{
    const struct amx_rows *r = &a->tile[step % tiles];
    const int t = step / tiles;
    const uint8_t *scales = a->job->block + (size_t)(t + 1) * Q4_TILE_BYTES - LINE;
    __m512 scale = load16_bf16(scales), bias = load16_bf16(scales + 32);
    for (int i = r->skip; i < r->n; i++) {
        float *y = a->y[r->first + i];
        __m512i v = _mm512_load_si512((const void *)a->sums[step % RING][0][i]);
        if (count == 2) v = _mm512_add_epi32(_mm512_slli_epi32(v, 8), _mm512_load_si512((const void *)a->sums[step % RING][1][i]));
        __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(r->scales[i][t]));
        __m512 sum = _mm512_fmadd_ps(scale, dot, _mm512_load_ps(y));
        _mm512_store_ps(y, _mm512_fmadd_ps(bias, _mm512_set1_ps(r->sums[i][t]), sum));
    }
}

/* Cuts n rows into tiles of one size; the last begins earlier where they do not divide. Returns the number of tiles. */
static int take_tiles(struct amx_state *a, const struct digit_job *j, int from, int n, int *size)
{
    int tiles = (n + TILE_ROWS - 1) / TILE_ROWS;
    *size = (n + tiles - 1) / tiles;
    for (int p = 0; p < tiles; p++) {
        struct amx_rows *r = &a->tile[p];
        int first = p * *size, start = first + *size > n ? n - *size : first;
        *r = (struct amx_rows){.first = start, .n = *size, .skip = first - start};
        for (int i = 0; i < *size; i++) {
            struct digit_row row = digit_row(j->act, j->rows ? j->rows[from + start + i] : from + start + i, 0);
            r->d[i] = row.d, r->scales[i] = row.scales, r->sums[i] = row.sums;
        }
        if (!j->rows) r->stride = (size_t)digits_row_bytes(j->act->ld, j->act->count);
    }
    a->job = j;
    return tiles;
}

/* Loads the codes of group t into tile 7, and unpacks those of the next. */
ALWAYS_INLINE void next_group(struct amx_state *a, int t)
{
    prefetch_tile(a->job->block + (size_t)t * Q4_TILE_BYTES, AHEAD);
    MEMORY_BARRIER();
    _tile_loadd(7, a->codes[t % 2], LINE);
    if (t + 1 < a->job->col_tiles) unpack(a->codes[(t + 1) % 2], a->job->block + (size_t)(t + 1) * Q4_TILE_BYTES);
}

ALWAYS_INLINE void chunk(const struct digit_job *j, int from, int n, int count)
{
    struct amx_state a;
    int size, tiles = take_tiles(&a, j, from, n, &size), steps = tiles * j->col_tiles;
    memset(a.y, 0, (size_t)n * sizeof *a.y);
    configure(size);
    unpack(a.codes[0], j->block);
    for (int step = 0; step < steps + DELAY; step++) {
        if (step < steps) {
            const struct amx_rows *r = &a.tile[step % tiles];
            int t = step / tiles;
            if (step % tiles == 0) next_group(&a, t);
            if (step % 2)
                TILE_SUMS(&a, r, t, count, a.sums[step % RING], 2, 3);
            else
                TILE_SUMS(&a, r, t, count, a.sums[step % RING], 0, 1);
        }
        if (step >= DELAY) add_sums(&a, step - DELAY, tiles, count);
    }
    _tile_release();
    for (int i = 0; i < n; i++) memcpy(j->y + (long)(from + i) * j->ldy, a.y[i], sizeof a.y[i]);
}

static void one_block(const struct digit_job *j)
{
    for (int from = 0; from < j->n; from += CHUNK) {
        int n = j->n - from < CHUNK ? j->n - from : CHUNK;
        if (j->act->count == 1)
            chunk(j, from, n, 1);
        else
            chunk(j, from, n, 2);
    }
}

/* Few rows, and three digits, are left to the vectors: the bits are the same. */
static void matmul_q4_digits(const struct digit_job *j)
{
    if (j->n < 3 || j->act->count > 2)
        cpu_digits_avx512(j);
    else
        each_block(j, one_block);
}

void cpu_kernels_amx(struct cpu_kernels *k)
{
    k->tier = CPU_AMX;
    k->matmul_q4_digits = matmul_q4_digits;
}
