/*
 * Hopper's warpgroup products (sm_90a): D (64 x N, fp32) += A (64 x 16) x B (N x 16), fp16, A in registers or shared memory,
 * B in shared memory. A tile in shared memory is rows of 64 numbers, 128 bytes each, whose 16-byte pieces lie at piece ^ (row & 7);
 * tiles begin on 1024 bytes. Everything here is empty for other cards.
 */
#ifndef LILY_BACKEND_CUDA_WGMMA_CUH
#define LILY_BACKEND_CUDA_WGMMA_CUH

#include "backend/cuda/common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAVE_WGMMA 1
#else
#define HAVE_WGMMA 0
#endif

enum { WG = 128, TILE_ROW = 128 }; /* threads of a warpgroup; bytes of a tile's row */

/* Where piece `piece` of a tile's row lies. */
DI u32 tile_at16(int row, int piece) { return (u32)(row * TILE_ROW + ((piece ^ (row & 7)) << 4)); }

/* A tile for the hardware: the address in 16 bytes, 1024 bytes from eight rows to the next, 128-byte swizzle. 16 columns further: + 2. */
DI u64 tile_desc(u32 addr) { return (u64)((addr & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62; }

DI void bar_arrive_if(u32 a, bool yes)
{
    asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; @p mbarrier.arrive.shared::cta.b64 _, [%0];}" ::"r"(a), "r"((u32)yes) : "memory");
}
DI void bar_arrive(u32 a) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(a) : "memory"); }

#if HAVE_WGMMA

DI void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DI void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DI void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N> DI void regs_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DI void regs_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

#define WG_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define WG_D16(i) WG_D8(i), WG_D8(i + 8)
#define WG_D32(i) WG_D16(i), WG_D16(i + 16)
#define WG_D64(i) WG_D32(i), WG_D32(i + 32)
#define WG_D48 WG_D32(0), WG_D16(32)
#define WG_D128 WG_D64(0), WG_D64(64)
#define WG_R00 "%0,%1,%2,%3,%4,%5,%6,%7"
#define WG_R0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define WG_R1 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WG_R2 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WG_R3 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WG_R4 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define WG_R5 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define WG_R6 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define WG_R7 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

/* N columns, A in registers: REGS and OUT name D; a_ to b_ are the operands behind it. */
#define WG_RS(N, REGS, OUT, a_, b_)                                                                                     \
    DI void wg_mul(float(&d)[N / 2], const u32 *a, u64 b)                                                              \
    {                                                                                                                  \
        asm volatile("{.reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" REGS "}, {" a_ "}, " b_ \
                     ", p, 1, 1, 0;}"                                                                                  \
                     : OUT                                                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }
WG_RS(16, WG_R00, WG_D8(0), "%8,%9,%10,%11", "%12")
WG_RS(32, WG_R0, WG_D16(0), "%16,%17,%18,%19", "%20")
WG_RS(64, WG_R0 WG_R1, WG_D32(0), "%32,%33,%34,%35", "%36")
WG_RS(96, WG_R0 WG_R1 WG_R2, WG_D48, "%48,%49,%50,%51", "%52")
WG_RS(128, WG_R0 WG_R1 WG_R2 WG_R3, WG_D64(0), "%64,%65,%66,%67", "%68")
WG_RS(256, WG_R0 WG_R1 WG_R2 WG_R3 WG_R4 WG_R5 WG_R6 WG_R7, WG_D128, "%128,%129,%130,%131", "%132")

/* The same for 64 columns with A as a tile. */
DI void wg_mul(float (&d)[32], u64 a, u64 b)
{
    asm volatile("{.reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WG_R0 WG_R1 "}, %32, %33, p, 1, 1, 0, 0;}"
                 : WG_D32(0)
                 : "l"(a), "l"(b));
}

#endif

#endif
