/* The avx2 tier's table. */
#include "backend/cpu/kernels.h"

void cpu_kernels_avx2(struct cpu_kernels *k)
{
    (void)k;
}
