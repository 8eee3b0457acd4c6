/* The prefill product (gemm.cuh). */
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/half.cuh"

enum { WARPS_M = 4, MT = 2, ROW_BYTES = UNIT_COLS * 2 };

/* Few tokens: one warp across them, so that weights are unpacked once. */
template <int BN> struct shape_of {
    static constexpr int WARPS_N = BN == 32 ? 1 : 2, THREADS = 32 * WARPS_M * WARPS_N, NT = BN / WARPS_N / 8, XROWS = BN / (THREADS / 16);
};

template <int BN> DI bool block_of(const gemm_params &p, int i, token_block &b)
{
    if (!p.n_blocks) {
        b.first = i * BN;
        b.n = p.n_rows - b.first < BN ? p.n_rows - b.first : BN;
        b.expert = 0;
        return true;
    }
    if (i >= *p.n_blocks) return false;
    b = p.blocks[i];
    return true;
}

/* Tile i of the block's 8: warp_m = i / 2 has tiles 2*warp_m and +1; in a pair the second is of the other matrix. */
DI const uint8_t *tile_at(const gemm_part &q, const gemm_params &p, const token_block &b, int group, int i)
{
    const bool pair = q.kind == GEMM_SILU;
    int tile = pair ? group * (GEMM_TILES / 2) + (i >> 1) : group * GEMM_TILES + i;
    if (tile >= q.tiles) tile = q.tiles - 1;
    return (pair && (i & 1) ? q.w2 : q.w) + (size_t)b.expert * p.expert_bytes + (size_t)tile * p.units * q.planes * UNIT;
}

template <int BN, int PLANES> struct stage {
    static constexpr int W = GEMM_TILES * PLANES * UNIT, X = BN * ROW_BYTES, BYTES = W + X;
};

/* Requests the weights and activations of one unit; a thread keeps the same rows in every unit. */
template <int BN, int PLANES> struct loader {
    static constexpr int THREADS = shape_of<BN>::THREADS, XROWS = shape_of<BN>::XROWS;
    const uint8_t *w[(GEMM_TILES * PLANES * 72 + THREADS - 1) / THREADS];
    u32 x[XROWS]; /* elements from p.x */
    u32 valid;      /* a bit for each row */

    __device__ __forceinline__ void init(const gemm_part &q, const gemm_params &p, const token_block &b, int group)
    {
        const int per_tile = PLANES * 72;
#pragma unroll
        for (int i = 0; i < (int)(sizeof w / sizeof *w); i++) {
            const int at = threadIdx.x + i * THREADS;
            w[i] = at < GEMM_TILES * per_tile ? tile_at(q, p, b, group, at / per_tile) + (at % per_tile) * 16 : NULL;
        }
        valid = 0;
#pragma unroll
        for (int i = 0; i < XROWS; i++) {
            const int row = (threadIdx.x >> 4) + i * (THREADS / 16);
            int from = b.first + (row < b.n ? row : 0);
            if (p.gather) from = p.slot_row[from];
            x[i] = (u32)from * (u32)p.ldx + (threadIdx.x & 15) * 8;
            if (row < b.n) valid |= 1u << i;
        }
    }

    /* Units behind the last are the rest of the activations, with the weights once more. */
    __device__ __forceinline__ void request(const gemm_params &p, u32 at, int unit) const
    {
        const u16 *rows = unit < p.units ? p.x : p.rest;
        if (unit >= p.units) unit -= p.units;
#pragma unroll
        for (int i = 0; i < (int)(sizeof w / sizeof *w); i++)
            if (w[i]) cp16(at + (threadIdx.x + i * THREADS) * 16, w[i] + (size_t)unit * PLANES * UNIT, 16);
        at += stage<BN, PLANES>::W;
#pragma unroll
        for (int i = 0; i < XROWS; i++) {
            const int row = (threadIdx.x >> 4) + i * (THREADS / 16), chunk = threadIdx.x & 15;
            cp16(at + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4), rows + x[i] + unit * UNIT_COLS, (valid >> i & 1) << 4);
        }
    }
};

