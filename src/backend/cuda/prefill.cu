/* Prefill around the residual stream: norms, projections, and the mixture of experts. */
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/prefill.cuh"

/* ---- norm ---- */

struct norm_params {
    const float *x, *w;
    u16 *out;      /* (rows, ld) in the units' order */
    u16 *rest;     /* the same: number - out */
    float *sum;    /* (rows, ld / 64) sums by group */
    int hidden, ld;
    float eps;
};

DI float block_sum(float v, float *part)
{
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    float s = part[0];
    for (int i = 1; i < WARPS; i++) s += part[i];
    return s;
}

/* Block: a row. A thread has four neighbours of a group. */
__global__ void __launch_bounds__(CTA) k_norm(const __grid_constant__ norm_params p)
{
    __shared__ float part[WARPS];
    pdl_launch();
    pdl_wait();
    const size_t r = blockIdx.x;
    const float *x = p.x + r * p.hidden;
    float s = 0;
    for (int k = threadIdx.x * 4; k < p.hidden; k += CTA * 4) {
        const float4 v = *(const float4 *)(x + k);
        s += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
    }
    const float f = rsqrtf(block_sum(s, part) / (float)p.hidden + p.eps);
    for (int k = threadIdx.x * 4; k < p.hidden; k += CTA * 4) {
        const float4 v = *(const float4 *)(x + k), w = *(const float4 *)(p.w + k);
        const float y[4] = {v.x * f * w.x, v.y * f * w.y, v.z * f * w.z, v.w * f * w.w};
        put_four(p.out, p.rest, r * p.ld + perm_of(k), y);
        float g = (y[0] + y[1]) + (y[2] + y[3]);
        const u32 group = threadIdx.x & 16 ? 0xffff0000u : 0x0000ffffu; /* sixteen threads have a group, wholly or not at all */
#pragma unroll
        for (int d = 8; d; d >>= 1) g += __shfl_xor_sync(group, g, d);
        if ((k & 63) == 0) p.sum[r * (p.ld / 64) + k / 64] = g;
    }
}

static void norm_rows(struct cuda_backend *c, const struct vector *w)
{
    struct workspace *ws = &c->ws;
    norm_params p = {ws->x, w->data, ws->norm, ws->norm_rest, ws->norm_sum, c->base.shape.hidden, ws->pad_hidden, c->base.shape.rms_eps};
    launch(c, k_norm, dim3((unsigned)c->batch->n_rows), CTA, 0, p);
}

void prefill_embed(struct cuda_backend *c, const struct matrix *table)
{
    decode_embed(c, table, NULL);
}

/* ---- projections ---- */

/* rest: NULL, or what fp16 left of x, where that is wanted. */
static void dense(struct cuda_backend *c, gemm_params *p, int n_parts, const u16 *x, const u16 *rest, int ldx, int units)
{
    p->x = x;
    p->rest = rest;
    p->ldx = ldx;
    p->units = units;
    p->n_rows = c->batch->n_rows;
    gemm_run(c, p, n_parts, 0);
}

void prefill_gdn_in(struct cuda_backend *c, const struct gdn_weights *w)
{
    struct workspace *ws = &c->ws;
    gemm_params p = {};
    norm_rows(c, w->norm);
    p.part[0] = gemm_part_of(w->in_qkv, GEMM_F32, ws->qkv, ws->ld_qkv);
    p.part[1] = gemm_part_of(w->in_z, GEMM_F32, ws->z, shape_gdn_value_dim(&c->base.shape));
    p.part[2] = gemm_part_of(w->in_b, GEMM_F32, ws->ba, 2 * ws->ld_heads);
    p.part[3] = gemm_part_of(w->in_a, GEMM_F32, ws->ba + ws->ld_heads, 2 * ws->ld_heads);
    dense(c, &p, 4, ws->norm, ws->norm_rest, ws->pad_hidden, w->in_qkv->units);
}

static void add_out(struct cuda_backend *c, const struct matrix *m)
{
    gemm_params p = {};
    p.part[0] = gemm_part_of(m, GEMM_ADD, c->ws.x, c->base.shape.hidden);
    dense(c, &p, 1, c->ws.mixed, c->ws.mixed_rest, c->ws.pad_mix, m->units);
}

void prefill_gdn_out(struct cuda_backend *c, const struct gdn_weights *w)
{
    add_out(c, w->out);
}

void prefill_attn_out(struct cuda_backend *c, const struct attn_weights *w)
{
    add_out(c, w->o);
}

