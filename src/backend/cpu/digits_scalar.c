/* Digit kernels, scalar tier: activations split into whole numbers, their products with 4-bit codes. */
#include "backend/cpu/digits.h"
#include "backend/cpu/scalar.h"

static void split_group(const struct digit_row *out, int g, const float *x)
{
    uint32_t top = 0;
    for (int k = 0; k < QUANT_GROUP; k++) {
        uint32_t bits = f32_bits(x[k]) & 0x7fffffffu;
        if (bits > top) top = bits;
    }
    float factor, scale = digits_scale(top, out->count, &factor);
    int32_t sum = 0;
    for (int k = 0; k < QUANT_GROUP; k++) {
        int32_t v = factor > 0 ? (int32_t)rintf(x[k] * factor) : 0;
        sum += v;
        for (int i = out->count - 1; i >= 0; i--) {
            int8_t digit = (int8_t)(uint8_t)v;
            out->d[((long)g * out->count + i) * QUANT_GROUP + k] = digit;
            v = (v - digit) / 256;
        }
    }
    out->scales[g] = scale;
    out->sums[g] = (float)sum * scale;
}

static void split_digits(const struct digit_row *out, const float *x, int n_groups)
{
    for (int g = 0; g < n_groups; g++) split_group(out, g, x + (long)g * QUANT_GROUP);
}

enum form { Q4, Q8 };

static int code_of(const uint8_t *tile, int r, int k, enum form f)
{
    if (f == Q8) return tile[k / 4 * 64 + 4 * r + k % 4];
    uint8_t byte = tile[k / 8 * 64 + 4 * r + k % 4];
    return k % 8 < 4 ? byte & 15 : byte >> 4;
}

/* The whole number sum of code * v as a float, rounded as the vector tiers do: the first digit of three apart. */
static float whole_dot(const uint8_t *tile, int r, const int8_t *d, int count, enum form f)
{
    int32_t dot[DIGITS_MAX] = {0};
    for (int i = 0; i < count; i++)
        for (int k = 0; k < QUANT_GROUP; k++) dot[i] += code_of(tile, r, k, f) * d[i * QUANT_GROUP + k];
    if (count == 1) return (float)dot[0];
    if (count == 2) return (float)(dot[0] * 256 + dot[1]);
    return fmaf((float)dot[0], 65536, (float)(dot[1] * 256 + dot[2]));
}

static void one_block(const struct digit_job *j, enum form f)
{
    const int bytes = f == Q4 ? Q4_TILE_BYTES : Q8_TILE_BYTES;
    for (int i = 0; i < j->n; i++) {
        struct digit_row row = digit_row(j->act, j->rows ? j->rows[i] : i, 0);
        for (int r = 0; r < BLOCK_ROWS; r++) {
            float y = 0;
            for (int t = 0; t < j->col_tiles; t++) {
                const uint8_t *tile = j->block + (size_t)t * (size_t)bytes, *scales = tile + bytes - 64;
                float dot = whole_dot(tile, r, row.d + (long)t * row.count * QUANT_GROUP, row.count, f) * row.scales[t];
                y = fmaf(bf16_to_f32(load_u16(scales + 2 * r)), dot, y);
                y = fmaf(bf16_to_f32(load_u16(scales + 32 + 2 * r)), row.sums[t], y);
            }
            j->y[(long)i * j->ldy + r] = y;
        }
    }
}

static void one_block_q4(const struct digit_job *j)
{
    one_block(j, Q4);
}

static void one_block_q8(const struct digit_job *j)
{
    one_block(j, Q8);
}

static void matmul_q4_digits(const struct digit_job *j)
{
    each_block(j, one_block_q4, Q4_TILE_BYTES);
}

static void matmul_q8_digits(const struct digit_job *j)
{
    each_block(j, one_block_q8, Q8_TILE_BYTES);
}

void cpu_kernels_scalar_digits(struct cpu_kernels *k)
{
    k->matmul_q4_digits = matmul_q4_digits;
    k->matmul_q8_digits = matmul_q8_digits;
    k->split_digits = split_digits;
}
