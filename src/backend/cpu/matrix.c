/* Packing a module into tiles. */
#include "backend/cpu/matrix.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "spec/synth.h"

enum { COL_PAD = 128 };

static size_t tile_bytes_of(enum matrix_kind kind)
{
    return kind == MATRIX_Q4 ? Q4_TILE_BYTES : kind == MATRIX_Q8 ? Q8_TILE_BYTES : F32_TILE_BYTES;
}

/* One element of an unquantized module. */
static float plain_element(const struct tensor_view *t, size_t i)
{
    if (t->dtype == DTYPE_BF16) return bf16_to_f32(load_u16(t->data + 2 * i));
    if (t->dtype == DTYPE_F16) return f16_to_f32(load_u16(t->data + 2 * i));
    return f32_from_bits(load_u32(t->data + 4 * i));
}

static void pack_row_f32(const struct module_view *src, size_t src_row, int r, uint8_t *block)
{
    float *w = (float *)(void *)block; /* aligned memory */
    for (int k = 0; k < src->cols; k++)
        w[(size_t)k * BLOCK_ROWS + (size_t)r] = plain_element(&src->weight, src_row * (size_t)src->cols + (size_t)k);
}

/*
 * Codes of one group of 64, 4 bits: of eight codes in a source word (k order, the lowest nibble first) the first four become
 * the low nibbles of the four destination bytes, the others the high ones.
 */
static void pack_codes_q4(const uint8_t *src, int r, uint8_t *tile)
{
    uint32_t w[8];
    memcpy(w, src, sizeof w);
    for (int i = 0; i < 8; i++) {
        uint32_t low = w[i] & 0xffff, high = w[i] >> 16;
        low = (low | low << 8) & 0x00ff00ff, high = (high | high << 8) & 0x00ff00ff;
        low = (low | low << 4) & 0x0f0f0f0f, high = (high | high << 4) & 0x0f0f0f0f;
        w[i] = low | high << 4;
    }
    for (int i = 0; i < 8; i++) memcpy(tile + 64 * i + 4 * r, &w[i], 4);
}

static void pack_codes_q8(const uint8_t *src, int r, uint8_t *tile)
{
    for (int i = 0; i < 16; i++) memcpy(tile + 64 * i + 4 * r, src + 4 * i, 4);
}

/* The bytes of one source row, in the file or made here. */
struct source_row {
    const uint8_t *codes, *scales, *biases;
};

/* Room to make the rows that have rules in place of bytes. */
struct row_maker {
    uint32_t *words; /* owned; codes, then scales, then biases of one row; NULL: rows come from the file */
};

static size_t code_bytes(const struct module_view *m)
{
    return (size_t)m->cols * (size_t)m->bits / 8;
}

/* Rows begin on whole words of codes, but not of scales. */
static void make_halves(const struct synth_rule *r, size_t first, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint16_t)synth_bf16(r, (uint32_t)(first + i));
}

static struct source_row row_of(const struct module_view *m, size_t row, const struct row_maker *maker)
{
    size_t n_codes = code_bytes(m), n_groups = (size_t)m->cols / QUANT_GROUP;
    if (!maker->words)
        return (struct source_row){m->weight.data + row * n_codes, m->scales.data + 2 * row * n_groups,
                                   m->biases.data + 2 * row * n_groups};
    struct synth_rule rule = *m->weight.synth;
    uint32_t first = (uint32_t)(row * (n_codes / 4));
    for (size_t i = 0; i < n_codes / 4; i++) maker->words[i] = synth_hash(&rule, first + (uint32_t)i);
    uint16_t *halves = (uint16_t *)(void *)(maker->words + n_codes / 4);
    make_halves(m->scales.synth, row * n_groups, n_groups, halves);
    make_halves(m->biases.synth, row * n_groups, n_groups, halves + n_groups);
    return (struct source_row){(const uint8_t *)maker->words, (const uint8_t *)halves, (const uint8_t *)(halves + n_groups)};
}

static void pack_row_quantized(const struct matrix *m, struct source_row row, int r, uint8_t *block)
{
    size_t n_groups = (size_t)m->cols / QUANT_GROUP, group_bytes = m->kind == MATRIX_Q8 ? 64 : 32;
    for (size_t g = 0; g < n_groups; g++) {
        uint8_t *tile = block + g * m->tile_bytes, *scales = tile + m->tile_bytes - 64;
        if (m->kind == MATRIX_Q8) pack_codes_q8(row.codes + g * group_bytes, r, tile);
        else pack_codes_q4(row.codes + g * group_bytes, r, tile);
        memcpy(scales + 2 * r, row.scales + 2 * g, 2);
        memcpy(scales + 32 + 2 * r, row.biases + 2 * g, 2);
    }
}

static void pack_block(const struct matrix *m, const struct module_view *src, long i, const struct row_maker *maker, uint8_t *dst)
{
    long expert = i / m->n_blocks, first = i % m->n_blocks * BLOCK_ROWS;
    int n = m->rows - first < BLOCK_ROWS ? (int)(m->rows - first) : BLOCK_ROWS;
    if (n < BLOCK_ROWS || m->col_tiles * QUANT_GROUP != m->cols) memset(dst, 0, m->block_bytes);
    for (int r = 0; r < n; r++) {
        size_t row = (size_t)expert * (size_t)m->rows + (size_t)first + (size_t)r;
        if (m->kind == MATRIX_F32) pack_row_f32(src, row, r, dst);
        else pack_row_quantized(m, row_of(src, row, maker), r, dst);
    }
}