void prefill_attn_in(struct cuda_backend *c, const struct attn_weights *w, int index)
{
    struct workspace *ws = &c->ws;
    gemm_params p = {};
    norm_rows(c, w->norm);
    p.part[0] = gemm_part_of(w->q, GEMM_F32, ws->qkv, ws->ld_qkv);
    p.part[1] = gemm_part_of(w->k, GEMM_F32, ws->qkv + w->q->rows, ws->ld_qkv);
    p.part[2] = gemm_part_of(w->v, GEMM_F32, ws->qkv + w->q->rows + w->k->rows, ws->ld_qkv);
    dense(c, &p, 3, ws->norm, ws->norm_rest, ws->pad_hidden, w->q->units);
    prefill_append(c, w, index);
}

/* ---- router ---- */

/*
 * Router logits and the shared gate with codes exact, activations in two parts and scales in fp32, for the order of
 * experts hangs on small differences. Block: 32 tokens and as many tiles as it has warps (all, of up to 256 experts).
 */
struct router_params {
    const uint8_t *w, *w2; /* the last tile is of w2, the shared gate */
    size_t tile_bytes;
    const u16 *x, *rest;
    const float *sum;
    int ld, units, tiles, rows, n_rows;
    float *y, *y2;
    int ldy;
};

DI const uint8_t *router_tile(const router_params &p, int tile)
{
    return tile == p.tiles - 1 ? p.w2 : p.w + (size_t)tile * p.tile_bytes;
}

enum { RT_TOKENS = 32, RT_X = RT_TOKENS * UNIT_COLS * 2, RT_STAGES = 3, RT_TILES = 17 };

template <int PLANES> DI void router_request(const router_params &p, u32 at, int unit, int tiles, int tile0, int row0)
{
    const int per_tile = PLANES * 72;
    for (int i = threadIdx.x; i < tiles * per_tile; i += blockDim.x) {
        const int tile = tile0 + i / per_tile;
        if (tile < p.tiles) cp16(at + i * 16, router_tile(p, tile) + (size_t)unit * PLANES * UNIT + (i % per_tile) * 16, 16);
    }
    at += tiles * PLANES * UNIT;
    for (int i = threadIdx.x; i < 2 * RT_TOKENS * 16; i += blockDim.x) {
        const int row = (i >> 4) & (RT_TOKENS - 1), chunk = i & 15, from = row0 + row < p.n_rows ? row0 + row : row0;
        const u16 *x = (i >= RT_TOKENS * 16 ? p.rest : p.x) + (size_t)from * p.ld + unit * UNIT_COLS + chunk * 8;
        cp16(at + (i >> 4) * (UNIT_COLS * 2) + ((chunk ^ (row & 7)) << 4), x, 16);
    }
}

/* d += codes x tokens, for a group of 64 columns and 8 N tokens, whose two parts lie x_bytes apart. */
template <int PLANES, int N> DI void router_group(float (&d)[N][4], const uint8_t *u, u32 xs, u32 x_bytes, int gr, int lane)
{
    const int row = (lane & 7) + ((lane >> 4) << 3), half = (lane >> 3) & 1;
    const uint4 l = *(const uint4 *)(u + gr * 512 + lane * 16), h = *(const uint4 *)(u + (PLANES - 1) * UNIT + gr * 512 + lane * 16);
    const u32 lo[4] = {l.x, l.y, l.z, l.w}, hi[4] = {h.x, h.y, h.z, h.w};
#pragma unroll
    for (int m = 0; m < 4; m++) {
        u32 a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = code2_h(lo[i] >> (4 * m));
            if (PLANES == 2) a[i] = fma2_h(code2_h(hi[i] >> (4 * m)), 0x4c004c00u, a[i]);
        }
        const int chunk = (gr * 4 + m) * 2 + half;
#pragma unroll
        for (int part = 0; part < 2; part++)
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                u32 b[4];
                ldsm4(b, xs + part * x_bytes + (row + 16 * j) * (UNIT_COLS * 2) + ((chunk ^ (row & 7)) << 4));
                mma16_h(d[2 * j], a[0], a[1], a[2], a[3], b[0], b[1]);
                mma16_h(d[2 * j + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
            }
    }
}

