/*
 * The instructions of AVX-512 and AMX that the kernels use, played by vectors of the compiler and by loops, for processors
 * without them (tests/avx512.sh). It is included before a kernel file by tests/emulated/x86-gcc, and knows just what these
 * files use: a missing one does not compile. Semantics: Intel's intrinsics guide. Kernels are held to tolerances, not to bits.
 */
#ifndef LILY_TESTS_EMULATED_X86_H
#define LILY_TESTS_EMULATED_X86_H
#pragma GCC system_header

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define __AVX512F__ 1 /* the kernels' headers ask */

/* Lanes of a register, to be read and written one by one. */
union lanes {
    __m512 ps;
    __m512d pd;
    __m512i si;
    __m256 half_ps[2];
    __m256d half_pd[2];
    float f[16];
    double d[8];
    int32_t i32[16];
    uint32_t u32[16];
    uint16_t u16[32];
    int8_t i8[64];
    uint8_t u8[64];
};
typedef uint32_t emu_u32 __attribute__((vector_size(64)));
typedef int32_t emu_i32 __attribute__((vector_size(64)));
typedef uint16_t emu_u16 __attribute__((vector_size(64)));

/* EMU(result, name, (parameters), statements): a function whose result is r, and the intrinsic's name for it. */
#define EMU(...) EMU_AS(always_inline, __VA_ARGS__)
#define EMU_AS(how, member, name, parameters, ...)                                                                     \
    static inline __attribute__((how)) __typeof__(((union lanes *)0)->member) emu_##name parameters          \
    {                                                                                                                  \
        union lanes r;                                                                                                 \
        memset(&r, 0, sizeof r);                                                                                       \
        __VA_ARGS__;                                                                                                   \
        return r.member;                                                                                               \
    }
#define EACH(n, ...)                                                                                                   \
    for (int i = 0; i < (n); i++) __VA_ARGS__

/* ---- fp32 and fp64 ---- */
EMU(ps, setzero_ps, (void), (void)0)
EMU(pd, setzero_pd, (void), (void)0)
EMU(ps, set1_ps, (float x), EACH(16, r.f[i] = x))
EMU(ps, setr_ps, (float a, float b, float c, float d, float e, float f, float g, float h, float k, float l, float m, float n, float o, float p, float q, float s),
    float v[16] = {a, b, c, d, e, f, g, h, k, l, m, n, o, p, q, s}; memcpy(r.f, v, sizeof v))
EMU(ps, loadu_ps, (const void *p), memcpy(&r, p, 64))
EMU(ps, add_ps, (__m512 a, __m512 b), r.ps = a + b)
EMU(ps, sub_ps, (__m512 a, __m512 b), r.ps = a - b)
EMU(ps, mul_ps, (__m512 a, __m512 b), r.ps = a * b)
EMU(ps, div_ps, (__m512 a, __m512 b), r.ps = a / b)
EMU(pd, add_pd, (__m512d a, __m512d b), r.pd = a + b)
EMU(ps, fmadd_ps, (__m512 a, __m512 b, __m512 c), union lanes x = {.ps = a}; union lanes y = {.ps = b}; union lanes z = {.ps = c};
    EACH(2, r.half_ps[i] = _mm256_fmadd_ps(x.half_ps[i], y.half_ps[i], z.half_ps[i])))
EMU(ps, fnmadd_ps, (__m512 a, __m512 b, __m512 c), r.ps = emu_fmadd_ps(-a, b, c))
EMU(pd, fmadd_pd, (__m512d a, __m512d b, __m512d c), union lanes x = {.pd = a}; union lanes y = {.pd = b}; union lanes z = {.pd = c};
    EACH(2, r.half_pd[i] = _mm256_fmadd_pd(x.half_pd[i], y.half_pd[i], z.half_pd[i])))
EMU(ps, max_ps, (__m512 a, __m512 b), union lanes x = {.ps = a}; union lanes y = {.ps = b};
    EACH(2, r.half_ps[i] = _mm256_max_ps(x.half_ps[i], y.half_ps[i])))
