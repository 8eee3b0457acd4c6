/* Decode kernels that mix tokens: the gated delta rule, and attention over pages in parts. */
#include "backend/cuda/attn.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/kv.cuh"

/* ---- gated delta rule ---- */

struct gdn_params {
    const pass *ps;
    int seq0, row0;
    size_t state_at; /* floats from a sequence's recurrent state to the layer's */
    int k_heads, v_heads, conv_dim, ld_u, ld_o;
    const float *u, *gates;
    float *o, *o_ss;
};

/* The numbers of q and k of a row that a lane needs: 4*li … 4*li+3 of each 32, li = lane % 8. */
struct gdn_keys {
    float4 q[4], k[4];
};

DI void load_keys(gdn_keys &x, const gdn_params &p, int row, int key_head, int li)
{
    const float *u = p.u + (size_t)row * p.ld_u + li * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x.q[i] = *(const float4 *)(u + key_head * GDN_DIM + 32 * i);
        x.k[i] = *(const float4 *)(u + (p.k_heads + key_head) * GDN_DIM + 32 * i);
    }
}

/* The sum of the numbers of the eight lanes that share a column. */
DI float sum_of_eight(const float (&s)[4])
{
    float v = (s[0] + s[2]) + (s[1] + s[3]);
#pragma unroll
    for (int o = 4; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

/* Makes q and k of length 1 (q: times 1/sqrt(128)); returns their product. */
DI float unit_keys(gdn_keys &x)
{
    float qq[4], kk[4], kq[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 q = x.q[i], k = x.k[i];
        qq[i] = q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w;
        kk[i] = k.x * k.x + k.y * k.y + k.z * k.z + k.w * k.w;
        kq[i] = k.x * q.x + k.y * q.y + k.z * q.z + k.w * q.w;
    }
    const float rq = rsqrtf(sum_of_eight(qq) + 1e-6f) * 0.08838834764831845f, rk = rsqrtf(sum_of_eight(kk) + 1e-6f);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x.q[i] = make_float4(x.q[i].x * rq, x.q[i].y * rq, x.q[i].z * rq, x.q[i].w * rq);
        x.k[i] = make_float4(x.k[i].x * rk, x.k[i].y * rk, x.k[i].z * rk, x.k[i].w * rk);
    }
    return sum_of_eight(kq) * rq * rk;
}

/* What one column of a head takes from a row beside q and k. */
struct gdn_row {
    float v, z, beta, decay;
};

DI gdn_row gdn_row_of(const gdn_params &p, int row, int head, int col)
{
    const float *u = p.u + (size_t)row * p.ld_u, *gates = p.gates + (size_t)row * 2 * p.v_heads;
    gdn_row r = {u[(2 * p.k_heads + head) * GDN_DIM + col], u[p.conv_dim + head * GDN_DIM + col], gates[head], gates[p.v_heads + head]};
    return r;
}

/* Block: a quarter of the value columns of one head of one sequence; eight lanes share a column, in registers. */
__global__ void __launch_bounds__(CTA, 4) k_gdn_step(const __grid_constant__ gdn_params p)
{
    __shared__ float ss[DECODE_ROWS][WARPS];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, li = lane & 7;
    const int head = blockIdx.x >> 2, quarter = blockIdx.x & 3, col = quarter * 32 + 4 * warp + (lane >> 3), key_head = head / (p.v_heads / p.k_heads);
    const seq_view &s = p.ps->seq[p.seq0 + blockIdx.y];
    pdl_launch();
    float *state = s.recurrent + p.state_at + ((size_t)head * GDN_DIM + col) * GDN_DIM + li * 4;
    const int first = s.first - p.row0, n = s.n;
    float4 S[4];
#pragma unroll
    for (int i = 0; i < 4; i++) S[i] = *(const float4 *)(state + 32 * i);
    pdl_wait();
#pragma unroll 1
    for (int j = 0; j < n; j++) {
        const int row = first + j;
        const gdn_row now = gdn_row_of(p, row, head, col);
        gdn_keys x;
        load_keys(x, p, row, key_head, li);
        const float kq = unit_keys(x), g = now.decay;
        float a = 0, b = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a += S[i].x * x.k[i].x + S[i].y * x.k[i].y + S[i].z * x.k[i].z + S[i].w * x.k[i].w;
            b += S[i].x * x.q[i].x + S[i].y * x.q[i].y + S[i].z * x.q[i].z + S[i].w * x.q[i].w;
        }
#pragma unroll
        for (int o = 4; o; o >>= 1) {
            a += __shfl_xor_sync(~0u, a, o);
            b += __shfl_xor_sync(~0u, b, o);
        }
        const float e = now.beta * (now.v - g * a), o = g * b + e * kq;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            S[i].x = fmaf(g, S[i].x, e * x.k[i].x);
            S[i].y = fmaf(g, S[i].y, e * x.k[i].y);
            S[i].z = fmaf(g, S[i].z, e * x.k[i].z);
            S[i].w = fmaf(g, S[i].w, e * x.k[i].w);
        }
        if (li == 0) p.o[(size_t)row * p.ld_o + head * GDN_DIM + col] = o * now.z;
        float w = o * o;
        w += __shfl_xor_sync(~0u, w, 8);
        w += __shfl_xor_sync(~0u, w, 16);
        if (lane == 0) ss[j][warp] = w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) *(float4 *)(state + 32 * i) = S[i];
    __syncthreads();
    if (threadIdx.x < n) {
        float w = 0;
        for (int i = 0; i < WARPS; i++) w += ss[threadIdx.x][i];
        p.o_ss[((size_t)(first + threadIdx.x) * p.v_heads + head) * 4 + quarter] = w;
    }
}