/* acc += scale * (codes x tokens) + bias * sums, for one unit. */
template <int PLANES> DI void router_unit(float (&acc)[4][4], const uint8_t *u, u32 xs, const float *sums, int ld_sums, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const uint2 sc = *(const uint2 *)(u + 1024 + g * 8), bi = *(const uint2 *)(u + 1088 + g * 8);
#pragma unroll
    for (int gr = 0; gr < 2; gr++) {
        float d[4][4] = {};
        router_group<PLANES>(d, u, xs, RT_X, gr, lane);
        const float s0 = gr ? bf_hi(sc.x) : bf_lo(sc.x), s1 = gr ? bf_hi(sc.y) : bf_lo(sc.y);
        const float b0 = gr ? bf_hi(bi.x) : bf_lo(bi.x), b1 = gr ? bf_hi(bi.y) : bf_lo(bi.y);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float n = sums[(j * 8 + 2 * t + e) * ld_sums + gr];
                acc[j][e] = fmaf(b0, n, fmaf(s0, d[j][e], acc[j][e]));
                acc[j][2 + e] = fmaf(b1, n, fmaf(s1, d[j][2 + e], acc[j][2 + e]));
            }
    }
}

template <int PLANES> __global__ void __launch_bounds__(32 * RT_TILES) k_router(const __grid_constant__ router_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, tiles = blockDim.x / 32, W = tiles * PLANES * UNIT, BYTES = W + 2 * RT_X;
    const int tile0 = blockIdx.x * tiles, row0 = blockIdx.y * RT_TOKENS, tile = tile0 + warp;
    pdl_launch();
    pdl_wait();
    float acc[4][4] = {}, *sums = (float *)(sm + RT_STAGES * BYTES); /* (tokens, groups and one) */
    const int groups = 2 * p.units, ld_sums = groups + 1;
    for (int i = 0; i < RT_STAGES - 1; i++) {
        if (i < p.units) router_request<PLANES>(p, smem_addr(sm + i * BYTES), i, tiles, tile0, row0);
        cp_commit();
    }
    for (int i = threadIdx.x; i < RT_TOKENS * groups; i += blockDim.x) {
        const int token = i / groups, g = i % groups;
        sums[token * ld_sums + g] = row0 + token < p.n_rows ? p.sum[(size_t)(row0 + token) * (p.ld / 64) + g] : 0.0f;
    }
    for (int u = 0; u < p.units; u++) {
        const uint8_t *at = sm + (u % RT_STAGES) * BYTES;
        cp_wait<RT_STAGES - 2>();
        __syncthreads();
        const int ahead = u + RT_STAGES - 1;
        if (ahead < p.units) router_request<PLANES>(p, smem_addr(sm + ahead % RT_STAGES * BYTES), ahead, tiles, tile0, row0);
        cp_commit();
        if (tile < p.tiles) router_unit<PLANES>(acc, at + warp * PLANES * UNIT, smem_addr(at + W), sums + 2 * u, ld_sums, lane);
    }
    if (tile >= p.tiles) return;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int token = row0 + j * 8 + 2 * (lane & 3) + (e & 1), n = tile * 16 + (lane >> 2) + 8 * (e >> 1);
            if (token >= p.n_rows) continue;
            if (tile < p.tiles - 1 && n < p.rows) p.y[(size_t)token * p.ldy + n] = acc[j][e];
            else if (n == tile * 16) p.y2[token] = acc[j][e];
        }
}

/*
 * The same for few tokens, where one warp along all columns would be all that a multiprocessor has: block: 16 tokens and a tile, a
 * warp every 16th unit of it. The products of the groups meet in shared memory and are added up in the same order.
 */
enum { RF_TOKENS = 16, RF_X = RF_TOKENS * UNIT_COLS * 2, RF_WARPS = 16, RF_GROUP = UNIT_ROWS * RF_TOKENS, RF_MOST = 1024 };

static size_t few_bytes(int planes, int units)
{
    return (size_t)RF_WARPS * (planes * UNIT + 2 * RF_X) + (size_t)2 * units * RF_GROUP * sizeof(float);
}

