/* The AVX-512 tier's table: needs AVX-512 F, BW, VL, DQ and VNNI. */
#include "backend/cpu/vec_avx512.h"

void cpu_kernels_avx512(struct cpu_kernels *k)
{
    k->tier = CPU_AVX512;
    cpu_kernels_avx512_matmul(k);
    cpu_kernels_avx512_mix(k);
    cpu_kernels_avx512_elem(k);
    k->matmul_q4_digits = cpu_digits_avx512;
    k->matmul_q8_digits = cpu_q8_digits_avx512;
    k->split_digits = cpu_split_digits_avx512;
}