void decode_gdn_mix(struct cuda_backend *c, const struct gdn_weights *w, int index)
{
    (void)w;
    struct row_group groups[MAX_DECODE];
    const struct model_shape *s = &c->base.shape;
    struct workspace *ws = &c->ws;
    int n = decode_groups(c->batch, groups), heads = s->n_gdn_v_heads;
    for (int i = 0; i < n; i++) {
        size_t r = (size_t)groups[i].row0;
        gdn_params p = {ws->pass, groups[i].seq0, groups[i].row0, (size_t)index * heads * GDN_DIM * GDN_DIM, s->n_gdn_k_heads, heads,
                        shape_conv_dim(s), ws->ld_u, ws->pad_mix, ws->u + r * ws->ld_u, ws->gates + r * 2 * heads,
                        ws->mix + r * ws->pad_mix, ws->o_ss + r * heads * 4};
        const dim3 grid((unsigned)heads * 4, (unsigned)groups[i].n_seqs);
        launch(c, k_gdn_step, grid, CTA, alone(c, k_gdn_step, grid, 0, MIDDLE), p);
    }
}

/* ---- attention ---- */

struct attn_params {
    const pass *ps;
    const int32_t *pos, *seq_of;
    uint8_t *region;
    size_t page_bytes, layer_at; /* bytes from a page's start to the layer's first head */
    size_t head_bytes;
    int n_q, n_kv, ld_u;
    float *u;                    /* (rows, ld_u): q and gates by head, k, v */
    const float *rotary, *q_norm, *k_norm;
    float eps;
    float *part, *part_ms;
    float *o;
    int ld_o;
};

/* A head's 256 numbers as norm_rope has them. */
DI void load_head(float (&x)[8], const float *u, int lane)
{
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = u[(i >> 2) * 128 + 4 * lane + (i & 3)];
}

