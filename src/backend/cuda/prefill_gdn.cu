/*
 * Prefill of a gated-delta layer between its projections: convolution, gates, the delta rule by chunks of 64 tokens on tensor
 * cores, gated norm. One sequence at a time.
 *
 * With G the sums of ln g inside a chunk and S the state before it, T = (I + strictly lower(beta k k' e^(Gi-Gj)))^-1 and
 * P = lower(q k' e^(Gi-Gj)) are made for all chunks at once (k_gdn_prepare); then a warp walks over the chunks with 16 rows of
 * the state in registers (k_gdn_scan): R = beta (v - e^G k S'), D = T R, o = e^G q S' + P D, S = e^G63 S + (e^(G63-G) D)' k.
 * Rows behind a sequence's end count as k = 0, beta = 0, g = 1. A row's numbers depend on none behind it, T and P being lower
 * triangular. Operands are fp16, R, D and P in two parts; sums, v and the state are fp32.
 */
#include "backend/cuda/device.cuh"
#include "backend/cuda/half.cuh"
#include "backend/cuda/prefill.cuh"

enum {
    CHUNK = GRID,
    KEY_TILE = CHUNK * GDN_DIM * 2,      /* q or k of a chunk and head: rows of 256 bytes, 16-byte pieces at piece ^ (row & 7) */
    SLICE = 32, SLICES = GDN_DIM / SLICE, /* value columns of a block */
    V_TILE = CHUNK * SLICE * 4,          /* v of a chunk and slice, fp32: column c at c ^ (row / 2 % 4 * 8) */
    T_TILE = CHUNK * CHUNK * 2,          /* T or P: rows of 128 bytes, pieces at piece ^ (row & 7) */
};

/* What a chunk has for each value head beside v. */
struct gdn_record {
    uint8_t t[T_TILE], p[T_TILE], p_rest[T_TILE];
    float beta[CHUNK], beta_g[CHUNK], g[CHUNK], to_end[CHUNK]; /* beta, beta e^G, e^G, e^(G63-G) */
};

struct gdn_params {
    const pass *ps;
    int which, n_rows;     /* which sequence */
    size_t conv_at, state_at;
    const float *qkv, *z;
    int ld_qkv, ld_heads, conv_dim, k_heads, v_heads, ld_mixed;
    const float *w, *out_norm, *a_log, *dt_bias;
    float *ba, *o;         /* (rows, value dim) */
    uint8_t *chunks;
    size_t chunk_bytes;
    u16 *mixed, *rest;
    float eps;
};

DI uint8_t *key_tile(const gdn_params &p, int chunk, int head, int is_key)
{
    return p.chunks + (size_t)chunk * p.chunk_bytes + (size_t)(2 * head + is_key) * KEY_TILE;
}

DI uint8_t *value_tile(const gdn_params &p, int chunk, int head, int slice)
{
    return key_tile(p, chunk, p.k_heads, 0) + (size_t)(head * SLICES + slice) * V_TILE;
}

DI gdn_record *record_of(const gdn_params &p, int chunk, int head)
{
    return (gdn_record *)value_tile(p, chunk, p.v_heads, 0) + head;
}

size_t prefill_gdn_chunk_bytes(const struct model_shape *s)
{
    return (size_t)s->n_gdn_k_heads * 2 * KEY_TILE + (size_t)s->n_gdn_v_heads * (SLICES * V_TILE + sizeof(gdn_record));
}

DI u32 key_at(int row, int piece) { return (u32)(row * 256 + ((piece ^ (row & 7)) << 4)); }
DI u32 lower_at(int row, int piece) { return (u32)(row * 128 + ((piece ^ (row & 7)) << 4)); }
DI int value_at(int row, int col) { return row * SLICE + (col ^ ((row >> 1 & 3) << 3)); }

/* ---- convolution, gates ---- */

/* Four channels of an input row t of the piece; before its first, of the kept history. */
DI float4 conv_row(const gdn_params &p, const seq_view &s, int t, int ch)
{
    if (t >= 0) return *(const float4 *)(p.qkv + (size_t)(s.first + t) * p.ld_qkv + ch);
    return *(const float4 *)(s.conv + p.conv_at + (size_t)(t + 3) * p.conv_dim + ch);
}

DI float conv_one(const float4 &w, float a, float b, float c, float d)
{
    return siluf(fmaf(w.w, d, fmaf(w.z, c, fmaf(w.y, b, w.x * a))));
}

