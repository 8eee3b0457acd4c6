/* What the prefill files share. */
#ifndef LILY_BACKEND_CUDA_PREFILL_CUH
#define LILY_BACKEND_CUDA_PREFILL_CUH

#include "backend/cuda/half.cuh"

/* Four neighbours, the first a multiple of four, at the place `at` of the first in the units' order: two pairs 32 apart. */
DI void put_four(u16 *out, u16 *rest, size_t at, const float (&y)[4])
{
    const u32 even = pack_h(y[0], y[2]), odd = pack_h(y[1], y[3]);
    *(u32 *)(out + at) = even;
    *(u32 *)(out + at + 32) = odd;
    *(u32 *)(rest + at) = pack_rest(y[0], y[2], even);
    *(u32 *)(rest + at + 32) = pack_rest(y[1], y[3], odd);
}

#endif
