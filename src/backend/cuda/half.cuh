/*
 * Activations of prefill are fp16: three bits more than bf16 at the same speed. Beyond 65504 they stop there. What enters and
 * leaves the down projections is kept at 1/16, for these numbers are the ones that grow large.
 */
#ifndef LILY_BACKEND_CUDA_HALF_CUH
#define LILY_BACKEND_CUDA_HALF_CUH

#include <cuda_fp16.h>

#include "backend/cuda/common.cuh"

#define INNER_SCALE 0.0625f

DI u32 pack_h(float lo, float hi)
{
    u32 d;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}
DI u16 f_h(float v) { return (u16)pack_h(v, 0.0f); }
DI float h_f(u16 v) { return __half2float(__ushort_as_half(v)); }
DI float h_lo(u32 v) { return h_f((u16)v); }
DI float h_hi(u32 v) { return h_f((u16)(v >> 16)); }
/* What fp16 leaves of two numbers. */
DI u32 pack_rest(float lo, float hi, u32 packed) { return pack_h(lo - h_lo(packed), hi - h_hi(packed)); }

DI u32 fma2_h(u32 a, u32 b, u32 c)
{
    u32 d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* 1024 twice, from where the compiler does not know it: as a constant it would cost an instruction wherever it is combined. */
DI u32 thousand_h()
{
    u32 d;
    asm("mov.b32 %0, 0x64006400;" : "=r"(d));
    return d;
}
/* (w & mask) | base */
template <u32 MASK> DI u32 masked_h(u32 w, u32 base)
{
    u32 d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(w), "n"(MASK), "r"(base));
    return d;
}

/* The codes in bits 0 … 3 and 16 … 19 as numbers: 1024 + q, less 1024. */
DI u32 code2_h(u32 w)
{
    u32 d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(masked_h<0x000f000fu>(w, thousand_h())), "r"(0x64006400u));
    return d;
}
/* The codes in bits 4 … 7 and 20 … 23: 1024 + 16 q, divided. */
DI u32 code2_h4(u32 w) { return fma2_h(masked_h<0x00f000f0u>(w, thousand_h()), 0x2c002c00u, 0xd400d400u); }

DI void mma16_h(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Scales and biases of one group of a unit, each in both halves: rows g, rows g+8. */
struct group_scale {
    u32 s0, s1, b0, b1;
};

DI u32 twice_h(u32 bf16_pair, int high)
{
    const float v = high ? bf_hi(bf16_pair) : bf_lo(bf16_pair);
    return pack_h(v, v);
}

DI group_scale scales_at(const uint8_t *unit, int gr, int g)
{
    const uint2 s = *(const uint2 *)(unit + 1024 + g * 8), b = *(const uint2 *)(unit + 1088 + g * 8);
    group_scale r = {twice_h(s.x, gr), twice_h(s.y, gr), twice_h(b.x, gr), twice_h(b.y, gr)};
    return r;
}

/* The A fragments of the 64 columns of a group: fp16(s*q + b). */
DI void dequant_group(u32 (&a)[16], const uint8_t *unit, int gr, int lane)
{
    const group_scale s = scales_at(unit, gr, lane >> 2);
    const uint4 v = *(const uint4 *)(unit + gr * 512 + lane * 16);
    const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const u32 sc = r & 1 ? s.s1 : s.s0, b = r & 1 ? s.b1 : s.b0, high = w[r] >> 8;
        a[r] = fma2_h(code2_h(w[r]), sc, b);
        a[4 + r] = fma2_h(code2_h4(w[r]), sc, b);
        a[8 + r] = fma2_h(code2_h(high), sc, b);
        a[12 + r] = fma2_h(code2_h4(high), sc, b);
    }
}

#endif
