/* Decode kernels around the residual stream: embedding, the product with a norm's weight, input and output projections. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/gemv.cuh"

enum {
    MAX_TB = 6,   /* tiles that a CTA holds at once */
    IN_UNITS = 2  /* places of 128 columns whose digits a warp holds: input projections */
};

/* ---- embedding ---- */

struct embed_params {
    const int32_t *id, *pos;
    const uint8_t *table;
    size_t tile_bytes;
    int planes;
    float *rotary;
    const double *frequency;
    stream_out out;
};

DI void rotary_row(float *out, const double *frequency, int pos, int lane)
{
    double s, c;
    sincos(pos * frequency[lane], &s, &c);
    out[lane] = (float)c;
    out[32 + lane] = (float)s;
}

__global__ void k_embed(const __grid_constant__ embed_params p)
{
    pdl_launch();
    pdl_wait();
    const int r = blockIdx.x, id = p.id[r];
    const uint8_t *tile = p.table + (size_t)(id >> 4) * p.tile_bytes;
    if (threadIdx.x < 32) rotary_row(p.rotary + (size_t)r * ROTARY_DIM, p.frequency, p.pos[r], threadIdx.x);
    for (int k = threadIdx.x; k < p.out.hidden; k += CTA) stream_put(p.out, r, k, unit_weight(tile, p.planes, id, k), p.out.norm ? p.out.norm[k] : 0.0f, true);
}

/* Products and sums of squares of rows that lie in x already. */
struct norm_rows {
    int32_t row[DECODE_ROWS];
    bool all; /* row r is r */
};

__global__ void k_weigh(const float *x, const __grid_constant__ norm_rows rows, const __grid_constant__ stream_out o)
{
    pdl_launch();
    pdl_wait();
    const int r = blockIdx.x, from = rows.all ? r : rows.row[r];
    for (int k = threadIdx.x; k < o.hidden; k += CTA) {
        float h = x[(size_t)from * o.hidden + k], s = h * h;
#pragma unroll
        for (int d = 8; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
        o.normed[(size_t)r * o.ld + k] = h * o.norm[k];
        if ((k & 15) == 0) o.ss[(size_t)r * (o.hidden / 16) + k / 16] = s;
    }
}

/* ---- input projections ---- */

enum { MAX_PARTS = 4 };

/* Several matrices over the same rows, as one row of tiles. */
struct in_params {
    const uint8_t *w[MAX_PARTS];
    int end[MAX_PARTS]; /* tiles up to and with this part */
    int planes[MAX_PARTS];
    int n_tiles, units, tb, slot, slot_unit; /* slot: bytes of a warp's span; slot_unit: of a place, in the widest part */
    const float *x; /* times the norm's weight */
    const float *ss;
    int ld_x, hidden, n_rows;
    float eps;
    float *u;
    int ld_u;
    /* gated delta rule: convolution, z, beta, decay */
    const pass *ps;
    const int32_t *seq_of;
    int row0;
    size_t conv_at; /* floats from a sequence's convolution state to the layer's */
    int conv_dim, heads;
    const float *conv, *out_norm, *a_log, *dt_bias;
    float *gates;
};

DI int part_of(const in_params &p, int tile)
{
    int m = 0;
    while (tile >= p.end[m]) m++;
    return m;
}

DI const uint8_t *in_tile(const in_params &p, int tile, int *planes)
{
    int m = part_of(p, tile), first = m ? p.end[m - 1] : 0;
    *planes = p.planes[m];
    return p.w[m] + (size_t)(tile - first) * p.units * p.planes[m] * UNIT;
}

/* The sums of n tiles of a CTA, from slots that were requested before; x: the first units' rows. */
template <int SETS, bool ONE>
DI void in_sums(const in_params &p, unit_rows<SETS, IN_UNITS> &x, const uint8_t *slots, u32 *scratch, u32 bars, u32 phase, float *red, int first, int stride, int n)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const span s = span_of(p.units, warp);
    const bool more = !ONE && s.hi - s.lo > IN_UNITS;
    unit_digits<SETS> f[IN_UNITS];
    rows_digits<SETS, IN_UNITS>(f, x, ONE ? 1 : p.n_rows, scratch, lane);
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        const uint8_t *slot = slots + (size_t)(i * WARPS + warp) * p.slot;
        const int planes = ONE ? 1 : p.planes[part_of(p, first + i * stride)];
        float a[SETS][2] = {};
        if (s.hi > s.lo) bar_wait(bars + 8 * (i * WARPS + warp), phase);
        for (int unit = s.lo; unit < s.hi; unit += IN_UNITS) {
            if (more) {
                rows_load<SETS, IN_UNITS>(x, p.x, p.ld_x, p.n_rows, unit, s.hi, lane);
                rows_digits<SETS, IN_UNITS>(f, x, p.n_rows, scratch, lane);
            }
            units_mul<SETS, IN_UNITS>(a, slot + (size_t)(unit - s.lo) * planes * UNIT, planes, f, ONE ? IN_UNITS : s.hi - unit, lane);
            if (ONE) break;
        }
        red_put<SETS>(red, p.tb, i, a, warp, lane);
    }
}

