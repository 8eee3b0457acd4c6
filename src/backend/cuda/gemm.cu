/* The prefill product (gemm.cuh). */
#include "backend/cuda/gemm.cuh"

enum { WARPS_M = 4, MT = 2, ROW_BYTES = UNIT_COLS * 2 };

/* Few tokens: one warp across them, so that weights are unpacked once. */
template <int BN> struct shape_of {
    static constexpr int WARPS_N = BN == 32 ? 1 : 2, THREADS = 32 * WARPS_M * WARPS_N, NT = BN / WARPS_N / 8, XROWS = BN / (THREADS / 16);
};

/* Which tokens a block has. */
struct token_block {
    int first, n, expert;
};

template <int BN> DI bool block_of(const gemm_params &p, int block, token_block &b)
{
    if (!p.blocks) {
        b.first = block * BN;
        b.n = p.n_rows - b.first;
        b.expert = 0;
    } else {
        if (block >= p.blocks[0]) return false;
        b.expert = p.blocks[2 + 2 * block];
        b.first = p.blocks[3 + 2 * block];
        b.n = p.expert_first[b.expert + 1] - b.first;
    }
    if (b.n > BN) b.n = BN;
    return b.n > 0;
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

    __device__ __forceinline__ void request(const u16 *rows, u32 at, int unit) const
    {
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

/* Scales and biases of one group, doubled into both halves: rows g, rows g+8. */
struct group_scale {
    u32 s0, s1, b0, b1;
};

DI group_scale scales_at(const uint8_t *unit, int gr, int g)
{
    const uint2 s = *(const uint2 *)(unit + 1024 + g * 8), b = *(const uint2 *)(unit + 1088 + g * 8);
    const u32 sel = gr ? 0x3232u : 0x1010u;
    group_scale r = {__byte_perm(s.x, 0, sel), __byte_perm(s.y, 0, sel), __byte_perm(b.x, 0, sel), __byte_perm(b.y, 0, sel)};
    return r;
}

/* The A fragment of 16 columns: bf16(s*q + b). */
template <int PLANES> DI void dequant(u32 (&a)[4], const u32 (&lo)[4], const u32 (&hi)[4], int m, const group_scale &s)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        u32 q = code2(lo[r] >> (4 * m));
        if (PLANES == 2) q = fma2(code2(hi[r] >> (4 * m)), 0x41804180u, q); /* 16 */
        a[r] = fma2(q, r & 1 ? s.s1 : s.s0, r & 1 ? s.b1 : s.b0);
    }
}

template <int BN, int PLANES> DI void multiply(float (&d)[MT][shape_of<BN>::NT][4], const uint8_t *sm, u32 at, int wm, int wn, int lane)
{
    const int g = lane >> 2, row0 = wn * (BN / shape_of<BN>::WARPS_N) + (lane & 7) + ((lane >> 4) << 3), half = (lane >> 3) & 1;
    constexpr int NT = shape_of<BN>::NT;
    const u32 xs = at + stage<BN, PLANES>::W;
#pragma unroll
    for (int gr = 0; gr < 2; gr++) {
        u32 lo[MT][4], hi[MT][4];
        group_scale sc[MT];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            const uint8_t *u = sm + (size_t)(wm * MT + i) * PLANES * UNIT;
            uint4 v = *(const uint4 *)(u + gr * 512 + lane * 16);
            lo[i][0] = v.x, lo[i][1] = v.y, lo[i][2] = v.z, lo[i][3] = v.w;
            if (PLANES == 2) {
                v = *(const uint4 *)(u + UNIT + gr * 512 + lane * 16);
                hi[i][0] = v.x, hi[i][1] = v.y, hi[i][2] = v.z, hi[i][3] = v.w;
            }
            sc[i] = scales_at(u, gr, g);
        }
#pragma unroll
        for (int m = 0; m < 4; m++) {
            u32 b[NT][2], a[4];
            const int chunk = (gr * 4 + m) * 2 + half;
#pragma unroll
            for (int j = 0; j < NT / 2; j++) {
                const int row = row0 + j * 16;
                u32 r[4];
                ldsm4(r, xs + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4));
                b[2 * j][0] = r[0], b[2 * j][1] = r[1], b[2 * j + 1][0] = r[2], b[2 * j + 1][1] = r[3];
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
                dequant<PLANES>(a, lo[i], hi[i], m, sc[i]);
#pragma unroll
                for (int j = 0; j < NT; j++) mma16(d[i][j], a[0], a[1], a[2], a[3], b[j][0], b[j][1]);
            }
        }
    }
}

DI void store_one(const gemm_part &q, int row, int n, float v)
{
    const size_t at = (size_t)row * q.ldy + n;
    if (q.kind == GEMM_BF16) ((u16 *)q.y)[at] = f_bf(v);
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
                    ((u16 *)q.y)[(size_t)(b.first + token) * q.ldy + perm_of(tile * 16 + r16)] = f_bf(siluf(d[0][j][e]) * d[1][j][e]);
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
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < p.units) from.request(p.x, smem_addr(sm + i * BYTES), i);
        cp_commit();
    }
    for (int u = 0, at = 0, ahead = STAGES - 1; u < p.units; u++) {
        cp_wait<STAGES - 2>();
        __syncthreads();
        if (u + STAGES - 1 < p.units) from.request(p.x, smem_addr(sm + ahead * BYTES), u + STAGES - 1);
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
    int m = 0;
    while ((int)blockIdx.x >= p.part[m].end) m++;
    token_block b;
    if (!block_of<BN>(p, blockIdx.y, b)) return;
    gemm_block<BN, STAGES, PLANES>(p, p.part[m], b, (int)blockIdx.x - (m ? p.part[m - 1].end : 0), sm);
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

/* Parts of one number of planes in one launch. */
static void run_planes(struct cuda_backend *c, const gemm_params *all, int n_parts, int planes, int bn, int n_blocks)
{
    gemm_params p = *all;
    int n = 0, grid = 0;
    for (int i = 0; i < n_parts; i++) {
        if (all->part[i].planes != planes) continue;
        int per = all->part[i].kind == GEMM_SILU ? GEMM_TILES / 2 : GEMM_TILES;
        p.part[n] = all->part[i];
        grid += (p.part[n].tiles + per - 1) / per;
        p.part[n++].end = grid;
    }
    if (!n) return;
    if (planes == 1) run_width<1>(c, &p, grid, bn, n_blocks);
    else run_width<2>(c, &p, grid, bn, n_blocks);
}

void gemm_run(struct cuda_backend *c, gemm_params *p, int n_parts, int bn, int n_blocks)
{
    run_planes(c, p, n_parts, 1, bn, n_blocks);
    run_planes(c, p, n_parts, 2, bn, n_blocks);
}