/* fp32 pages. A warp a head: queries are normed, turned and scaled in place; keys and values go to their page. */
__global__ void k_append(const __grid_constant__ attn_params p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.x * WARPS + warp, r = blockIdx.y;
    pdl_launch();
    pdl_wait();
    if (head >= p.n_q + 2 * p.n_kv) return;
    const bool query = head < p.n_q, value = head >= p.n_q + p.n_kv;
    const int kv = (head - p.n_q) % p.n_kv, pos = p.pos[r];
    float *u = p.u + (size_t)r * p.ld_u + (query ? head * 512 : p.n_q * 512 + (head - p.n_q) * HEAD_DIM), x[8];
    load_head(x, u, lane);
    if (!value) norm_rope(x, query ? p.q_norm : p.k_norm, p.rotary + (size_t)r * ROTARY_DIM, p.eps, lane);
    float *out = u;
    if (!query) {
        const seq_view &s = p.ps->seq[p.seq_of[r]];
        out = (float *)(p.region + (size_t)s.pages[pos / GRID] * p.page_bytes + p.layer_at + (2 * kv + (value ? 1 : 0)) * p.head_bytes) + (pos % GRID) * HEAD_DIM;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[(i >> 2) * 128 + 4 * lane + (i & 3)] = query ? x[i] * 0.0625f : x[i];
}

/* How the pages of a row are dealt to parts: by the row's own position and nothing else. */
struct split {
    int pages, each, parts;
};

DI split split_of(int pos)
{
    split s;
    s.pages = pos / GRID + 1;
    s.each = (s.pages + MAX_SPLITS - 1) / MAX_SPLITS;
    s.parts = (s.pages + s.each - 1) / s.each;
    return s;
}

enum { Q_LD = HEAD_DIM + 8, S_LD = GRID + 4, P_LD = GRID + 8, HALVES = 3 }; /* HALVES: keys or values of a page in shared memory */

struct split_smem {
    u16 q[2][8][Q_LD];      /* high part and rest of eight query heads */
    u16 p[2][8][P_LD];      /* weights of a page, the same */
    float s[2][8][S_LD];    /* scores, from either half of the dimensions */
    float keep[8];
    u64 bar[HALVES];
};

/* Requests the keys (even) or the values (odd) of a part's i-th half page, into the ring. */
DI void half_request(const attn_params &p, const seq_view &s, int first_page, int i, int kv, uint8_t *ring, u32 bars)
{
    const int at = i % HALVES;
    const uint8_t *from = p.region + (size_t)s.pages[first_page + i / 2] * p.page_bytes + p.layer_at + (size_t)(2 * kv + (i & 1)) * KV_HEAD;
    bar_expect(bars + 8 * at, KV_HEAD);
    bulk_load(smem_addr(ring) + at * KV_HEAD, from, KV_HEAD, bars + 8 * at);
    bulk_sent(bars + 8 * at);
}

/* Scores of 64 keys for eight heads: warps share tiles of 16 keys and halves of the dimensions. */
DI void page_scores(split_smem &m, const uint8_t *k, int warp, int lane)
{
    const int pt = warp >> 1, half = warp & 1, g = lane >> 2, t = lane & 3;
    float d[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int ks = half * 8 + j;
        const uint4 a = *(const uint4 *)(k + (pt * 16 + ks) * KV_TILE + lane * 16);
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const u16 *q = &m.q[part][g][ks * 16 + 2 * t];
            mma16(d, a.x, a.y, a.z, a.w, *(const u32 *)q, *(const u32 *)(q + 8));
        }
    }
    m.s[half][2 * t][pt * 16 + g] = d[0];
    m.s[half][2 * t + 1][pt * 16 + g] = d[1];
    m.s[half][2 * t][pt * 16 + g + 8] = d[2];
    m.s[half][2 * t + 1][pt * 16 + g + 8] = d[3];
}

/* Softmax of one head, a warp each: rescales the running maximum and sum, leaves weights in two parts. */
DI void page_softmax(split_smem &m, int head, int n_keys, float &max, float &sum, int lane)
{
    float a = m.s[0][head][lane] + m.s[1][head][lane], b = m.s[0][head][lane + 32] + m.s[1][head][lane + 32];
    if (lane >= n_keys) a = -INFINITY;
    if (lane + 32 >= n_keys) b = -INFINITY;
    const float top = fmaxf(max, warp_max(fmaxf(a, b))), keep = __expf(max - top);
    a = __expf(a - top);
    b = __expf(b - top);
    sum = sum * keep + warp_sum(a + b);
    max = top;
    if (lane == 0) m.keep[head] = keep;
    const u16 ah = f_bf(a), bh = f_bf(b);
    m.p[0][head][lane] = ah;
    m.p[0][head][lane + 32] = bh;
    m.p[1][head][lane] = f_bf(a - bf_f(ah));
    m.p[1][head][lane + 32] = f_bf(b - bf_f(bh));
}

