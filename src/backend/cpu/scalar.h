/* The parts of the scalar tier, for cpu_kernels_scalar alone. */
#ifndef LILY_BACKEND_CPU_SCALAR_H
#define LILY_BACKEND_CPU_SCALAR_H

#include "backend/cpu/kernels.h"

void cpu_kernels_scalar_matmul(struct cpu_kernels *k);
void cpu_kernels_scalar_mix(struct cpu_kernels *k);
void cpu_kernels_scalar_digits(struct cpu_kernels *k);

#endif
