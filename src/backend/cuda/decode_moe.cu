/* Decode kernels of the mixture of experts: router and shared expert, chosen experts, their sum. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/gemv.cuh"

/* Places of 128 columns whose digits a warp holds at once: of the hidden width, of an expert's inner width. */
enum { MOE_UNITS = 2, DOWN_UNITS = 4 };

/* ---- router, shared gate, shared gate and up ---- */

struct route_params {
    const uint8_t *router, *shared_gate, *gate, *up;
    int router_planes, sgate_planes, planes; /* planes: of gate and up */
    int router_tiles, shared_tiles, units, slot;
    const float *x; /* times the norm's weight */
    const float *ss;
    int ld_x, hidden, n_rows, n_experts, ld_experts, ld_shared;
    float eps;
    float *router_out, *shared_out, *inner_shared;
};

/* A block's job: one tile of the router or the shared gate, or a pair of tiles of gate and up. */
struct route_job {
    const uint8_t *tile[2];
    int n, planes;
};

DI route_job route_job_of(const route_params &p, int block)
{
    route_job j = {{p.router, p.router}, 1, p.router_planes};
    const size_t unit = (size_t)p.units * UNIT;
    if (block < p.router_tiles) {
        j.tile[0] += (size_t)block * unit * p.router_planes;
    } else if (block == p.router_tiles) {
        j.tile[0] = p.shared_gate;
        j.planes = p.sgate_planes;
    } else {
        const size_t at = (size_t)(block - p.router_tiles - 1) * unit * p.planes;
        j.tile[0] = p.gate + at;
        j.tile[1] = p.up + at;
        j.n = 2;
        j.planes = p.planes;
    }
    return j;
}

template <int SETS, bool ONE> DI void route_epilogue(const route_params &p, const float *red, const float *rms, int block)
{
    for (int i = threadIdx.x; i < (ONE ? 1 : p.n_rows) * 16; i += CTA) {
        const int r = ONE ? 0 : i >> 4, r16 = i & 15;
        const float v = red_sum<SETS>(red, 2, 0, r, r16) * rms[r];
        if (block < p.router_tiles) {
            p.router_out[(size_t)r * p.ld_experts + block * 16 + r16] = v;
        } else if (block == p.router_tiles) {
            if (r16 == 0) p.shared_out[r] = sigmoidf(v);
        } else {
            const float up = red_sum<SETS>(red, 2, 1, r, r16) * rms[r];
            p.inner_shared[(size_t)r * p.ld_shared + (block - p.router_tiles - 1) * 16 + r16] = siluf(v) * up;
        }
    }
}

template <int SETS, bool ONE> __global__ void __launch_bounds__(CTA) k_route(const __grid_constant__ route_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    __shared__ __align__(16) u32 scratch[WARPS][DIGIT_WORDS];
    __shared__ __align__(8) u64 bar[2 * WARPS];
    __shared__ float red[WARPS * 2 * 2 * SETS * 16], rms[DECODE_ROWS];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int n_rows = ONE ? 1 : p.n_rows;
    const u32 bars = smem_addr(bar) + 16 * warp;
    const route_job job = route_job_of(p, blockIdx.x);
    const span s = span_of(p.units, warp);
    uint8_t *slots = sm + (size_t)warp * 2 * p.slot;
    if (lane == 0) {
        bar_init(bars, 1);
        bar_init(bars + 8, 1);
        bar_init_done();
        for (int i = 0; i < job.n; i++) span_load(job.tile[i], job.planes, s, slots + i * p.slot, bars + 8 * i);
    }
    __syncwarp();
    pdl_launch();
    pdl_wait();
    const bool more = !ONE && s.hi - s.lo > MOE_UNITS;
    unit_rows<SETS, MOE_UNITS> x;
    unit_digits<SETS> f[MOE_UNITS];
    rows_load<SETS, MOE_UNITS>(x, p.x, p.ld_x, n_rows, s.lo, s.hi, lane);
    const float4 squares = rms_request(p.ss, p.hidden / 16, n_rows, warp, lane);
    rows_digits<SETS, MOE_UNITS>(f, x, n_rows, scratch[warp], lane);
#pragma unroll 1
    for (int i = 0; i < job.n; i++) {
        float a[SETS][2] = {};
        if (s.hi > s.lo) bar_wait(bars + 8 * i, 0);
        for (int unit = s.lo; unit < s.hi; unit += MOE_UNITS) {
            if (more) {
                rows_load<SETS, MOE_UNITS>(x, p.x, p.ld_x, n_rows, unit, s.hi, lane);
                rows_digits<SETS, MOE_UNITS>(f, x, n_rows, scratch[warp], lane);
            }
            const uint8_t *at = slots + i * p.slot + (size_t)(unit - s.lo) * job.planes * UNIT;
            units_mul<SETS, MOE_UNITS>(a, at, job.planes, f, ONE ? MOE_UNITS : s.hi - unit, lane);
            if (ONE) break;
        }
        red_put<SETS>(red, 2, i, a, warp, lane);
    }
    if (ONE) rms_finish_one(rms, squares, p.hidden, p.eps, warp, lane);
    else rms_finish(rms, squares, p.ss, p.hidden / 16, p.n_rows, p.hidden, p.eps, warp, lane);
    __syncthreads();
    route_epilogue<SETS, ONE>(p, red, rms, blockIdx.x);
}

