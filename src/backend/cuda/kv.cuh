/*
 * Where keys and values lie in a page. fp32: K (64, 256), then V (64, 256), for each layer and head. bf16: the same bytes
 * in the order of mma fragments, so that a warp reads 16 bytes a lane without bank conflicts: K in tiles of 16 tokens x 16
 * dimensions, V in tiles of 16 dimensions x 16 tokens, each (lane, 16 bytes); tiles run over dimensions first.
 */
#ifndef LILY_BACKEND_CUDA_KV_CUH
#define LILY_BACKEND_CUDA_KV_CUH

#include "backend/cuda/common.cuh"

enum { KV_TILE = 512, KV_HEAD = 64 * 256 * 2 };

/* Element of token p (0 … 63) and dimension d in bf16 elements from the start of K or V. */
__host__ __device__ inline int kv_at(int p, int d, bool v)
{
    int row = v ? d & 15 : p & 15, col = v ? p & 15 : d & 15, tile = (p >> 4) * 16 + (d >> 4);
    int lane = (row & 7) * 4 + ((col & 7) >> 1), word = (row >> 3) + 2 * (col >> 3);
    return tile * 256 + lane * 8 + word * 2 + (col & 1);
}

#endif
