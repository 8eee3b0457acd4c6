/*
 * The prefill product with warpgroup products (gemm.cuh). One block a multiprocessor walks over tiles of weight rows and up to
 * `width` tokens: a warpgroup loads, two multiply, with the weights unpacked into the A registers while the product before
 * runs. Loading runs ahead into the next tile. A tile has 128 rows; 256, in two halves, where activations come in two parts
 * and there are many tokens, since activations then cross to the multiprocessors half as often; and 128 of either matrix of
 * GEMM_SILU. Where tiles have few tokens, what counts is how fast weights come: two blocks share a multiprocessor then.
 */
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/half.cuh"
#include "backend/cuda/wgmma.cuh"

enum { GW_NARROW_UNITS = 2, GW_NARROW_BLOCKS = 2 }; /* units of 128 columns a stage, blocks a multiprocessor, where tokens are few */
enum { GW_THREADS = 3 * WG, GW_STAGES = 8, GW_OUT = 512, GW_OUTS = 8 * GW_OUT, GW_SHARED = 227 * 1024, GW_SHARED_TWO = 113 * 1024, GW_WIDTH = 128, GW_WIDE = 96 };

struct gw_shape {
    int width, stages, blocks; /* tokens, stages, blocks of weight rows */
    int beside;                /* blocks of tokens of p.beside */
};

/*
 * Shared memory: stages of X (a tile for each 64 columns and part of the activations), then W; then the rest. A stage is given
 * back when its successor is there, so there must be two at least.
 */