/* ---- the chosen experts' gate and up ---- */

struct expert_params {
    const uint8_t *gate, *up, *down, *shared_down;
    size_t gate_expert, down_expert; /* bytes of an expert */
    int planes, down_planes, shared_planes;
    int tiles, units, down_units, shared_units, slot, down_slot, shared_slot;
    const float *router;
    int n_experts, ld_experts, hidden;
    float eps;
    const float *x; /* times the norm's weight */
    const float *ss;
    int ld_x, ld_inner, ld_shared;
    float *inner;   /* (rows, 8, ld_inner) by rank */
    const float *inner_shared, *shared_gate;
    stream_out out;
};

/* A warp asks for its part of gate and up of the chosen experts `of`, into slots one after another. */
template <int RANKS> DI void experts_request(const expert_params &p, const int *of, int tile, span s, const uint8_t *slots, u32 bars)
{
    for (int i = 0; i < RANKS; i++) {
        const size_t at = (size_t)of[i] * p.gate_expert + (size_t)tile * p.units * p.planes * UNIT;
        span_load(p.gate + at, p.planes, s, slots + 2 * i * p.slot, bars + 16 * i);
        span_load(p.up + at, p.planes, s, slots + (2 * i + 1) * p.slot, bars + 16 * i + 8);
    }
}

/* Block: 16 inner columns of the experts of RANKS ranks of one row: two, or one where there are many rows, since more blocks then share a
 * multiprocessor. */
