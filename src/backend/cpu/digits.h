/*
 * What the digit kernels of every tier share. All tiers do the same floating-point operations on the same whole numbers,
 * so they agree bit for bit: the scale by one division, the values by one product and rounding to even, and per group
 *   t = whole * scale;  y = fma(weight_scale, t, y);  y = fma(weight_bias, sum, y).
 */
#ifndef LILY_BACKEND_CPU_DIGITS_H
#define LILY_BACKEND_CPU_DIGITS_H

#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/unroll.h"
#include "base/num.h"

/* The largest value of `count` digits; of three, a little less, so that the product's rounding cannot pass it. */
ALWAYS_INLINE float digits_top(int count)
{
    return count == 1 ? 127 : count == 2 ? 32639 : 8355328;
}

/* The scale of a group from the bits of its largest magnitude, and the factor that takes x to its value. */
ALWAYS_INLINE float digits_scale(uint32_t top_bits, int count, float *factor)
{
    float top = f32_from_bits(top_bits);
    *factor = 0;
    if (top_bits >= 0x7f800000u) return NAN;
    if (top < 0x1p-100f) return 0;
    *factor = digits_top(count) / top;
    return top / digits_top(count);
}

/* Asks for a tile of `bytes` that lies `ahead` bytes behind one that is being used; row blocks lie behind each other. */
ALWAYS_INLINE void prefetch_tile(const uint8_t *tile, int ahead, int bytes)
{
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(tile + ahead + i);
}

/* A job of several row blocks, for a kernel that takes one at a time. */
ALWAYS_INLINE void each_block(const struct digit_job *j, void (*kernel)(const struct digit_job *), int bytes)
{
    struct digit_job one = *j;
    one.n_blocks = 1;
    for (int b = 0; b < j->n_blocks; b++, one.block += (size_t)j->col_tiles * (size_t)bytes, one.y += BLOCK_ROWS) kernel(&one);
}

/* Rows of a job that are computed together. */
struct digit_rows {
    const int8_t *d[8];
    const float *scales[8], *sums[8];
};

ALWAYS_INLINE void take_digit_rows(struct digit_rows *r, const struct digit_job *j, int first, int count)
{
    for (int i = 0; i < count; i++) {
        struct digit_row row = digit_row(j->act, j->rows ? j->rows[first + i] : first + i, 0);
        r->d[i] = row.d, r->scales[i] = row.scales, r->sums[i] = row.sums;
    }
}

#endif