EMU(ps, nearest_ps, (__m512 a), union lanes x = {.ps = a};
    EACH(2, r.half_ps[i] = _mm256_round_ps(x.half_ps[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)))
EMU(ps, scalef_ps, (__m512 a, __m512 b), union lanes x = {.ps = a}; union lanes y = {.ps = b};
    EACH(16, r.f[i] = isnan(y.f[i]) ? y.f[i] : ldexpf(x.f[i], (int)fmaxf(-300, fminf(300, floorf(y.f[i]))))))
EMU(ps, above_floor_ps, (__m512 a), union lanes x = {.ps = a}; EACH(16, r.f[i] = isinf(x.f[i]) ? 0 : x.f[i] - floorf(x.f[i])))
EMU(ps, permutexvar_ps, (__m512i at, __m512 a), union lanes k = {.si = at}; union lanes x = {.ps = a}; EACH(16, r.f[i] = x.f[k.u32[i] % 16]))
EMU(ps, gather_ps, (__m512i at, const void *p, int scale), union lanes k = {.si = at};
    EACH(16, memcpy(&r.f[i], (const char *)p + (long)k.i32[i] * scale, 4)))
EMU(pd, cvtps_pd, (__m256 a), float v[8]; memcpy(v, &a, sizeof v); EACH(8, r.d[i] = (double)v[i]))
EMU(ps, cvtepi32_ps, (__m512i a), union lanes x = {.si = a}; EACH(16, r.f[i] = (float)x.i32[i]))
EMU(ps, mask_blend_ps, (unsigned mask, __m512 a, __m512 b), union lanes x = {.ps = a}; union lanes y = {.ps = b};
    EACH(16, r.f[i] = mask >> i & 1 ? y.f[i] : x.f[i]))
EMU(ps, or_ps, (__m512 a, __m512 b), r.si = (__m512i)a | (__m512i)b)
EMU(ps, castpd_ps, (__m512d a), r.pd = a)
EMU(pd, castps_pd, (__m512 a), r.ps = a)
EMU(pd, unpack_pd, (__m512d a, __m512d b, int high), union lanes x = {.pd = a}; union lanes y = {.pd = b}; EACH(8, r.d[i] = (i % 2 ? y : x).d[i / 2 * 2 + high]))
EMU(ps, unpack_ps, (__m512 a, __m512 b, int high), union lanes x = {.ps = a}; union lanes y = {.ps = b};
    EACH(16, r.f[i] = (i % 2 ? y : x).f[i / 4 * 4 + 2 * high + i % 4 / 2]))
EMU(ps, shuffle_f32x4, (__m512 a, __m512 b, int parts), union lanes x = {.ps = a}; union lanes y = {.ps = b};
    EACH(16, r.f[i] = (i / 8 ? y : x).f[(parts >> (i / 4 * 2) & 3) * 4 + i % 4]))
EMU(ps, castsi512_ps, (__m512i a), r.si = a)

/* ---- whole numbers ---- */
EMU(si, castps_si512, (__m512 a), r.ps = a)
EMU(si, setzero_si512, (void), (void)0)
EMU(si, set1_epi8, (char x), memset(&r, x, 64))
EMU(si, set1_epi32, (int x), EACH(16, r.i32[i] = x))
EMU(si, setr_epi32, (int a, int b, int c, int d, int e, int f, int g, int h, int k, int l, int m, int n, int o, int p, int q, int s),
    int v[16] = {a, b, c, d, e, f, g, h, k, l, m, n, o, p, q, s}; memcpy(r.i32, v, sizeof v))
EMU(si, loadu_si512, (const void *p), memcpy(&r, p, 64))
EMU(si, and_si512, (__m512i a, __m512i b), r.si = a & b)

EMU(si, unpacklo_epi16, (__m512i a, __m512i b), union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(32, r.u16[i] = (i % 2 ? y : x).u16[i / 8 * 8 + i % 8 / 2]))
EMU(si, unpackhi_epi16, (__m512i a, __m512i b), union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(32, r.u16[i] = (i % 2 ? y : x).u16[i / 8 * 8 + 4 + i % 8 / 2]))
EMU(si, unpacklo_epi32, (__m512i a, __m512i b), union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(16, r.i32[i] = (i % 2 ? y : x).i32[i / 4 * 4 + i % 4 / 2]))
EMU(si, unpackhi_epi32, (__m512i a, __m512i b), union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(16, r.i32[i] = (i % 2 ? y : x).i32[i / 4 * 4 + 2 + i % 4 / 2]))
EMU(si, unpack_epi64, (__m512i a, __m512i b, int high), union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(8, r.d[i] = (i % 2 ? y : x).d[i / 2 * 2 + high]))
EMU(si, shuffle_i32x4, (__m512i a, __m512i b, int parts), union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(16, r.i32[i] = (i / 8 ? y : x).i32[(parts >> (i / 4 * 2) & 3) * 4 + i % 4]))
EMU(si, add_epi32, (__m512i a, __m512i b), r.si = (__m512i)((emu_i32)a + (emu_i32)b))
EMU(si, slli_epi32, (__m512i a, unsigned n), r.si = n > 31 ? r.si : (__m512i)((emu_u32)a << n))
EMU(si, srli_epi32, (__m512i a, unsigned n), r.si = n > 31 ? r.si : (__m512i)((emu_u32)a >> n))
EMU(si, srli_epi16, (__m512i a, unsigned n), r.si = n > 15 ? r.si : (__m512i)((emu_u16)a >> n))
EMU(si, cvtepu16_epi32, (__m256i a), uint16_t v[16]; memcpy(v, &a, sizeof v); EACH(16, r.u32[i] = v[i]))
EMU(si, mask_mov_epi32, (__m512i a, unsigned mask, __m512i b), union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(16, r.i32[i] = mask >> i & 1 ? y.i32[i] : x.i32[i]))
EMU(si, set4_epi32, (int d, int c, int b, int a), int v[4] = {a, b, c, d}; EACH(16, r.i32[i] = v[i % 4]))
EMU(si, mask_shuffle_epi8, (__m512i a, uint64_t mask, __m512i b, __m512i at), union lanes w = {.si = a}; union lanes x = {.si = b}; union lanes k = {.si = at};
    EACH(64, r.u8[i] = !(mask >> i & 1) ? w.u8[i] : k.u8[i] & 128 ? 0 : x.u8[i / 16 * 16 + k.u8[i] % 16]))
EMU(si, ternarylogic_epi32, (__m512i a, __m512i b, __m512i c, int table), for (int i = 0; i < 8; i++) if (table >> i & 1) r.si |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c))
/* Not inline: kernels are hundreds of these in a row. */
EMU_AS(noinline, si, dpbusd_epi32, (__m512i sum, __m512i a, __m512i b), union lanes s = {.si = sum}; union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(16, {
        r.i32[i] = s.i32[i];
        for (int k = 4 * i; k < 4 * i + 4; k++) r.i32[i] += x.u8[k] * y.i8[k];
    }))