/* Each warp asks for its part of n tiles, a lane for each. */
DI void in_request(const in_params &p, const uint8_t *slots, u32 bars, int first, int stride, int n)
{
    const int warp = threadIdx.x >> 5, i = threadIdx.x & 31;
    int planes;
    if (i >= n) return;
    const uint8_t *tile = in_tile(p, first + i * stride, &planes);
    span_load(tile, planes, span_of(p.units, warp), slots + (size_t)(i * WARPS + warp) * p.slot, bars + 8 * (i * WARPS + warp));
}

/*
 * What one number's epilogue needs beside its sum, and can have before it: constants, and the convolution's history. It takes
 * three trips to memory that depend on each other, so each is asked for at its own place in the kernel.
 */
struct in_early {
    bool valid;
    int part, row, seq;
    float4 c;       /* part 0: taps; 1: weight of the norm; 3: A_log, dt_bias */
    float *history; /* of the channel; NULL: none */
    int first, n;   /* rows of the sequence */
    float old[3];
};

template <bool ATTN> DI in_early early_row(const in_params &p, int tile, int r16, int r)
{
    in_early e = {};
    e.valid = true;
    e.part = part_of(p, tile);
    e.row = (tile - (e.part ? p.end[e.part - 1] : 0)) * 16 + r16;
    if (ATTN) return e;
    if (e.part == 0) {
        e.seq = p.seq_of[p.row0 + r];
        e.c = *(const float4 *)(p.conv + (size_t)e.row * 4);
    } else if (e.part == 1) {
        e.c.x = p.out_norm[e.row & (GDN_DIM - 1)];
    } else if (e.part == 3 && e.row < p.heads) {
        e.c.x = p.a_log[e.row];
        e.c.y = p.dt_bias[e.row];
    }
    return e;
}

template <bool ATTN> DI void early_seq(const in_params &p, in_early &e)
{
    if (ATTN || e.part || !e.valid) return;
    const seq_view &q = p.ps->seq[e.seq];
    e.history = q.conv + p.conv_at + e.row;
    e.first = q.first - p.row0;
    e.n = q.n;
}

template <bool ATTN> DI void early_history(const in_params &p, in_early &e)
{
    if (!ATTN && e.history)
#pragma unroll
        for (int j = 0; j < 3; j++) e.old[j] = e.history[(size_t)j * p.conv_dim];
}

/* Convolution of one channel of row r; xs has the channel's new inputs. keep: the state behind this row. */
DI float conv_channel(const in_early &e, const float *xs, int r, float (&keep)[3])
{
    const float taps[4] = {e.c.x, e.c.y, e.c.z, e.c.w};
    float y = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int at = r - e.first - 3 + j;
        const float v = at >= 0 ? xs[(e.first + at) * 16] : at == -3 ? e.old[0] : at == -2 ? e.old[1] : e.old[2];
        y = fmaf(taps[j], v, y);
        if (j) keep[j - 1] = v;
    }
    return siluf(y);
}