template <bool ONE, int RANKS> __global__ void __launch_bounds__(CTA, RANKS == 1 ? 4 : 2) k_expert_in(const __grid_constant__ expert_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    __shared__ __align__(16) u32 scratch[WARPS][DIGIT_WORDS];
    __shared__ __align__(8) u64 bar[2 * RANKS * WARPS];
    __shared__ float red[WARPS * 2 * RANKS * 2 * 16], rms, weight[TOP];
    __shared__ int top[TOP];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, tile = blockIdx.x, rank = blockIdx.y * RANKS, r = blockIdx.z;
    const u32 bars = smem_addr(bar) + 16 * RANKS * warp;
    const span s = span_of(p.units, warp);
    uint8_t *slots = sm + (size_t)warp * 2 * RANKS * p.slot;
    if (tile >= p.tiles) {
        /* Keeps its multiprocessor from taking two blocks of the next kernel, which would leave no room for the one after that. */
        pdl_wait();
        pdl_launch();
        __nanosleep(2500);
        return;
    }
    if (lane == 0) {
        for (int i = 0; i < 2 * RANKS; i++) bar_init(bars + 8 * i, 1);
        bar_init_done();
    }
    pdl_wait();
    pdl_launch(); /* only now, so that the sum of experts may read the router before it waits */
    unit_rows<1, MOE_UNITS> x;
    unit_digits<1> f[MOE_UNITS];
    const float *row = p.x + (size_t)r * p.ld_x;
    rows_load<1, MOE_UNITS>(x, row, p.ld_x, 1, s.lo, s.hi, lane);
    const float4 squares = rms_request(p.ss + (size_t)r * (p.hidden / 16), p.hidden / 16, 1, warp, lane);
    if (warp == WARPS - 1) top_experts(p.router + (size_t)r * p.ld_experts, p.n_experts, top, weight, lane);
    __syncthreads();
    if (lane == 0) experts_request<RANKS>(p, top + rank, tile, s, slots, bars);
    if (ONE) rms_finish_one(&rms, squares, p.hidden, p.eps, warp, lane);
    else rms_finish(&rms, squares, p.ss + (size_t)r * (p.hidden / 16), p.hidden / 16, 1, p.hidden, p.eps, warp, lane);
    const bool more = !ONE && s.hi - s.lo > MOE_UNITS;
    rows_digits<1, MOE_UNITS>(f, x, 1, scratch[warp], lane);
#pragma unroll 1
    for (int i = 0; i < 2 * RANKS; i++) {
        float a[1][2] = {};
        if (s.hi > s.lo) bar_wait(bars + 8 * i, 0);
        for (int unit = s.lo; unit < s.hi; unit += MOE_UNITS) {
            if (more) {
                rows_load<1, MOE_UNITS>(x, row, p.ld_x, 1, unit, s.hi, lane);
                rows_digits<1, MOE_UNITS>(f, x, 1, scratch[warp], lane);
            }
            const uint8_t *at = slots + i * p.slot + (size_t)(unit - s.lo) * p.planes * UNIT;
            units_mul<1, MOE_UNITS>(a, at, ONE ? 1 : p.planes, f, ONE ? MOE_UNITS : s.hi - unit, lane);
            if (ONE) break;
        }
        red_put<1>(red, 2 * RANKS, i, a, warp, lane);
    }
    __syncthreads();
    if (threadIdx.x < 16 * RANKS) {
        const int i = threadIdx.x >> 4, r16 = threadIdx.x & 15;
        const float g = red_sum<1>(red, 2 * RANKS, 2 * i, 0, r16) * rms, u = red_sum<1>(red, 2 * RANKS, 2 * i + 1, 0, r16) * rms;
        p.inner[((size_t)r * TOP + rank + i) * p.ld_inner + tile * 16 + r16] = siluf(g) * u;
    }
}

/* a += c * (the units of one matrix over one row); rows has the first of them already. */
template <int MAXU>
DI void down_part(float (&a)[1][2], unit_rows<1, MAXU> &rows, const uint8_t *slot, int planes, int units, const float *x, float c, u32 bar, u32 *scratch, int lane)
{
    float b[1][2] = {};
    for (int unit = 0; unit < units; unit += MAXU) {
        unit_digits<1> f[MAXU];
        if (unit) rows_load<1, MAXU>(rows, x, 0, 1, unit, units, lane);
        rows_digits<1, MAXU>(f, rows, 1, scratch, lane);
        if (unit == 0) bar_wait(bar, 0);
        units_mul<1, MAXU>(b, slot + (size_t)unit * planes * UNIT, planes, f, units - unit, lane);
    }
    a[0][0] = fmaf(c, b[0][0], a[0][0]);
    a[0][1] = fmaf(c, b[0][1], a[0][1]);
}

/* What a warp has to add up: its rank's expert and its part of the shared one. */
struct down_job {
    const uint8_t *slot, *shared_slot;
    int shared_units;
    float weight, gate;
    u32 bars;
};

/* The same for four places of the chosen and at most one of the shared expert, two at a time. */
DI void down_parts_one(float (&a)[1][2], unit_rows<1, DOWN_UNITS> &chosen, const unit_rows<1, 1> &always, const down_job &j, u32 *scratch, int lane)
{
    float b[1][2] = {};
#pragma unroll 1
    for (int i = 0; i < 2 + j.shared_units; i++) {
        unit_rows<1, 2> x;
        unit_digits<1> f[2];
        const uint8_t *at = i < 2 ? j.slot + i * 2 * UNIT : j.shared_slot;
        x.low[0][0] = chosen.low[0][0];
        x.high[0][0] = chosen.high[0][0];
        rows_digits<1, 2>(f, x, 1, scratch, lane);
        if (i != 1) bar_wait(j.bars + 8 * (i >> 1), 0);
        unit_mul<1>(b, at, f[0], lane);
        if (i < 2) unit_mul<1>(b, at + UNIT, f[1], lane);
        chosen.low[0][0] = i == 0 ? chosen.low[0][1] : always.low[0][0];
        chosen.high[0][0] = i == 0 ? chosen.high[0][1] : always.high[0][0];
        if (i == 0) continue;
        const float c = i == 1 ? j.weight : j.gate;
        a[0][0] = fmaf(c, b[0][0], a[0][0]);
        a[0][1] = fmaf(c, b[0][1], a[0][1]);
        b[0][0] = b[0][1] = 0;
    }
}

