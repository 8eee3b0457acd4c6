/*
 * The prefill product with warpgroup products (gemm.cuh). One block a multiprocessor walks over tiles of weight rows and up to
 * `width` tokens: a warpgroup loads, two multiply, with the weights unpacked into the A registers while the product before
 * runs. Loading runs ahead into the next tile. A tile has 128 rows; 256, in two halves, where activations come in two parts
 * and there are many tokens, since activations then cross to the multiprocessors half as often; and 128 of either matrix of
 * GEMM_SILU.
 */
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/half.cuh"
#include "backend/cuda/wgmma.cuh"

enum { GW_THREADS = 3 * WG, GW_STAGES = 8, GW_OUT = 512, GW_OUTS = 8 * GW_OUT, GW_SHARED = 227 * 1024, GW_WIDTH = 128, GW_WIDE = 96 };

struct gw_shape {
    int width, stages, blocks; /* tokens, stages, blocks of weight rows */
};

/*
 * Shared memory: stages of X (a tile for each 64 columns and part of the activations), then W; then the rest. A stage is given
 * back when its successor is there, so there must be two at least.
 */
template <int MATS, int PARTS, bool SMALL> struct gw_form {
    static constexpr bool PAIR = MATS == 2 && PARTS == 1;
    static constexpr int W = MATS * GEMM_TILES * UNIT;
    __host__ __device__ static int bytes(int width) { return W + PARTS * width * UNIT_COLS * 2; }
};

struct gw_bars {
    u64 full[GW_STAGES], empty[GW_STAGES];
    u32 rows[2][GW_WIDTH]; /* batch rows of a tile's tokens, two tiles in turn */
};

#if HAVE_WGMMA

/* A place in the ring. */
struct gw_slot {
    int s;
    u32 phase;
};

DI void gw_next(gw_slot &at, int stages)
{
    if (++at.s == stages) at.s = 0, at.phase ^= 1;
}

DI token_block gw_block(const gemm_params &p, const gw_shape &q, int i)
{
    if (p.n_blocks) return p.blocks[i];
    const int first = i * q.width, n = p.n_rows - first;
    return {0, first, n < q.width ? n : q.width};
}

DI int gw_tiles(const gemm_params &p, const gw_shape &q)
{
    return q.blocks * (p.n_blocks ? *p.n_blocks : (p.n_rows + q.width - 1) / q.width);
}

/* Tile i of a block of rows: of the second half, or matrix, from GEMM_TILES on. */
template <int MATS, bool PAIR> DI int gw_tile(int group, int i)
{
    return PAIR ? group * GEMM_TILES + (i & (GEMM_TILES - 1)) : group * MATS * GEMM_TILES + i;
}

template <int MATS, bool PAIR> DI const uint8_t *gw_weights(const gemm_params &p, const gemm_part &part, int expert, int group, int i)
{
    int tile = gw_tile<MATS, PAIR>(group, i);
    if (tile >= part.tiles) tile = part.tiles - 1;
    return (PAIR && i >= GEMM_TILES ? part.w2 : part.w) + (size_t)expert * p.expert_bytes + (size_t)tile * p.units * UNIT;
}