DI void gdn_gate(const in_params &p, const in_early &e, int r, float v)
{
    if (e.row >= p.heads) return;
    float *out = p.gates + (size_t)r * 2 * p.heads;
    if (e.part == 2) {
        out[e.row] = sigmoidf(v);
        return;
    }
    float x = v + e.c.y, softplus = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    out[p.heads + e.row] = expf(-expf(e.c.x) * softplus);
}

/* Numbers of a thread: the widest block has MAX_TB tiles of 16 rows. */
template <int SETS> struct in_rounds {
    enum { N = (MAX_TB * 2 * SETS * 16 + CTA - 1) / CTA };
};

/* What becomes of the sums: 16 neighbouring threads have the rows of a tile. xs: (tb, n_rows, 16). */
template <int SETS, bool ATTN>
DI void in_epilogue(const in_params &p, const float *red, float *xs, const float *rms, const in_early (&early)[in_rounds<SETS>::N], int first, int stride, int n)
{
    const int total = n * p.n_rows * 16;
    for (int i = threadIdx.x; i < total; i += CTA) {
        int r16 = i & 15, r = (i >> 4) % p.n_rows, k = (i >> 4) / p.n_rows;
        xs[i] = red_sum<SETS>(red, p.tb, k, r, r16) * rms[r];
    }
    if (!ATTN && p.n_rows > 1) __syncthreads(); /* a channel's neighbours in time */
#pragma unroll
    for (int round = 0; round < in_rounds<SETS>::N; round++) {
        const int i = round * CTA + threadIdx.x, r16 = i & 15, r = (i >> 4) % p.n_rows, k = (i >> 4) / p.n_rows;
        const in_early &e = early[round];
        float keep[3] = {0, 0, 0};
        bool last = false;
        if (i < total) {
            const int tile = first + k * stride;
            float v = xs[i], *u = p.u + (size_t)r * p.ld_u;
            if (ATTN) u[(size_t)tile * 16 + r16] = e.part == 0 && (e.row & 256) ? sigmoidf(v) : v;
            else if (e.part == 0) u[e.row] = conv_channel(e, xs + (size_t)k * p.n_rows * 16 + r16, r, keep);
            else if (e.part == 1) u[p.conv_dim + e.row] = siluf(v) * e.c.x;
            else gdn_gate(p, e, r, v);
            last = !ATTN && e.part == 0 && r - e.first == e.n - 1;
        }
        if (last) /* every reader of a history has had it since before the sums */
            for (int j = 0; j < 3; j++) e.history[(size_t)j * p.conv_dim] = keep[j];
    }
}

/* The same for one row, whose numbers are those of the block's first threads. */
template <bool ATTN> DI void in_epilogue_one(const in_params &p, const float *red, float rms, const in_early &e, int tile)
{
    const float v = red_sum<1>(red, p.tb, threadIdx.x >> 4, 0, threadIdx.x & 15) * rms;
    float keep[3];
    if (ATTN) {
        p.u[(size_t)tile * 16 + (threadIdx.x & 15)] = e.part == 0 && (e.row & 256) ? sigmoidf(v) : v;
    } else if (e.part == 0) {
        in_early alone = e;
        alone.first = 0;
        p.u[e.row] = conv_channel(alone, &v, 0, keep);
#pragma unroll
        for (int j = 0; j < 3; j++) e.history[(size_t)j * p.conv_dim] = keep[j];
    } else if (e.part == 1) {
        p.u[p.conv_dim + e.row] = siluf(v) * e.c.x;
    } else {
        gdn_gate(p, e, 0, v);
    }
}