/* o += V * weights: warp has dimensions 32*warp … +31 of all heads. */
DI void page_values(const split_smem &m, const uint8_t *v, float (&o)[2][4], int warp, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const float k0 = m.keep[2 * t], k1 = m.keep[2 * t + 1];
#pragma unroll
    for (int z = 0; z < 2; z++) {
        o[z][0] *= k0;
        o[z][1] *= k1;
        o[z][2] *= k0;
        o[z][3] *= k1;
    }
#pragma unroll
    for (int pt = 0; pt < 4; pt++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const u16 *w = &m.p[part][g][pt * 16 + 2 * t];
            const u32 b0 = *(const u32 *)w, b1 = *(const u32 *)(w + 8);
#pragma unroll
            for (int z = 0; z < 2; z++) {
                const uint4 a = *(const uint4 *)(v + (pt * 16 + 2 * warp + z) * KV_TILE + lane * 16);
                mma16(o[z], a.x, a.y, a.z, a.w, b0, b1);
            }
        }
}

/* A warp's query head: normed, turned, scaled, in two parts. */
DI void load_query(split_smem &m, const attn_params &p, int r, int kv, int warp, int lane)
{
    float x[8];
    load_head(x, p.u + (size_t)r * p.ld_u + (size_t)(kv * 8 + warp) * 512, lane);
    norm_rope(x, p.q_norm, p.rotary + (size_t)r * ROTARY_DIM, p.eps, lane);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int d = (i >> 2) * 128 + 4 * lane + (i & 3);
        const float q = x[i] * 0.0625f;
        const u16 hi = f_bf(q);
        m.q[0][warp][d] = hi;
        m.q[1][warp][d] = f_bf(q - bf_f(hi));
    }
}

/*
 * The pass's own keys and values, which no earlier kernel has put into the page: every row puts what it needs into its copy,
 * and its own into the page itself. A warp takes the key (even) or the value (odd) of a row in turn.
 */
DI void own_head(float (&x)[8], const attn_params &p, const seq_view &s, int item, int kv, int lane)
{
    const int row = s.first + item / 2;
    load_head(x, p.u + (size_t)row * p.ld_u + p.n_q * 512 + (item & 1 ? p.n_kv + kv : kv) * HEAD_DIM, lane);
    if (!(item & 1)) norm_rope(x, p.k_norm, p.rotary + (size_t)row * ROTARY_DIM, p.eps, lane);
}

/* own: the warp's first, which was made before the page was there. */
DI void page_append(const attn_params &p, const seq_view &s, uint8_t *keys, uint8_t *values, const float (&own)[8], int page, int kv, int r, int warp, int lane)
{
#pragma unroll 1
    for (int item = warp; item < 2 * (r - s.first + 1); item += WARPS) {
        const int row = s.first + item / 2, pos = p.pos[row];
        const bool value = item & 1;
        if (pos / GRID != page) continue;
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = own[i];
        if (item != warp) own_head(x, p, s, item, kv, lane);
        uint8_t *kept = p.region + (size_t)s.pages[page] * p.page_bytes + p.layer_at + (size_t)(2 * kv + value) * KV_HEAD;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int at = 2 * kv_at(pos % GRID, (i >> 2) * 128 + 4 * lane + (i & 3), value);
            const u16 v = f_bf(x[i]);
            *(u16 *)((value ? values : keys) + at) = v;
            if (row == r) *(u16 *)(kept + at) = v;
        }
    }
}