DI float dot4(const float4 &a, const float4 &b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x)));
}

/* Length 1, times f. */
DI uint2 unit_of(const float4 &v, float f)
{
    const float s = rsqrtf(warp_sum(dot4(v, v)) + 1e-6f) * f;
    return make_uint2(pack_h(v.x * s, v.y * s), pack_h(v.z * s, v.w * s));
}

enum { CONV_ROWS = 8 };

/* Block: 8 rows; a warp one query, key or value head, four channels a lane. Rows behind the end are zero. */
__global__ void __launch_bounds__(CTA) k_gdn_conv(const __grid_constant__ gdn_params p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.x * WARPS + warp, ch = head * GDN_DIM + 4 * lane, first = blockIdx.y * CONV_ROWS;
    pdl_launch();
    pdl_wait();
    const seq_view &s = p.ps->seq[p.which];
    if (head >= 2 * p.k_heads + p.v_heads) return;
    float4 w[4], x[CONV_ROWS + 3];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = *(const float4 *)(p.w + (size_t)(ch + i) * 4);
#pragma unroll
    for (int i = 0; i < CONV_ROWS + 3; i++) x[i] = first + i - 3 < s.n ? conv_row(p, s, first + i - 3, ch) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < CONV_ROWS; i++) {
        const int chunk = (first + i) / CHUNK, row = (first + i) % CHUNK;
        const bool in = first + i < s.n;
        const float4 y = make_float4(conv_one(w[0], x[i].x, x[i + 1].x, x[i + 2].x, x[i + 3].x), conv_one(w[1], x[i].y, x[i + 1].y, x[i + 2].y, x[i + 3].y),
                                     conv_one(w[2], x[i].z, x[i + 1].z, x[i + 2].z, x[i + 3].z), conv_one(w[3], x[i].w, x[i + 1].w, x[i + 2].w, x[i + 3].w));
        if (head < 2 * p.k_heads) {
            const bool key = head >= p.k_heads;
            const uint2 v = unit_of(y, key ? 1.0f : 0.08838834764831845f); /* queries: 1 / sqrt(128) */
            *(uint2 *)(key_tile(p, chunk, key ? head - p.k_heads : head, key) + key_at(row, lane >> 1) + (lane & 1) * 8) = in ? v : make_uint2(0, 0);
        } else {
            float *to = (float *)value_tile(p, chunk, head - 2 * p.k_heads, lane >> 3) + value_at(row, 4 * (lane & 7));
            *(float4 *)to = in ? y : make_float4(0, 0, 0, 0);
        }
    }
}

/* Beta and ln g of every row, in place. */
__global__ void k_gdn_gates(const __grid_constant__ gdn_params p)
{
    pdl_launch();
    pdl_wait();
    const int i = blockIdx.x * CTA + threadIdx.x, r = i / p.v_heads, h = i % p.v_heads;
    if (r >= p.n_rows) return;
    float *b = p.ba + (size_t)r * 2 * p.ld_heads + h, *a = b + p.ld_heads;
    const float x = *a + p.dt_bias[h], softplus = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    *b = sigmoidf(*b);
    *a = -expf(p.a_log[h]) * softplus;
}

/* The three inputs of four channels before row n of the piece. */
DI void keep_inputs(const gdn_params &p, const seq_view &s, int n, float *to, int ch)
{
    float4 v[3];
    for (int j = 0; j < 3; j++) v[j] = conv_row(p, s, n - 3 + j, ch);
    for (int j = 0; j < 3; j++) *(float4 *)(to + p.conv_at + (size_t)j * p.conv_dim + ch) = v[j];
}

/* What the next piece needs: the last three inputs of every channel. Runs after k_gdn_conv. */
__global__ void k_conv_keep(const __grid_constant__ gdn_params p)
{
    pdl_launch();
    pdl_wait();
    const int ch = 4 * (blockIdx.x * CTA + threadIdx.x);
    const seq_view &s = p.ps->seq[p.which];
    if (ch >= p.conv_dim) return;
    if (s.keep) keep_inputs(p, s, s.keep_rows, s.keep_conv, ch);
    keep_inputs(p, s, s.n, s.conv, ch);
}

/* ---- chunks, all at once ---- */

enum { PREP = 128, A_LD = CHUNK + 4 };