template <int SETS, bool ATTN, bool ONE> __global__ void __launch_bounds__(CTA, SETS == 1 ? 2 : 1) k_in(const __grid_constant__ in_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    __shared__ __align__(16) u32 scratch[WARPS][DIGIT_WORDS];
    __shared__ __align__(8) u64 bar[MAX_TB * WARPS];
    __shared__ float rms[DECODE_ROWS];
    float *red = (float *)(sm + (size_t)p.tb * WARPS * p.slot), *xs = red + (size_t)WARPS * p.tb * 2 * SETS * 16;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, stride = gridDim.x;
    const u32 bars = smem_addr(bar);
    const span s = span_of(p.units, warp);
    const int n_rows = ONE ? 1 : p.n_rows;
    if (lane < MAX_TB) bar_init(bars + 8 * (lane * WARPS + warp), 1);
    bar_init_done();
    __syncwarp();
    for (int first = blockIdx.x, phase = 0; first < p.n_tiles; first += stride * p.tb, phase ^= 1) {
        enum { ROUNDS = ONE ? 1 : in_rounds<SETS>::N };
        const int left = (p.n_tiles - first + stride - 1) / stride, n = left < p.tb ? left : p.tb;
        const bool start = ONE || first == (int)blockIdx.x;
        float4 squares = make_float4(0, 0, 0, 0);
        in_early early[ROUNDS] = {};
        unit_rows<SETS, IN_UNITS> x;
        in_request(p, sm, bars, first, stride, n);
        if (start) pdl_launch();
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) {
            const int group = (i * CTA + (int)threadIdx.x) >> 4;
            if (group >= n * n_rows) continue;
            early[i] = early_row<ATTN>(p, first + group / n_rows * stride, threadIdx.x & 15, group % n_rows);
        }
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) early_seq<ATTN>(p, early[i]);
        if (start) pdl_wait();
        rows_load<SETS, IN_UNITS>(x, p.x, p.ld_x, n_rows, s.lo, s.hi, lane);
        if (start) squares = rms_request(p.ss, p.hidden / 16, n_rows, warp, lane);
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) early_history<ATTN>(p, early[i]);
        in_sums<SETS, ONE>(p, x, sm, scratch[warp], bars, phase, red, first, stride, n);
        if (ONE) rms_finish_one(rms, squares, p.hidden, p.eps, warp, lane);
        else if (start) rms_finish(rms, squares, p.ss, p.hidden / 16, p.n_rows, p.hidden, p.eps, warp, lane);
        __syncthreads();
        if constexpr (ONE) {
            const int k = (int)threadIdx.x >> 4;
            if (k < n) in_epilogue_one<ATTN>(p, red, rms[0], early[0], first + k * stride);
            break;
        } else {
            in_epilogue<SETS, ATTN>(p, red, xs, rms, early, first, stride, n);
            if (first + stride * p.tb < p.n_tiles) __syncthreads();
        }
    }
}

/* ---- output projections: x += W o ---- */

struct out_params {
    const uint8_t *w;
    int planes, units, slot;
    const float *o;
    int ld_o, n_rows;
    const float *o_ss; /* (rows, heads, 4), or NULL: no norm of heads */
    int heads;
    float eps;
    stream_out out;
};

/* The factor of a head's norm for the row of this lane; a place of 128 columns is a head. */
DI float head_factor(const out_params &p, int row, int unit)
{
    if (!p.o_ss || row >= p.n_rows || unit >= p.units) return 1.0f;
    const float4 v = *(const float4 *)(p.o_ss + ((size_t)row * p.heads + unit) * 4);
    return rsqrtf(((v.x + v.y) + (v.z + v.w)) / GDN_DIM + p.eps);
}

enum { ONE_OUT = 4 }; /* places of a warp in the form ONE */

