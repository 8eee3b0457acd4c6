/* Number formats of model files: bf16 and fp16 as uint16_t, unaligned little-endian reads. Inline, any thread. */
#ifndef LILY_BASE_NUM_H
#define LILY_BASE_NUM_H

#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

/* Round to nearest, ties to even; NaN stays NaN. */
static inline uint16_t bf16_from_f32(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* IEEE half to float. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31) return f32_from_bits(sign | 0x7f800000u | m << 13);
    if (e == 0) return (sign ? -1.0f : 1.0f) * (float)m * 0x1p-24f;
    return f32_from_bits(sign | (e + 112) << 23 | m << 13);
}

/* Float to IEEE half: round to nearest, ties to even; what is too large becomes infinite, NaN stays NaN. */
static inline uint16_t f16_from_f32(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, m = u & 0x7fffffffu;
    if (m > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (m >= 0x47800000u) return (uint16_t)(sign | 0x7c00);
    if (m < 0x38800000u) { /* subnormal: the addition rounds at the half's last place */
        float tiny = f32_from_bits(m) + 0.5f;
        return (uint16_t)(sign | (f32_bits(tiny) - 0x3f000000u));
    }
    return (uint16_t)(sign | (m - 0x38000000u + 0xfffu + (m >> 13 & 1)) >> 13);
}

static inline uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t load_u64(const uint8_t *p)
{
    return (uint64_t)load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

#endif