template <int MATS, int PARTS, int NARROW> struct gw_form { /* NARROW: tokens of a tile at most, if few; else 0 */
    static constexpr bool PAIR = MATS == 2 && PARTS == 1;
    static constexpr int UNITS = NARROW ? (int)GW_NARROW_UNITS : 1, BLOCKS = NARROW ? (int)GW_NARROW_BLOCKS : 1;
    static constexpr int W = UNITS * MATS * GEMM_TILES * UNIT;
    __host__ __device__ static int bytes(int width) { return W + UNITS * PARTS * width * UNIT_COLS * 2; }
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

enum { BESIDE = -1 }; /* as an expert */

DI token_block gw_block(const gemm_params &p, const gw_shape &q, int i)
{
    const bool beside = i < q.beside;
    if (p.n_blocks && !beside) return p.blocks[i - q.beside];
    const int first = i * q.width, n = (beside ? p.beside.n_rows : p.n_rows) - first;
    return {beside ? BESIDE : 0, first, n < q.width ? n : q.width};
}

/* The tokens of tile i; those of the tile before it behind the last. Asked for a tile ahead, for it takes a while. */
DI token_block gw_block_or(const gemm_params &p, const gw_shape &q, int i, int tiles, const token_block &last)
{
    return i < tiles ? gw_block(p, q, i / q.blocks) : last;
}

DI int gw_tiles(const gemm_params &p, const gw_shape &q)
{
    return q.blocks * (p.n_blocks ? q.beside + *p.n_blocks : (p.n_rows + q.width - 1) / q.width);
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
    const uint8_t *w = PAIR && i >= GEMM_TILES ? part.w2 : part.w;
    if (expert == BESIDE) w = PAIR && i >= GEMM_TILES ? p.beside.w2 : p.beside.w;
    else w += (size_t)expert * p.expert_bytes;
    return w + (size_t)tile * p.units * UNIT;
}

/* The row of x that token r of a block has; of no token: the block's first. */
DI u32 gw_row(const gemm_params &p, const token_block &b, int r)
{
    const int at = b.first + (r < b.n ? r : 0);
    return p.gather && b.expert != BESIDE ? (u32)p.slot_row[at] : (u32)at;
}

DI const u16 *gw_x(const gemm_params &p, const token_block &b) { return b.expert == BESIDE ? p.beside.x : p.x; }
DI u16 *gw_y(const gemm_params &p, const gemm_part &part, const token_block &b) { return (u16 *)(b.expert == BESIDE ? p.beside.y : part.y); }

template <int MATS, int PARTS> DI void gw_load(const gemm_params &p, const gw_shape &q, uint8_t *sm, gw_bars *bars)
{
    typedef gw_form<MATS, PARTS, 0> form;
    const int tid = threadIdx.x, piece = tid & 15, row0 = tid >> 4, bytes = form::bytes(q.width), x_bytes = q.width * UNIT_COLS * 2;
    const u32 ring = smem_addr(sm), full = smem_addr(bars->full), empty = smem_addr(bars->empty);
    const u32 at = (piece >> 3) * q.width * TILE_ROW + tile_at16(row0, piece & 7);
    gw_slot put = {0, 1};
    /* Each warp requests its share of the tiles, since a copy engine's requests are made one lane at a time. */
    const int lane = tid & 31, tile = (tid >> 5) * (2 * MATS) + lane, tiles = gw_tiles(p, q);
    token_block b = gw_block_or(p, q, blockIdx.x, tiles, token_block{});
    u32 source = gw_row(p, b, tid); /* row of token tid */
    for (int i = blockIdx.x, turn = 0; i < tiles; i += gridDim.x, turn ^= 1) {
        const token_block next = gw_block_or(p, q, i + gridDim.x, tiles, b);
        const int rows = (b.n + 31) & ~31;
        const u16 *x = gw_x(p, b);
        int group;
        const gemm_part &part = gemm_part_at(p, i % q.blocks, &group);
        const uint8_t *w = lane < 2 * MATS ? gw_weights<MATS, form::PAIR>(p, part, b.expert, group, tile) : NULL;
        if (p.gather) {
            bars->rows[turn][tid] = source;
            asm volatile("bar.sync 1, 128;" ::: "memory");
            source = gw_row(p, next, tid);
        }
        for (int u = 0; u < p.units; u++) {
            const u32 stage = ring + put.s * bytes;
            bar_wait(empty + 8 * put.s, put.phase);
            if (tid == 0) bar_expect(full + 8 * put.s, form::W);
            if (w) bulk_load(stage + PARTS * x_bytes + tile * UNIT, w + (size_t)u * UNIT, UNIT, full + 8 * put.s);
#pragma unroll 4
            for (int r = row0; r < rows; r += 8) {
                const u32 row = r >= b.n ? 0 : p.gather ? bars->rows[turn][r] : (u32)(b.first + r);
                const size_t from = (size_t)row * p.ldx + u * UNIT_COLS + piece * 8;
                const u32 to = stage + at + (r - row0) * TILE_ROW;
                cp16(to, x + from, r < b.n ? 16 : 0);
                if (PARTS == 2) cp16(to + x_bytes, p.rest + from, r < b.n ? 16 : 0);
            }
            bar_arrive_loaded(full + 8 * put.s);
            gw_next(put, q.stages);
        }
        b = next;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* The same for tiles of few tokens, whose rows a thread keeps in registers. */
template <int MATS, int NARROW> DI void gw_load_narrow(const gemm_params &p, const gw_shape &q, uint8_t *sm, gw_bars *bars)
{
    typedef gw_form<MATS, 1, NARROW> form;
    constexpr int ROWS = NARROW / 8, X = NARROW * UNIT_COLS * 2, BYTES = form::W + form::UNITS * X;
    const int tid = threadIdx.x, lane = tid & 31, tile = (tid >> 5) * (2 * MATS) + lane, piece = tid & 15, row0 = tid >> 4, tiles = gw_tiles(p, q);
    const u32 ring = smem_addr(sm), full = smem_addr(bars->full), empty = smem_addr(bars->empty);
    const u32 at = (piece >> 3) * NARROW * TILE_ROW + tile_at16(row0, piece & 7);
    gw_slot put = {0, 1};
    token_block b = gw_block_or(p, q, blockIdx.x, tiles, token_block{});
    u32 row[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; k++) row[k] = gw_row(p, b, row0 + 8 * k);
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        const token_block next = gw_block_or(p, q, i + gridDim.x, tiles, b);
        int group;
        const gemm_part &part = gemm_part_at(p, i % q.blocks, &group);
        const uint8_t *w = lane < 2 * MATS ? gw_weights<MATS, form::PAIR>(p, part, b.expert, group, tile) : NULL;
        const u16 *x[ROWS];
        int bytes[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            x[k] = gw_x(p, b) + (size_t)row[k] * p.ldx + piece * 8;
            bytes[k] = row0 + 8 * k < b.n ? 16 : 0;
            row[k] = gw_row(p, next, row0 + 8 * k);
        }
        for (int u = 0; u < p.units; u += form::UNITS) {
            const u32 stage = ring + put.s * BYTES;
            bar_wait(empty + 8 * put.s, put.phase);
            if (tid == 0) bar_expect(full + 8 * put.s, form::W);
            if (w) bulk_load(stage + form::UNITS * X + tile * (form::UNITS * UNIT), w, form::UNITS * UNIT, full + 8 * put.s);
#pragma unroll
            for (int k = 0; k < ROWS; k++) {
#pragma unroll
                for (int v = 0; v < form::UNITS; v++) cp16(stage + at + v * X + 8 * k * TILE_ROW, x[k] + v * UNIT_COLS, bytes[k]);
                x[k] += form::UNITS * UNIT_COLS;
            }
            if (w) w += form::UNITS * UNIT;
            bar_arrive_loaded(full + 8 * put.s);
            gw_next(put, q.stages);
        }
        b = next;
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

template <int N> DI void gw_store_f16(u16 *y, const gemm_part &q, const token_block &b, int tile, const float (&d)[N / 2], uint8_t *out, int lane)
{
    const int token = lane >> 1, half = lane & 1;
    y += (size_t)(b.first + token) * q.ldy + tile * 16 + half * 8;
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
template <int N> DI void gw_store_silu(u16 *y, const gemm_part &q, const token_block &b, int tile, const float (&d)[2][N / 2], uint8_t *out, int lane)
{
    const int token = lane >> 1, odd = lane & 1;
    const u32 pick = odd ? 0x7632 : 0x5410;
    y += (size_t)(b.first + token) * q.ldy + perm_of(tile * 16 + odd);
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
template <int N, int MATS, int PARTS, int NARROW>
DI void gw_multiply(const gemm_params &p, const gw_shape &q, uint8_t *sm, gw_bars *bars, uint8_t *out, gw_slot &get, const token_block &b, const gemm_part &part,
                    int group)
{
    typedef gw_form<MATS, PARTS, NARROW> form;
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) - 4, width = NARROW ? NARROW : q.width;
    const int bytes = form::bytes(width), x_bytes = width * UNIT_COLS * 2;
    const u32 full = smem_addr(bars->full), empty = smem_addr(bars->empty);
    float d[MATS][N / 2];
    u32 a[2][16];
    int last = 0;
#pragma unroll
    for (int i = 0; i < MATS * N / 2; i++) d[i / (N / 2)][i % (N / 2)] = 0.0f;
    for (int u = 0; u < p.units; u += form::UNITS) {
        uint8_t *stage = sm + get.s * bytes;
        const u64 x = tile_desc(smem_addr(stage));
        bar_wait(full + 8 * get.s, get.phase);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* X was copied by threads */
#pragma unroll
        for (int i = 0; i < 2 * MATS * form::UNITS; i++) { /* groups of 64 columns, matrices */
            const int unit = i / (2 * MATS), gr = i / MATS & 1, mat = i % MATS;
            wg_wait<1>();
            if (i == 1) bar_arrive_if(empty + 8 * last, u > 0);
            dequant_group(a[i & 1], stage + form::UNITS * PARTS * x_bytes + ((mat * GEMM_TILES + warp) * form::UNITS + unit) * UNIT, gr, lane);
            wg_fence();
#pragma unroll
            for (int part_x = 0; part_x < PARTS; part_x++)
#pragma unroll
                for (int m = 0; m < 4; m++) wg_mul(d[mat], a[i & 1] + 4 * m, x + (u32)((unit * PARTS + part_x) * x_bytes + gr * width * TILE_ROW) / 16 + 2 * m);
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
        if constexpr (form::PAIR) gw_store_silu<N>(gw_y(p, part, b), part, b, tile, d, out, lane);
        else if constexpr (PARTS == 1) gw_store_f16<N>(gw_y(p, part, b), part, b, tile, d[mat], out, lane);
        else gw_store_f32<N>(part, b, tile, d[mat], lane);
    }
}

/* Few widths in a kernel: with more, the compiler makes the products wait for each other. */
template <int MATS, int PARTS, int NARROW> DI void gw_compute(const gemm_params &p, const gw_shape &q, uint8_t *sm, gw_bars *bars, uint8_t *outs)
{
    uint8_t *out = outs + ((threadIdx.x >> 5) - 4) * GW_OUT;
    gw_slot get = {0, 0};
    const int tiles = gw_tiles(p, q);
    token_block next = gw_block_or(p, q, blockIdx.x, tiles, token_block{});
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        const token_block b = next;
        next = gw_block_or(p, q, i + gridDim.x, tiles, b);
        int group;
        const gemm_part &part = gemm_part_at(p, i % q.blocks, &group);
#define GW_TILE(N) gw_multiply<N, MATS, PARTS, NARROW>(p, q, sm, bars, out, get, b, part, group)
        if constexpr (NARROW != 0) GW_TILE(NARROW);
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

template <int MATS, int PARTS, int NARROW>
__global__ void __launch_bounds__(GW_THREADS, gw_form<MATS, PARTS, NARROW>::BLOCKS) k_gemm_wg(const __grid_constant__ gemm_params p, const __grid_constant__ gw_shape q)
{
#if HAVE_WGMMA
    extern __shared__ __align__(1024) uint8_t sm[];
    uint8_t *outs = sm + q.stages * gw_form<MATS, PARTS, NARROW>::bytes(q.width);
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
        regs_give<MATS == 1 && !NARROW ? 56 : 40>(); /* 128 of these and 256 of those are no more than 384 times 168, or 80 */
        if constexpr (NARROW != 0) gw_load_narrow<MATS, NARROW>(p, q, sm, bars);
        else gw_load<MATS, PARTS>(p, q, sm, bars);
    } else {
        regs_take<NARROW ? 96 : MATS == 1 ? 224 : 232>();
        gw_compute<MATS, PARTS, NARROW>(p, q, sm, bars, outs);
    }
#endif
}

template <int MATS, int PARTS, int NARROW> static void run(struct cuda_backend *c, const gemm_params *p, gw_shape q, int tiles)
{
    typedef gw_form<MATS, PARTS, NARROW> form;
    const int stage = form::bytes(q.width), most = form::BLOCKS * c->n_sms, shared = form::BLOCKS == 1 ? GW_SHARED : GW_SHARED_TWO, rest = GW_OUTS + (int)(p->gather ? sizeof(gw_bars) : offsetof(gw_bars, rows));
    q.stages = (shared - rest) / stage;
    if (q.stages > GW_STAGES) q.stages = GW_STAGES;
    launch(c, k_gemm_wg<MATS, PARTS, NARROW>, dim3((unsigned)(tiles < most ? tiles : most)), GW_THREADS, (size_t)(q.stages * stage + rest), *p, q);
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
    gw_shape q = {p.width, 0, p.part[n_parts - 1].end, 0};
    int cost = 0;
    if (!p.n_blocks) q.width = width_for(c, p.n_rows, q.blocks, pair, &cost);
    const bool wide = p.rest && widen(c, &p, n_parts, &q, cost);
    if ((pair || p.n_blocks) && p.units % GW_NARROW_UNITS) q.width = GW_WIDTH; /* no narrow form */
    q.beside = (p.beside.n_rows + q.width - 1) / q.width;
    const int tiles = q.blocks * (p.n_blocks ? q.beside + most_blocks : (p.n_rows + q.width - 1) / q.width);
    if (pair && q.width == 16) run<2, 1, 16>(c, &p, q, tiles);
    else if (pair && q.width == 32) run<2, 1, 32>(c, &p, q, tiles);
    else if (q.width == 16) run<1, 1, 16>(c, &p, q, tiles);
    else if (p.n_blocks && q.width == 32) run<1, 1, 32>(c, &p, q, tiles);
    else if (pair) run<2, 1, 0>(c, &p, q, tiles);
    else if (wide) run<2, 2, 0>(c, &p, q, tiles);
    else if (p.rest) run<1, 2, 0>(c, &p, q, tiles);
    else run<1, 1, 0>(c, &p, q, tiles);
}
