/* The AVX2 tier's table: needs AVX2, FMA and F16C. */
#include "backend/cpu/vec_avx2.h"

void cpu_kernels_avx2(struct cpu_kernels *k)
{
    k->tier = CPU_AVX2;
    cpu_kernels_avx2_matmul(k);
    cpu_kernels_avx2_mix(k);
    cpu_kernels_avx2_elem(k);
    cpu_kernels_avx2_digits(k);
}