template <int PLANES> __global__ void __launch_bounds__(32 * RF_WARPS) k_router_few(const __grid_constant__ router_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, tile = blockIdx.x, row0 = blockIdx.y * RF_TOKENS;
    const uint8_t *weights = router_tile(p, tile);
    uint8_t *mine = sm + warp * (PLANES * UNIT + 2 * RF_X);
    const u32 w = smem_addr(mine), x = w + PLANES * UNIT;
    float *products = (float *)(sm + RF_WARPS * (PLANES * UNIT + 2 * RF_X)); /* (groups, rows, tokens) */
    pdl_launch();
    for (int u = warp; u < p.units; u += RF_WARPS) {
        for (int i = lane; i < PLANES * 72; i += 32) cp16(w + i * 16, weights + (size_t)u * PLANES * UNIT + i * 16, 16);
        if (u == warp) pdl_wait();
        for (int i = lane; i < 2 * RF_TOKENS * 16; i += 32) {
            const int row = (i >> 4) & (RF_TOKENS - 1), chunk = i & 15, from = row0 + row < p.n_rows ? row0 + row : row0;
            const u16 *at = (i >= RF_TOKENS * 16 ? p.rest : p.x) + (size_t)from * p.ld + u * UNIT_COLS + chunk * 8;
            cp16(x + (i >> 4) * (UNIT_COLS * 2) + ((chunk ^ (row & 7)) << 4), at, 16);
        }
        cp_commit();
        cp_wait<0>();
        __syncwarp();
#pragma unroll
        for (int gr = 0; gr < 2; gr++) {
            float d[2][4] = {}, *to = products + (2 * u + gr) * RF_GROUP + (lane >> 2) * RF_TOKENS + 2 * (lane & 3);
            router_group<PLANES>(d, mine, x, RF_X, gr, lane);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                *(float2 *)(to + 8 * j) = make_float2(d[j][0], d[j][1]);
                *(float2 *)(to + 8 * j + 8 * RF_TOKENS) = make_float2(d[j][2], d[j][3]);
            }
        }
        __syncwarp();
    }
    pdl_wait();
    __syncthreads();
    const int row = threadIdx.x / RF_TOKENS, token = row0 + threadIdx.x % RF_TOKENS, n = tile * 16 + row;
    if (row >= UNIT_ROWS || token >= p.n_rows) return;
    float acc = 0;
#pragma unroll 8
    for (int g = 0; g < 2 * p.units; g++) {
        const u16 *of = (const u16 *)(weights + (size_t)(g >> 1) * PLANES * UNIT + 1024) + (row & 7) * 4 + (row >> 3) * 2 + (g & 1);
        acc = fmaf(bf_f(of[32]), p.sum[(size_t)token * (p.ld / 64) + g], fmaf(bf_f(of[0]), products[g * RF_GROUP + threadIdx.x], acc));
    }
    if (tile < p.tiles - 1 && n < p.rows) p.y[(size_t)token * p.ldy + n] = acc;
    else if (row == 0) p.y2[token] = acc;
}

static void route(struct cuda_backend *c, const struct matrix *m, const struct matrix *gate)
{
    struct workspace *ws = &c->ws;
    router_params p = {m->data, gate->data, m->tile_bytes, ws->norm, ws->norm_rest, ws->norm_sum, ws->pad_hidden, m->units, m->tiles + 1, m->rows,
                       c->batch->n_rows, ws->router_p, ws->shared_gate_p, ws->ld_experts};
    const size_t few = few_bytes(m->planes, m->units);
    if (p.n_rows <= RF_MOST && few <= (size_t)c->max_shared) {
        dim3 grid((unsigned)p.tiles, (unsigned)(p.n_rows + RF_TOKENS - 1) / RF_TOKENS);
        if (m->planes == 1) launch(c, k_router_few<1>, grid, 32 * RF_WARPS, few, p);
        else launch(c, k_router_few<2>, grid, 32 * RF_WARPS, few, p);
        return;
    }
    /* As many tiles a block as leave a block for every multiprocessor. */
    const int rows = (p.n_rows + RT_TOKENS - 1) / RT_TOKENS, parts = c->n_sms / rows > 1 ? c->n_sms / rows : 1, share = (p.tiles + parts - 1) / parts;
    const int tiles = share < RT_TILES ? share : RT_TILES;
    dim3 grid((unsigned)(p.tiles + tiles - 1) / tiles, (unsigned)rows);
    size_t shared = (size_t)RT_STAGES * (tiles * m->planes * UNIT + 2 * RT_X) + (size_t)RT_TOKENS * (2 * m->units + 1) * sizeof(float);
    if (m->planes == 1) launch(c, k_router<1>, grid, 32 * tiles, shared, p);
    else launch(c, k_router<2>, grid, 32 * tiles, shared, p);
}

/* ---- choice of experts, tokens sorted by expert ---- */

struct choice_params {
    const float *logits;
    int ld, n_experts, n_rows, bn;
    int32_t *top, *count, *cursor, *n_blocks, *slot_row, *slot_of;
    token_block *blocks;
    float *weight;
};

