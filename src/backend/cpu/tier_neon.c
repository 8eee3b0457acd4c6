/* The neon tier's table. */
#include "backend/cpu/kernels.h"

void cpu_kernels_neon(struct cpu_kernels *k)
{
    (void)k;
}