EMU(si, max_epi32, (__m512i a, __m512i b), union lanes x = {.si = a}; union lanes y = {.si = b};
    EACH(16, r.i32[i] = x.i32[i] > y.i32[i] ? x.i32[i] : y.i32[i]))
EMU(si, srai_epi32, (__m512i a, unsigned n), union lanes x = {.si = a}; EACH(16, r.i32[i] = x.i32[i] >> n))
EMU(ps, maskz_loadu_ps, (unsigned mask, const float *p), EACH(16, r.f[i] = mask >> i & 1 ? p[i] : 0))

/* A mask of the lanes for which `condition` on x, y and i holds. */
#define EMU_MASK(name, type, member, condition)                                                                        \
    static inline unsigned emu_##name(type a, type b)                                                                  \
    {                                                                                                                  \
        union lanes x = {.member = a}, y = {.member = b};                                                              \
        unsigned mask = 0;                                                                                             \
        EACH(16, mask |= (unsigned)(condition) << i);                                                                  \
        return mask;                                                                                                   \
    }
EMU_MASK(cmpgt_epi32_mask, __m512i, si, x.i32[i] > y.i32[i])
EMU_MASK(cmpeq_epi32_mask, __m512i, si, x.i32[i] == y.i32[i])
EMU_MASK(cmplt_ps_mask, __m512, ps, x.f[i] < y.f[i])
EMU_MASK(cmpunord_ps_mask, __m512, ps, isnan(x.f[i]) || isnan(y.f[i]))