__global__ void k_choose(const __grid_constant__ choice_params p)
{
    __shared__ int top[WARPS][TOP];
    __shared__ float weight[WARPS][TOP];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = blockIdx.x * WARPS + warp;
    pdl_launch();
    pdl_wait();
    if (r >= p.n_rows) return;
    top_experts(p.logits + (size_t)r * p.ld, p.n_experts, top[warp], weight[warp], lane);
    __syncwarp();
    if (lane >= TOP) return;
    p.top[(size_t)r * TOP + lane] = top[warp][lane];
    p.weight[(size_t)r * TOP + lane] = weight[warp][lane];
    atomicAdd(&p.count[top[warp][lane]], 1);
}

/* Where each expert's slots begin, and the list of blocks of up to bn slots, an expert's as equal as can be; counts go back to
 * zero for the next layer. */
__global__ void __launch_bounds__(CTA) k_plan(const __grid_constant__ choice_params p)
{
    __shared__ int slots[CTA], blocks[CTA];
    pdl_launch();
    pdl_wait();
    const int e = threadIdx.x, n = e < p.n_experts ? p.count[e] : 0, nb = (n + p.bn - 1) / p.bn;
    slots[e] = n;
    blocks[e] = nb;
    __syncthreads();
    for (int d = 1; d < CTA; d <<= 1) {
        const int s = e >= d ? slots[e - d] : 0, b = e >= d ? blocks[e - d] : 0;
        __syncthreads();
        slots[e] += s;
        blocks[e] += b;
        __syncthreads();
    }
    const int first = slots[e] - n, at = blocks[e] - nb;
    if (e < p.n_experts) {
        const int each = nb ? (n + nb - 1) / nb : 0;
        p.cursor[e] = first;
        p.count[e] = 0;
        for (int i = 0; i < nb; i++) p.blocks[at + i] = {e, first + i * each, n - i * each < each ? n - i * each : each};
    }
    if (e == CTA - 1) *p.n_blocks = blocks[e];
}

/* The order of an expert's slots may differ from run to run; no row's bits depend on it. */
__global__ void k_scatter(const __grid_constant__ choice_params p)
{
    pdl_launch();
    pdl_wait();
    const int i = blockIdx.x * CTA + threadIdx.x;
    if (i >= p.n_rows * TOP) return;
    const int slot = atomicAdd(&p.cursor[p.top[i]], 1);
    p.slot_row[slot] = i / TOP;
    p.slot_of[i] = slot;
}

/* Experts go through the plain product together where one of their matrices has to. */
static int expert_planes(const struct moe_weights *w)
{
    return w->gate->planes == 1 && w->down->planes == 1 ? 1 : 2;
}

static int expert_width(const struct cuda_backend *c, const struct moe_weights *w)
{
    return gemm_expert_width(c, expert_planes(w), c->batch->n_rows * TOP / c->base.shape.n_experts);
}

void prefill_moe_route(struct cuda_backend *c, const struct moe_weights *w)
{
    struct workspace *ws = &c->ws;
    const struct model_shape *s = &c->base.shape;
    int n = c->batch->n_rows;
    if (w->router->planes != w->shared_gate->planes && c->error == cudaSuccess) c->error = cudaErrorNotSupported;
    norm_rows(c, w->norm);
    route(c, w->router, w->shared_gate);
    choice_params p = {ws->router_p, ws->ld_experts, s->n_experts, n, expert_width(c, w), ws->top, ws->expert_count, ws->expert_cursor,
                       ws->n_blocks, ws->slot_row, ws->slot_of, ws->blocks, ws->top_weight};
    launch(c, k_choose, dim3((unsigned)(n + WARPS - 1) / WARPS), CTA, 0, p);
    launch(c, k_plan, dim3(1), CTA, 0, p);
    launch(c, k_scatter, dim3((unsigned)(n * TOP + CTA - 1) / CTA), CTA, 0, p);
}

/* ---- experts ---- */

struct combine_params {
    float *x;
    const u16 *expert_out, *shared_out;
    const float *shared_gate, *weight;
    const int32_t *slot_of;
    int hidden;
};