struct prep_smem {
    uint8_t q[KEY_TILE], k[KEY_TILE];
    float a[2][CHUNK][A_LD], g[2][CHUNK], beta[2][CHUNK]; /* two heads at a time; g: sums of ln g */
};

/* Products of 16 rows (of x) with the keys of columns up to theirs, at lane's places. */
DI void key_products(float (&d)[8][4], u32 x, u32 k, int warp, int lane)
{
#pragma unroll
    for (int ks = 0; ks < GDN_DIM / 16; ks++) {
        u32 a[4], b[4];
        ldsm4(a, x + key_at(warp * 16 + (lane & 15), 2 * ks + (lane >> 4)));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (j > warp) break;
            ldsm4(b, k + key_at(j * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * ks + ((lane >> 3) & 1)));
            mma16_h(d[2 * j], a[0], a[1], a[2], a[3], b[0], b[1]);
            mma16_h(d[2 * j + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
    }
}

/* A warp: sums of ln g of a head's rows, and what of them the scan needs. */
DI void sum_gates(const gdn_params &p, const seq_view &s, float *g, float *beta, gdn_record *to, int chunk, int head, int lane)
{
    float l[2], b[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = chunk * CHUNK + 2 * lane + i;
        const float *at = p.ba + (size_t)(s.first + t) * 2 * p.ld_heads + head;
        b[i] = t < s.n ? at[0] : 0.0f;
        l[i] = t < s.n ? at[p.ld_heads] : 0.0f;
    }
    float sum = l[0] + l[1];
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const float before = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += before;
    }
    const float end = __shfl_sync(~0u, sum, 31), before = __shfl_up_sync(~0u, sum, 1);
    l[0] += lane ? before : 0.0f;
    l[1] = sum;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = 2 * lane + i;
        const float e = expf(l[i]);
        g[t] = l[i];
        beta[t] = b[i];
        to->beta[t] = b[i];
        to->beta_g[t] = b[i] * e;
        to->g[t] = e;
        to->to_end[t] = expf(end - l[i]);
    }
}

/* From the products of a warp's rows: what T is the inverse of (less I), and P. */
DI void put_products(const float (&kk)[8][4], const float (&qk)[8][4], const float *g, const float *beta, float (*a)[A_LD], gdn_record *to, int warp, int lane)
{
    const int t = lane & 3;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = warp * 16 + (lane >> 2) + 8 * h, col = 8 * j + 2 * t;
            float v[2], w[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float decay = expf(fminf(g[row] - g[col + e], 0.0f));
                v[e] = col + e < row ? beta[row] * decay * kk[j][2 * h + e] : 0.0f;
                w[e] = col + e <= row ? decay * qk[j][2 * h + e] : 0.0f;
            }
            *(float2 *)&a[row][col] = make_float2(v[0], v[1]);
            const u32 at = lower_at(row, j) + 4 * t, high = pack_h(w[0], w[1]);
            *(u32 *)(to->p + at) = high;
            *(u32 *)(to->p_rest + at) = pack_rest(w[0], w[1], high);
        }
}

/* One column of (I + A)^-1 a thread, by forward substitution in four sums. */
DI void invert(const float (*a)[A_LD], uint8_t *to, int col)
{
    float x[CHUNK];
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        float s[4] = {i == col ? 1.0f : 0.0f, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < i; j += 4) {
            const float4 v = *(const float4 *)&a[i][j]; /* zero from column i on */
            s[0] = fmaf(-v.x, x[j], s[0]);
            if (j + 1 < i) s[1] = fmaf(-v.y, x[j + 1], s[1]);
            if (j + 2 < i) s[2] = fmaf(-v.z, x[j + 2], s[2]);
            if (j + 3 < i) s[3] = fmaf(-v.w, x[j + 3], s[3]);
        }
        x[i] = (s[0] + s[1]) + (s[2] + s[3]);
        *(u16 *)(to + lower_at(i, col >> 3) + 2 * (col & 7)) = f_h(x[i]);
    }
}