EMU(si, cvtps_epi32, (__m512 a), union lanes x = {.ps = a}; EACH(16, r.i32[i] = (int32_t)rintf(x.f[i])))

static inline __m128i emu_low_bytes(__m512i a)
{
    union lanes x = {.si = a};
    int8_t v[16];
    __m128i r;
    EACH(16, v[i] = (int8_t)(uint8_t)x.i32[i]);
    memcpy(&r, v, sizeof r);
    return r;
}

static inline int emu_reduce_add_epi32(__m512i a)
{
    union lanes x = {.si = a};
    int r = 0;
    EACH(16, r += x.i32[i]);
    return r;
}

static inline int emu_reduce_epi32(__m512i a, bool highest)
{
    union lanes x = {.si = a};
    int r = x.i32[0];
    EACH(16, if (highest ? x.i32[i] > r : x.i32[i] < r) r = x.i32[i]);
    return r;
}

static inline unsigned emu_movepi32_mask(__m512i a)
{
    union lanes x = {.si = a};
    unsigned mask = 0;
    EACH(16, mask |= (unsigned)(x.i32[i] < 0) << i);
    return mask;
}

static inline void emu_store(void *p, const void *v)
{
    memcpy(p, v, 64);
}

#define emu_load_ps emu_loadu_ps
#define emu_load_si512 emu_loadu_si512
#define emu_store_ps(p, v) emu_store(p, &(union lanes){.ps = (v)})
#define emu_store_si512(p, v) emu_store(p, &(union lanes){.si = (v)})
#define emu_half(v, member, k) (((union lanes)(v)).half_##member[k])

