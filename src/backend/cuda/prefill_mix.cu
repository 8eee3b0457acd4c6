/* Prefill kernels that mix tokens: convolution, the gated delta rule, attention. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kv.cuh"

/* ---- convolution, gates ---- */

struct conv_params {
    const pass *ps;
    const int32_t *seq_of;
    size_t conv_at, state_at;
    const u16 *qkv, *z;
    int ld_qkv, ld_heads, conv_dim, k_heads, v_heads, ld_mixed;
    const float *w, *out_norm, *a_log, *dt_bias;
    float *conv, *ba;
    int n_rows;
    u16 *mixed;
    float eps;
};

/* The input of a channel t rows from the sequence's first row of this pass; before it, the kept history. */
DI float conv_input(const conv_params &p, const seq_view &s, int t, int ch)
{
    if (t >= 0) return bf_f(p.qkv[(size_t)(s.first + t) * p.ld_qkv + ch]);
    return s.conv[p.conv_at + (size_t)(t + 3) * p.conv_dim + ch];
}

/* Four channels of one input row. */
DI float4 conv_row(const conv_params &p, const seq_view &s, int t, int ch)
{
    if (t >= 0) {
        const uint2 v = *(const uint2 *)(p.qkv + (size_t)(s.first + t) * p.ld_qkv + ch);
        return make_float4(bf_lo(v.x), bf_hi(v.x), bf_lo(v.y), bf_hi(v.y));
    }
    return *(const float4 *)(s.conv + p.conv_at + (size_t)(t + 3) * p.conv_dim + ch);
}

DI float conv_one(const float4 &w, float a, float b, float c, float d)
{
    return siluf(fmaf(w.w, d, fmaf(w.z, c, fmaf(w.y, b, w.x * a))));
}

/* Convolution of four channels over the last inputs x[0 … 3]. */
DI float4 conv_four(const float4 (&w)[4], const float4 (&x)[4])
{
    return make_float4(conv_one(w[0], x[0].x, x[1].x, x[2].x, x[3].x), conv_one(w[1], x[0].y, x[1].y, x[2].y, x[3].y),
                       conv_one(w[2], x[0].z, x[1].z, x[2].z, x[3].z), conv_one(w[3], x[0].w, x[1].w, x[2].w, x[3].w));
}

DI float dot4(const float4 &a, const float4 &b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x)));
}

DI float4 scale4(const float4 &a, float f)
{
    return make_float4(a.x * f, a.y * f, a.z * f, a.w * f);
}

enum { CONV_ROWS = 8 };

/* Block: 8 rows of one sequence; a warp the query and key of one head, or one value head. Queries and keys get length 1,
 * queries the scale 1/sqrt(128), too. */
__global__ void __launch_bounds__(CTA) k_conv(const __grid_constant__ conv_params p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, job = blockIdx.x * WARPS + warp;
    pdl_launch();
    pdl_wait();
    const seq_view &s = p.ps->seq[blockIdx.z];
    const int lo = blockIdx.y * CONV_ROWS, hi = lo + CONV_ROWS < s.n ? lo + CONV_ROWS : s.n;
    if (job >= p.k_heads + p.v_heads) return;
    const bool qk = job < p.k_heads;
    const int ch = (qk ? job : p.k_heads + job) * GDN_DIM + 4 * lane, ch2 = ch + p.k_heads * GDN_DIM;
    float4 w[4], w2[4], x[4], x2[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[i] = *(const float4 *)(p.w + (size_t)(ch + i) * 4);
        if (qk) w2[i] = *(const float4 *)(p.w + (size_t)(ch2 + i) * 4);
    }
#pragma unroll
    for (int i = 0; i < 3; i++) {
        x[i + 1] = conv_row(p, s, lo - 3 + i, ch);
        if (qk) x2[i + 1] = conv_row(p, s, lo - 3 + i, ch2);
    }
    for (int t = lo; t < hi; t++) {
        float *out = p.conv + (size_t)(s.first + t) * p.conv_dim;
        x[0] = x[1], x[1] = x[2], x[2] = x[3], x[3] = conv_row(p, s, t, ch);
        float4 y = conv_four(w, x);
        if (qk) {
            x2[0] = x2[1], x2[1] = x2[2], x2[2] = x2[3], x2[3] = conv_row(p, s, t, ch2);
            float4 k = conv_four(w2, x2);
            const float fq = rsqrtf(warp_sum(dot4(y, y)) + 1e-6f) * 0.08838834764831845f, fk = rsqrtf(warp_sum(dot4(k, k)) + 1e-6f);
            y = scale4(y, fq);
            k = scale4(k, fk);
            *(float4 *)(out + ch2) = k;
        }
        *(float4 *)(out + ch) = y;
    }
}

