/*
 * Prefill attention: queries, keys and values of all rows, and softmax over pages of 64 keys. On Hopper with warpgroup products
 * and keys, values and weights as fp16, for which the pages are written in another order first; elsewhere mma.sync and bf16.
 */
#include "backend/cuda/attn.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/kv.cuh"
#include "backend/cuda/prefill.cuh"
#include "backend/cuda/wgmma.cuh"

struct flash_params {
    const pass *ps;
    const int32_t *pos, *seq_of;
    uint8_t *region;
    size_t page_bytes, layer_at, head_bytes;
    float *qkv;     /* a query head: 256 queries, 256 gates */
    int ld_qkv, n_q, n_kv, ld_mixed, n_seqs;
    const float *rotary, *q_norm, *k_norm;
    float eps;
    u16 *mixed, *rest;
    int which;      /* on Hopper: which sequence, and its keys and values */
    uint8_t *keys;
    int buffers;    /* elsewhere: pages in shared memory */
};

/* A warp a head of a row: queries are normed, turned and scaled in place; keys and values go to their page. */
template <bool BF16> __global__ void k_append_rows(const __grid_constant__ flash_params p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.x * WARPS + warp, r = blockIdx.y;
    pdl_launch();
    pdl_wait();
    if (head >= p.n_q + 2 * p.n_kv) return;
    const bool query = head < p.n_q, value = head >= p.n_q + p.n_kv;
    float *u = p.qkv + (size_t)r * p.ld_qkv + (query ? head * 512 : p.n_q * 512 + (head - p.n_q) * HEAD_DIM), x[8];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float4 v = *(const float4 *)(u + h * 128 + 4 * lane);
        x[4 * h] = v.x, x[4 * h + 1] = v.y, x[4 * h + 2] = v.z, x[4 * h + 3] = v.w;
    }
    if (!value) norm_rope(x, query ? p.q_norm : p.k_norm, p.rotary + (size_t)r * ROTARY_DIM, p.eps, lane);
    if (query) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            *(float4 *)(u + h * 128 + 4 * lane) = make_float4(x[4 * h] * 0.0625f, x[4 * h + 1] * 0.0625f, x[4 * h + 2] * 0.0625f, x[4 * h + 3] * 0.0625f);
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

/* Two neighbouring numbers of a lane of four, dim = 8i + 2t: lanes trade so that each has a pair of the units' order. */
DI void put_output(const flash_params &p, size_t row, bool in, int head, int dim, float x, float y, int t)
{
    if (in) {
        const float2 z = *(const float2 *)(p.qkv + row * p.ld_qkv + (size_t)head * 512 + HEAD_DIM + dim);
        x *= sigmoidf(z.x);
        y *= sigmoidf(z.y);
    }
    const float other = __shfl_xor_sync(~0u, t & 1 ? x : y, 1), a = t & 1 ? other : x, b = t & 1 ? y : other;
    const size_t at = row * p.ld_mixed + perm_of(head * HEAD_DIM + (dim & ~3) + (t & 1));
    const u32 v = pack_h(a, b);
    if (!in) return;
    *(u32 *)(p.mixed + at) = v;
    *(u32 *)(p.rest + at) = pack_rest(a, b, v);
}

/* Rows g and g+8 of a fragment of outputs, of n rows from `row`, by their sums. */
DI void put_outputs(const flash_params &p, const float (&o)[128], const float (&sum)[2], int row, int n, int head, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool in = g + 8 * h < n;
        const float f = 1.0f / sum[h];
#pragma unroll
        for (int i = 0; i < 32; i++) put_output(p, (size_t)(row + g + 8 * h), in, head, i * 8 + 2 * t, o[4 * i + 2 * h] * f, o[4 * i + 2 * h + 1] * f, t);
    }
}

/* The running softmax of rows g and g+8 of a fragment of 64 keys. last: the keys up to which they may look. */
DI void flash_softmax(float (&s)[32], float (&max)[2], float (&sum)[2], float (&keep)[2], const int (&last)[2], int t)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float &x = s[(i >> 1) * 4 + 2 * h + (i & 1)];
            if ((i >> 1) * 8 + 2 * t + (i & 1) > last[h]) x = -INFINITY;
            top = fmaxf(top, x);
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        top = fmaxf(max[h], top);
        keep[h] = __expf(max[h] - top);
        float part = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float &x = s[(i >> 1) * 4 + 2 * h + (i & 1)];
            part += x = __expf(x - top);
        }
        part += __shfl_xor_sync(~0u, part, 1);
        part += __shfl_xor_sync(~0u, part, 2);
        sum[h] = sum[h] * keep[h] + part;
        max[h] = top;
    }
}