/* x += chosen experts by weight + shared expert, for 16 columns of one row; a warp for each rank. */
template <bool ONE, int BLOCKS> __global__ void __launch_bounds__(CTA, BLOCKS) k_expert_out(const __grid_constant__ expert_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    __shared__ __align__(16) u32 scratch[WARPS][DOWN_UNITS / 2 * DIGIT_WORDS];
    __shared__ __align__(8) u64 bar[2 * WARPS];
    __shared__ float red[WARPS * 2 * 16], weight[TOP];
    __shared__ int top[TOP];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, tile = blockIdx.x, r = blockIdx.y;
    const u32 bars = smem_addr(bar) + 16 * warp;
    uint8_t *slot = sm + (size_t)warp * (p.down_slot + p.shared_slot), *shared_slot = slot + p.down_slot;
    const span sh = span_of(p.shared_units, warp);
    pdl_launch();
    if (lane == 0) {
        bar_init(bars, 1);
        bar_init(bars + 8, 1);
        bar_init_done();
        span_load(p.shared_down + (size_t)tile * p.shared_units * p.shared_planes * UNIT, p.shared_planes, sh, shared_slot, bars + 8);
    }
    /* The router's kernel has ended: the kernel before this one lets it start only after its own wait. */
    if (warp == 0) top_experts(p.router + (size_t)r * p.ld_experts, p.n_experts, top, weight, lane);
    const int k = tile * 16 + (lane & 15);
    const float norm = p.out.norm ? p.out.norm[k] : 0.0f;
    __syncthreads();
    if (lane == 0) {
        const span all = {0, p.down_units};
        span_load(p.down + (size_t)top[warp] * p.down_expert + (size_t)tile * p.down_units * p.down_planes * UNIT, p.down_planes, all, slot, bars);
    }
    pdl_wait();
    const float *inner = p.inner + ((size_t)r * TOP + warp) * p.ld_inner, *shared = p.inner_shared + (size_t)r * p.ld_shared + sh.lo * UNIT_COLS;
    unit_rows<1, DOWN_UNITS> chosen;
    unit_rows<1, 1> always;
    rows_load<1, DOWN_UNITS>(chosen, inner, 0, 1, 0, p.down_units, lane);
    rows_load<1, 1>(always, shared, 0, 1, 0, sh.hi - sh.lo, lane);
    const float x = p.out.x[(size_t)r * p.out.hidden + k], gate = p.shared_gate[r];
    float a[1][2] = {};
    if (ONE) {
        const down_job job = {slot, shared_slot, sh.hi - sh.lo, weight[warp], gate, bars};
        down_parts_one(a, chosen, always, job, scratch[warp], lane);
    } else {
        down_part<DOWN_UNITS>(a, chosen, slot, p.down_planes, p.down_units, inner, weight[warp], bars, scratch[warp], lane);
        if (sh.hi > sh.lo) down_part<1>(a, always, shared_slot, p.shared_planes, sh.hi - sh.lo, shared, gate, bars + 8, scratch[warp], lane);
    }
    red_put<1>(red, 1, 0, a, warp, lane);
    __syncthreads();
    if (threadIdx.x < 32) {
        const bool in = lane < 16;
        stream_put(p.out, r, k, in ? x + red_sum<1>(red, 1, 0, 0, lane) : 0.0f, norm, in);
    }
}

/* ---- launching ---- */