/* Beta and decay of every row, in place. */
__global__ void k_gates(const __grid_constant__ conv_params p)
{
    pdl_launch();
    pdl_wait();
    const int i = blockIdx.x * CTA + threadIdx.x, r = i / p.v_heads, h = i % p.v_heads;
    if (r >= p.n_rows) return;
    float *b = p.ba + (size_t)r * 2 * p.ld_heads + h, *a = b + p.ld_heads;
    const float x = *a + p.dt_bias[h], softplus = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    *b = sigmoidf(*b);
    *a = expf(-expf(p.a_log[h]) * softplus);
}

/* What the next piece needs: the last three inputs of every channel. Runs after k_conv. */
__global__ void k_conv_keep(const __grid_constant__ conv_params p)
{
    pdl_launch();
    pdl_wait();
    const int ch = blockIdx.x * CTA + threadIdx.x;
    const seq_view &s = p.ps->seq[blockIdx.y];
    if (ch >= p.conv_dim) return;
    float v[3];
    for (int j = 0; j < 3; j++) v[j] = conv_input(p, s, s.n - 3 + j, ch);
    for (int j = 0; j < 3; j++) s.conv[p.conv_at + (size_t)j * p.conv_dim + ch] = v[j];
}

/* ---- gated delta rule ---- */

/*
 * Four tokens at a time: with S the state before them, S k_j and S q_j of all four are taken at once, the recurrence runs on
 * those numbers and on the products of the four keys and queries, and S is brought up to date once:
 * S_j = G_j S + sum of c_i k_i, i <= j. A token's numbers depend on none behind it. Blocks lie on the grid.
 */
enum { GDN_CHUNK = 16, GDN_COLS = 16, GDN_PARTS = GDN_DIM / GDN_COLS, GDN_THREADS = 4 * GDN_COLS, GDN_BLOCK = 4, GDN_PAIRS = 16, GDN_STAGES = 4 };

struct gdn_stage {
    float q[GDN_CHUNK][GDN_DIM], k[GDN_CHUNK][GDN_DIM], v[GDN_CHUNK][GDN_COLS], beta[GDN_CHUNK], g[GDN_CHUNK];
};

/* Products of a block: kk[i][j] = k_i k_j for i < j at 4i+j; kq[i][j] = k_i q_j for i <= j at 4i+j. */
struct gdn_pairs {
    float kk[GDN_CHUNK / GDN_BLOCK][GDN_PAIRS], kq[GDN_CHUNK / GDN_BLOCK][GDN_PAIRS];
};

