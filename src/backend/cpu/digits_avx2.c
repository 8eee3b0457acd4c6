/*
 * Digit kernels, AVX2 tier. Lane = row: a register holds four codes of each of 8 rows as bytes, a quad of digits is
 * broadcast to all lanes. Products of a code (at most 15) and a digit pair up in 16 bits (at most 3840); eight of these
 * sums fit, then they widen.
 */
#include "backend/cpu/digits.h"
#include "backend/cpu/vec_avx2.h"

enum { QUADS = QUANT_GROUP / 4, CHUNK = 64, AHEAD = 2304 };

/* A tile with a byte for each code: (16 quads, 16 rows, 4). */
struct codes {
    uint8_t b[QUADS][64];
} __attribute__((aligned(64)));

ALWAYS_INLINE __m256i load_bytes(const void *p)
{
    return _mm256_load_si256(p);
}

static void unpack(struct codes *c, const uint8_t *tile)
{
    const __m256i low = _mm256_set1_epi8(15);
    for (int i = 0; i < QUADS / 2; i++)
        for (int h = 0; h < 2; h++) {
            __m256i w = load_bytes(tile + 64 * i + 32 * h);
            _mm256_store_si256((void *)(c->b[2 * i] + 32 * h), _mm256_and_si256(w, low));
            _mm256_store_si256((void *)(c->b[2 * i + 1] + 32 * h), _mm256_and_si256(_mm256_srli_epi16(w, 4), low));
        }
}

/* Tile t of a row block, unpacked. */
struct group {
    const struct codes *codes;
    const uint8_t *tile;
    int t;
};

/* Sums of code * digit for `rows` rows, `count` digits and the two halves of the tile: pairs in 16 bits, then whole groups. */
struct sums {
    __m256i v[4][DIGITS_MAX + 1][2];
};

/* Adds up quads first … first+7: as many as 16 bits hold. The loop is kept, or the sums would leave the registers. */
ALWAYS_INLINE void pair_sums(struct sums *acc, const struct group *g, const struct digit_rows *r, int first, int rows, int count)
{
    UNROLL4(i, rows, UNROLL4(d, count, acc->v[i][d][0] = acc->v[i][d][1] = _mm256_setzero_si256();))
#pragma GCC unroll 1
    for (int q = first; q < first + 8; q++) {
        __m256i w0 = load_bytes(g->codes->b[q]), w1 = load_bytes(g->codes->b[q] + 32);
        UNROLL4(i, rows, UNROLL4(d, count, {
            __m256i x = _mm256_broadcastd_epi32(_mm_loadu_si32(r->d[i] + (g->t * count + d) * QUANT_GROUP + 4 * q));
            acc->v[i][d][0] = _mm256_add_epi16(acc->v[i][d][0], _mm256_maddubs_epi16(w0, x));
            acc->v[i][d][1] = _mm256_add_epi16(acc->v[i][d][1], _mm256_maddubs_epi16(w1, x));
        }))
    }
}

ALWAYS_INLINE void group_sums(struct sums *out, const struct group *g, const struct digit_rows *r, int rows, int count)
{
    const __m256i ones = _mm256_set1_epi16(1);
    struct sums a, b;
    pair_sums(&a, g, r, 0, rows, count);
    UNROLL4(i, rows, UNROLL4(d, count, UNROLL2(h, 2, out->v[i][d][h] = _mm256_madd_epi16(a.v[i][d][h], ones);)))
    pair_sums(&b, g, r, 8, rows, count);
    UNROLL4(i, rows, UNROLL4(d, count, UNROLL2(h, 2, {
        out->v[i][d][h] = _mm256_add_epi32(out->v[i][d][h], _mm256_madd_epi16(b.v[i][d][h], ones));
    })))
}

/* The whole number of the digits' sums. */
ALWAYS_INLINE __m256 whole(const __m256i v[DIGITS_MAX + 1][2], int h, int count)
{
    if (count == 1) return _mm256_cvtepi32_ps(v[0][h]);
    __m256 low = _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_slli_epi32(v[count - 2][h], 8), v[count - 1][h]));
    if (count == 2) return low;
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(v[0][h]), _mm256_set1_ps(65536), low);
}

/* y (rows, 16) += one group. */
ALWAYS_INLINE void add_group(float *y, const struct group *g, const struct digit_rows *r, int rows, int count)
{
    const uint8_t *scales = g->tile + Q4_TILE_BYTES - 64;
    struct sums s;
    group_sums(&s, g, r, rows, count);
    UNROLL4(i, rows, UNROLL2(h, 2, {
        float *out = y + i * BLOCK_ROWS + 8 * h;
        __m256 dot = _mm256_mul_ps(whole(s.v[i], h, count), _mm256_broadcast_ss(r->scales[i] + g->t));
        __m256 sum = _mm256_fmadd_ps(load_bf16(scales + 16 * h), dot, _mm256_loadu_ps(out));
        _mm256_storeu_ps(out, _mm256_fmadd_ps(load_bf16(scales + 32 + 16 * h), _mm256_broadcast_ss(r->sums[i] + g->t), sum));
    }))
}