template <int MATS, int PARTS, bool SMALL> DI void gw_load(const gemm_params &p, const gw_shape &q, uint8_t *sm, gw_bars *bars)
{
    typedef gw_form<MATS, PARTS, SMALL> form;
    const int tid = threadIdx.x, piece = tid & 15, row0 = tid >> 4, bytes = form::bytes(q.width), x_bytes = q.width * UNIT_COLS * 2;
    const u32 ring = smem_addr(sm), full = smem_addr(bars->full), empty = smem_addr(bars->empty);
    const u32 at = (piece >> 3) * q.width * TILE_ROW + tile_at16(row0, piece & 7);
    gw_slot put = {0, 1};
    for (int i = blockIdx.x, turn = 0; i < gw_tiles(p, q); i += gridDim.x, turn ^= 1) {
        const token_block b = gw_block(p, q, i / q.blocks);
        const int rows = (b.n + 31) & ~31;
        int group;
        const gemm_part &part = gemm_part_at(p, i % q.blocks, &group);
        const uint8_t *w = tid < MATS * GEMM_TILES ? gw_weights<MATS, form::PAIR>(p, part, b.expert, group, tid) : NULL;
        if (p.gather) {
            for (int r = tid; r < rows; r += WG) bars->rows[turn][r] = p.slot_row[b.first + (r < b.n ? r : 0)];
            asm volatile("bar.sync 1, 128;" ::: "memory");
        }
        for (int u = 0; u < p.units; u++) {
            const u32 stage = ring + put.s * bytes;
            bar_wait(empty + 8 * put.s, put.phase);
            if (tid == 0) bar_expect(full + 8 * put.s, form::W);
            if (w) bulk_load(stage + PARTS * x_bytes + tid * UNIT, w + (size_t)u * UNIT, UNIT, full + 8 * put.s);
#pragma unroll 4
            for (int r = row0; r < rows; r += 8) {
                const u32 row = r >= b.n ? 0 : p.gather ? bars->rows[turn][r] : (u32)(b.first + r);
                const size_t from = (size_t)row * p.ldx + u * UNIT_COLS + piece * 8;
                const u32 to = stage + at + (r - row0) * TILE_ROW;
                cp16(to, p.x + from, r < b.n ? 16 : 0);
                if (PARTS == 2) cp16(to + x_bytes, p.rest + from, r < b.n ? 16 : 0);
            }
            bar_arrive_loaded(full + 8 * put.s);
            gw_next(put, q.stages);
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Rows 16 of a warp for 16 tokens from their fragments through shared memory: half a token's rows (32 bytes) a lane. */
DI void gw_turn(u32 buf, const u32 (&v)[4], int lane)
{
    const int token = (lane >> 4) * 8 + (lane & 7), half = (lane >> 3) & 1;
    __syncwarp();
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(buf + token * 32 + ((half ^ (token >> 2 & 1)) << 4)), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
    __syncwarp();
}

DI uint4 gw_half(const uint8_t *out, int token, int half) { return *(const uint4 *)(out + token * 32 + ((half ^ (token >> 2 & 1)) << 4)); }

template <int N> DI void gw_store_f16(const gemm_part &q, const token_block &b, int tile, const float (&d)[N / 2], uint8_t *out, int lane)
{
    const int token = lane >> 1, half = lane & 1;
    u16 *y = (u16 *)q.y + (size_t)(b.first + token) * q.ldy + tile * 16 + half * 8;
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        const u32 v[4] = {pack_h(d[4 * j], d[4 * j + 1]), pack_h(d[4 * j + 2], d[4 * j + 3]), pack_h(d[4 * j + 4], d[4 * j + 5]),
                          pack_h(d[4 * j + 6], d[4 * j + 7])};
        gw_turn(smem_addr(out), v, lane);
        if (8 * j + token < b.n) *(uint4 *)(y + (size_t)8 * j * q.ldy) = gw_half(out, token, half);
    }
}

DI u32 silu2(const float *gate, const float *up) { return pack_h(siluf(gate[0]) * up[0] * INNER_SCALE, siluf(gate[1]) * up[1] * INNER_SCALE); }

/* Even and odd rows of a tile are neighbours in the units' order. */
template <int N> DI void gw_store_silu(const gemm_part &q, const token_block &b, int tile, const float (&d)[2][N / 2], uint8_t *out, int lane)
{
    const int token = lane >> 1, odd = lane & 1;
    const u32 pick = odd ? 0x7632 : 0x5410;
    u16 *y = (u16 *)q.y + (size_t)(b.first + token) * q.ldy + perm_of(tile * 16 + odd);
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        const u32 v[4] = {silu2(d[0] + 4 * j, d[1] + 4 * j), silu2(d[0] + 4 * j + 2, d[1] + 4 * j + 2), silu2(d[0] + 4 * j + 4, d[1] + 4 * j + 4),
                          silu2(d[0] + 4 * j + 6, d[1] + 4 * j + 6)};
        gw_turn(smem_addr(out), v, lane);
        const uint4 l = gw_half(out, token, 0), h = gw_half(out, token, 1);
        if (8 * j + token < b.n)
            *(uint4 *)(y + (size_t)8 * j * q.ldy) = make_uint4(__byte_perm(l.x, l.y, pick), __byte_perm(l.z, l.w, pick), __byte_perm(h.x, h.y, pick),
                                                               __byte_perm(h.z, h.w, pick));
    }
}

/* Each element is added to once, so the order of the additions is none. */
template <int N> DI void gw_store_f32(const gemm_part &q, const token_block &b, int tile, const float (&d)[N / 2], int lane)
{
    float *y = (float *)q.y + (size_t)b.first * q.ldy + tile * 16 + (lane >> 2);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const int token = (i >> 2) * 8 + 2 * (lane & 3) + (i & 1);
        float *to = y + (size_t)token * q.ldy + 8 * (i >> 1 & 1);
        if (token >= b.n) continue;
        if (q.kind == GEMM_ADD) asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(d[i]) : "memory");
        else *to = d[i];
    }
}