/* n rows from `row`; rows up to the next block count as zero. */
DI void gdn_request(const conv_params &p, gdn_stage *to, int row, int n, int head, int part)
{
    const int key_head = head / (p.v_heads / p.k_heads), quads = GDN_DIM / 4, rows = (n + GDN_BLOCK - 1) & ~(GDN_BLOCK - 1);
    for (int i = threadIdx.x; i < rows * quads; i += GDN_THREADS) {
        const int t = i / quads, at = i % quads * 4, bytes = t < n ? 16 : 0;
        const float *x = p.conv + (size_t)(row + (t < n ? t : 0)) * p.conv_dim + at;
        cp16(smem_addr(&to->q[t][at]), x + key_head * GDN_DIM, bytes);
        cp16(smem_addr(&to->k[t][at]), x + (p.k_heads + key_head) * GDN_DIM, bytes);
    }
    for (int i = threadIdx.x; i < rows * (GDN_COLS / 4); i += GDN_THREADS) {
        const int t = i / (GDN_COLS / 4), at = i % (GDN_COLS / 4) * 4;
        cp16(smem_addr(&to->v[t][at]), p.conv + (size_t)(row + (t < n ? t : 0)) * p.conv_dim + (2 * p.k_heads + head) * GDN_DIM + part * GDN_COLS + at,
             t < n ? 16 : 0);
    }
    if ((int)threadIdx.x < rows) {
        const bool in = (int)threadIdx.x < n;
        const float *b = p.ba + (size_t)(row + (in ? threadIdx.x : 0)) * 2 * p.ld_heads + head;
        if (in) {
            cp4(smem_addr(&to->beta[threadIdx.x]), b);
            cp4(smem_addr(&to->g[threadIdx.x]), b + p.ld_heads);
        } else {
            to->beta[threadIdx.x] = 0.0f;
            to->g[threadIdx.x] = 1.0f;
        }
    }
    cp_commit();
}

/* Requests the chunk that begins `at` rows into the sequence, if there is one. */
DI void gdn_ahead(const conv_params &p, gdn_stage *stage, int at, const seq_view &s, int head, int part)
{
    const int left = s.n - at;
    if (left > 0) gdn_request(p, &stage[at / GDN_CHUNK % GDN_STAGES], s.first + at, left < GDN_CHUNK ? left : GDN_CHUNK, head, part);
    else cp_commit();
}

/* The products of the chunk's blocks; a warp a block at a time, four numbers of a row a lane. */
DI void gdn_multiply(const gdn_stage *st, gdn_pairs *out, int n, int warp, int lane)
{
    for (int at = warp; at * GDN_BLOCK < n; at += GDN_THREADS / 32) {
        float4 k[GDN_BLOCK], q[GDN_BLOCK];
#pragma unroll
        for (int j = 0; j < GDN_BLOCK; j++) {
            k[j] = *(const float4 *)&st->k[at * GDN_BLOCK + j][4 * lane];
            q[j] = *(const float4 *)&st->q[at * GDN_BLOCK + j][4 * lane];
        }
#pragma unroll
        for (int i = 0; i < GDN_BLOCK; i++)
#pragma unroll
            for (int j = i; j < GDN_BLOCK; j++) {
                const float kq = warp_sum(dot4(k[i], q[j])), kk = j > i ? warp_sum(dot4(k[i], k[j])) : 0.0f;
                if (lane == 0) out->kq[at][4 * i + j] = kq, out->kk[at][4 * i + j] = kk;
            }
    }
}

/* The state of two columns (eight lanes share them, 16 rows each) over one block; outputs of both columns. */
DI void gdn_block(float4 (&S)[2][4], const gdn_stage *st, const gdn_pairs *pairs, int block, int col, int li, float (&out)[GDN_BLOCK][2])
{
    float4 k[GDN_BLOCK][4];
    float a[GDN_BLOCK][2] = {}, b[GDN_BLOCK][2] = {};
#pragma unroll
    for (int j = 0; j < GDN_BLOCK; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            k[j][i] = *(const float4 *)&st->k[block * GDN_BLOCK + j][li * 4 + 32 * i];
            const float4 q = *(const float4 *)&st->q[block * GDN_BLOCK + j][li * 4 + 32 * i];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                a[j][c] = fmaf(S[c][i].w, k[j][i].w, fmaf(S[c][i].z, k[j][i].z, fmaf(S[c][i].y, k[j][i].y, fmaf(S[c][i].x, k[j][i].x, a[j][c]))));
                b[j][c] = fmaf(S[c][i].w, q.w, fmaf(S[c][i].z, q.z, fmaf(S[c][i].y, q.y, fmaf(S[c][i].x, q.x, b[j][c]))));
            }
        }
#pragma unroll
    for (int o = 4; o; o >>= 1)
#pragma unroll
        for (int j = 0; j < GDN_BLOCK; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                a[j][c] += __shfl_xor_sync(~0u, a[j][c], o);
                b[j][c] += __shfl_xor_sync(~0u, b[j][c], o);
            }
    float G = 1, e[GDN_BLOCK][2];