/* A warp's part of the sums for one row: four places, two at a time. */
DI void out_sums_one(const out_params &p, float (&a)[1][2], const uint8_t *slot, u32 bar, u32 *scratch, span s, int lane)
{
    unit_rows<1, ONE_OUT> o;
    float c[ONE_OUT];
    rows_load<1, ONE_OUT>(o, p.o, 0, 1, s.lo, s.hi, lane);
#pragma unroll
    for (int j = 0; j < ONE_OUT; j++) c[j] = lane & 2 ? 1.0f : head_factor(p, 0, s.lo + j);
#pragma unroll 1
    for (int i = 0; i < ONE_OUT; i += 2) {
        unit_rows<1, 2> x;
        unit_digits<1> f[2];
        float b[2][1][2] = {};
        x.low[0][0] = o.low[0][0];
        x.high[0][0] = o.high[0][0];
        rows_digits<1, 2>(f, x, 1, scratch, lane);
        if (i == 0) bar_wait(bar, 0);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            unit_mul<1>(b[j], slot + (i + j) * UNIT, f[j], lane);
            a[0][0] = fmaf(c[j], b[j][0][0], a[0][0]);
            a[0][1] = fmaf(c[j], b[j][0][1], a[0][1]);
            c[j] = c[j + 2];
        }
        o.low[0][0] = o.low[0][1];
        o.high[0][0] = o.high[0][1];
    }
}

template <int SETS, bool ONE> __global__ void __launch_bounds__(CTA, SETS == 1 ? 2 : 1) k_out(const __grid_constant__ out_params p)
{
    extern __shared__ __align__(128) uint8_t sm[];
    enum { OUT_UNITS = SETS == 4 ? 2 : 4 }; /* places of 128 columns whose digits a warp holds */
    __shared__ __align__(16) u32 scratch[WARPS][OUT_UNITS / 2 * DIGIT_WORDS];
    __shared__ __align__(8) u64 bar[WARPS];
    __shared__ float red[WARPS * 2 * SETS * 16];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, tile = blockIdx.x, t = lane & 3;
    const u32 bars = smem_addr(bar);
    const span s = span_of(p.units, warp);
    const uint8_t *slot = sm + (size_t)warp * p.slot;
    if (lane == 0) {
        bar_init(bars + 8 * warp, 1);
        bar_init_done();
        span_load(p.w + (size_t)tile * p.units * p.planes * UNIT, p.planes, s, slot, bars + 8 * warp);
    }
    __syncwarp();
    pdl_launch();
    const int r = threadIdx.x >> 4, r16 = threadIdx.x & 15, k = tile * 16 + r16, n_rows = ONE ? 1 : p.n_rows;
    const bool in = r < n_rows;
    const float norm = in && p.out.norm ? p.out.norm[k] : 0.0f;
    pdl_wait();
    const float x = in ? p.out.x[(size_t)r * p.out.hidden + k] : 0.0f;
    float a[SETS][2] = {};
    if constexpr (ONE) out_sums_one(p, a, slot, bars + 8 * warp, scratch[warp], s, lane);
    for (int unit = s.lo; !ONE && unit < s.hi; unit += OUT_UNITS) {
        unit_rows<SETS, OUT_UNITS> o;
        unit_digits<SETS> f[OUT_UNITS];
        float c[OUT_UNITS][SETS];
        rows_load<SETS, OUT_UNITS>(o, p.o, p.ld_o, p.n_rows, unit, s.hi, lane);
#pragma unroll
        for (int j = 0; j < OUT_UNITS; j++)
#pragma unroll
            for (int i = 0; i < SETS; i++) c[j][i] = head_factor(p, 2 * i + (t >> 1), unit + j);
        rows_digits<SETS, OUT_UNITS>(f, o, p.n_rows, scratch[warp], lane);
        if (unit == s.lo) bar_wait(bars + 8 * warp, 0);
        const uint8_t *at = slot + (size_t)(unit - s.lo) * p.planes * UNIT;
        float b[OUT_UNITS][SETS][2] = {};
        if (p.planes == 1 && unit + OUT_UNITS <= s.hi) { /* without a branch, as in units_mul */
#pragma unroll
            for (int j = 0; j < OUT_UNITS; j++) unit_mul<SETS>(b[j], at + j * UNIT, f[j], lane);
        } else {
#pragma unroll
            for (int j = 0; j < OUT_UNITS; j++)
                for (int pl = 0; pl < p.planes && unit + j < s.hi; pl++) unit_mul<SETS>(b[j], at + (j * p.planes + pl) * UNIT, f[j], lane);
        }
#pragma unroll
        for (int j = 0; j < OUT_UNITS; j++)
#pragma unroll
            for (int i = 0; i < SETS; i++) {
                a[i][0] = fmaf(c[j][i], b[j][i][0], a[i][0]);
                a[i][1] = fmaf(c[j][i], b[j][i][1], a[i][1]);
            }
    }
    red_put<SETS>(red, 1, 0, a, warp, lane);
    __syncthreads();
    if (threadIdx.x < (unsigned)(n_rows * 16 + 31) / 32 * 32) stream_put(p.out, r, k, in ? x + red_sum<SETS>(red, 1, 0, r, r16) : 0.0f, norm, in);
}