/* ---- warpgroup products ---- */

enum { KEYS_TILE = GRID * TILE_ROW, PAGE_KEYS = GRID * HEAD_DIM * 2, FW_THREADS = 3 * WG, FW_STAGES = 2, FW_Q = GRID * HEAD_DIM * 2 };

/* A page's keys or values of one head as fp16 tiles: keys in four of 64 dimensions (a row a token), values in one (a row a
 * dimension, 256 of them). */
DI uint8_t *keys_at(const flash_params &p, int page, int kv, int value)
{
    return p.keys + ((size_t)(page * p.n_kv + kv) * 2 + value) * PAGE_KEYS;
}

/* Block: a page; y: the head's keys, its values. */
__global__ void __launch_bounds__(CTA) k_keys(const __grid_constant__ flash_params p)
{
    const int page = blockIdx.x, kv = blockIdx.y >> 1, value = blockIdx.y & 1, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    pdl_launch();
    pdl_wait();
    const seq_view &s = p.ps->seq[p.which];
    const uint8_t *from = p.region + (size_t)s.pages[page] * p.page_bytes + p.layer_at + (size_t)(2 * kv + value) * KV_HEAD;
    uint8_t *to = keys_at(p, page, kv, value);
    for (int tile = threadIdx.x >> 5; tile < KV_HEAD / KV_TILE; tile += WARPS) {
        const uint4 v = *(const uint4 *)(from + tile * KV_TILE + lane * 16);
        const u32 word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int tokens = (tile >> 4) * 16, dims = (tile & 15) * 16, r = g + 8 * (i & 1), c = 2 * t + 8 * (i >> 1);
            const int row = value ? dims + r : tokens + r, col = value ? tokens + c : dims + c;
            *(u32 *)(to + (col >> 6) * KEYS_TILE + tile_at16(row, (col & 63) >> 3) + (col & 7) * 2) = pack_h(bf_lo(word[i]), bf_hi(word[i]));
        }
    }
}

struct flash_bars {
    u64 keys[FW_STAGES], values[FW_STAGES], keys_free[FW_STAGES], values_free[FW_STAGES];
};

#if HAVE_WGMMA

DI void fw_load(const flash_params &p, u32 ring, const flash_bars *b, int kv, int pages)
{
    bulk_fence(); /* k_keys stored them by threads */
    for (int i = 0; i < pages; i++) {
        const int at = i % FW_STAGES;
        const u32 phase = (i / FW_STAGES & 1) ^ 1, to = ring + at * 2 * PAGE_KEYS, keys = smem_addr(&b->keys[at]), values = smem_addr(&b->values[at]);
        bar_wait(smem_addr(&b->keys_free[at]), phase);
        bar_expect(keys, PAGE_KEYS);
        bulk_load(to, keys_at(p, i, kv, 0), PAGE_KEYS, keys);
        bar_wait(smem_addr(&b->values_free[at]), phase);
        bar_expect(values, PAGE_KEYS);
        bulk_load(to + PAGE_KEYS, keys_at(p, i, kv, 1), PAGE_KEYS, values);
    }
}

/* The queries of n rows and one head as four tiles; rows past the end are zero. */
DI void fw_queries(const flash_params &p, uint8_t *q, int row, int n, int head)
{
    const int tid = threadIdx.x & (WG - 1);
    for (int i = tid; i < GRID * HEAD_DIM / 8; i += WG) {
        const int r = i >> 5, piece = i & 31;
        const float *x = p.qkv + (size_t)(row + (r < n ? r : 0)) * p.ld_qkv + (size_t)head * 512 + piece * 8;
        const float4 a = *(const float4 *)x, b = *(const float4 *)(x + 4);
        const uint4 v = make_uint4(pack_h(a.x, a.y), pack_h(a.z, a.w), pack_h(b.x, b.y), pack_h(b.z, b.w));
        *(uint4 *)(q + (piece >> 3) * KEYS_TILE + tile_at16(r, piece & 7)) = r < n ? v : make_uint4(0, 0, 0, 0);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DI void fw_scores(float (&s)[32], u32 q, u32 keys)
{
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] = 0.0f;
    wg_fence();
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 16; i++) wg_mul(s, tile_desc(q + (i >> 2) * KEYS_TILE) + 2 * (i & 3), tile_desc(keys + (i >> 2) * KEYS_TILE) + 2 * (i & 3));
    wg_commit();
}