#pragma unroll
    for (int j = 0; j < GDN_BLOCK; j++) {
        const int t = block * GDN_BLOCK + j;
        const float g = st->g[t], beta = st->beta[t];
        const float before = G;
        G *= g;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float seen = before * a[j][c], o = G * b[j][c];
#pragma unroll
            for (int i = 0; i < j; i++) {
                seen = fmaf(e[i][c], pairs->kk[block][4 * i + j], seen);
                e[i][c] *= g;
                o = fmaf(e[i][c], pairs->kq[block][4 * i + j], o);
            }
            e[j][c] = beta * (st->v[t][col + c] - g * seen);
            out[j][c] = fmaf(e[j][c], pairs->kq[block][4 * j + j], o);
        }
    }
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 s = scale4(S[c][i], G);
#pragma unroll
            for (int j = 0; j < GDN_BLOCK; j++) {
                s.x = fmaf(e[j][c], k[j][i].x, s.x);
                s.y = fmaf(e[j][c], k[j][i].y, s.y);
                s.z = fmaf(e[j][c], k[j][i].z, s.z);
                s.w = fmaf(e[j][c], k[j][i].w, s.w);
            }
            S[c][i] = s;
        }
}

/* Block: 16 value columns of one head of one sequence, the state in registers; two blocks a multiprocessor hide each other's
 * waits. o replaces v. */