void decode_moe_route(struct cuda_backend *c, const struct moe_weights *w)
{
    struct row_group groups[MAX_DECODE];
    const struct model_shape *s = &c->base.shape;
    struct workspace *ws = &c->ws;
    int n = decode_groups(c->batch, groups), planes = w->router->planes;
    if (w->shared_gate->planes > planes) planes = w->shared_gate->planes;
    if (w->shared_up->planes > planes) planes = w->shared_up->planes;
    for (int i = 0; i < n; i++) {
        size_t r = (size_t)groups[i].row0;
        route_params p = {w->router->data, w->shared_gate->data, w->shared_gate_proj->data, w->shared_up->data, w->router->planes,
                          w->shared_gate->planes, w->shared_up->planes, w->router->tiles, w->shared_up->tiles, w->router->units,
                          slot_bytes(w->router->units, planes), ws->normed + r * ws->pad_hidden, ws->ss + r * (s->hidden / 16), ws->pad_hidden,
                          s->hidden, groups[i].n, s->n_experts, ws->ld_experts, ws->pad_shared, s->rms_eps, ws->router + r * ws->ld_experts,
                          ws->shared_gate + r, ws->inner_shared + r * ws->pad_shared};
        dim3 grid((unsigned)(p.router_tiles + 1 + p.shared_tiles));
        const int sets = row_sets(p.n_rows);
        const bool one = p.n_rows == 1 && p.units == WARPS * MOE_UNITS && p.hidden <= ONE_HIDDEN;
        const auto kernel = one ? k_route<1, true> : sets == 1 ? k_route<1, false> : sets == 2 ? k_route<2, false> : k_route<4, false>;
        launch(c, kernel, grid, CTA, alone(c, kernel, grid, (size_t)2 * WARPS * p.slot, MIDDLE), p);
    }
}

enum { MANY_ROWS = 4 }; /* from more on, multiprocessors take several blocks of a kernel in turn, and more at once are better */

void decode_moe_experts(struct cuda_backend *c, const struct moe_weights *w, const struct vector *next)
{
    const struct model_shape *s = &c->base.shape;
    struct workspace *ws = &c->ws;
    unsigned rows = (unsigned)c->batch->n_rows;
    expert_params p = {};
    p.gate = w->gate->data;
    p.up = w->up->data;
    p.down = w->down->data;
    p.shared_down = w->shared_down->data;
    p.gate_expert = w->gate->expert_bytes;
    p.down_expert = w->down->expert_bytes;
    p.planes = w->gate->planes;
    p.down_planes = w->down->planes;
    p.shared_planes = w->shared_down->planes;
    p.tiles = w->gate->tiles;
    p.units = w->gate->units;
    p.down_units = w->down->units;
    p.shared_units = w->shared_down->units;
    p.slot = slot_bytes(p.units, p.planes);
    p.down_slot = p.down_units * p.down_planes * UNIT;
    p.shared_slot = slot_bytes(p.shared_units, p.shared_planes);
    p.router = ws->router;
    p.n_experts = s->n_experts;
    p.ld_experts = ws->ld_experts;
    p.hidden = s->hidden;
    p.eps = s->rms_eps;
    p.x = ws->normed;
    p.ss = ws->ss;
    p.ld_x = ws->pad_hidden;
    p.ld_inner = ws->pad_expert;
    p.ld_shared = ws->pad_shared;
    p.inner = ws->inner_experts;
    p.inner_shared = ws->inner_shared;
    p.shared_gate = ws->shared_gate;
    const bool four_bits = p.planes == 1 && p.down_planes == 1 && p.shared_planes == 1, many = rows > MANY_ROWS;
    const bool one = four_bits && p.units == WARPS * MOE_UNITS && p.down_units == DOWN_UNITS && p.shared_units <= WARPS && p.hidden <= ONE_HIDDEN;
    const int ranks = many ? 1 : 2, spare = c->n_sms - p.tiles * (TOP / ranks) * (int)rows, fill = spare > 0 ? spare / (TOP / ranks) : 0;
    const auto in = many ? (one ? k_expert_in<true, 1> : k_expert_in<false, 1>) : one ? k_expert_in<true, 2> : k_expert_in<false, 2>;
    const auto out = many ? (one ? k_expert_out<true, 3> : k_expert_out<false, 3>) : one ? k_expert_out<true, 2> : k_expert_out<false, 2>;
    const dim3 in_grid((unsigned)(p.tiles + fill), (unsigned)(TOP / ranks), rows), out_grid((unsigned)w->down->tiles, rows);
    launch(c, in, in_grid, CTA, alone(c, in, in_grid, (size_t)2 * ranks * WARPS * p.slot, LARGE), p);
    p.out = {ws->x, ws->normed, ws->ss, next ? next->data : NULL, s->hidden, ws->pad_hidden};
    launch(c, out, out_grid, CTA, alone(c, out, out_grid, (size_t)WARPS * (p.down_slot + p.shared_slot), MIDDLE), p);
}