DI void fw_values(float (&o)[128], const u32 (&w)[16], u32 values)
{
    wg_fence();
#pragma unroll
    for (int i = 0; i < GRID / 16; i++) wg_mul(o, w + 4 * i, tile_desc(values) + 2 * i);
    wg_commit();
}

DI void fw_free(u64 *bar, int lane)
{
    __syncwarp();
    if (lane == 0) bar_arrive(smem_addr(bar));
}

/* A warpgroup: 64 rows of a head. While the products of one page's values run, the softmax of the next page is made. */
DI void fw_compute(const flash_params &p, u32 q, u32 ring, flash_bars *b, int row, int n, int head, int first_pos, int pages)
{
    const int lane = threadIdx.x & 31, t = lane & 3, r = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
    float o[128], s[32], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, keep[2];
    u32 w[16];
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] = 0.0f;
    for (int i = 0; i < pages; i++) {
        const int at = i % FW_STAGES, before = (i + FW_STAGES - 1) % FW_STAGES;
        const int last[2] = {first_pos + r - i * GRID, first_pos + r + 8 - i * GRID};
        bar_wait(smem_addr(&b->keys[at]), i / FW_STAGES & 1);
        fw_scores(s, q, ring + at * 2 * PAGE_KEYS);
        if (i) {
            bar_wait(smem_addr(&b->values[before]), (i - 1) / FW_STAGES & 1);
            fw_values(o, w, ring + before * 2 * PAGE_KEYS + PAGE_KEYS);
            wg_wait<1>();
        } else {
            wg_wait<0>();
        }
        fw_free(&b->keys_free[at], lane);
        flash_softmax(s, max, sum, keep, last, t);
        wg_wait<0>();
        if (i) fw_free(&b->values_free[before], lane);
#pragma unroll
        for (int j = 0; j < 128; j++) o[j] *= keep[j >> 1 & 1];
#pragma unroll
        for (int j = 0; j < 16; j++) w[j] = pack_h(s[2 * j], s[2 * j + 1]);
    }
    const int at = (pages - 1) % FW_STAGES;
    bar_wait(smem_addr(&b->values[at]), (pages - 1) / FW_STAGES & 1);
    fw_values(o, w, ring + at * 2 * PAGE_KEYS + PAGE_KEYS);
    wg_wait<0>();
    const int r0 = r - (lane >> 2);
    put_outputs(p, o, sum, row + r0, n - r0, head, lane);
}

#endif

/* Block: 64 rows of two heads of one key-value head, a warpgroup each; a third loads. */
__global__ void __launch_bounds__(FW_THREADS, 1) k_flash_wg(const __grid_constant__ flash_params p)
{
#if HAVE_WGMMA
    extern __shared__ __align__(1024) uint8_t sm[];
    flash_bars &bars = *(flash_bars *)(sm + 2 * FW_Q + FW_STAGES * 2 * PAGE_KEYS);
    const seq_view &s = p.ps->seq[p.which];
    const int group = threadIdx.x / WG, block = gridDim.y - 1 - blockIdx.y, head = 2 * blockIdx.x + group - 1; /* most keys first */
    pdl_launch();
    if (threadIdx.x == 0) {
        for (int i = 0; i < FW_STAGES; i++) {
            bar_init(smem_addr(&bars.keys[i]), 1);
            bar_init(smem_addr(&bars.values[i]), 1);
            bar_init(smem_addr(&bars.keys_free[i]), 8);
            bar_init(smem_addr(&bars.values_free[i]), 8);
        }
        bar_init_done();
    }
    pdl_wait();
    const int row = s.first + block * GRID, left = s.n - block * GRID, n = left < GRID ? left : GRID;
    const int first_pos = p.pos[row], pages = (first_pos + n - 1) / GRID + 1;
    const u32 ring = smem_addr(sm) + 2 * FW_Q;
    if (group) fw_queries(p, sm + (group - 1) * FW_Q, row, n, head);
    __syncthreads();
    if (group == 0) {
        regs_give<40>();
        if (threadIdx.x == 0) fw_load(p, ring, &bars, blockIdx.x * 2 / (p.n_q / p.n_kv), pages);
    } else {
        regs_take<232>();
        fw_compute(p, smem_addr(sm) + (group - 1) * FW_Q, ring, &bars, row, n, head, first_pos, pages);
    }
#endif
}

/* ---- mma.sync ---- */

enum { FLASH_TOKENS = 16, FLASH_Q = 8 * FLASH_TOKENS * HEAD_DIM * 2 };

