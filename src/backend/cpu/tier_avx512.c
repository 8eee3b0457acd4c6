/* The avx512 tier's table. */
#include "backend/cpu/kernels.h"

void cpu_kernels_avx512(struct cpu_kernels *k)
{
    (void)k;
}