/* ---- launching ---- */

static stream_out stream_of(struct cuda_backend *c, const struct row_group *g, const struct vector *norm)
{
    struct workspace *ws = &c->ws;
    int hidden = c->base.shape.hidden;
    stream_out o = {ws->x + (size_t)g->row0 * hidden, ws->normed + (size_t)g->row0 * ws->pad_hidden, ws->ss + (size_t)g->row0 * (hidden / 16),
                    norm ? norm->data : NULL, hidden, ws->pad_hidden};
    return o;
}

void decode_embed(struct cuda_backend *c, const struct matrix *table, const struct vector *norm)
{
    struct workspace *ws = &c->ws;
    struct row_group all = {0, c->batch->n_rows, 0, c->batch->n_seqs};
    embed_params p = {ws->id, ws->pos, table->data, table->tile_bytes, table->planes, ws->rotary, c->frequency, stream_of(c, &all, norm)};
    launch(c, k_embed, dim3((unsigned)all.n), CTA, 0, p);
}

void decode_weigh(struct cuda_backend *c, const int32_t *rows, const struct vector *norm, int n, float *normed, float *ss)
{
    stream_out o = {NULL, normed, ss, norm->data, c->base.shape.hidden, c->ws.pad_hidden};
    norm_rows list = {};
    list.all = !rows;
    for (int i = 0; rows && i < n; i++) list.row[i] = rows[i];
    launch(c, k_weigh, dim3((unsigned)n), CTA, 0, (const float *)c->ws.x, list, o);
}

struct in_matrices {
    const struct matrix *m[MAX_PARTS];
    int n;
};

static in_params in_of(struct cuda_backend *c, const struct in_matrices *a, const struct row_group *g)
{
    struct workspace *ws = &c->ws;
    int hidden = c->base.shape.hidden;
    in_params p = {};
    for (int i = 0; i < MAX_PARTS; i++) {
        const struct matrix *m = a->m[i < a->n ? i : a->n - 1];
        p.w[i] = m->data;
        p.planes[i] = m->planes;
        p.n_tiles += i < a->n ? m->tiles : 0;
        p.end[i] = p.n_tiles;
        p.units = m->units;
        int slot = slot_bytes(m->units, m->planes);
        if (slot > p.slot) p.slot = slot;
        if (m->planes * UNIT > p.slot_unit) p.slot_unit = m->planes * UNIT;
    }
    p.x = ws->normed + (size_t)g->row0 * ws->pad_hidden;
    p.ss = ws->ss + (size_t)g->row0 * (hidden / 16);
    p.ld_x = ws->pad_hidden;
    p.hidden = hidden;
    p.n_rows = g->n;
    p.eps = c->base.shape.rms_eps;
    p.u = ws->u + (size_t)g->row0 * ws->ld_u;
    p.ld_u = ws->ld_u;
    return p;
}

