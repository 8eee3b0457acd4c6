/*
 * What every kernel file shares: PTX in small functions, the unit of weights, and the order in which activations are kept
 * for the tensor cores.
 *
 * Unit: 16 rows x 128 columns of 4-bit codes in 1152 bytes: for each group of 64 columns 32 lanes of 16 bytes, then scales,
 * then biases. Lane 4g+t has rows g (words 0, 2) and g+8 (words 1, 3); byte b of word i has column 16(i/2)+4t+b of its group in
 * the low nibble and the column 32 further in the high one. So the words of a lane are an A fragment of mma m16n8k32 (bytes), and a
 * mask and a shift give one of m16n8k16 (prefill). Scales: for each g 8 bytes
 * {row g group 0, row g group 1, row g+8 group 0, row g+8 group 1}; biases the same. An 8-bit matrix has two units for each
 * place: the low nibbles with scale and bias, the high ones with 16 times the scale and no bias.
 */
#ifndef LILY_BACKEND_CUDA_COMMON_CUH
#define LILY_BACKEND_CUDA_COMMON_CUH

#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>

typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define DI static __device__ __forceinline__

enum { UNIT = 1152, UNIT_ROWS = 16, UNIT_COLS = 128, WARPS = 8, CTA = 32 * WARPS, TOP = 8 };

/* ---- numbers ---- */

DI float bf_lo(u32 v) { return __uint_as_float(v << 16); }
DI float bf_hi(u32 v) { return __uint_as_float(v & 0xffff0000u); }
DI float bf_f(u16 v) { return __uint_as_float((u32)v << 16); }
DI u16 f_bf(float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
DI u32 pack_bf(float lo, float hi) { return (u32)f_bf(lo) | (u32)f_bf(hi) << 16; }
DI float sigmoidf(float x) { return 1.0f / (1.0f + __expf(-x)); }
DI float siluf(float x) { return x / (1.0f + __expf(-x)); }

DI float warp_sum(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

DI float warp_max(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

/*
 * ---- copies, barriers, launches that overlap ----
 *
 * A barrier that a copy completes: bar_expect, one bulk_load or more from the same thread, bulk_sent. Ampere has no copy engine:
 * there the thread copies by itself, piece after piece, which is right but slow, and launches do not overlap.
 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define HAVE_BULK 0
#else
#define HAVE_BULK 1
#endif

DI u32 smem_addr(const void *p) { return (u32)__cvta_generic_to_shared(p); }

DI void bar_init(u32 a, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(a), "r"(n) : "memory"); }
DI void bar_init_done()
{
#if HAVE_BULK
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
    __threadfence_block();
#endif
}
DI void bar_expect(u32 a, u32 bytes)
{
#if HAVE_BULK
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(a), "r"(bytes) : "memory");
#endif
}
DI u32 bar_try(u32 a, u32 phase)
{
    u32 ok;
#if HAVE_BULK
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
#else
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
#endif
                 : "=r"(ok)
                 : "r"(a), "r"(phase)
                 : "memory");
    return ok;
}
DI void bar_wait(u32 a, u32 phase)
{
    while (!bar_try(a, phase)) {
    }
}
DI void cp16(u32 dst, const void *src, int bytes) /* bytes 16, or 0 to fill with zeros */
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
/* Global to shared memory by the copy engine; addresses and bytes are multiples of 16. */
DI void bulk_load(u32 dst, const void *src, u32 bytes, u32 bar)
{
#if HAVE_BULK
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src),
                 "r"(bytes), "r"(bar)
                 : "memory");
#else
    for (u32 i = 0; i < bytes; i += 16) cp16(dst + i, (const uint8_t *)src + i, 16);
#endif
}
/* Arrives when this thread's copies by cp16 are there. */
DI void bar_arrive_loaded(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory"); }
DI void bulk_sent(u32 bar)
{
#if !HAVE_BULK
    bar_arrive_loaded(bar);
#endif
}
/* Before a bulk copy from memory that threads have written. */
DI void bulk_fence()
{
#if HAVE_BULK
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
DI void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DI void cp_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

/* Programmatic dependent launch: the next kernel may start; wait until the kernel before has ended. */
DI void pdl_launch()
{
#if HAVE_BULK
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DI void pdl_wait()
{
#if HAVE_BULK
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- tensor cores ---- */

DI void mma16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Bytes: A without sign, B with; exact. */
DI void mma32(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

DI void ldsm4(u32 (&r)[4], u32 addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

DI void ldsm4t(u32 (&r)[4], u32 addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

/* ---- orders of activations ---- */

/*
 * Prefill: a row of K fp16, permuted inside each group of 64 so that 16 neighbours are the columns of one mask of a unit:
 * place 16m+p, m = 2(b&1) + column/32.
 */
__host__ __device__ inline int perm_of(int k)
{
    int kk = k & 63, b = kk & 3, m = (b & 1) * 2 + (kk >> 5);
    return (k & ~63) + m * 16 + 2 * ((kk & 15) >> 2) + (b >> 1) + 8 * ((kk >> 4) & 1);
}

/* The weight at (row, column) of a matrix of 1 or 2 planes; tile is the first unit of the row's tile. */
DI float unit_weight(const uint8_t *tile, int planes, int row, int k)
{
    int r = row & 15, kk = k & 63, gr = (k >> 6) & 1, g = r & 7, half = r >> 3;
    int lane = g * 4 + ((kk & 15) >> 2), word = ((kk >> 4) & 1) * 2 + half, e = half * 2 + gr;
    const uint8_t *u = tile + (size_t)(k >> 7) * planes * UNIT;
    int q = 0;
    for (int p = planes - 1; p >= 0; p--) {
        int byte = u[p * UNIT + gr * 512 + lane * 16 + word * 4 + (kk & 3)];
        q = q * 16 + (kk & 32 ? byte >> 4 : byte & 15);
    }
    const u16 *s = (const u16 *)(u + 1024 + g * 8), *bias = (const u16 *)(u + 1088 + g * 8);
    return __fmaf_rn((float)q, bf_f(s[e]), bf_f(bias[e]));
}

#endif
