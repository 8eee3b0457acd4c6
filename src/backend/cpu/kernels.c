/* Choice of the CPU kernels: scalar first, then every tier that runs, up to the one asked for. */
#include "backend/cpu/kernels.h"

void cpu_kernels_init(struct cpu_kernels *k, enum cpu_tier tier)
{
    *k = (struct cpu_kernels){0};
    cpu_kernels_scalar(k);
#if defined(__x86_64__)
    if (tier >= CPU_AVX2 && tier <= CPU_AMX && cpu_tier_runs(CPU_AVX2)) cpu_kernels_avx2(k);
    if (tier >= CPU_AVX512 && tier <= CPU_AMX && cpu_tier_runs(CPU_AVX512)) cpu_kernels_avx512(k);
    if (tier == CPU_AMX && cpu_tier_runs(CPU_AMX)) cpu_kernels_amx(k);
#elif defined(__aarch64__)
    if (tier == CPU_NEON) cpu_kernels_neon(k);
#endif
}
