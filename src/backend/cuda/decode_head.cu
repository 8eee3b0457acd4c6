/* The head of decode: logits of up to 8 rows, by blocks that walk over the tiles with the next two rounds under way. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/gemv.cuh"

enum {
    HEAD_TB = 2,   /* tiles that a block has in a round */
    HEAD_UNITS = 2 /* places of 128 columns whose digits a warp holds */
};

struct head_params {
    const uint8_t *w;
    int planes, units, slot, n_tiles;
    const float *x, *ss;
    int ld_x, hidden, n_rows, ld_logits;
    float eps;
    float *logits;
};

DI void head_request(const head_params &p, const uint8_t *slots, u32 bars, int first, int warp)
{
    for (int i = 0; i < HEAD_TB && first + i < p.n_tiles; i++)
        span_load(p.w + (size_t)(first + i) * p.units * p.planes * UNIT, p.planes, span_of(p.units, warp),
                  slots + (size_t)(i * WARPS + warp) * p.slot, bars + 8 * (i * WARPS + warp));
}

template <int SETS> __global__ void __launch_bounds__(CTA, 2) k_head(const __grid_constant__ head_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    __shared__ __align__(16) u32 scratch[WARPS][DIGIT_WORDS];
    __shared__ __align__(8) u64 bar[2 * HEAD_TB * WARPS];
    __shared__ float reds[2][WARPS * HEAD_TB * 2 * SETS * 16], rms[DECODE_ROWS]; /* two, so that one barrier a round is enough */
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, step = (int)gridDim.x * HEAD_TB;
    const u32 bars = smem_addr(bar), half = 8 * HEAD_TB * WARPS;
    const size_t buffer = (size_t)HEAD_TB * WARPS * p.slot;
    const span s = span_of(p.units, warp);
    if (threadIdx.x < 2 * HEAD_TB * WARPS) bar_init(bars + 8 * threadIdx.x, 1);
    bar_init_done();
    __syncthreads();
    pdl_launch();
    int first = (int)blockIdx.x * HEAD_TB;
    if (lane == 0)
        for (int b = 0; b < 2; b++) head_request(p, sm + b * buffer, bars + b * half, first + b * step, warp);
    pdl_wait();
    const float4 squares = rms_request(p.ss, p.hidden / 16, p.n_rows, warp, lane);
    unit_rows<SETS, HEAD_UNITS> x;
    unit_digits<SETS> f[HEAD_UNITS];
    rows_load<SETS, HEAD_UNITS>(x, p.x, p.ld_x, p.n_rows, s.lo, s.hi, lane);
    rows_digits<SETS, HEAD_UNITS>(f, x, p.n_rows, scratch[warp], lane);
    rms_finish(rms, squares, p.ss, p.hidden / 16, p.n_rows, p.hidden, p.eps, warp, lane);
    const bool more = s.hi - s.lo > HEAD_UNITS;
    for (int it = 0; first < p.n_tiles; it++, first += step) {
        const int b = it & 1, n = p.n_tiles - first < HEAD_TB ? p.n_tiles - first : HEAD_TB;
        const uint8_t *slots = sm + b * buffer;
        float *red = reds[b];
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            float a[SETS][2] = {};
            if (s.hi > s.lo) bar_wait(bars + b * half + 8 * (i * WARPS + warp), (it >> 1) & 1);
            for (int unit = s.lo; unit < s.hi; unit += HEAD_UNITS) {
                if (more) {
                    rows_load<SETS, HEAD_UNITS>(x, p.x, p.ld_x, p.n_rows, unit, s.hi, lane);
                    rows_digits<SETS, HEAD_UNITS>(f, x, p.n_rows, scratch[warp], lane);
                }
                const uint8_t *at = slots + (size_t)(i * WARPS + warp) * p.slot + (size_t)(unit - s.lo) * p.planes * UNIT;
                units_mul<SETS, HEAD_UNITS>(a, at, p.planes, f, s.hi - unit, lane);
            }
            red_put<SETS>(red, HEAD_TB, i, a, warp, lane);
        }
        __syncwarp(); /* the warp has read its slots */
        if (lane == 0) head_request(p, slots, bars + b * half, first + 2 * step, warp);
        __syncthreads();
        for (int i = threadIdx.x; i < n * p.n_rows * 16; i += CTA) {
            const int r16 = i & 15, r = (i >> 4) % p.n_rows, k = (i >> 4) / p.n_rows;
            p.logits[(size_t)r * p.ld_logits + (size_t)(first + k) * 16 + r16] = red_sum<SETS>(red, HEAD_TB, k, r, r16) * rms[r];
        }
    }
}

void decode_head(struct cuda_backend *c, const struct matrix *head, const float *x, const float *ss, int n, float *logits)
{
    struct workspace *ws = &c->ws;
    head_params p = {head->data, head->planes, head->units, slot_bytes(head->units, head->planes), head->tiles, x, ss, ws->pad_hidden,
                     c->base.shape.hidden, n, ws->ld_logits, c->base.shape.rms_eps, logits};
    size_t shared = (size_t)2 * HEAD_TB * WARPS * p.slot;
    int grid = (head->tiles + HEAD_TB - 1) / HEAD_TB;
    if (grid > 2 * c->n_sms) grid = 2 * c->n_sms;
    if (row_sets(n) == 1) launch(c, k_head<1>, dim3((unsigned)grid), CTA, shared, p);
    else if (row_sets(n) == 2) launch(c, k_head<2>, dim3((unsigned)grid), CTA, shared, p);
    else launch(c, k_head<4>, dim3((unsigned)grid), CTA, shared, p);
}
