/*
 * The gated delta rule by chunks of up to 64 tokens on AMX tiles (MODEL.md, Gated DeltaNet). With S the state before the chunk, c_i
 * the product of the decays of tokens 0 … i and L_ij that of j+1 … i (both of earlier tokens only):
 *   T = (I + strictly lower(beta_i L_ij k_i.k_j))^-1,  D = T (beta_i (v_i - c_i k_i S)),
 *   o_i = c_i q_i S + sum over j <= i of L_ij (q_i.k_j) D_j,  S = c_last S + sum over j of L_last,j k_j D_j'.
 * Products are bf16 with fp32 sums, each number in one or two bf16 parts (PARTS); T is made in fp32, and the state is fp32.
 *
 * A pair of bf16 in 32 bits is numbers 16 places apart (of 32), so that two vectors become one by shifts alone, and both factors
 * pair alike. Operands lie as tiles of 16 x 16 pairs. Four tiles of sums at a time, so that products need not wait for each other.
 * Rows behind the last token are zeros with decay 1; a row's sums run over whole tiles, so its bits do not depend on them. (What
 * is not a number spoils its value column from the chunk's first token on.)
 */
#include "backend/cpu/amx.h"

enum {
    CHUNK = GRID,
    PARTS = 2,
    BLOCKS = CHUNK / TILE_ROWS, /* of tokens */
    STEPS = GDN_DIM / 32,       /* of a sum over key places */
    TOKEN_STEPS = CHUNK / 32,   /* of a sum over tokens */
    STRIP = 32,                 /* value columns at a time: two tiles */
    STRIP_TILES = STRIP / TILE_ROWS,
    KEY_PAIRS = GDN_DIM / 32, /* of rows of tiles */
    FLUSH_SUBNORMAL = 0x8040, /* inputs and results: as tiles do it, and since products of many decays would take very long */
};

typedef uint32_t tile[TILE_ROWS][TILE_ROWS];
typedef float strip[CHUNK][STRIP];

/* What the value heads of a key head share. */
struct key_part {
    tile k[PARTS][BLOCKS][STEPS], q[PARTS][BLOCKS][STEPS]; /* rows: tokens */
    tile k_right[PARTS][BLOCKS][STEPS];                    /* the same k as a right factor: columns are tokens */
    tile k_left[PARTS][GDN_DIM / TILE_ROWS][TOKEN_STEPS];  /* k turned: rows are key places */
    float kk[CHUNK][CHUNK], qk[CHUNK][CHUNK];              /* lower tiles */
};

struct head_part {
    float decay[CHUNK], to_end[CHUNK]; /* c_i; L_last,j */
    float lower[CHUNK][CHUNK], inverse[CHUNK][CHUNK];
    tile t[PARTS][BLOCKS][TOKEN_STEPS], a[PARTS][BLOCKS][TOKEN_STEPS];
};

/* Of a strip of value columns. */
struct strip_part {
    tile state[PARTS][STRIP_TILES][STEPS];
    tile d[PARTS][STRIP_TILES][TOKEN_STEPS]; /* first what T is multiplied with */
    tile to_end[PARTS][STRIP_TILES][TOKEN_STEPS];
    strip sums, qs;            /* sums: k S, then D, then that of earlier tokens */
    float update[2][32][STRIP]; /* of 32 key places, and of those before */
};

struct work {
    struct key_part key;
    struct head_part head;
    struct strip_part strip;
} __attribute__((aligned(64)));

/* ---- numbers in parts ---- */

/* Row `row` of a tile and of the tiles of further parts, `step` tiles apart: a in the low halves, b in the high ones. */
ALWAYS_INLINE void store_parts(tile *to, int step, int row, __m512 a, __m512 b)
{
    __m512i ha = round_bf16(a), hb = round_bf16(b);
    _mm512_store_si512((void *)to[0][row], pair_upper(ha, hb));
    if (PARTS == 1) return;
    a = _mm512_sub_ps(a, upper_half(ha)), b = _mm512_sub_ps(b, upper_half(hb)); /* exact */
    _mm512_store_si512((void *)to[step][row], pair_upper(round_bf16(a), round_bf16(b)));
}

/* ---- products ---- */

/* Tiles of a factor: those of one part, of one row (or column) of tiles, behind each other along the sum. */
struct factor {
    const tile *at;
    int part, next; /* tiles from part to part; to the next row of tiles */
};