__global__ void __launch_bounds__(GDN_THREADS) k_gdn_scan(const __grid_constant__ conv_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    gdn_stage *stage = (gdn_stage *)sm; /* GDN_STAGES */
    __shared__ gdn_pairs pairs;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, li = lane & 7, head = blockIdx.x / GDN_PARTS, part = blockIdx.x % GDN_PARTS;
    const int col = warp * 8 + (lane >> 3) * 2;
    pdl_launch();
    pdl_wait();
    const seq_view &s = p.ps->seq[blockIdx.y];
    float *state = s.recurrent + p.state_at + ((size_t)head * GDN_DIM + part * GDN_COLS + col) * GDN_DIM + li * 4;
    float4 S[2][4];
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) S[c][i] = *(const float4 *)(state + c * GDN_DIM + 32 * i);
    const int n = s.n, first = s.first;
    float *to = p.conv + (size_t)first * p.conv_dim + (2 * p.k_heads + head) * GDN_DIM + part * GDN_COLS + col;
    for (int i = 0; i < GDN_STAGES - 1; i++) gdn_ahead(p, stage, i * GDN_CHUNK, s, head, part);
    for (int at = 0, b = 0; at < n; at += GDN_CHUNK, b = b + 1 == GDN_STAGES ? 0 : b + 1) {
        const int m = n - at < GDN_CHUNK ? n - at : GDN_CHUNK;
        cp_wait<GDN_STAGES - 2>();
        __syncthreads();
        gdn_ahead(p, stage, at + (GDN_STAGES - 1) * GDN_CHUNK, s, head, part);
        gdn_multiply(&stage[b], &pairs, m, warp, lane);
        __syncthreads();
        for (int block = 0; block * GDN_BLOCK < m; block++) {
            float out[GDN_BLOCK][2];
            gdn_block(S, &stage[b], &pairs, block, col, li, out);
#pragma unroll
            for (int j = 0; j < GDN_BLOCK; j++) {
                const int t = block * GDN_BLOCK + j;
                if (li == j && t < m) *(float2 *)(to + (size_t)(at + t) * p.conv_dim) = make_float2(out[j][0], out[j][1]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) *(float4 *)(state + c * GDN_DIM + 32 * i) = S[c][i];
}

/* Gated norm of one row: a warp a head, four numbers a lane. */
__global__ void __launch_bounds__(CTA) k_gdn_norm(const __grid_constant__ conv_params p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = blockIdx.y, head = blockIdx.x * WARPS + warp;
    pdl_launch();
    pdl_wait();
    if (head >= p.v_heads) return;
    const float4 o = *(const float4 *)(p.conv + (size_t)r * p.conv_dim + (2 * p.k_heads + head) * GDN_DIM + 4 * lane);
    const float f = rsqrtf(warp_sum(o.x * o.x + o.y * o.y + o.z * o.z + o.w * o.w) / GDN_DIM + p.eps), v[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int k = head * GDN_DIM + 4 * lane + i;
        const float z = bf_f(p.z[(size_t)r * p.v_heads * GDN_DIM + k]);
        p.mixed[(size_t)r * p.ld_mixed + perm_of(k)] = f_bf(v[i] * f * p.out_norm[k % GDN_DIM] * siluf(z));
    }
}

void prefill_gdn_mix(struct cuda_backend *c, const struct gdn_weights *w, int index)
{
    struct workspace *ws = &c->ws;
    const struct model_shape *s = &c->base.shape;
    int conv = shape_conv_dim(s), heads = s->n_gdn_v_heads;
    unsigned rows = (unsigned)c->batch->n_rows, seqs = (unsigned)c->batch->n_seqs;
    conv_params p = {ws->pass, ws->seq_of, (size_t)index * CONV_HISTORY * conv, (size_t)index * heads * GDN_DIM * GDN_DIM, ws->qkv, ws->z, ws->ld_qkv,
                     ws->ld_heads, conv, s->n_gdn_k_heads, heads, ws->pad_mix, w->conv->data, w->out_norm->data, w->a_log->data, w->dt_bias->data,
                     ws->conv, ws->ba, (int)rows, ws->mixed, s->rms_eps};
    unsigned longest = 0;
    for (unsigned i = 0; i < seqs; i++)
        if ((unsigned)c->batch->seqs[i].n > longest) longest = (unsigned)c->batch->seqs[i].n;
    launch(c, k_conv, dim3((unsigned)(s->n_gdn_k_heads + heads + WARPS - 1) / WARPS, (longest + CONV_ROWS - 1) / CONV_ROWS, seqs), CTA, 0, p);
    launch(c, k_gates, dim3((rows * (unsigned)heads + CTA - 1) / CTA), CTA, 0, p);
    launch(c, k_conv_keep, dim3((unsigned)(conv + CTA - 1) / CTA, seqs), CTA, 0, p);
    launch(c, k_gdn_scan, dim3((unsigned)(heads * GDN_PARTS), seqs), GDN_THREADS, GDN_STAGES * sizeof(gdn_stage), p);
    launch(c, k_gdn_norm, dim3((unsigned)(heads + WARPS - 1) / WARPS, rows), CTA, 0, p);
}

/* ---- attention ---- */

struct flash_params {
    const pass *ps;
    const int32_t *pos, *seq_of;
    uint8_t *region;
    size_t page_bytes, layer_at, head_bytes;
    u16 *qkv;
    int ld_qkv, n_q, n_kv, ld_mixed, n_seqs;
    const float *rotary, *q_norm, *k_norm;
    float eps;
    u16 *mixed;
};

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

/* A warp a head of a row: queries are normed, turned and scaled in place; keys and values go to their page. */
template <bool BF16> __global__ void k_append_rows(const __grid_constant__ flash_params p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.x * WARPS + warp, r = blockIdx.y;
    pdl_launch();
    pdl_wait();
    if (head >= p.n_q + 2 * p.n_kv) return;
    const bool query = head < p.n_q, value = head >= p.n_q + p.n_kv;
    u16 *u = p.qkv + (size_t)r * p.ld_qkv + (query ? head * 512 : p.n_q * 512 + (head - p.n_q) * HEAD_DIM);
    float x[8];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint2 v = *(const uint2 *)(u + h * 128 + 4 * lane);
        x[4 * h] = bf_lo(v.x), x[4 * h + 1] = bf_hi(v.x), x[4 * h + 2] = bf_lo(v.y), x[4 * h + 3] = bf_hi(v.y);
    }
    if (!value) norm_rope(x, query ? p.q_norm : p.k_norm, p.rotary + (size_t)r * ROTARY_DIM, p.eps, lane);
    if (query) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            *(uint2 *)(u + h * 128 + 4 * lane) = make_uint2(pack_bf(x[4 * h] * 0.0625f, x[4 * h + 1] * 0.0625f), pack_bf(x[4 * h + 2] * 0.0625f, x[4 * h + 3] * 0.0625f));
        return;
    }
    const int pos = p.pos[r], at = pos % GRID, kv = (head - p.n_q) % p.n_kv;
    uint8_t *page = p.region + (size_t)p.ps->seq[p.seq_of[r]].pages[pos / GRID] * p.page_bytes + p.layer_at + (2 * kv + (value ? 1 : 0)) * p.head_bytes;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int d = (i >> 2) * 128 + 4 * lane + (i & 3);
        if (BF16) ((u16 *)page)[kv_at(at, d, value)] = f_bf(x[i]);
        else ((float *)page)[(size_t)at * HEAD_DIM + d] = x[i];
    }
}