/* The A fragments of 64 columns of an 8-bit matrix: fp16(s*(16 high + low) + b). */
DI void dequant_group8(u32 (&a)[16], const uint8_t *unit, int gr, int lane)
{
    const group_scale s = scales_at(unit, gr, lane >> 2);
    const uint4 v = *(const uint4 *)(unit + gr * 512 + lane * 16), w = *(const uint4 *)(unit + UNIT + gr * 512 + lane * 16);
    const u32 lo[4] = {v.x, v.y, v.z, v.w}, hi[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const u32 q = fma2_h(code2_h(hi[i & 3] >> (4 * (i >> 2))), 0x4c004c00u /* 16 */, code2_h(lo[i & 3] >> (4 * (i >> 2))));
        a[i] = fma2_h(q, i & 1 ? s.s1 : s.s0, i & 1 ? s.b1 : s.b0);
    }
}

template <int BN, int PLANES> DI void multiply(float (&d)[MT][shape_of<BN>::NT][4], const uint8_t *sm, u32 at, int wm, int wn, int lane)
{
    const int row0 = wn * (BN / shape_of<BN>::WARPS_N) + (lane & 7) + ((lane >> 4) << 3), half = (lane >> 3) & 1;
    constexpr int NT = shape_of<BN>::NT;
    const u32 xs = at + stage<BN, PLANES>::W;
#pragma unroll
    for (int gr = 0; gr < 2; gr++) {
        u32 a[MT][16];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            const uint8_t *u = sm + (size_t)(wm * MT + i) * PLANES * UNIT;
            if (PLANES == 1) dequant_group(a[i], u, gr, lane);
            else dequant_group8(a[i], u, gr, lane);
        }
#pragma unroll
        for (int m = 0; m < 4; m++) {
            u32 b[NT][2];
            const int chunk = (gr * 4 + m) * 2 + half;
#pragma unroll
            for (int j = 0; j < NT / 2; j++) {
                const int row = row0 + j * 16;
                u32 r[4];
                ldsm4(r, xs + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4));
                b[2 * j][0] = r[0], b[2 * j][1] = r[1], b[2 * j + 1][0] = r[2], b[2 * j + 1][1] = r[3];
            }
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) mma16_h(d[i][j], a[i][4 * m], a[i][4 * m + 1], a[i][4 * m + 2], a[i][4 * m + 3], b[j][0], b[j][1]);
        }
    }
}

DI void store_one(const gemm_part &q, int row, int n, float v)
{
    const size_t at = (size_t)row * q.ldy + n;
    if (q.kind == GEMM_F16) ((u16 *)q.y)[at] = f_h(v);
    else if (q.kind == GEMM_F32) ((float *)q.y)[at] = v;
    else ((float *)q.y)[at] += v;
}

template <int BN> DI void store_block(const gemm_part &q, const token_block &b, int group, const float (&d)[MT][shape_of<BN>::NT][4], int wm, int wn, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int j = 0; j < shape_of<BN>::NT; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int token = wn * (BN / shape_of<BN>::WARPS_N) + j * 8 + 2 * t + (e & 1), r16 = g + 8 * (e >> 1);
            if (token >= b.n) continue;
            if (q.kind == GEMM_SILU) {
                const int tile = group * (GEMM_TILES / 2) + wm;
                if (tile < q.tiles)
                    ((u16 *)q.y)[(size_t)(b.first + token) * q.ldy + perm_of(tile * 16 + r16)] = f_h(siluf(d[0][j][e]) * d[1][j][e] * INNER_SCALE);
                continue;
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
                const int tile = group * GEMM_TILES + wm * MT + i;
                if (tile < q.tiles) store_one(q, b.first + token, tile * 16 + r16, d[i][j][e]);
            }
        }
}

template <int BN, int STAGES, int PLANES> DI void gemm_block(const gemm_params &p, const gemm_part &q, const token_block &b, int group, uint8_t *sm)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, wm = warp % WARPS_M, wn = warp / WARPS_M;
    constexpr int BYTES = stage<BN, PLANES>::BYTES;
    loader<BN, PLANES> from;
    from.init(q, p, b, group);
    float d[MT][shape_of<BN>::NT][4] = {};
    const int units = p.rest ? 2 * p.units : p.units;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < units) from.request(p, smem_addr(sm + i * BYTES), i);
        cp_commit();
    }
    for (int u = 0, at = 0, ahead = STAGES - 1; u < units; u++) {
        cp_wait<STAGES - 2>();
        __syncthreads();
        if (u + STAGES - 1 < units) from.request(p, smem_addr(sm + ahead * BYTES), u + STAGES - 1);
        cp_commit();
        multiply<BN, PLANES>(d, sm + at * BYTES, smem_addr(sm + at * BYTES), wm, wn, lane);
        at = at + 1 == STAGES ? 0 : at + 1;
        ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
    }
    store_block<BN>(q, b, group, d, wm, wn, lane);
}