#define LOAD_TWO(a, b, from, next)                                                                                     \
    {                                                                                                                  \
        _tile_loadd(a, (from), TILE_LINE);                                                                             \
        _tile_loadd(b, (from) + (next), TILE_LINE);                                                                    \
    }
#define FOUR_PRODUCTS(ask, later, next) /* ask: meanwhile for two tiles of the next step */                            \
    {                                                                                                                  \
        _tile_dpbf16ps(0, 4, 6);                                                                                       \
        if (ask) ask_for_tile(later);                                                                                  \
        _tile_dpbf16ps(1, 4, 7);                                                                                       \
        _tile_dpbf16ps(2, 5, 6);                                                                                       \
        if (ask) ask_for_tile((later) + (next));                                                                       \
        _tile_dpbf16ps(3, 5, 7);                                                                                       \
    }

/* Sums 0 1 / 2 3 += two rows of tiles times two columns of tiles, over `steps` tiles; small parts first. */
ALWAYS_INLINE void add_products(struct factor left, struct factor right, int steps)
{
    for (int s = 0; s < steps; s++) {
        const tile *l = left.at + s, *r = right.at + s;
        const bool more = s + 1 < steps;
        LOAD_TWO(4, 5, l, left.next)
        if (PARTS == 2) {
            LOAD_TWO(6, 7, r + right.part, right.next)
            FOUR_PRODUCTS(more, l + 1, left.next)
        }
        LOAD_TWO(6, 7, r, right.next)
        FOUR_PRODUCTS(more, r + 1 + (PARTS == 2) * right.part, right.next)
        if (PARTS == 2) {
            LOAD_TWO(4, 5, l + left.part, left.next)
            FOUR_PRODUCTS(more, l + 1 + left.part, left.next)
        }
    }
}

ALWAYS_INLINE void store_sums(float *to, int ld)
{
    const size_t bytes = (size_t)ld * sizeof(float);
    _tile_stored(0, to, bytes);
    _tile_stored(1, to + TILE_ROWS, bytes);
    _tile_stored(2, to + (long)TILE_ROWS * ld, bytes);
    _tile_stored(3, to + (long)TILE_ROWS * ld + TILE_ROWS, bytes);
}

static NOINLINE void multiply(float *to, int ld, struct factor left, struct factor right, int steps)
{
    MEMORY_BARRIER();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    add_products(left, right, steps);
    store_sums(to, ld);
    MEMORY_BARRIER();
}

/* ---- shared by the value heads ---- */

/* Tokens as rows of tiles. */
static void split_rows(tile (*to)[BLOCKS][STEPS], const float *x, int ld, int n, int rows)
{
    const int part = BLOCKS * STEPS;
    for (int t = 0; t < rows; t++)
        for (int s = 0; s < STEPS; s++) {
            __m512 a = _mm512_setzero_ps(), b = a;
            if (t < n) a = _mm512_loadu_ps(x + (long)t * ld + 32 * s), b = _mm512_loadu_ps(x + (long)t * ld + 32 * s + 16);
            store_parts(&to[0][t / TILE_ROWS][s], part, t % TILE_ROWS, a, b);
        }
}

/* to[j][i] = from[i][j] */
static void turn(tile to, const tile from)
{
    __m512i x[16];
    for (int i = 0; i < 16; i++) x[i] = _mm512_load_si512((const void *)from[i]);
    transpose(x);
    for (int i = 0; i < 16; i++) _mm512_store_si512((void *)to[i], x[i]);
}

/* k as a right factor, and turned: of a pair of key places, the low halves are one row, the high halves another. */
static void turn_keys(struct key_part *w, int rows)
{
    for (int p = 0; p < PARTS; p++)
        for (int s = 0; s < STEPS; s++) {
            for (int b = 0; b < rows / TILE_ROWS; b++) turn(w->k_right[p][b][s], w->k[p][b][s]);
            for (int m = 0; m < rows / 32; m++)
                for (int i = 0; i < TILE_ROWS; i++) {
                    __m512i x = _mm512_load_si512((const void *)w->k_right[p][2 * m][s][i]), y = _mm512_load_si512((const void *)w->k_right[p][2 * m + 1][s][i]);
                    _mm512_store_si512((void *)w->k_left[p][2 * s][m][i], pair_upper(_mm512_slli_epi32(x, 16), _mm512_slli_epi32(y, 16)));
                    _mm512_store_si512((void *)w->k_left[p][2 * s + 1][m][i], pair_upper(x, y));
                }
        }
}

