/* Packing a module into tiles. */
#include "backend/cpu/matrix.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"

enum { COL_PAD = 128 };

static size_t tile_bytes_of(enum matrix_kind kind)
{
    return kind == MATRIX_Q4 ? Q4_TILE_BYTES : kind == MATRIX_Q8 ? Q8_TILE_BYTES : F32_TILE_BYTES;
}

struct pack_job {
    const struct module_view *src;
    struct matrix *dst;
};

/* One element of an unquantized module. */
static float plain_element(const struct tensor_view *t, size_t i)
{
    if (t->dtype == DTYPE_BF16) return bf16_to_f32(load_u16(t->data + 2 * i));
    if (t->dtype == DTYPE_F16) return f16_to_f32(load_u16(t->data + 2 * i));
    return f32_from_bits(load_u32(t->data + 4 * i));
}

static void pack_row_f32(const struct pack_job *j, size_t src_row, int r, uint8_t *block)
{
    float *w = (float *)(void *)block; /* mem_big memory, aligned */
    for (int k = 0; k < j->src->cols; k++)
        w[(size_t)k * BLOCK_ROWS + (size_t)r] = plain_element(&j->src->weight, src_row * (size_t)j->src->cols + (size_t)k);
}

/* Codes of one group of 64: source bytes in k order, low nibble first (4 bits) or a byte each (8 bits). */
static void pack_codes(enum matrix_kind kind, const uint8_t *src, int r, uint8_t *tile)
{
    if (kind == MATRIX_Q8) {
        for (int i = 0; i < 16; i++) memcpy(tile + 64 * i + 4 * r, src + 4 * i, 4);
        return;
    }
    for (int i = 0; i < 8; i++) {
        const uint8_t *s = src + 4 * i; /* codes k = 8i … 8i+7 */
        uint8_t *d = tile + 64 * i + 4 * r;
        for (int b = 0; b < 4; b++) {
            int low = s[b / 2] >> 4 * (b % 2) & 15, high = s[2 + b / 2] >> 4 * (b % 2) & 15;
            d[b] = (uint8_t)(low | high << 4);
        }
    }
}

static void pack_row_quantized(const struct pack_job *j, size_t src_row, int r, uint8_t *block)
{
    const struct module_view *m = j->src;
    size_t n_groups = (size_t)m->cols / QUANT_GROUP, group_bytes = QUANT_GROUP * (size_t)m->bits / 8;
    for (size_t g = 0; g < n_groups; g++) {
        uint8_t *tile = block + g * j->dst->tile_bytes, *scales = tile + j->dst->tile_bytes - 64;
        size_t at = src_row * n_groups + g;
        pack_codes(j->dst->kind, m->weight.data + at * group_bytes, r, tile);
        memcpy(scales + 2 * r, m->scales.data + 2 * at, 2);
        memcpy(scales + 32 + 2 * r, m->biases.data + 2 * at, 2);
    }
}

static void pack_blocks(void *arg, int thread, int n_threads)
{
    const struct pack_job *j = arg;
    struct matrix *m = j->dst;
    long lo, hi;
    pool_range((long)m->n_experts * m->n_blocks, thread, n_threads, &lo, &hi);
    for (long i = lo; i < hi; i++) {
        long expert = i / m->n_blocks, block = i % m->n_blocks;
        uint8_t *dst = m->data + (size_t)expert * m->expert_bytes + (size_t)block * m->block_bytes;
        for (int r = 0; r < BLOCK_ROWS && block * BLOCK_ROWS + r < m->rows; r++) {
            size_t row = (size_t)expert * (size_t)m->rows + (size_t)block * BLOCK_ROWS + (size_t)r;
            if (m->kind == MATRIX_F32) pack_row_f32(j, row, r, dst);
            else pack_row_quantized(j, row, r, dst);
        }
    }
}

static lily_status check_source(const struct module_view *m, struct lily_err *err)
{
    if (m->cols % QUANT_GROUP)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %d columns, expected a multiple of %d", m->weight.name, m->cols,
                  QUANT_GROUP);
    if (m->bits != 0 && (m->scales.dtype != DTYPE_BF16 || m->biases.dtype != DTYPE_BF16))
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: scales and biases must be BF16", m->weight.name);
    return LILY_OK;
}

lily_status matrix_pack(const struct module_view *src, struct pool *pool, struct matrix **out, struct lily_err *err)
{
    *out = NULL;
    LILY_TRY(check_source(src, err));
    struct matrix *m = mem_new(sizeof *m);
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
    void *data;
    lily_status st = mem_big(m->bytes, src->weight.name, &data, err);
    if (st != LILY_OK) {
        free(m);
        return st;
    }
    m->data = data;
    struct pack_job job = {src, m};
    pool_run(pool, pack_blocks, &job);
    *out = m;
    return LILY_OK;
}

void matrix_free(struct matrix *m)
{
    if (!m) return;
    mem_big_free(m->data, m->bytes);
    free(m);
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