/* Block: a chunk and a key head, with its value heads two at a time. */
__global__ void __launch_bounds__(PREP) k_gdn_prepare(const __grid_constant__ gdn_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    prep_smem *m = (prep_smem *)sm;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, chunk = blockIdx.x, key_head = blockIdx.y, heads = p.v_heads / p.k_heads;
    pdl_launch();
    pdl_wait();
    const seq_view &s = p.ps->seq[p.which];
    for (int i = threadIdx.x; i < 2 * KEY_TILE / 16; i += PREP) cp16(smem_addr(sm + i * 16), key_tile(p, chunk, key_head, 0) + i * 16, 16);
    cp_commit();
    cp_wait<0>();
    __syncthreads();
    float kk[8][4] = {}, qk[8][4] = {};
    key_products(kk, smem_addr(m->k), smem_addr(m->k), warp, lane);
    key_products(qk, smem_addr(m->q), smem_addr(m->k), warp, lane);
    for (int first = 0; first < heads; first += 2) {
        const int n = heads - first < 2 ? 1 : 2, head = key_head * heads + first, mine = warp >> 1;
        if (warp < n) sum_gates(p, s, m->g[warp], m->beta[warp], record_of(p, chunk, head + warp), chunk, head + warp, lane);
        __syncthreads();
        for (int i = 0; i < n; i++) put_products(kk, qk, m->g[i], m->beta[i], m->a[i], record_of(p, chunk, head + i), warp, lane);
        __syncthreads();
        if (mine < n) invert(m->a[mine], record_of(p, chunk, head + mine)->t, threadIdx.x & (CHUNK - 1));
        __syncthreads();
    }
}

/* ---- chunk after chunk ---- */

enum { SCAN = 32 * SLICE / 16, SCAN_STAGES = 3 };

struct scan_stage {
    uint8_t q[KEY_TILE], k[KEY_TILE], v[V_TILE];
    gdn_record r;
};

DI void scan_request(const gdn_params &p, scan_stage *to, u32 bar, int chunk, int head, int slice)
{
    const int key_head = head / (p.v_heads / p.k_heads);
    bar_expect(bar, sizeof(scan_stage));
    bulk_load(smem_addr(to->q), key_tile(p, chunk, key_head, 0), 2 * KEY_TILE, bar);
    bulk_load(smem_addr(to->v), value_tile(p, chunk, head, slice), V_TILE, bar);
    bulk_load(smem_addr(&to->r), record_of(p, chunk, head), sizeof(gdn_record), bar);
    bulk_sent(bar);
}

/* Accumulators as the A operands of the next product. */
template <int N> DI void as_operand(u32 (&a)[N / 2][4], const float (&d)[N][4])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        a[i][0] = pack_h(d[2 * i][0], d[2 * i][1]);
        a[i][1] = pack_h(d[2 * i][2], d[2 * i][3]);
        a[i][2] = pack_h(d[2 * i + 1][0], d[2 * i + 1][1]);
        a[i][3] = pack_h(d[2 * i + 1][2], d[2 * i + 1][3]);
    }
}

/* What fp16 left of them. */
template <int N> DI void as_rest(u32 (&a)[N / 2][4], const float (&d)[N][4], const u32 (&high)[N / 2][4])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        a[i][0] = pack_rest(d[2 * i][0], d[2 * i][1], high[i][0]);
        a[i][1] = pack_rest(d[2 * i][2], d[2 * i][3], high[i][1]);
        a[i][2] = pack_rest(d[2 * i + 1][0], d[2 * i + 1][1], high[i][2]);
        a[i][3] = pack_rest(d[2 * i + 1][2], d[2 * i + 1][3], high[i][3]);
    }
}

/* d (state rows, tokens) += state times the rows of a key tile. */
DI void times_keys(float (&d)[8][4], const u32 (&state)[8][4], u32 tile, int lane)
{
#pragma unroll
    for (int ks = 0; ks < GDN_DIM / 16; ks++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 b[4];
            ldsm4(b, tile + key_at(j * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * ks + ((lane >> 3) & 1)));
            mma16_h(d[2 * j], state[ks][0], state[ks][1], state[ks][2], state[ks][3], b[0], b[1]);
            mma16_h(d[2 * j + 1], state[ks][0], state[ks][1], state[ks][2], state[ks][3], b[2], b[3]);
        }
}

/* d (state rows, tokens) += x times the rows of a lower triangular tile. */
DI void times_lower(float (&d)[8][4], const u32 (&x)[4][4], u32 tile, int lane)
{
#pragma unroll
    for (int ks = 0; ks < 4; ks++)
#pragma unroll
        for (int j = ks; j < 4; j++) {
            u32 b[4];
            ldsm4(b, tile + lower_at(j * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * ks + ((lane >> 3) & 1)));
            mma16_h(d[2 * j], x[ks][0], x[ks][1], x[ks][2], x[ks][3], b[0], b[1]);
            mma16_h(d[2 * j + 1], x[ks][0], x[ks][1], x[ks][2], x[ks][3], b[2], b[3]);
        }
}