static struct factor token_rows(tile (*x)[BLOCKS][STEPS], int pair)
{
    return (struct factor){&x[0][2 * pair][0], BLOCKS * STEPS, STEPS};
}

static void prepare_keys(struct key_part *w, const struct gdn_chunk *j, int rows)
{
    split_rows(w->k, j->k, j->ldqk, j->n, rows);
    split_rows(w->q, j->q, j->ldqk, j->n, rows);
    turn_keys(w, rows);
    for (int i = 0; i < rows / 32; i++)
        for (int c = 0; c <= i; c++) {
            multiply(&w->kk[32 * i][32 * c], CHUNK, token_rows(w->k, i), token_rows(w->k_right, c), STEPS);
            multiply(&w->qk[32 * i][32 * c], CHUNK, token_rows(w->q, i), token_rows(w->k_right, c), STEPS);
        }
}

/* ---- of a value head ---- */

ALWAYS_INLINE __mmask16 lanes_below(int i)
{
    return i <= 0 ? 0 : i >= 16 ? 0xffff : (__mmask16)((1u << i) - 1);
}

/* Decays; the matrix to be inverted, without its diagonal; the products of queries and keys: of 32 tokens, whose tiles end at `blocks`. */
ALWAYS_INLINE void decay_rows(struct head_part *w, const struct key_part *key, const struct gdn_chunk *j, int head, __m512 *decay, __m512 to[BLOCKS], const int blocks)
{
    const __m512 one = _mm512_set1_ps(1);
    __m512 c = *decay;
    for (int i = 16 * blocks - 32; i < 16 * blocks; i++) {
        const bool there = i < j->n;
        __m512 g = _mm512_set1_ps(there ? j->g[(long)i * j->ldg + head] : 1), beta = _mm512_set1_ps(there ? j->beta[(long)i * j->ldg + head] : 0), a[BLOCKS];
        c = _mm512_mul_ps(c, g);
        w->decay[i] = _mm512_cvtss_f32(c);
        UNROLL4(b, blocks, {
            to[b] = _mm512_mul_ps(to[b], g);
            __m512 m = _mm512_mul_ps(_mm512_mul_ps(beta, to[b]), _mm512_load_ps(&key->kk[i][16 * b]));
            _mm512_store_ps(&w->lower[i][16 * b], _mm512_maskz_mov_ps(lanes_below(i - 16 * b), m));
            to[b] = _mm512_mask_mov_ps(to[b], lanes_below(i + 1 - 16 * b) & (__mmask16)~lanes_below(i - 16 * b), one);
            a[b] = _mm512_maskz_mov_ps(lanes_below(i + 1 - 16 * b), _mm512_mul_ps(to[b], _mm512_load_ps(&key->qk[i][16 * b])));
        })
        UNROLL2(s, blocks / 2, store_parts(&w->a[0][i / TILE_ROWS][s], BLOCKS * TOKEN_STEPS, i % TILE_ROWS, a[2 * s], a[2 * s + 1]);)
    }
    *decay = c;
}

static void prepare_decays(struct head_part *w, const struct key_part *key, const struct gdn_chunk *j, int head, int rows)
{
    __m512 to[BLOCKS], decay = _mm512_set1_ps(1);
    UNROLL4(b, BLOCKS, to[b] = _mm512_setzero_ps();)
    decay_rows(w, key, j, head, &decay, to, BLOCKS / 2);
    if (rows > 32) decay_rows(w, key, j, head, &decay, to, BLOCKS);
    UNROLL4(b, BLOCKS, _mm512_store_ps(w->to_end + 16 * b, to[b]);)
}

/* The inverses of 1 + the strictly lower tiles of the diagonal, side by side: each is a chain. */
ALWAYS_INLINE void invert_tiles(struct head_part *w, const int blocks)
{
    for (int i = 0; i < 16; i++) {
        __m512 row[BLOCKS];
        UNROLL4(b, blocks, row[b] = _mm512_maskz_mov_ps((__mmask16)(1u << i), _mm512_set1_ps(1));)
        for (int k = 0; k < i; k++)
            UNROLL4(b, blocks, row[b] = _mm512_fnmadd_ps(_mm512_set1_ps(w->lower[16 * b + i][16 * b + k]), _mm512_load_ps(&w->inverse[16 * b + k][16 * b]), row[b]);)
        UNROLL4(b, blocks, _mm512_store_ps(&w->inverse[16 * b + i][16 * b], row[b]);)
    }
}