template <int BN, int STAGES, int PLANES> __global__ void __launch_bounds__(shape_of<BN>::THREADS, BN == 32 ? 3 : 2) k_gemm(const __grid_constant__ gemm_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    pdl_launch();
    pdl_wait();
    token_block b;
    int group;
    if (!block_of<BN>(p, blockIdx.y, b)) return;
    const gemm_part &part = gemm_part_at(p, blockIdx.x, &group);
    gemm_block<BN, STAGES, PLANES>(p, part, b, group, sm);
}

struct gemm_part gemm_part_of(const struct matrix *m, enum gemm_out kind, void *y, int ldy)
{
    return (struct gemm_part){m->data, NULL, m->planes, m->tiles, 0, kind, y, ldy};
}

template <int BN, int STAGES, int PLANES> static void run(struct cuda_backend *c, const gemm_params *p, int grid, int n_blocks)
{
    launch(c, k_gemm<BN, STAGES, PLANES>, dim3((unsigned)grid, (unsigned)n_blocks), shape_of<BN>::THREADS, (size_t)STAGES * stage<BN, PLANES>::BYTES, *p);
}

template <int PLANES> static void run_width(struct cuda_backend *c, const gemm_params *p, int grid, int bn, int n_blocks)
{
    if (bn == 32) run<32, 4, PLANES>(c, p, grid, n_blocks);
    else if (bn == 64) run<64, 3, PLANES>(c, p, grid, n_blocks);
    else run<128, 2, PLANES>(c, p, grid, n_blocks);
}

/* The parts of one number of planes, their blocks counted: of `per` tiles, of a pair `pair`. Returns how many. */
static int choose(gemm_params *p, const gemm_params *all, int n_parts, int planes, int per, int pair)
{
    int n = 0, end = 0;
    for (int i = 0; i < n_parts; i++) {
        if (all->part[i].planes != planes) continue;
        int tiles = all->part[i].kind == GEMM_SILU ? pair : per;
        p->part[n] = all->part[i];
        end += (p->part[n].tiles + tiles - 1) / tiles;
        p->part[n++].end = end;
    }
    return n;
}

static int width_of(int n_rows)
{
    return n_rows <= 32 ? 32 : n_rows <= 512 ? 64 : 128;
}

static void run_plain(struct cuda_backend *c, const gemm_params *all, int n_parts, int planes, int most_blocks)
{
    gemm_params p = *all;
    int n = choose(&p, all, n_parts, planes, GEMM_TILES, GEMM_TILES / 2), blocks = most_blocks;
    if (!n) return;
    if (!p.n_blocks) {
        p.width = width_of(p.n_rows);
        blocks = (p.n_rows + p.width - 1) / p.width;
    }
    if (planes == 1) run_width<1>(c, &p, p.part[n - 1].end, p.width, blocks);
    else run_width<2>(c, &p, p.part[n - 1].end, p.width, blocks);
}

void gemm_run(struct cuda_backend *c, gemm_params *p, int n_parts, int most_blocks)
{
    gemm_params q = *p;
    int n = c->wgmma && !p->plain ? choose(&q, p, n_parts, 1, GEMM_TILES, GEMM_TILES) : 0;
    if (n) gemm_wg_run(c, &q, n, most_blocks);
    else run_plain(c, p, n_parts, 1, most_blocks);
    run_plain(c, p, n_parts, 2, most_blocks);
}

bool gemm_takes_beside(const struct cuda_backend *c, const struct matrix *experts, const struct matrix *beside)
{
    return c->wgmma && experts->planes == 1 && beside->planes == 1 && experts->units == beside->units && experts->tiles == beside->tiles;
}

int gemm_expert_width(const struct cuda_backend *c, int planes, int mean)
{
    if (c->wgmma && planes == 1) return mean <= 10 ? 16 : mean <= 20 ? 32 : 128;
    return mean <= 24 ? 32 : mean <= 96 ? 64 : 128;
}