enum { FLASH_TOKENS = 16, FLASH_Q = 8 * FLASH_TOKENS * HEAD_DIM * 2 };

DI void flash_request(const flash_params &p, const seq_view &s, int page, int kv, u32 buffer, u32 bar)
{
    const uint8_t *at = p.region + (size_t)s.pages[page] * p.page_bytes + p.layer_at + (size_t)kv * 2 * KV_HEAD;
    bar_expect(bar, 2 * KV_HEAD);
    bulk_load(buffer, at, KV_HEAD, bar);
    bulk_load(buffer + KV_HEAD, at + KV_HEAD, KV_HEAD, bar);
}

/* Which 16 rows a block has; false when there are no so many blocks. */
DI bool flash_rows(const flash_params &p, int block, int *seq, int *row, int *n)
{
    for (int i = 0; i < p.n_seqs; i++) {
        const seq_view &s = p.ps->seq[i];
        const int blocks = (s.n + FLASH_TOKENS - 1) / FLASH_TOKENS;
        if (block < blocks) {
            *seq = i;
            *row = s.first + block * FLASH_TOKENS;
            *n = s.first + s.n - *row < FLASH_TOKENS ? s.first + s.n - *row : FLASH_TOKENS;
            return true;
        }
        block -= blocks;
    }
    return false;
}

/* Scores of a warp's 16 rows for 64 keys. */
DI void flash_scores(float (&s)[8][4], const uint8_t *q, const uint8_t *k, int lane)
{
#pragma unroll
    for (int i = 0; i < 8; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
#pragma unroll 4
    for (int ks = 0; ks < 16; ks++) {
        const uint4 a = *(const uint4 *)(q + ks * 512 + lane * 16);
#pragma unroll
        for (int pt = 0; pt < 4; pt++) {
            const uint4 b = *(const uint4 *)(k + (pt * 16 + ks) * KV_TILE + lane * 16);
            mma16(s[2 * pt], a.x, a.y, a.z, a.w, b.x, b.z);
            mma16(s[2 * pt + 1], a.x, a.y, a.z, a.w, b.y, b.w);
        }
    }
}

/* The running softmax of rows g and g+8; last: the key positions up to which they may look, from the block's first key. */
DI void flash_softmax(float (&s)[8][4], float (&max)[2], float (&sum)[2], float (&keep)[2], const int (&last)[2], int t)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[i][2 * h + e];
                if (i * 8 + 2 * t + e > last[h]) x = -INFINITY;
                top = fmaxf(top, x);
            }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        top = fmaxf(max[h], top);
        keep[h] = __expf(max[h] - top);
        float part = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) part += s[i][2 * h + e] = __expf(s[i][2 * h + e] - top);
        part += __shfl_xor_sync(~0u, part, 1);
        part += __shfl_xor_sync(~0u, part, 2);
        sum[h] = sum[h] * keep[h] + part;
        max[h] = top;
    }
}