/* Rows at once for a number of digits: 8 sums of 16 bits in registers. */
ALWAYS_INLINE void chunk(const struct digit_job *j, int from, int n, int count)
{
    const int at_once = count == 1 ? 4 : count == 2 ? 2 : 1;
    float y[CHUNK][BLOCK_ROWS] __attribute__((aligned(64)));
    struct digit_rows rows[CHUNK];
    memset(y, 0, (size_t)n * sizeof *y);
    for (int i = 0; i < n; i += at_once) take_digit_rows(&rows[i / at_once], j, from + i, n - i < at_once ? n - i : at_once);
    struct codes codes;
    struct group g = {.codes = &codes, .tile = j->block};
    for (; g.t < j->col_tiles; g.t++, g.tile += Q4_TILE_BYTES) {
        prefetch_tile(g.tile, AHEAD, Q4_TILE_BYTES);
        unpack(&codes, g.tile);
        int i = 0;
        for (; i + at_once <= n; i += at_once) add_group(y[i], &g, &rows[i / at_once], at_once, count);
        for (int k = 0; i + k < n; k++) {
            const struct digit_rows *r = &rows[i / at_once];
            struct digit_rows one = {{r->d[k]}, {r->scales[k]}, {r->sums[k]}};
            add_group(y[i + k], &g, &one, 1, count);
        }
    }
    for (int i = 0; i < n; i++) memcpy(j->y + (long)(from + i) * j->ldy, y[i], sizeof y[i]);
}

static void one_block(const struct digit_job *j)
{
    for (int from = 0; from < j->n; from += CHUNK) {
        int n = j->n - from < CHUNK ? j->n - from : CHUNK;
        switch (j->act->count) {
        case 1: chunk(j, from, n, 1); break;
        case 2: chunk(j, from, n, 2); break;
        default: chunk(j, from, n, 3); break;
        }
    }
}

static void matmul_q4_digits(const struct digit_job *j)
{
    each_block(j, one_block, Q4_TILE_BYTES);
}

/* The low bytes of 32 32-bit numbers, in order. */
ALWAYS_INLINE __m256i pack_bytes(const __m256i v[4])
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(bytes, order);
}

static void split_group(const struct digit_row *out, int g, const float *x)
{
    __m256i top = _mm256_setzero_si256(), sum = _mm256_setzero_si256();
    for (int k = 0; k < QUANT_GROUP; k += 8) {
        __m256i bits = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + k)), _mm256_set1_epi32(0x7fffffff));
        top = _mm256_max_epi32(top, bits);
    }
    __m128i top4 = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    top4 = _mm_max_epi32(top4, _mm_shuffle_epi32(top4, 0x4e));
    top4 = _mm_max_epi32(top4, _mm_shuffle_epi32(top4, 0xb1));
    float factor, scale = digits_scale((uint32_t)_mm_cvtsi128_si32(top4), out->count, &factor);
    for (int half = 0; half < 2; half++) {
        __m256i v[4], digit[4];
        UNROLL4(i, 4, {
            v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 32 * half + 8 * i), _mm256_set1_ps(factor)));
            if (!(factor > 0)) v[i] = _mm256_setzero_si256();
            sum = _mm256_add_epi32(sum, v[i]);
        })
        for (int d = out->count - 1; d >= 0; d--) {
            UNROLL4(i, 4, {
                digit[i] = _mm256_srai_epi32(_mm256_slli_epi32(v[i], 24), 24);
                v[i] = _mm256_srai_epi32(_mm256_sub_epi32(v[i], digit[i]), 8);
            })
            _mm256_storeu_si256((void *)(out->d + ((long)g * out->count + d) * QUANT_GROUP + 32 * half), pack_bytes(digit));
        }
    }
    __m128i sum4 = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    sum4 = _mm_add_epi32(sum4, _mm_shuffle_epi32(sum4, 0x4e));
    sum4 = _mm_add_epi32(sum4, _mm_shuffle_epi32(sum4, 0xb1));
    out->scales[g] = scale;
    out->sums[g] = (float)_mm_cvtsi128_si32(sum4) * scale;
}

static void split_digits(const struct digit_row *out, const float *x, int n_groups)
{
    for (int g = 0; g < n_groups; g++) split_group(out, g, x + (long)g * QUANT_GROUP);
}

void cpu_kernels_avx2_digits(struct cpu_kernels *k)
{
    k->matmul_q4_digits = matmul_q4_digits;
    k->split_digits = split_digits;
}