/*
 * One tile of N tokens, by a warpgroup. A branch between its products would make them wait for each other. Every thread gives a
 * stage back, for each has read weights from it.
 */
template <int N, int MATS, int PARTS, bool SMALL>
DI void gw_multiply(const gemm_params &p, const gw_shape &q, uint8_t *sm, gw_bars *bars, uint8_t *out, gw_slot &get, const token_block &b, const gemm_part &part,
                    int group)
{
    typedef gw_form<MATS, PARTS, SMALL> form;
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) - 4, bytes = form::bytes(q.width), x_bytes = q.width * UNIT_COLS * 2;
    const u32 full = smem_addr(bars->full), empty = smem_addr(bars->empty);
    float d[MATS][N / 2];
    u32 a[2][16];
    int last = 0;
#pragma unroll
    for (int i = 0; i < MATS * N / 2; i++) d[i / (N / 2)][i % (N / 2)] = 0.0f;
    for (int u = 0; u < p.units; u++) {
        uint8_t *stage = sm + get.s * bytes;
        const u64 x = tile_desc(smem_addr(stage));
        bar_wait(full + 8 * get.s, get.phase);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* X was copied by threads */
#pragma unroll
        for (int i = 0; i < 2 * MATS; i++) { /* groups of 64 columns, matrices */
            const int gr = i / MATS, mat = i % MATS;
            wg_wait<1>();
            if (i == 1) bar_arrive_if(empty + 8 * last, u > 0);
            dequant_group(a[i & 1], stage + PARTS * x_bytes + (mat * GEMM_TILES + warp) * UNIT, gr, lane);
            wg_fence();
#pragma unroll
            for (int part_x = 0; part_x < PARTS; part_x++)
#pragma unroll
                for (int m = 0; m < 4; m++) wg_mul(d[mat], a[i & 1] + 4 * m, x + (u32)(part_x * x_bytes + gr * q.width * TILE_ROW) / 16 + 2 * m);
            wg_commit();
        }
        last = get.s;
        gw_next(get, q.stages);
    }
    wg_wait<0>();
    bar_arrive(empty + 8 * last);
#pragma unroll
    for (int mat = 0; mat < (form::PAIR ? 1 : MATS); mat++) {
        const int tile = gw_tile<MATS, form::PAIR>(group, mat * GEMM_TILES + warp);
        if (tile >= part.tiles) return;
        if constexpr (form::PAIR) gw_store_silu<N>(part, b, tile, d, out, lane);
        else if constexpr (PARTS == 1) gw_store_f16<N>(part, b, tile, d[mat], out, lane);
        else gw_store_f32<N>(part, b, tile, d[mat], lane);
    }
}

/* Few widths in a kernel: with more, the compiler makes the products wait for each other. SMALL: 32 tokens, no more. */
template <int MATS, int PARTS, bool SMALL> DI void gw_compute(const gemm_params &p, const gw_shape &q, uint8_t *sm, gw_bars *bars, uint8_t *outs)
{
    uint8_t *out = outs + ((threadIdx.x >> 5) - 4) * GW_OUT;
    gw_slot get = {0, 0};
    for (int i = blockIdx.x; i < gw_tiles(p, q); i += gridDim.x) {
        const token_block b = gw_block(p, q, i / q.blocks);
        int group;
        const gemm_part &part = gemm_part_at(p, i % q.blocks, &group);
#define GW_TILE(N) gw_multiply<N, MATS, PARTS, SMALL>(p, q, sm, bars, out, get, b, part, group)
        if constexpr (SMALL) GW_TILE(32);
        else if constexpr (MATS == 2 && PARTS == 2) GW_TILE(GW_WIDE);
        else if constexpr (MATS == 2) {
            if (b.n <= 96) GW_TILE(96);
            else GW_TILE(128);
        } else {
            if (b.n <= 32) GW_TILE(32);
            else if (b.n <= 64) GW_TILE(64);
            else if (PARTS == 1 && b.n <= 96) GW_TILE(96);
            else GW_TILE(128);
        }
#undef GW_TILE
    }
}

#endif