template <bool ATTN> static void launch_in(struct cuda_backend *c, in_params p)
{
    int grid = p.n_tiles < c->n_sms ? p.n_tiles : c->n_sms, sets = row_sets(p.n_rows);
    p.tb = (p.n_tiles + grid - 1) / grid;
    if (p.tb > MAX_TB) p.tb = MAX_TB;
    size_t tile = (size_t)WARPS * p.slot + (size_t)WARPS * 2 * sets * 16 * 4 + (size_t)p.n_rows * 16 * 4;
    while (p.tb > 1 && tile * p.tb > (size_t)c->max_shared - 12 * 1024) p.tb--;
    const bool one = p.n_rows == 1 && p.slot_unit == UNIT && p.units == WARPS * IN_UNITS && p.n_tiles <= grid * p.tb && p.hidden <= ONE_HIDDEN;
    const auto kernel = one ? k_in<1, ATTN, true> : sets == 1 ? k_in<1, ATTN, false> : sets == 2 ? k_in<2, ATTN, false> : k_in<4, ATTN, false>;
    launch(c, kernel, dim3((unsigned)grid), CTA, alone(c, kernel, dim3((unsigned)grid), tile * p.tb, LARGE), p);
}

void decode_gdn_in(struct cuda_backend *c, const struct gdn_weights *w)
{
    struct row_group groups[MAX_DECODE];
    const struct model_shape *s = &c->base.shape;
    int n = decode_groups(c->batch, groups);
    struct in_matrices a = {{w->in_qkv, w->in_z, w->in_b, w->in_a}, 4};
    for (int i = 0; i < n; i++) {
        in_params p = in_of(c, &a, &groups[i]);
        p.ps = c->ws.pass;
        p.seq_of = c->ws.seq_of;
        p.row0 = groups[i].row0;
        p.conv_at = (size_t)c->gdn_seen * CONV_HISTORY * (size_t)shape_conv_dim(s);
        p.conv_dim = shape_conv_dim(s);
        p.heads = s->n_gdn_v_heads;
        p.conv = w->conv->data;
        p.out_norm = w->out_norm->data;
        p.a_log = w->a_log->data;
        p.dt_bias = w->dt_bias->data;
        p.gates = c->ws.gates + (size_t)groups[i].row0 * 2 * p.heads;
        launch_in<false>(c, p);
    }
}

void decode_attn_in(struct cuda_backend *c, const struct attn_weights *w, int index)
{
    struct row_group groups[MAX_DECODE];
    int n = decode_groups(c->batch, groups);
    struct in_matrices a = {{w->q, w->k, w->v}, 3};
    for (int i = 0; i < n; i++) launch_in<true>(c, in_of(c, &a, &groups[i]));
    c->attn = w;
    if (!c->states.kv_bf16) decode_attn_append(c, index);
}

static void launch_out(struct cuda_backend *c, const struct matrix *m, bool norm_heads, const struct vector *next)
{
    struct row_group groups[MAX_DECODE];
    struct workspace *ws = &c->ws;
    int n = decode_groups(c->batch, groups), heads = c->base.shape.n_gdn_v_heads;
    for (int i = 0; i < n; i++) {
        const struct row_group *g = &groups[i];
        out_params p = {m->data, m->planes, m->units, slot_bytes(m->units, m->planes), ws->mix + (size_t)g->row0 * ws->pad_mix,
                        ws->pad_mix, g->n, norm_heads ? ws->o_ss + (size_t)g->row0 * heads * 4 : NULL, heads, c->base.shape.rms_eps,
                        stream_of(c, g, next)};
        size_t shared = (size_t)WARPS * p.slot;
        const int sets = row_sets(g->n);
        const bool one = g->n == 1 && p.planes == 1 && p.units == WARPS * ONE_OUT;
        const auto kernel = one ? k_out<1, true> : sets == 1 ? k_out<1, false> : sets == 2 ? k_out<2, false> : k_out<4, false>;
        launch(c, kernel, dim3((unsigned)m->tiles), CTA, alone(c, kernel, dim3((unsigned)m->tiles), shared, LARGE), p);
    }
}

void decode_gdn_out(struct cuda_backend *c, const struct gdn_weights *w, const struct vector *next)
{
    launch_out(c, w->out, true, next);
}

void decode_attn_out(struct cuda_backend *c, const struct attn_weights *w, const struct vector *next)
{
    launch_out(c, w->o, false, next);
}