DI void flash_request(const flash_params &p, const seq_view &s, int page, int kv, u32 buffer, u32 bar)
{
    const uint8_t *at = p.region + (size_t)s.pages[page] * p.page_bytes + p.layer_at + (size_t)kv * 2 * KV_HEAD;
    bar_expect(bar, 2 * KV_HEAD);
    bulk_load(buffer, at, KV_HEAD, bar);
    bulk_load(buffer + KV_HEAD, at + KV_HEAD, KV_HEAD, bar);
    bulk_sent(bar);
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
DI void flash_scores(float (&s)[32], const uint8_t *q, const uint8_t *k, int lane)
{
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] = 0.0f;
#pragma unroll 4
    for (int ks = 0; ks < 16; ks++) {
        const uint4 a = *(const uint4 *)(q + ks * 512 + lane * 16);
#pragma unroll
        for (int pt = 0; pt < 4; pt++) {
            const uint4 b = *(const uint4 *)(k + (pt * 16 + ks) * KV_TILE + lane * 16);
            mma16(*(float(*)[4])&s[8 * pt], a.x, a.y, a.z, a.w, b.x, b.z);
            mma16(*(float(*)[4])&s[8 * pt + 4], a.x, a.y, a.z, a.w, b.y, b.w);
        }
    }
}

DI void flash_values(float (&o)[128], const float (&s)[32], const float (&keep)[2], const uint8_t *v, int lane)
{
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] *= keep[i >> 1 & 1];
#pragma unroll
    for (int pt = 0; pt < 4; pt++) {
        const float *x = s + 8 * pt;
        const u32 a0 = pack_bf(x[0], x[1]), a1 = pack_bf(x[2], x[3]), a2 = pack_bf(x[4], x[5]), a3 = pack_bf(x[6], x[7]);
#pragma unroll
        for (int d = 0; d < 16; d++) {
            const uint4 b = *(const uint4 *)(v + (pt * 16 + d) * KV_TILE + lane * 16);
            mma16(*(float(*)[4])&o[8 * d], a0, a1, a2, a3, b.x, b.z);
            mma16(*(float(*)[4])&o[8 * d + 4], a0, a1, a2, a3, b.y, b.w);
        }
    }
}

/* A warp's query rows as A fragments in shared memory. Rows past the end repeat the last. */
DI void flash_queries(const flash_params &p, uint8_t *q, int row, int n, int head, int lane)
{
    const int g = lane >> 2, t = lane & 3, r0 = row + (g < n ? g : n - 1), r1 = row + (g + 8 < n ? g + 8 : n - 1);
    const float *x0 = p.qkv + (size_t)r0 * p.ld_qkv + (size_t)head * 512 + 2 * t, *x1 = p.qkv + (size_t)r1 * p.ld_qkv + (size_t)head * 512 + 2 * t;
    for (int ks = 0; ks < 16; ks++) {
        const float2 a = *(const float2 *)(x0 + ks * 16), b = *(const float2 *)(x1 + ks * 16);
        const float2 c = *(const float2 *)(x0 + ks * 16 + 8), d = *(const float2 *)(x1 + ks * 16 + 8);
        *(uint4 *)(q + ks * 512 + lane * 16) = make_uint4(pack_bf(a.x, a.y), pack_bf(b.x, b.y), pack_bf(c.x, c.y), pack_bf(d.x, d.y));
    }
}

/* Block: 16 tokens of a sequence, the eight query heads of one key-value head, a warp each; keys in blocks of 64. */
__global__ void __launch_bounds__(CTA, 1) k_flash(const __grid_constant__ flash_params p)
{
    extern __shared__ __align__(1024) uint8_t sm[];
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
        bulk_fence(); /* keys and values were stored by threads */
        for (int i = 0; i < p.buffers && i < n_pages; i++) flash_request(p, s, i, kv, pages + i * 2 * KV_HEAD, bars + 8 * i);
    }
    flash_queries(p, q, row, n, head, lane);
    __syncthreads();
    float o[128] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    const int g = lane >> 2, t = lane & 3;
    for (int i = 0; i < n_pages; i++) {
        const int b = i % p.buffers, last[2] = {first_pos + g - i * GRID, first_pos + g + 8 - i * GRID};
        const uint8_t *page = sm + FLASH_Q + b * 2 * KV_HEAD;
        float w[32], keep[2];
        bar_wait(bars + 8 * b, i / p.buffers & 1);
        flash_scores(w, q, page, lane);
        flash_softmax(w, max, sum, keep, last, t);
        flash_values(o, w, keep, page + KV_HEAD, lane);
        __syncthreads();
        if (threadIdx.x == 0 && i + p.buffers < n_pages) flash_request(p, s, i + p.buffers, kv, pages + b * 2 * KV_HEAD, bars + 8 * b);
    }
    put_outputs(p, o, sum, row, n, head, lane);
}