template <int MATS, int PARTS, bool SMALL>
__global__ void __launch_bounds__(GW_THREADS, 1) k_gemm_wg(const __grid_constant__ gemm_params p, const __grid_constant__ gw_shape q)
{
#if HAVE_WGMMA
    extern __shared__ __align__(1024) uint8_t sm[];
    uint8_t *outs = sm + q.stages * gw_form<MATS, PARTS, SMALL>::bytes(q.width);
    gw_bars *bars = (gw_bars *)(outs + GW_OUTS);
    pdl_launch();
    if (threadIdx.x == 0) {
        for (int i = 0; i < q.stages; i++) {
            bar_init(smem_addr(&bars->full[i]), WG + 1);
            bar_init(smem_addr(&bars->empty[i]), 2 * WG);
        }
        bar_init_done();
    }
    __syncthreads();
    pdl_wait();
    if (threadIdx.x < WG) {
        regs_give<MATS == 1 ? 56 : 40>(); /* 128 of these and 256 of those are what 384 times 168 are */
        gw_load<MATS, PARTS, SMALL>(p, q, sm, bars);
    } else {
        regs_take<MATS == 1 ? 224 : 232>();
        gw_compute<MATS, PARTS, SMALL>(p, q, sm, bars, outs);
    }
#endif
}

template <int MATS, int PARTS, bool SMALL> static void run(struct cuda_backend *c, const gemm_params *p, gw_shape q, int tiles)
{
    const int stage = gw_form<MATS, PARTS, SMALL>::bytes(q.width), rest = GW_OUTS + (int)(p->gather ? sizeof(gw_bars) : offsetof(gw_bars, rows));
    q.stages = (GW_SHARED - rest) / stage;
    if (q.stages > GW_STAGES) q.stages = GW_STAGES;
    launch(c, k_gemm_wg<MATS, PARTS, SMALL>, dim3((unsigned)(tiles < c->n_sms ? tiles : c->n_sms)), GW_THREADS, (size_t)(q.stages * stage + rest), *p, q);
}

static int waves(const struct cuda_backend *c, int blocks, int n_rows, int width)
{
    return (blocks * ((n_rows + width - 1) / width) + c->n_sms - 1) / c->n_sms;
}

/* Times of a tile of 128 rows, by its tokens, and of a wide one; only their relation counts. */
enum { COST_FIXED = 150, COST_WIDE = 345 };

/* Tokens of a tile of 128 rows that are done first. */
static int width_for(const struct cuda_backend *c, int n_rows, int blocks, bool pair, int *cost)
{
    int best = 0;
    for (int n = 32; n <= GW_WIDTH; n *= pair ? 4 : 2) {
        int t = waves(c, blocks, n_rows, n) * (n + COST_FIXED);
        if (!best || t < *cost) best = n, *cost = t;
    }
    return best;
}

/* Blocks of 256 rows instead, if they are done before. */
static bool widen(const struct cuda_backend *c, gemm_params *p, int n_parts, gw_shape *q, int cost)
{
    gemm_params w = *p;
    int end = 0;
    for (int i = 0; i < n_parts; i++) w.part[i].end = end += (w.part[i].tiles + 2 * GEMM_TILES - 1) / (2 * GEMM_TILES);
    if (waves(c, end, p->n_rows, GW_WIDE) * COST_WIDE >= cost) return false;
    *p = w;
    q->width = GW_WIDE;
    q->blocks = end;
    return true;
}

void gemm_wg_run(struct cuda_backend *c, const gemm_params *all, int n_parts, int most_blocks)
{
    gemm_params p = *all;
    const bool pair = p.part[0].kind == GEMM_SILU;
    gw_shape q = {p.width, 0, p.part[n_parts - 1].end};
    int cost = 0;
    if (!p.n_blocks) q.width = width_for(c, p.n_rows, q.blocks, pair, &cost);
    const bool wide = p.rest && widen(c, &p, n_parts, &q, cost);
    const int tiles = q.blocks * (p.n_blocks ? most_blocks : (p.n_rows + q.width - 1) / q.width);
    if (pair && q.width == 32) run<2, 1, true>(c, &p, q, tiles);
    else if (pair) run<2, 1, false>(c, &p, q, tiles);
    else if (wide) run<2, 2, false>(c, &p, q, tiles);
    else if (p.rest) run<1, 2, false>(c, &p, q, tiles);
    else run<1, 1, false>(c, &p, q, tiles);
}