DI void flash_values(float (&o)[32][4], const float (&s)[8][4], const float (&keep)[2], const uint8_t *v, int lane)
{
#pragma unroll
    for (int i = 0; i < 32; i++) {
        o[i][0] *= keep[0];
        o[i][1] *= keep[0];
        o[i][2] *= keep[1];
        o[i][3] *= keep[1];
    }
#pragma unroll
    for (int pt = 0; pt < 4; pt++) {
        const u32 a0 = pack_bf(s[2 * pt][0], s[2 * pt][1]), a1 = pack_bf(s[2 * pt][2], s[2 * pt][3]);
        const u32 a2 = pack_bf(s[2 * pt + 1][0], s[2 * pt + 1][1]), a3 = pack_bf(s[2 * pt + 1][2], s[2 * pt + 1][3]);
#pragma unroll
        for (int d = 0; d < 16; d++) {
            const uint4 b = *(const uint4 *)(v + (pt * 16 + d) * KV_TILE + lane * 16);
            mma16(o[2 * d], a0, a1, a2, a3, b.x, b.z);
            mma16(o[2 * d + 1], a0, a1, a2, a3, b.y, b.w);
        }
    }
}

/* A warp's query rows as A fragments in shared memory. Rows past the end repeat the last. */
DI void flash_queries(const flash_params &p, uint8_t *q, int row, int n, int head, int lane)
{
    const int g = lane >> 2, t = lane & 3, r0 = row + (g < n ? g : n - 1), r1 = row + (g + 8 < n ? g + 8 : n - 1);
    const u16 *x0 = p.qkv + (size_t)r0 * p.ld_qkv + (size_t)head * 512 + 2 * t, *x1 = p.qkv + (size_t)r1 * p.ld_qkv + (size_t)head * 512 + 2 * t;
    for (int ks = 0; ks < 16; ks++)
        *(uint4 *)(q + ks * 512 + lane * 16) = make_uint4(*(const u32 *)(x0 + ks * 16), *(const u32 *)(x1 + ks * 16), *(const u32 *)(x0 + ks * 16 + 8),
                                                          *(const u32 *)(x1 + ks * 16 + 8));
}

DI void flash_store(const flash_params &p, const float (&o)[32][4], const float (&sum)[2], int row, int n, int head, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int token = g + 8 * h;
        if (token >= n) continue;
        const float f = 1.0f / sum[h];
        const u16 *gate = p.qkv + (size_t)(row + token) * p.ld_qkv + (size_t)head * 512 + HEAD_DIM;
        u16 *out = p.mixed + (size_t)(row + token) * p.ld_mixed;
#pragma unroll
        for (int i = 0; i < 32; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int d = i * 8 + 2 * t + e;
                out[perm_of(head * HEAD_DIM + d)] = f_bf(o[i][2 * h + e] * f * sigmoidf(bf_f(gate[d])));
            }
    }
}

/* Block: 16 tokens of a sequence, the eight query heads of one key-value head, a warp each; keys in blocks of 64. */
__global__ void __launch_bounds__(CTA, 1) k_flash(const __grid_constant__ flash_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    __shared__ __align__(8) u64 bar[2];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, kv = blockIdx.y, head = kv * 8 + warp;
    uint8_t *q = sm + warp * (FLASH_Q / 8);
    const u32 pages = smem_addr(sm + FLASH_Q), bars = smem_addr(bar);
    int seq, row, n;
    pdl_launch();
    pdl_wait();
    /* The last blocks have most keys: they begin first. */
    if (!flash_rows(p, (int)(gridDim.x - 1 - blockIdx.x), &seq, &row, &n)) return;
    const seq_view &s = p.ps->seq[seq];
    const int first_pos = p.pos[row], n_pages = (first_pos + n - 1) / GRID + 1;
    if (threadIdx.x == 0) {
        bar_init(bars, 1);
        bar_init(bars + 8, 1);
        bar_init_done();
        asm volatile("fence.proxy.async;" ::: "memory"); /* keys and values were stored by threads */
        for (int i = 0; i < 2 && i < n_pages; i++) flash_request(p, s, i, kv, pages + i * 2 * KV_HEAD, bars + 8 * i);
    }
    flash_queries(p, q, row, n, head, lane);
    __syncthreads();
    float o[32][4] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    const int g = lane >> 2, t = lane & 3;
    for (int i = 0; i < n_pages; i++) {
        const int b = i & 1, last[2] = {first_pos + g - i * GRID, first_pos + g + 8 - i * GRID};
        const uint8_t *page = sm + FLASH_Q + b * 2 * KV_HEAD;
        float w[8][4], keep[2];
        bar_wait(bars + 8 * b, (i >> 1) & 1);
        flash_scores(w, q, page, lane);
        flash_softmax(w, max, sum, keep, last, t);
        flash_values(o, w, keep, page + KV_HEAD, lane);
        __syncthreads();
        if (threadIdx.x == 0 && i + 2 < n_pages) flash_request(p, s, i + 2, kv, pages + b * 2 * KV_HEAD, bars + 8 * b);
    }
    flash_store(p, o, sum, row, n, head, lane);
}