/* to (16, 16) = the tile before, or 0, - or + x (16, 16·n) times y (16·n, 16) */
ALWAYS_INLINE void multiply_tile(float *to, int ld, const float *x, const float *y, int ld_y, int n, bool minus)
{
    for (int half = 0; half < 16; half += 8) {
        __m512 sum[8];
        UNROLL8(i, 8, sum[i] = _mm512_setzero_ps();)
        for (int k = 0; k < 16 * n; k++) {
            __m512 row = _mm512_load_ps(y + (long)k * ld_y);
            UNROLL8(i, 8, {
                __m512 f = _mm512_set1_ps(x[(half + i) * CHUNK + k]);
                sum[i] = minus ? _mm512_fnmadd_ps(f, row, sum[i]) : _mm512_fmadd_ps(f, row, sum[i]);
            })
        }
        UNROLL8(i, 8, _mm512_store_ps(to + (long)(half + i) * ld, sum[i]);)
    }
}

/* The whole inverse by tiles: T_ij = -T_ii (sum over j <= k < i of M_ik T_kj). */
static void invert(struct head_part *w, int rows)
{
    float x[16][16] __attribute__((aligned(64)));
    if (rows > 32) invert_tiles(w, BLOCKS);
    else invert_tiles(w, BLOCKS / 2);
    for (int i = 1; i < rows / 16; i++)
        for (int k = 0; k < i; k++) {
            multiply_tile(x[0], 16, &w->lower[16 * i][16 * k], &w->inverse[16 * k][16 * k], CHUNK, i - k, false);
            multiply_tile(&w->inverse[16 * i][16 * k], CHUNK, &w->inverse[16 * i][16 * i], x[0], 16, 1, true);
        }
    for (int i = 0; i < rows; i++)
        for (int s = 0; s <= i / 32; s++) {
            __m512 a = _mm512_load_ps(&w->inverse[i][32 * s]), b = _mm512_setzero_ps();
            if (i / 16 >= 2 * s + 1) b = _mm512_load_ps(&w->inverse[i][32 * s + 16]);
            store_parts(&w->t[0][i / TILE_ROWS][s], BLOCKS * TOKEN_STEPS, i % TILE_ROWS, a, b);
        }
}

/* ---- of a strip of value columns ---- */

static void split_state(struct strip_part *w, const float *state)
{
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < TILE_ROWS; i++) {
            const float *a = state + (32 * s + i) * GDN_DIM, *b = a + 16 * GDN_DIM;
            UNROLL2(c, STRIP_TILES, store_parts(&w->state[0][c][s], STRIP_TILES * STEPS, i, _mm512_loadu_ps(a + 16 * c), _mm512_loadu_ps(b + 16 * c));)
        }
}

/* beta (v - c kS) of token t; zeros behind the last token. */
ALWAYS_INLINE __m512 target(const struct gdn_chunk *j, const struct head_part *h, const struct strip_part *w, const float *v, int head, int t, int c)
{
    if (t >= j->n) return _mm512_setzero_ps();
    __m512 x = _mm512_fnmadd_ps(_mm512_set1_ps(h->decay[t]), _mm512_load_ps(&w->sums[t][16 * c]), _mm512_loadu_ps(v + (long)t * j->ldv + 16 * c));
    return _mm512_mul_ps(_mm512_set1_ps(j->beta[(long)t * j->ldg + head]), x);
}

static void split_targets(struct strip_part *w, const struct head_part *h, const struct gdn_chunk *j, const float *v, int head, int rows)
{
    for (int m = 0; m < rows / 32; m++)
        for (int i = 0; i < 16; i++)
            UNROLL2(c, STRIP_TILES, store_parts(&w->d[0][c][m], STRIP_TILES * TOKEN_STEPS, i, target(j, h, w, v, head, 32 * m + i, c), target(j, h, w, v, head, 32 * m + 16 + i, c));)
}