/* What the join needs of a part: values of 32 dimensions of all heads, and of one head the maximum and the sum. */
DI void put_part(const attn_params &p, const float (&o)[2][4], float max, float sum, int part, int kv, int r, int warp, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    float *out = p.part + (((size_t)r * p.n_q + kv * 8) * MAX_SPLITS + part) * HEAD_DIM;
#pragma unroll
    for (int z = 0; z < 2; z++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            out[(size_t)(2 * t + (j & 1)) * MAX_SPLITS * HEAD_DIM + (2 * warp + z) * 16 + g + 8 * (j >> 1)] = o[z][j];
    if (lane == 0) {
        float *ms = p.part_ms + (((size_t)r * p.n_q + kv * 8 + warp) * MAX_SPLITS + part) * 2;
        ms[0] = max;
        ms[1] = sum;
    }
}

/* One part of the pages of one row, for the eight query heads of a key-value head. */
__global__ void __launch_bounds__(CTA) k_attn_part(const __grid_constant__ attn_params p)
{
    extern __shared__ __align__(128) uint8_t ring[];
    __shared__ __align__(16) split_smem m;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = blockIdx.x, kv = blockIdx.y, r = blockIdx.z;
    const int pos = p.pos[r];
    const split sp = split_of(pos);
    const int lo = part * sp.each, hi = lo + sp.each < sp.pages ? lo + sp.each : sp.pages, halves = 2 * (hi - lo);
    pdl_launch();
    if (part >= sp.parts) return;
    const seq_view &s = p.ps->seq[p.seq_of[r]];
    const int old = p.pos[s.first] / GRID; /* pages before this one hold nothing of this pass */
    const u32 bars = smem_addr(m.bar);
    if (threadIdx.x == 0) {
        for (int i = 0; i < HALVES; i++) bar_init(bars + 8 * i, 1);
        bar_init_done();
        for (int i = 0; i < HALVES && i < halves; i++)
            if (lo + i / 2 < old) half_request(p, s, lo, i, kv, ring, bars);
    }
    __syncthreads();
    pdl_wait();
    if (threadIdx.x == 0) {
        bulk_fence(); /* keys and values were stored by threads, of passes before */
        for (int i = 0; i < HALVES && i < halves; i++)
            if (lo + i / 2 >= old) half_request(p, s, lo, i, kv, ring, bars);
    }
    load_query(m, p, r, kv, warp, lane);
    float own[8] = {};
    if (hi > old && warp < 2 * (r - s.first + 1)) own_head(own, p, s, warp, kv, lane);
    __syncthreads();
    float max = -INFINITY, sum = 0, o[2][4] = {};
    for (int i = 0; i < halves; i += 2) {
        const int page = lo + i / 2, at_k = i % HALVES, at_v = (i + 1) % HALVES;
        uint8_t *keys = ring + at_k * KV_HEAD, *values = ring + at_v * KV_HEAD;
        bar_wait(bars + 8 * at_k, i / HALVES & 1);
        if (page >= old) {
            bar_wait(bars + 8 * at_v, (i + 1) / HALVES & 1);
            page_append(p, s, keys, values, own, page, kv, r, warp, lane);
            __syncthreads();
        }
        page_scores(m, keys, warp, lane);
        __syncthreads();
        if (threadIdx.x == 0 && i + HALVES < halves) half_request(p, s, lo, i + HALVES, kv, ring, bars);
        page_softmax(m, warp, pos + 1 - page * GRID, max, sum, lane);
        __syncthreads();
        bar_wait(bars + 8 * at_v, (i + 1) / HALVES & 1);
        page_values(m, values, o, warp, lane);
        __syncthreads();
        if (threadIdx.x == 0 && i + 1 + HALVES < halves) half_request(p, s, lo, i + 1 + HALVES, kv, ring, bars);
    }
    put_part(p, o, max, sum, part, kv, r, warp, lane);
}

/* Parts together, then the output gate; block: 64 dimensions of one head of one row. */
__global__ void __launch_bounds__(CTA) k_attn_join(const __grid_constant__ attn_params p)
{
    __shared__ float factor[MAX_SPLITS], acc[4][64], total;
    const int head = blockIdx.x >> 2, d = (blockIdx.x & 3) * 64 + (threadIdx.x & 63), r = blockIdx.y, group = threadIdx.x >> 6;
    pdl_launch();
    pdl_wait();
    const int parts = split_of(p.pos[r]).parts;
    const size_t base = ((size_t)r * p.n_q + head) * MAX_SPLITS;
    if (threadIdx.x < 32) {
        enum { EACH = (MAX_SPLITS + 31) / 32 };
        float2 ms[EACH];
        float top = -INFINITY, sum = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = threadIdx.x + 32 * j;
            ms[j] = i < parts ? *(const float2 *)(p.part_ms + (base + i) * 2) : make_float2(-INFINITY, 0);
            top = fmaxf(top, ms[j].x);
        }
        top = warp_max(top);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = threadIdx.x + 32 * j;
            const float f = __expf(ms[j].x - top);
            if (i < parts) factor[i] = f;
            sum += f * ms[j].y;
        }
        sum = warp_sum(sum);
        if (threadIdx.x == 0) total = sum;
    }
    __syncthreads();
    float o = 0;