/* fp32 pages, the plain way: eight warps take keys in turn; block: one query head of one row. */
__global__ void __launch_bounds__(CTA) k_flash_f32(const __grid_constant__ flash_params p)
{
    __shared__ float acc[WARPS][HEAD_DIM], ms[WARPS][2];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.x, r = blockIdx.y;
    pdl_launch();
    pdl_wait();
    const int pos = p.pos[r], kv = head / (p.n_q / p.n_kv);
    const seq_view &s = p.ps->seq[p.seq_of[r]];
    const u16 *u = p.qkv + (size_t)r * p.ld_qkv + (size_t)head * 512;
    float q[8], o[8] = {}, max = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) q[i] = bf_f(u[32 * i + lane]);
    for (int key = warp; key <= pos; key += WARPS) {
        const uint8_t *page = p.region + (size_t)s.pages[key / GRID] * p.page_bytes + p.layer_at + (size_t)kv * 2 * p.head_bytes;
        const float *k = (const float *)page + (size_t)(key % GRID) * HEAD_DIM, *v = (const float *)(page + p.head_bytes) + (size_t)(key % GRID) * HEAD_DIM;
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
    p.mixed[(size_t)r * p.ld_mixed + perm_of(head * HEAD_DIM + (int)threadIdx.x)] = f_bf(x / total * sigmoidf(bf_f(u[HEAD_DIM + threadIdx.x])));
}

static flash_params flash_of(struct cuda_backend *c, int index)
{
    const struct model_shape *s = &c->base.shape;
    struct workspace *ws = &c->ws;
    flash_params p = {ws->pass, ws->pos, ws->seq_of, c->states.region, c->states.page_bytes, (size_t)index * s->n_kv_heads * 2 * c->states.head_bytes,
                      c->states.head_bytes, ws->qkv, ws->ld_qkv, s->n_q_heads, s->n_kv_heads, ws->pad_mix, c->batch->n_seqs, ws->rotary, NULL, NULL,
                      s->rms_eps, ws->mixed};
    return p;
}

void prefill_append(struct cuda_backend *c, const struct attn_weights *w, int index)
{
    flash_params p = flash_of(c, index);
    p.q_norm = w->q_norm->data;
    p.k_norm = w->k_norm->data;
    dim3 grid((unsigned)(p.n_q + 2 * p.n_kv + WARPS - 1) / WARPS, (unsigned)c->batch->n_rows);
    if (c->states.kv_bf16) launch(c, k_append_rows<true>, grid, CTA, 0, p);
    else launch(c, k_append_rows<false>, grid, CTA, 0, p);
}

void prefill_attn_mix(struct cuda_backend *c, int index)
{
    flash_params p = flash_of(c, index);
    if (!c->states.kv_bf16) {
        launch(c, k_flash_f32, dim3((unsigned)p.n_q, (unsigned)c->batch->n_rows), CTA, 0, p);
        return;
    }
    int blocks = 0;
    for (int i = 0; i < c->batch->n_seqs; i++) blocks += (c->batch->seqs[i].n + FLASH_TOKENS - 1) / FLASH_TOKENS;
    launch(c, k_flash, dim3((unsigned)blocks, (unsigned)p.n_kv), CTA, (size_t)FLASH_Q + 4 * KV_HEAD, p);
}