/* D, and D decayed to the chunk's end. */
static void split_answers(struct strip_part *w, const struct head_part *h, int rows)
{
    for (int m = 0; m < rows / 32; m++)
        for (int i = 0; i < 16; i++)
            UNROLL2(c, STRIP_TILES, {
                __m512 a = _mm512_load_ps(&w->sums[32 * m + i][16 * c]), b = _mm512_load_ps(&w->sums[32 * m + 16 + i][16 * c]);
                store_parts(&w->d[0][c][m], STRIP_TILES * TOKEN_STEPS, i, a, b);
                a = _mm512_mul_ps(a, _mm512_set1_ps(h->to_end[32 * m + i])), b = _mm512_mul_ps(b, _mm512_set1_ps(h->to_end[32 * m + 16 + i]));
                store_parts(&w->to_end[0][c][m], STRIP_TILES * TOKEN_STEPS, i, a, b);
            })
}

static void update_rows(float *state, float (*update)[STRIP], __m512 decay)
{
    for (int i = 0; i < 32; i++)
        UNROLL2(k, STRIP_TILES, {
            float *s = state + i * GDN_DIM + 16 * k;
            _mm512_storeu_ps(s, _mm512_fmadd_ps(decay, _mm512_loadu_ps(s), _mm512_load_ps(&update[i][16 * k])));
        })
}

static struct factor token_columns(tile (*x)[STRIP_TILES][TOKEN_STEPS])
{
    return (struct factor){&x[0][0][0], STRIP_TILES * TOKEN_STEPS, TOKEN_STEPS};
}

static struct factor lower_rows(tile (*x)[BLOCKS][TOKEN_STEPS], int pair)
{
    return (struct factor){&x[0][2 * pair][0], BLOCKS * TOKEN_STEPS, TOKEN_STEPS};
}

static struct factor key_rows(struct key_part *w, int pair)
{
    return (struct factor){&w->k_left[0][2 * pair][0], GDN_DIM / TILE_ROWS * TOKEN_STEPS, TOKEN_STEPS};
}

static void store_answers(const struct strip_part *w, const struct head_part *h, const struct gdn_chunk *j, int column)
{
    for (int t = 0; t < j->n; t++)
        UNROLL2(c, STRIP_TILES, _mm512_storeu_ps(j->o + (long)t * j->ldo + column + 16 * c,
                                                 _mm512_fmadd_ps(_mm512_set1_ps(h->decay[t]), _mm512_load_ps(&w->qs[t][16 * c]), _mm512_load_ps(&w->sums[t][16 * c])));)
}

static void run_strip(struct work *w, const struct gdn_chunk *j, int head, int column, int rows)
{
    struct strip_part *s = &w->strip;
    float *state = j->state + (long)head * GDN_DIM * GDN_DIM + column;
    const float *v = j->v + head * GDN_DIM + column;
    const struct factor right = {&s->state[0][0][0], STRIP_TILES * STEPS, STEPS};
    split_state(s, state);
    for (int i = 0; i < rows / 32; i++) multiply(s->sums[32 * i], STRIP, token_rows(w->key.k, i), right, STEPS);
    for (int i = 0; i < rows / 32; i++) multiply(s->qs[32 * i], STRIP, token_rows(w->key.q, i), right, STEPS);
    split_targets(s, &w->head, j, v, head, rows);
    for (int i = 0; i < rows / 32; i++) multiply(s->sums[32 * i], STRIP, lower_rows(w->head.t, i), token_columns(s->d), i + 1);
    split_answers(s, &w->head, rows);
    for (int i = 0; i < rows / 32; i++) multiply(s->sums[32 * i], STRIP, lower_rows(w->head.a, i), token_columns(s->d), i + 1);
    const __m512 decay = _mm512_set1_ps(w->head.decay[j->n - 1]);
    for (int i = 0; i <= KEY_PAIRS; i++) {
        if (i < KEY_PAIRS) multiply(s->update[i & 1][0], STRIP, key_rows(&w->key, i), token_columns(s->to_end), rows / 32);
        if (i > 0) update_rows(state + (i - 1) * 32 * GDN_DIM, s->update[~i & 1], decay);
    }
    store_answers(s, &w->head, j, head * GDN_DIM + column);
}

void cpu_gdn_chunk_amx(const struct gdn_chunk *j)
{
    struct work w;
    const int rows = (j->n + 31) / 32 * 32;
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_SUBNORMAL);
    tiles_configure(0, TILE_ROWS);
    prepare_keys(&w.key, j, rows);
    for (int head = 0; head < j->heads; head++) {
        prepare_decays(&w.head, &w.key, j, head, rows);
        invert(&w.head, rows);
        for (int column = 0; column < GDN_DIM; column += STRIP) run_strip(&w, j, head, column, rows);
    }
    _tile_release();
    _mm_setcsr(mode);
}