/* state += x (state rows, tokens) times the keys. */
DI void add_keys(float (&state)[16][4], const u32 (&x)[4][4], u32 tile, int lane)
{
#pragma unroll
    for (int ks = 0; ks < 4; ks++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 b[4];
            ldsm4t(b, tile + key_at(ks * 16 + (lane & 15), 2 * j + (lane >> 4)));
            mma16_h(state[2 * j], x[ks][0], x[ks][1], x[ks][2], x[ks][3], b[0], b[1]);
            mma16_h(state[2 * j + 1], x[ks][0], x[ks][1], x[ks][2], x[ks][3], b[2], b[3]);
        }
}

/* One chunk: S goes on, o has the outputs (state rows, tokens). col: of the slice, the lane's first state row. */
DI void scan_chunk(float (&S)[16][4], float (&o)[8][4], const scan_stage *st, int col, int lane)
{
    const gdn_record *r = &st->r;
    const int t = 2 * (lane & 3);
    float d[8][4] = {};
    u32 x[4][4], rest[4][4];
    {
        u32 state[8][4];
        as_operand(state, S);
        times_keys(d, state, smem_addr(st->k), lane);
        times_keys(o, state, smem_addr(st->q), lane);
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int token = 8 * j + t + (e & 1);
            const float v = ((const float *)st->v)[value_at(token, col + 8 * (e >> 1))];
            d[j][e] = fmaf(-r->beta_g[token], d[j][e], r->beta[token] * v);
            o[j][e] *= r->g[token];
        }
    as_operand(x, d);
    as_rest(rest, d, x);
#pragma unroll
    for (int j = 0; j < 8; j++) d[j][0] = d[j][1] = d[j][2] = d[j][3] = 0.0f;
    times_lower(d, x, smem_addr(r->t), lane);
    times_lower(d, rest, smem_addr(r->t), lane);
    as_operand(x, d);
    as_rest(rest, d, x);
    times_lower(o, x, smem_addr(r->p), lane);
    times_lower(o, rest, smem_addr(r->p), lane);
    times_lower(o, x, smem_addr(r->p_rest), lane);
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) d[j][e] *= r->to_end[8 * j + t + (e & 1)];
    as_operand(x, d);
    const float all = r->g[CHUNK - 1];
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) S[j][e] *= all;
    add_keys(S, x, smem_addr(st->k), lane);
}

DI void put_state(float *to, const float (&S)[16][4])
{
#pragma unroll
    for (int j = 0; j < 16; j++) {
        *(float2 *)(to + 8 * j) = make_float2(S[j][0], S[j][1]);
        *(float2 *)(to + 8 * GDN_DIM + 8 * j) = make_float2(S[j][2], S[j][3]);
    }
}

/* Block: 32 value columns of one head, 16 a warp. */
__global__ void __launch_bounds__(SCAN) k_gdn_scan(const __grid_constant__ gdn_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    __shared__ __align__(8) u64 bar[SCAN_STAGES];
    scan_stage *stage = (scan_stage *)sm;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.x / SLICES, slice = blockIdx.x % SLICES;
    const int g = lane >> 2, t = 2 * (lane & 3), col = warp * 16 + g;
    const u32 bars = smem_addr(bar);
    pdl_launch();
    pdl_wait();
    const seq_view &s = p.ps->seq[p.which];
    const int chunks = (s.n + CHUNK - 1) / CHUNK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < SCAN_STAGES; i++) bar_init(bars + 8 * i, 1);
        bar_init_done();
        bulk_fence(); /* the chunks were stored by threads */
        for (int i = 0; i < SCAN_STAGES && i < chunks; i++) scan_request(p, &stage[i], bars + 8 * i, i, head, slice);
    }
    const size_t at = p.state_at + ((size_t)head * GDN_DIM + slice * SLICE + col) * GDN_DIM + t;
    float *state = s.recurrent + at, S[16][4];
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const float2 a = *(const float2 *)(state + 8 * j), b = *(const float2 *)(state + 8 * GDN_DIM + 8 * j);
        S[j][0] = a.x, S[j][1] = a.y, S[j][2] = b.x, S[j][3] = b.y;
    }
    __syncthreads();
    const int ld = p.v_heads * GDN_DIM;
    float *out = p.o + (size_t)s.first * ld + head * GDN_DIM + slice * SLICE + col;
    u32 phase = 0;
    for (int chunk = 0, b = 0; chunk < chunks; chunk++) {
        float o[8][4] = {};
        bar_wait(bars + 8 * b, phase);
        scan_chunk(S, o, &stage[b], col, lane);
        __syncthreads();
        if (threadIdx.x == 0 && chunk + SCAN_STAGES < chunks) scan_request(p, &stage[b], bars + 8 * b, chunk + SCAN_STAGES, head, slice);
        if (++b == SCAN_STAGES) b = 0, phase ^= 1;
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = chunk * CHUNK + 8 * j + t + (e & 1);
                if (row < s.n) out[(size_t)row * ld + 8 * (e >> 1)] = o[j][e];
            }
        if (s.keep && (chunk + 1) * CHUNK == s.keep_rows) put_state(s.keep + at, S);
    }
    put_state(state, S);
}

