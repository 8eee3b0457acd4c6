/*
 * What the benchmark asks of the CPU backend: a state without its computation, and the limits of the machine.
 *
 * The loops of the integer limit keep all operands in registers; each runs `rounds` times and returns the operations of a
 * round. One file per instruction set; a loop may be called only where its tier runs.
 */
#ifndef LILY_BACKEND_CPU_MEASURE_H
#define LILY_BACKEND_CPU_MEASURE_H

#include "backend/backend.h"

lily_status cpu_seq_fill(struct backend *be, struct seq *s, int n, uint64_t seed, struct lily_err *err);
lily_status cpu_measure(struct backend *be, struct device_limits *out, struct lily_err *err);
double cpu_joules(struct backend *be);

double measure_products_scalar(long rounds);
double measure_products_avx2(long rounds);
double measure_products_avx512(long rounds);
double measure_products_amx(long rounds);
double measure_products_neon(long rounds);

#endif