lily_status matrix_pack_blocks(const struct matrix *m, const struct module_view *src, long lo, long hi, uint8_t *dst)
{
    struct row_maker maker = {NULL};
    if (src->weight.synth) {
        maker.words = mem_try(1, code_bytes(src) + 4 * (size_t)src->cols / QUANT_GROUP);
        if (!maker.words) return LILY_ERR_MEMORY;
    }
    for (long i = lo; i < hi; i++) pack_block(m, src, i, &maker, dst + (size_t)(i - lo) * m->block_bytes);
    free(maker.words);
    return LILY_OK;
}

lily_status matrix_describe(const struct module_view *src, struct matrix *m, struct lily_err *err)
{
    memset(m, 0, sizeof *m);
    if (src->cols % QUANT_GROUP)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %d columns, expected a multiple of %d", src->weight.name, src->cols,
                  QUANT_GROUP);
    if (src->bits != 0 && (src->scales.dtype != DTYPE_BF16 || src->biases.dtype != DTYPE_BF16))
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: scales and biases must be BF16", src->weight.name);
    m->kind = src->bits == 4 ? MATRIX_Q4 : src->bits == 8 ? MATRIX_Q8 : MATRIX_F32;
    m->n_experts = src->n_experts;
    m->rows = src->rows;
    m->cols = src->cols;
    m->n_blocks = (src->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    m->col_tiles = (src->cols + COL_PAD - 1) / COL_PAD * (COL_PAD / QUANT_GROUP);
    m->tile_bytes = tile_bytes_of(m->kind);
    m->block_bytes = m->tile_bytes * (size_t)m->col_tiles;
    m->expert_bytes = m->block_bytes * (size_t)m->n_blocks;
    m->bytes = m->expert_bytes * (size_t)m->n_experts;
    return LILY_OK;
}

struct pack_job {
    const struct module_view *src;
    const struct matrix *m;
    uint8_t *data;
    atomic_bool failed;
};

static void pack_part(void *arg, int part, int n_parts)
{
    struct pack_job *j = arg;
    long lo, hi;
    pool_range((long)j->m->n_experts * j->m->n_blocks, part, n_parts, &lo, &hi);
    if (matrix_pack_blocks(j->m, j->src, lo, hi, j->data + (size_t)lo * j->m->block_bytes) != LILY_OK) atomic_store(&j->failed, true);
}

lily_status matrix_pack(const struct module_view *src, struct pool *pool, struct arena *arena, struct matrix **out, struct lily_err *err)
{
    struct matrix m;
    void *data;
    *out = NULL;
    LILY_TRY(matrix_describe(src, &m, err));
    LILY_TRY(arena_take(arena, m.bytes, src->weight.name, &data, err));
    struct pack_job job = {.src = src, .m = &m, .data = data};
    pool_run(pool, pack_part, &job);
    if (atomic_load(&job.failed)) LILY_FAIL(err, LILY_ERR_MEMORY, "%s: not enough memory for one row", src->weight.name);
    m.data = data;
    *out = mem_new(sizeof m);
    **out = m;
    return LILY_OK;
}

struct matrix matrix_rows(const struct matrix *m, int from, int to)
{
    struct matrix part = *m;
    part.rows = to - from;
    part.n_blocks = (part.rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    part.bytes = part.expert_bytes = part.block_bytes * (size_t)part.n_blocks;
    part.data = matrix_block(m, 0, from / BLOCK_ROWS);
    return part;
}

void matrix_row(const struct matrix *m, int expert, int row, float *out)
{
    const uint8_t *block = matrix_block(m, expert, row / BLOCK_ROWS);
    int r = row % BLOCK_ROWS;
    for (int k = 0; k < m->cols; k++) {
        const uint8_t *tile = block + (size_t)(k / QUANT_GROUP) * m->tile_bytes;
        int i = k % QUANT_GROUP;
        if (m->kind == MATRIX_F32) {
            memcpy(&out[k], tile + 64 * i + 4 * r, 4);
            continue;
        }
        const uint8_t *scales = tile + m->tile_bytes - 64;
        int q;
        if (m->kind == MATRIX_Q8) q = tile[i / 4 * 64 + 4 * r + i % 4];
        else q = tile[i / 8 * 64 + 4 * r + i % 4] >> (i % 8 < 4 ? 0 : 4) & 15;
        out[k] = (float)q * bf16_to_f32(load_u16(scales + 2 * r)) + bf16_to_f32(load_u16(scales + 32 + 2 * r));
    }
}

void matrix_run(const struct cpu_kernels *k, const struct matrix *m, const struct block_job *job, int n_blocks, struct block_run next)
{
    const struct digits *digits = &job->act->digits;
    const struct digit_job whole = {job->block, n_blocks, job->col_tiles, digits, job->rows, job->n, job->y, job->ldy, next.at, next.n};
    if (m->kind == MATRIX_Q4 && digits->count) {
        k->matmul_q4_digits(&whole);
        return;
    }
    if (m->kind == MATRIX_Q8 && digits->count == DIGITS_MAX) {
        k->matmul_q8_digits(&whole);
        return;
    }
    struct block_job one = *job;
    for (int b = 0; b < n_blocks; b++, one.block += m->block_bytes, one.y += BLOCK_ROWS) {
        if (m->kind == MATRIX_Q4) k->matmul_q4(&one);
        else if (m->kind == MATRIX_Q8) k->matmul_q8(&one);
        else k->matmul_f32(&one);
    }
}