__global__ void __launch_bounds__(CTA) k_combine(const __grid_constant__ combine_params p)
{
    __shared__ float weight[TOP];
    __shared__ int slot[TOP];
    pdl_launch();
    pdl_wait();
    const size_t r = blockIdx.x;
    if (threadIdx.x < TOP) {
        weight[threadIdx.x] = p.weight[r * TOP + threadIdx.x];
        slot[threadIdx.x] = p.slot_of[r * TOP + threadIdx.x];
    }
    __syncthreads();
    const float gate = sigmoidf(p.shared_gate[r]);
    for (int k = threadIdx.x * 4; k < p.hidden; k += CTA * 4) { /* hidden is a multiple of 64 */
        const uint2 sh = *(const uint2 *)(p.shared_out + r * p.hidden + k);
        float4 *to = (float4 *)(p.x + r * p.hidden + k), x = *to;
        uint2 v[TOP];
#pragma unroll
        for (int i = 0; i < TOP; i++) v[i] = *(const uint2 *)(p.expert_out + (size_t)slot[i] * p.hidden + k);
        float a = gate * h_lo(sh.x), b = gate * h_hi(sh.x), c = gate * h_lo(sh.y), d = gate * h_hi(sh.y);
#pragma unroll
        for (int i = 0; i < TOP; i++) {
            a = fmaf(weight[i], h_lo(v[i].x), a);
            b = fmaf(weight[i], h_hi(v[i].x), b);
            c = fmaf(weight[i], h_lo(v[i].y), c);
            d = fmaf(weight[i], h_hi(v[i].y), d);
        }
        *to = make_float4(fmaf(1.0f / INNER_SCALE, a, x.x), fmaf(1.0f / INNER_SCALE, b, x.y), fmaf(1.0f / INNER_SCALE, c, x.z), fmaf(1.0f / INNER_SCALE, d, x.w));
    }
}

static void experts(struct cuda_backend *c, const struct moe_weights *w, struct gemm_part part, const struct matrix *m, const u16 *x, int ldx, bool gather,
                    struct gemm_beside beside)
{
    struct workspace *ws = &c->ws;
    gemm_params p = {};
    p.beside = beside;
    int slots = c->batch->n_rows * TOP, most = slots < c->base.shape.n_experts ? slots : c->base.shape.n_experts;
    p.part[0] = part;
    p.units = m->units;
    p.x = x;
    p.ldx = ldx;
    p.n_rows = slots;
    p.n_blocks = ws->n_blocks;
    p.blocks = ws->blocks;
    p.slot_row = ws->slot_row;
    p.expert_bytes = m->expert_bytes;
    p.gather = gather;
    p.plain = expert_planes(w) != 1;
    p.width = expert_width(c, w);
    gemm_run(c, &p, 1, slots / p.width + most);
}

static void shared_expert(struct cuda_backend *c, const struct moe_weights *w)
{
    struct workspace *ws = &c->ws;
    gemm_params in = {}, out = {};
    in.part[0] = gemm_part_of(w->shared_gate_proj, GEMM_SILU, ws->shared, ws->pad_shared);
    in.part[0].w2 = w->shared_up->data;
    dense(c, &in, 1, ws->norm, NULL, ws->pad_hidden, w->shared_up->units);
    out.part[0] = gemm_part_of(w->shared_down, GEMM_F16, ws->shared_out, c->base.shape.hidden);
    dense(c, &out, 1, ws->shared, NULL, ws->pad_shared, w->shared_down->units);
}

void prefill_moe_experts(struct cuda_backend *c, const struct moe_weights *w)
{
    struct workspace *ws = &c->ws;
    int hidden = c->base.shape.hidden;
    struct gemm_part part = gemm_part_of(w->gate, GEMM_SILU, ws->inner, ws->pad_expert);
    part.w2 = w->up->data;
    const bool beside = expert_planes(w) == 1 && gemm_takes_beside(c, w->up, w->shared_up) && gemm_takes_beside(c, w->down, w->shared_down) &&
                        w->shared_gate_proj->planes == 1 && ws->pad_expert == ws->pad_shared;
    struct gemm_beside in = {w->shared_gate_proj->data, w->shared_up->data, ws->norm, ws->shared, beside ? c->batch->n_rows : 0};
    struct gemm_beside out = {w->shared_down->data, NULL, ws->shared, ws->shared_out, in.n_rows};
    experts(c, w, part, w->gate, ws->norm, ws->pad_hidden, true, in);
    if (!beside) shared_expert(c, w);
    experts(c, w, gemm_part_of(w->down, GEMM_F16, ws->expert_out, hidden), w->down, ws->inner, ws->pad_expert, false, out);
    combine_params p = {ws->x, ws->expert_out, ws->shared_out, ws->shared_gate_p, ws->top_weight, ws->slot_of, hidden};
    launch(c, k_combine, dim3((unsigned)c->batch->n_rows), CTA, 0, p);
}