/* fp32 pages; block: one query head of one row. */
__global__ void __launch_bounds__(CTA) k_flash_f32(const __grid_constant__ flash_params p)
{
    const int head = blockIdx.x, r = blockIdx.y, kv = head / (p.n_q / p.n_kv);
    const float *u = p.qkv + (size_t)r * p.ld_qkv + (size_t)head * 512;
    pdl_launch();
    pdl_wait();
    const pages_f32 pages = {p.region, p.page_bytes, p.layer_at + (size_t)kv * 2 * p.head_bytes, p.head_bytes};
    const float x = attention_f32(pages, p.ps->seq[p.seq_of[r]].pages, u, p.pos[r]), y = x * sigmoidf(u[HEAD_DIM + threadIdx.x]);
    const size_t at = (size_t)r * p.ld_mixed + perm_of(head * HEAD_DIM + (int)threadIdx.x);
    p.mixed[at] = f_h(y);
    p.rest[at] = f_h(y - h_f(f_h(y)));
}

static flash_params flash_of(struct cuda_backend *c, int index)
{
    const struct model_shape *s = &c->base.shape;
    struct workspace *ws = &c->ws;
    flash_params p = {ws->pass, ws->pos, ws->seq_of, c->states.region, c->states.page_bytes, (size_t)index * s->n_kv_heads * 2 * c->states.head_bytes,
                      c->states.head_bytes, ws->qkv, ws->ld_qkv, s->n_q_heads, s->n_kv_heads, ws->pad_mix, c->batch->n_seqs, ws->rotary, NULL, NULL,
                      s->rms_eps, ws->mixed, ws->mixed_rest, 0, NULL, 0};
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

/* Room for the keys and values of one layer; it grows by half more than is asked for. */
static uint8_t *keys_for(struct cuda_backend *c, size_t bytes)
{
    struct workspace *ws = &c->ws;
    if (ws->keys_bytes >= bytes) return ws->keys;
    cudaStreamSynchronize(c->stream);
    cudaFree(ws->keys);
    ws->keys_bytes = 0;
    bytes += bytes / 2;
    cudaError_t e = cudaMalloc((void **)&ws->keys, bytes);
    if (e == cudaSuccess) ws->keys_bytes = bytes;
    else ws->keys = NULL;
    if (c->error == cudaSuccess) c->error = e;
    return ws->keys;
}

static void flash_hopper(struct cuda_backend *c, flash_params *p)
{
    for (p->which = 0; p->which < c->batch->n_seqs; p->which++) {
        const struct batch_seq *b = &c->batch->seqs[p->which];
        unsigned pages = (unsigned)(b->seq->length + b->n + GRID - 1) / GRID, blocks = (unsigned)(b->n + GRID - 1) / GRID;
        p->keys = keys_for(c, (size_t)pages * (size_t)p->n_kv * 2 * PAGE_KEYS);
        if (!p->keys) return;
        launch(c, k_keys, dim3(pages, 2 * (unsigned)p->n_kv), CTA, 0, *p);
        launch(c, k_flash_wg, dim3((unsigned)p->n_q / 2, blocks), FW_THREADS, (size_t)2 * FW_Q + FW_STAGES * 2 * PAGE_KEYS + sizeof(flash_bars), *p);
    }
}

void prefill_attn_mix(struct cuda_backend *c, int index)
{
    flash_params p = flash_of(c, index);
    if (!c->states.kv_bf16) {
        launch(c, k_flash_f32, dim3((unsigned)p.n_q, (unsigned)c->batch->n_rows), CTA, 0, p);
        return;
    }
    if (c->wgmma) {
        flash_hopper(c, &p);
        return;
    }
    int blocks = 0;
    for (int i = 0; i < c->batch->n_seqs; i++) blocks += (c->batch->seqs[i].n + FLASH_TOKENS - 1) / FLASH_TOKENS;
    p.buffers = FLASH_Q + 4 * KV_HEAD <= c->max_shared ? 2 : 1;
    launch(c, k_flash, dim3((unsigned)blocks, (unsigned)p.n_kv), CTA, (size_t)FLASH_Q + (size_t)p.buffers * 2 * KV_HEAD, p);
}