#define _mm512_setzero_ps emu_setzero_ps
#define _mm512_setzero_pd emu_setzero_pd
#define _mm512_set1_ps emu_set1_ps
#define _mm512_setr_ps emu_setr_ps
#define _mm512_load_ps emu_load_ps
#define _mm512_loadu_ps emu_loadu_ps
#define _mm512_store_ps emu_store_ps
#define _mm512_storeu_ps emu_store_ps
#define _mm512_add_ps emu_add_ps
#define _mm512_sub_ps emu_sub_ps
#define _mm512_mul_ps emu_mul_ps
#define _mm512_div_ps emu_div_ps
#define _mm512_max_ps emu_max_ps
#define _mm512_fmadd_ps emu_fmadd_ps
#define _mm512_fnmadd_ps emu_fnmadd_ps
#define _mm512_add_pd emu_add_pd
#define _mm512_fmadd_pd emu_fmadd_pd
#define _mm512_scalef_ps emu_scalef_ps
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps(v, mode) emu_nearest_ps(v) /* the only mode in use */
#undef _mm512_reduce_ps
#define _mm512_reduce_ps(v, mode) emu_above_floor_ps(v) /* the only mode in use */
#define _mm512_permutexvar_ps emu_permutexvar_ps
#undef _mm512_i32gather_ps
#define _mm512_i32gather_ps emu_gather_ps
#define _mm512_mask_blend_ps emu_mask_blend_ps
#define _mm512_cvtps_pd emu_cvtps_pd
#define _mm512_cvtepi32_ps emu_cvtepi32_ps
#define _mm512_castsi512_ps emu_castsi512_ps
#define _mm512_castpd_ps emu_castpd_ps
#define _mm512_castps_pd emu_castps_pd
#define _mm512_unpacklo_pd(a, b) emu_unpack_pd(a, b, 0)
#define _mm512_unpackhi_pd(a, b) emu_unpack_pd(a, b, 1)
#define _mm512_unpacklo_ps(a, b) emu_unpack_ps(a, b, 0)
#define _mm512_unpackhi_ps(a, b) emu_unpack_ps(a, b, 1)
#define _mm512_unpacklo_epi16 emu_unpacklo_epi16
#define _mm512_unpackhi_epi16 emu_unpackhi_epi16
#define _mm512_castps_si512 emu_castps_si512
#define _mm512_castps512_ps256(v) emu_half(v, ps, 0)
#define _mm512_castpd512_pd256(v) emu_half(v, pd, 0)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(v, k) emu_half(v, ps, k)
#undef _mm512_extractf64x4_pd
#define _mm512_extractf64x4_pd(v, k) emu_half(v, pd, k)
#define _mm512_setzero_si512 emu_setzero_si512
#define _mm512_set1_epi8 emu_set1_epi8
#define _mm512_set1_epi32 emu_set1_epi32
#define _mm512_setr_epi32 emu_setr_epi32
#define _mm512_load_si512 emu_load_si512
#define _mm512_loadu_si512 emu_loadu_si512
#define _mm512_store_si512 emu_store_si512
#define _mm512_storeu_si512 emu_store_si512
#define _mm512_and_si512 emu_and_si512
#define _mm512_or_ps emu_or_ps
#define _mm512_add_epi32 emu_add_epi32
#define _mm512_slli_epi32 emu_slli_epi32
#define _mm512_srli_epi32 emu_srli_epi32
#define _mm512_srli_epi16 emu_srli_epi16
#define _mm512_cvtepu16_epi32 emu_cvtepu16_epi32
#define _mm512_mask_mov_epi32 emu_mask_mov_epi32
#define _mm512_max_epi32 emu_max_epi32
#define _mm512_srai_epi32 emu_srai_epi32
#define _mm512_xor_si512(a, b) ((__m512i)(a) ^ (__m512i)(b))
#define _mm512_maskz_loadu_ps emu_maskz_loadu_ps
#define _mm512_cmpgt_epi32_mask emu_cmpgt_epi32_mask
#define _mm512_cmpeq_epi32_mask emu_cmpeq_epi32_mask
#undef _mm512_cmp_ps_mask
#undef _mm512_cmplt_ps_mask
#define _mm512_cmplt_ps_mask emu_cmplt_ps_mask
#define _mm512_cmp_ps_mask(a, b, how) emu_cmpunord_ps_mask(a, b) /* the only one in use */
#define _mm512_maskz_mov_ps(mask, a) emu_mask_blend_ps(mask, emu_setzero_ps(), a)
#define _mm512_mask_mov_ps(a, mask, b) emu_mask_blend_ps(mask, a, b)
#define _mm512_cvtss_f32(a) ((union lanes){.ps = (a)}).f[0]
#define _mm512_unpacklo_epi32 emu_unpacklo_epi32
#define _mm512_unpackhi_epi32 emu_unpackhi_epi32
#define _mm512_unpacklo_epi64(a, b) emu_unpack_epi64(a, b, 0)
#define _mm512_unpackhi_epi64(a, b) emu_unpack_epi64(a, b, 1)
#undef _mm512_shuffle_i32x4
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_i32x4 emu_shuffle_i32x4
#define _mm512_shuffle_f32x4 emu_shuffle_f32x4
#define _mm512_cvtps_epi32 emu_cvtps_epi32
#define _mm512_cvtepi32_epi8 emu_low_bytes
#define _mm512_reduce_add_epi32 emu_reduce_add_epi32
#define _mm512_reduce_max_epi32(a) emu_reduce_epi32(a, true)
#define _mm512_reduce_min_epi32(a) emu_reduce_epi32(a, false)
#undef _mm512_set4_epi32
#define _mm512_set4_epi32 emu_set4_epi32
#define _mm512_mask_shuffle_epi8 emu_mask_shuffle_epi8
#undef _mm512_ternarylogic_epi32
#define _mm512_ternarylogic_epi32 emu_ternarylogic_epi32
#define _mm512_movepi32_mask emu_movepi32_mask
#define _mm512_dpbusd_epi32 emu_dpbusd_epi32