#pragma unroll 4
    for (int i = group; i < parts; i += 4) o = fmaf(factor[i], p.part[(base + i) * HEAD_DIM + d], o);
    acc[group][threadIdx.x & 63] = o;
    __syncthreads();
    if (group) return;
    o = ((acc[0][threadIdx.x] + acc[1][threadIdx.x]) + (acc[2][threadIdx.x] + acc[3][threadIdx.x])) / total;
    p.o[(size_t)r * p.ld_o + head * HEAD_DIM + d] = o * p.u[(size_t)r * p.ld_u + head * 512 + HEAD_DIM + d];
}

/* fp32 pages; block: one query head of one row. */
__global__ void __launch_bounds__(CTA) k_attn_f32(const __grid_constant__ attn_params p)
{
    const int head = blockIdx.x, r = blockIdx.y, kv = head / (p.n_q / p.n_kv);
    const float *u = p.u + (size_t)r * p.ld_u + (size_t)head * 512;
    pdl_launch();
    pdl_wait();
    const pages_f32 at = {p.region, p.page_bytes, p.layer_at + (size_t)kv * 2 * p.head_bytes, p.head_bytes};
    const float x = attention_f32(at, p.ps->seq[p.seq_of[r]].pages, u, p.pos[r]);
    p.o[(size_t)r * p.ld_o + head * HEAD_DIM + threadIdx.x] = x * u[HEAD_DIM + threadIdx.x];
}

static attn_params attn_of(struct cuda_backend *c, int index)
{
    const struct model_shape *s = &c->base.shape;
    struct workspace *ws = &c->ws;
    attn_params p = {};
    p.ps = ws->pass;
    p.pos = ws->pos;
    p.seq_of = ws->seq_of;
    p.region = c->states.region;
    p.page_bytes = c->states.page_bytes;
    p.head_bytes = c->states.head_bytes;
    p.layer_at = (size_t)index * s->n_kv_heads * 2 * c->states.head_bytes;
    p.n_q = s->n_q_heads;
    p.n_kv = s->n_kv_heads;
    p.ld_u = ws->ld_u;
    p.u = ws->u;
    p.rotary = ws->rotary;
    p.q_norm = c->attn->q_norm->data;
    p.k_norm = c->attn->k_norm->data;
    p.eps = s->rms_eps;
    p.part = ws->part;
    p.part_ms = ws->part_ms;
    p.o = ws->mix;
    p.ld_o = ws->pad_mix;
    return p;
}

void decode_attn_append(struct cuda_backend *c, int index)
{
    attn_params p = attn_of(c, index);
    launch(c, k_append, dim3((unsigned)(p.n_q + 2 * p.n_kv + WARPS - 1) / WARPS, (unsigned)c->batch->n_rows), CTA, 0, p);
}

void decode_attn_mix(struct cuda_backend *c, int index)
{
    unsigned rows = (unsigned)c->batch->n_rows;
    attn_params p = attn_of(c, index);
    if (!c->states.kv_bf16) {
        launch(c, k_attn_f32, dim3((unsigned)p.n_q, rows), CTA, 0, p);
        return;
    }
    launch(c, k_attn_part, dim3(MAX_SPLITS, (unsigned)p.n_kv, rows), CTA, (size_t)HALVES * KV_HEAD, p);
    launch(c, k_attn_join, dim3((unsigned)p.n_q * 4, rows), CTA, 0, p);
}
