/* The NEON tier's table: any aarch64 processor. */
#include "backend/cpu/vec_neon.h"

void cpu_kernels_neon(struct cpu_kernels *k)
{
    k->tier = CPU_NEON;
    cpu_kernels_neon_matmul(k);
    cpu_kernels_neon_mix(k);
    cpu_kernels_neon_elem(k);
    cpu_kernels_neon_digits(k);
}