/* ---- bf16 ---- */
/* Subnormal numbers count as zero. */
static inline float emu_flushed(float f)
{
    return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f;
}

/* The nearest bf16, ties to even; NaN becomes quiet. */
static inline uint16_t emu_round_bf16(float f)
{
    uint32_t bits;
    f = emu_flushed(f);
    memcpy(&bits, &f, 4);
    return (uint16_t)(isnan(f) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

EMU(si, cvtne2ps_pbh, (__m512 upper, __m512 lower), union lanes x = {.ps = lower}; union lanes y = {.ps = upper};
    EACH(16, { r.u16[i] = emu_round_bf16(x.f[i]); r.u16[16 + i] = emu_round_bf16(y.f[i]); }))
#define _mm512_cvtne2ps_pbh emu_cvtne2ps_pbh

/* ---- tiles ---- */
static __thread uint8_t emu_tile[8][16][64];
static __thread uint8_t emu_rows[8], emu_columns[8]; /* a row's bytes */

static inline void emu_tile_config(const uint8_t *config)
{
    EACH(8, emu_rows[i] = config[48 + i], emu_columns[i] = config[16 + 2 * i]);
}

static inline void emu_tile_load(int t, const void *p, long stride)
{
    EACH(emu_rows[t], memcpy(emu_tile[t][i], (const char *)p + i * stride, emu_columns[t]));
}

static inline void emu_tile_store(int t, void *p, long stride)
{
    EACH(emu_rows[t], memcpy((char *)p + i * stride, emu_tile[t][i], emu_columns[t]));
}

/* Rows of signed bytes times columns of unsigned ones. */
static inline void emu_tile_signed_unsigned(int c, int a, int b)
{
    for (int row = 0; row < emu_rows[c]; row++)
        for (int col = 0; col < emu_columns[c] / 4; col++) {
            int32_t sum;
            memcpy(&sum, &emu_tile[c][row][4 * col], 4);
            EACH(emu_columns[a], sum += (int8_t)emu_tile[a][row][i] * emu_tile[b][i / 4][4 * col + i % 4]);
            memcpy(&emu_tile[c][row][4 * col], &sum, 4);
        }
}

static inline float emu_bf16(const uint8_t *p)
{
    uint32_t bits = (uint32_t)(p[0] | p[1] << 8) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return emu_flushed(f);
}

/* Even and odd products are summed apart, by fused operations, then both, then what was there. */
static inline void emu_tile_bf16(int c, int a, int b)
{
    for (int row = 0; row < emu_rows[c]; row++)
        for (int col = 0; col < emu_columns[c] / 4; col++) {
            float before, sum[2] = {0, 0};
            memcpy(&before, &emu_tile[c][row][4 * col], 4);
            EACH(emu_columns[a] / 2, sum[i % 2] = emu_flushed(fmaf(emu_bf16(&emu_tile[a][row][2 * i]), emu_bf16(&emu_tile[b][i / 2][4 * col + 2 * (i % 2)]), sum[i % 2])));
            before = emu_flushed(emu_flushed(before) + emu_flushed(sum[0] + sum[1]));
            memcpy(&emu_tile[c][row][4 * col], &before, 4);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbsud
#undef _tile_dpbf16ps
#define _tile_loadconfig(p) emu_tile_config((const uint8_t *)(p))
#define _tile_release() ((void)0)
#define _tile_zero(t) memset(emu_tile[t], 0, sizeof emu_tile[t])
#define _tile_loadd(t, p, stride) emu_tile_load(t, p, (long)(stride))
#define _tile_stream_loadd(t, p, stride) emu_tile_load(t, p, (long)(stride))
#define _tile_stored(t, p, stride) emu_tile_store(t, p, (long)(stride))
#define _tile_dpbsud emu_tile_signed_unsigned
#define _tile_dpbf16ps emu_tile_bf16

#undef EACH
#undef EMU
#endif