/* ---- gated norm ---- */

/* A warp a head of a row, four numbers a lane, whose places in the units' order are two pairs. */
__global__ void __launch_bounds__(CTA) k_gdn_norm(const __grid_constant__ gdn_params p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = blockIdx.y, head = blockIdx.x * WARPS + warp;
    pdl_launch();
    pdl_wait();
    if (head >= p.v_heads) return;
    const int k = head * GDN_DIM + 4 * lane;
    const size_t from = (size_t)r * p.v_heads * GDN_DIM + k;
    const float4 o = *(const float4 *)(p.o + from), z = *(const float4 *)(p.z + from), w = *(const float4 *)(p.out_norm + 4 * lane);
    const float f = rsqrtf(warp_sum(dot4(o, o)) / GDN_DIM + p.eps);
    const float y[4] = {o.x * f * w.x * siluf(z.x), o.y * f * w.y * siluf(z.y), o.z * f * w.z * siluf(z.z), o.w * f * w.w * siluf(z.w)};
    put_four(p.mixed, p.rest, (size_t)r * p.ld_mixed + perm_of(k), y);
}

void prefill_gdn_mix(struct cuda_backend *c, const struct gdn_weights *w, int index)
{
    struct workspace *ws = &c->ws;
    const struct model_shape *s = &c->base.shape;
    int conv = shape_conv_dim(s), heads = s->n_gdn_v_heads, rows = c->batch->n_rows;
    gdn_params p = {ws->pass, 0, rows, (size_t)index * CONV_HISTORY * conv, (size_t)index * heads * GDN_DIM * GDN_DIM, ws->qkv, ws->z, ws->ld_qkv, ws->ld_heads,
                    conv, s->n_gdn_k_heads, heads, ws->pad_mix, w->conv->data, w->out_norm->data, w->a_log->data, w->dt_bias->data, ws->ba, ws->gdn_o,
                    ws->chunks, prefill_gdn_chunk_bytes(s), ws->mixed, ws->mixed_rest, s->rms_eps};
    launch(c, k_gdn_gates, dim3((unsigned)(rows * heads + CTA - 1) / CTA), CTA, 0, p);
    for (p.which = 0; p.which < c->batch->n_seqs; p.which++) {
        unsigned chunks = (unsigned)(c->batch->seqs[p.which].n + CHUNK - 1) / CHUNK;
        launch(c, k_gdn_conv, dim3((unsigned)(2 * s->n_gdn_k_heads + heads + WARPS - 1) / WARPS, chunks * (CHUNK / CONV_ROWS)), CTA, 0, p);
        launch(c, k_conv_keep, dim3((unsigned)(conv / 4 + CTA - 1) / CTA), CTA, 0, p);
        launch(c, k_gdn_prepare, dim3(chunks, (unsigned)s->n_gdn_k_heads), PREP, sizeof(prep_smem), p);
        launch(c, k_gdn_scan, dim3((unsigned)(heads * SLICES)), SCAN, SCAN_STAGES * sizeof(scan_stage), p);
    }
    launch(c, k_gdn_norm, dim3((unsigned)(heads + WARPS - 1) / WARPS, (unsigned)rows), CTA, 0, p);
}
