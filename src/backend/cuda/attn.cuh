/* What attention of decode and of prefill share: norm and rotation of a head, and the plain way over fp32 pages. */
#ifndef LILY_BACKEND_CUDA_ATTN_CUH
#define LILY_BACKEND_CUDA_ATTN_CUH

#include "backend/cuda/device.cuh"

/* Norm and rotation of 256 numbers of one head by a warp: lane has 4*lane+i and 128+4*lane+i. */
DI void norm_rope(float (&x)[8], const float *w, const float *rotary, float eps, int lane)
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) s += x[i] * x[i];
    const float r = rsqrtf(warp_sum(s) / HEAD_DIM + eps);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] *= r * w[(i >> 2) * 128 + 4 * lane + (i & 3)];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float other = __shfl_xor_sync(~0u, x[i], 8), cs = rotary[(lane & 7) * 4 + i], sn = rotary[32 + (lane & 7) * 4 + i];
        if (lane < 8) x[i] = x[i] * cs - other * sn;
        else if (lane < 16) x[i] = other * sn + x[i] * cs;
    }
}

struct pages_f32 {
    const uint8_t *region;
    size_t page_bytes, head_at, head_bytes; /* head_at: bytes from a page's start to the keys of layer and head */
};

/*
 * Dimension threadIdx.x of the attention of 256 scaled numbers over keys 0 … pos, by a block: its eight warps take keys in turn,
 * each with its own running maximum, and are put together at the end.
 */
DI float attention_f32(const pages_f32 &at, const int32_t *pages, const float *q_row, int pos)
{
    __shared__ float acc[WARPS][HEAD_DIM], ms[WARPS][2];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float q[8], o[8] = {}, max = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) q[i] = q_row[32 * i + lane];
    for (int key = warp; key <= pos; key += WARPS) {
        const uint8_t *page = at.region + (size_t)pages[key / GRID] * at.page_bytes + at.head_at;
        const float *k = (const float *)page + (size_t)(key % GRID) * HEAD_DIM, *v = (const float *)(page + at.head_bytes) + (size_t)(key % GRID) * HEAD_DIM;
        float dot = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) dot = fmaf(q[i], k[32 * i + lane], dot);
        dot = warp_sum(dot);
        const float top = fmaxf(max, dot), keep = __expf(max - top), w = __expf(dot - top);
        sum = sum * keep + w;
        max = top;
#pragma unroll
        for (int i = 0; i < 8; i++) o[i] = fmaf(w, v[32 * i + lane], o[i] * keep);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) acc[warp][32 * i + lane] = o[i];
    if (lane == 0) ms[warp][0] = max, ms[warp][1] = sum;
    __syncthreads();
    float top = -INFINITY, total = 0, x = 0;
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, ms[w][0]);
    for (int w = 0; w < WARPS; w++) {
        const float f = __expf(ms[w][0] - top);
        total += f * ms[w][1];
        x = fmaf(f, acc[w][threadIdx.x], x);
    }
    return x / total;
}

#endif
