/*
 * The decode product: up to 8 rows times tiles of 16 weight rows, for one CTA of 8 warps.
 *
 * Warp w has the places [w*units/8, (w+1)*units/8) of 128 columns; its weights come by bulk copy into its own slots, so warps
 * wait for nobody until their sums meet in shared memory. A row's numbers become whole numbers of three signed digits to the
 * base 256, on a power of two that fits the largest of 256 columns (21 bits of it), each digit in a column of the tensor cores'
 * eight; a fourth column stays free. A byte of weights is low + 16*high, so the bytes as they are times the low columns' numbers
 * a, and their high nibbles times c = high/16 - a, make the sum: one mask for eight weights. Products and their sums over 64
 * columns are exact, so a row's result depends neither on other rows nor on how many there are; beyond, it is summed in one
 * order: group after group in a warp, then warp after warp.
 *
 * The kernels' instructions come from memory, too, once a layer, and less code is faster (SPEED.md). So kernels have a form
 * ONE for the usual case: one row, 4 bits, spans of just the units that a warp holds at once. It computes the same bits with a
 * third of the code; and what is done twice is a loop.
 */
#ifndef LILY_BACKEND_CUDA_GEMV_CUH
#define LILY_BACKEND_CUDA_GEMV_CUH

#include "backend/cuda/common.cuh"

enum { DIGIT_LD = 20, DIGIT_WORDS = 3 * 4 * DIGIT_LD }; /* scratch for the digits of a pair of units: [digit][t][16 words] */

/* Rows as they lie in memory, for units in pairs: lane 16u+8gr+4q+t has columns 16q+4t … +3 of group gr of unit u, and those + 32. */
template <int SETS, int MAXU> struct unit_rows {
    float4 low[2 * SETS][(MAXU + 1) / 2], high[2 * SETS][(MAXU + 1) / 2];
};

/* A unit's columns of the rows as B fragments; a set is two rows. Lanes with even t have digits 0 and 1 of row 2*set + t/2, odd ones digit 2. */
template <int SETS> struct unit_digits {
    uint4 b[SETS][2]; /* set, group: x, y times bytes; z, w times their high nibbles */
    float n[SETS][2];                 /* sum of the group's numbers */
    float worth[SETS];                /* of a 1 in this lane's sums */
};

/* Requests up to MAXU units from `unit`; row r begins at x + r*ld. Rows from n_rows and units from `end` on count as zero. */
template <int SETS, int MAXU> DI void rows_load(unit_rows<SETS, MAXU> &o, const float *x, int ld, int n_rows, int unit, int end, int lane)
{
    const int at = unit * UNIT_COLS + (lane >> 3) * 64 + ((lane >> 2) & 1) * 16 + (lane & 3) * 4;
#pragma unroll
    for (int p = 0; p < (MAXU + 1) / 2; p++)
#pragma unroll
        for (int r = 0; r < 2 * SETS; r++) {
            o.low[r][p] = o.high[r][p] = make_float4(0, 0, 0, 0);
            if (r >= n_rows || unit + 2 * p + (lane >> 4) >= end) continue;
            const float *from = x + (size_t)r * ld + at + p * 2 * UNIT_COLS;
            o.low[r][p] = *(const float4 *)from;
            o.high[r][p] = *(const float4 *)(from + 32);
        }
}

DI float max_abs(float a, float b) /* NaN wins */
{
    float m;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(fabsf(a)), "f"(fabsf(b)));
    return m;
}

/* Three signed digits of each of four numbers: a word for each digit. */
DI void digits_of(const int (&v)[4], u32 (&digit)[3])
{
    u32 w[4];
#pragma unroll
    for (int k = 0; k < 4; k++) w[k] = (u32)(v[k] + 0x808080) ^ 0x808080u;
    const u32 p = __byte_perm(w[0], w[1], 0x5140), q = __byte_perm(w[2], w[3], 0x5140);
    digit[0] = __byte_perm(p, q, 0x5410);
    digit[1] = __byte_perm(p, q, 0x7632);
    digit[2] = __byte_perm(__byte_perm(w[0], w[1], 0x0062), __byte_perm(w[2], w[3], 0x0062), 0x5410);
}

/* One row's columns of a pair of units into the warp's scratch; returns what a 1 is worth: a power of two, NaN if any number is not finite. */
DI float row_digits(u32 *scratch, const float4 &low, const float4 &high, int lane)
{
    const float m = max_abs(max_abs(max_abs(low.x, low.y), max_abs(low.z, low.w)), max_abs(max_abs(high.x, high.y), max_abs(high.z, high.w)));
    const u32 top = __reduce_max_sync(~0u, __float_as_uint(m)) >> 23, e = top < 22 ? 22 : top;
    const float scale = __uint_as_float((274 - e) << 23), scale16 = scale * 0.0625f, magic = 12582912.0f; /* 1.5 * 2^23 */
    const float l[4] = {low.x, low.y, low.z, low.w}, h[4] = {high.x, high.y, high.z, high.w};
    int a[4], c[4];
    u32 da[3], dc[3];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        a[k] = __float_as_int(fmaf(l[k], scale, magic));
        c[k] = __float_as_int(fmaf(h[k], scale16, magic)) - a[k];
        a[k] -= 0x4b400000;
    }
    digits_of(a, da);
    digits_of(c, dc);
#pragma unroll
    for (int j = 0; j < 3; j++) {
        u32 *to = scratch + (j * 4 + (lane & 3)) * DIGIT_LD + (lane >> 3) * 4 + ((lane >> 2) & 1);
        to[0] = da[j];
        to[2] = dc[j];
    }
    return top == 255 ? __uint_as_float(0x7fffffffu) : __uint_as_float((e - 20) << 23);
}

/* All rows' digits as fragments, and their sums by group. scratch: DIGIT_WORDS of the warp's own for each pair of units. */
template <int SETS, int MAXU> DI void rows_digits(unit_digits<SETS> (&f)[MAXU], const unit_rows<SETS, MAXU> &x, int n_rows, u32 *scratch, int lane)
{
    enum { PAIRS = (MAXU + 1) / 2 };
    const int g = lane >> 2, t = lane & 3, j = g & 3;
#pragma unroll
    for (int s = 0; s < SETS; s++) {
#pragma unroll
        for (int k = 0; k < MAXU; k++) {
            f[k].b[s][0] = f[k].b[s][1] = make_uint4(0, 0, 0, 0);
            f[k].worth[s] = 0;
        }
#pragma unroll
        for (int r = 2 * s; r < 2 * s + 2; r++) {
            if (r >= n_rows) break;
            float w[PAIRS];
#pragma unroll
            for (int p = 0; p < PAIRS; p++) w[p] = row_digits(scratch + p * DIGIT_WORDS, x.low[r][p], x.high[r][p], lane);
            __syncwarp();
#pragma unroll
            for (int k = 0; k < MAXU; k++) {
                const uint4 *from = (const uint4 *)(scratch + (k / 2) * DIGIT_WORDS + (j * 4 + t) * DIGIT_LD) + 2 * (k & 1);
                if (j < 3 && g >> 2 == (r & 1)) f[k].b[s][0] = from[0], f[k].b[s][1] = from[1];
                if (t >> 1 == (r & 1)) f[k].worth[s] = t & 1 ? w[k / 2] * 65536.0f : w[k / 2];
            }
            __syncwarp();
        }
#pragma unroll
        for (int k = 0; k < MAXU; k++)
#pragma unroll
            for (int gr = 0; gr < 2; gr++) {
                const uint4 w = f[k].b[s][gr];
                int d[4] = {0, 0, 0, 0};
                mma32(d, 0x11111111u, 0x11111111u, 0x11111111u, 0x11111111u, w.x, w.y);
                mma32(d, 0x10101010u, 0x10101010u, 0x10101010u, 0x10101010u, w.z, w.w);
                f[k].n[s][gr] = (float)(d[0] + d[1] * 256) * f[k].worth[s];
            }
    }
}

/* a[s][0], a[s][1]: rows g and g+8 of the tile for row 2s + lane%4/2, the part of this lane's digits. */
template <int SETS> DI void unit_mul(float (&a)[SETS][2], const uint8_t *unit, const unit_digits<SETS> &f, int lane)
{
    const int g = lane >> 2;
    const uint2 sc = *(const uint2 *)(unit + 1024 + g * 8), bi = *(const uint2 *)(unit + 1088 + g * 8);
#pragma unroll
    for (int gr = 0; gr < 2; gr++) {
        const u32 H = 0xf0f0f0f0u;
        const uint4 w = *(const uint4 *)(unit + gr * 512 + lane * 16);
        const u32 x = w.x & H, y = w.y & H, z = w.z & H, q = w.w & H;
        const float s0 = gr ? bf_hi(sc.x) : bf_lo(sc.x), s1 = gr ? bf_hi(sc.y) : bf_lo(sc.y);
        const float b0 = gr ? bf_hi(bi.x) : bf_lo(bi.x), b1 = gr ? bf_hi(bi.y) : bf_lo(bi.y);
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            int d[4] = {0, 0, 0, 0};
            mma32(d, w.x, w.y, w.z, w.w, f.b[s][gr].x, f.b[s][gr].y);
            mma32(d, x, y, z, q, f.b[s][gr].z, f.b[s][gr].w);
            a[s][0] = fmaf(b0, f.n[s][gr], fmaf(s0, (float)(d[0] + d[1] * 256) * f.worth[s], a[s][0]));
            a[s][1] = fmaf(b1, f.n[s][gr], fmaf(s1, (float)(d[2] + d[3] * 256) * f.worth[s], a[s][1]));
        }
    }
}

/*
 * a += units [0, n) of a tile's span. The usual case, 4 bits and all MAXU units, has no branch, so that their chains overlap. Tiles come
 * one after another: side by side they are no faster for one row, and slower for eight, since that is more code.
 */
template <int SETS, int MAXU>
DI void units_mul(float (&a)[SETS][2], const uint8_t *slot, int planes, const unit_digits<SETS> (&f)[MAXU], int n, int lane)
{
    if (planes == 1 && n >= MAXU) {
#pragma unroll
        for (int j = 0; j < MAXU; j++) unit_mul<SETS>(a, slot + j * UNIT, f[j], lane);
        return;
    }
#pragma unroll
    for (int j = 0; j < MAXU; j++) {
        if (j >= n) break;
        for (int pl = 0; pl < planes; pl++) unit_mul<SETS>(a, slot + (j * planes + pl) * UNIT, f[j], lane);
    }
}

/* The kernel form for so many rows: 1, 2, 4. */
static inline int row_sets(int n_rows)
{
    return n_rows <= 2 ? 1 : n_rows <= 4 ? 2 : 4;
}

/* Bytes of a warp's span of one tile. */
static inline int slot_bytes(int units, int planes)
{
    return (units + WARPS - 1) / WARPS * planes * UNIT;
}

/* The part of one warp in a product over K. */
struct span {
    int lo, hi; /* units */
};

DI span span_of(int units, int warp)
{
    span s = {warp * units / WARPS, (warp + 1) * units / WARPS};
    return s;
}

/* One lane requests a span of a tile; bytes may be 0. */
DI void span_load(const uint8_t *tile, int planes, span s, const uint8_t *slot, u32 bar)
{
    u32 bytes = (u32)(s.hi - s.lo) * (u32)planes * UNIT;
    if (!bytes) return;
    bar_expect(bar, bytes);
    bulk_load(smem_addr(slot), tile + (size_t)s.lo * planes * UNIT, bytes, bar);
    bulk_sent(bar);
}

/* red: (WARPS, n_tiles, 2*SETS, 16) floats. */
template <int SETS> DI void red_put(float *red, int n_tiles, int tile, const float (&a)[SETS][2], int warp, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int s = 0; s < SETS; s++) {
        float *p = red + (((size_t)warp * n_tiles + tile) * (2 * SETS) + s * 2 + (t >> 1)) * 16 + g;
        const float x = a[s][0] + __shfl_xor_sync(~0u, a[s][0], 1), y = a[s][1] + __shfl_xor_sync(~0u, a[s][1], 1);
        p[(t & 1) * 8] = t & 1 ? y : x;
    }
}

template <int SETS> DI float red_sum(const float *red, int n_tiles, int tile, int row, int r16)
{
    const float *p = red + ((size_t)tile * (2 * SETS) + row) * 16 + r16;
    const int ld = n_tiles * 2 * SETS * 16;
    float v = p[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++) v += p[w * ld];
    return v;
}

/* 1/rms of each row from its partial sums of squares, a warp a row (at most WARPS): requested early, summed late. */
DI float4 rms_request(const float *ss, int n_parts, int n_rows, int warp, int lane)
{
    float4 v = make_float4(0, 0, 0, 0);
    if (warp < n_rows && lane * 4 < n_parts) v = *(const float4 *)(ss + (size_t)warp * n_parts + lane * 4);
    return v;
}

DI void rms_finish(float *out, float4 v, const float *ss, int n_parts, int n_rows, int n, float eps, int warp, int lane)
{
    if (warp >= n_rows) return;
    float s = (v.x + v.y) + (v.z + v.w);
    for (int i = 128 + lane; i < n_parts; i += 32) s += ss[(size_t)warp * n_parts + i];
    s = warp_sum(s);
    if (lane == 0) out[warp] = rsqrtf(s / (float)n + eps);
}

/* The same for one row of at most 2048 numbers. */
DI void rms_finish_one(float *out, float4 v, int n, float eps, int warp, int lane)
{
    if (warp) return;
    const float s = warp_sum((v.x + v.y) + (v.z + v.w));
    if (lane == 0) *out = rsqrtf(s / (float)n + eps);
}
enum { ONE_HIDDEN = 2048 };

/* One number of a row of the residual stream: x, x times the next norm's weight (where that is given), and the sum of
 * squares of its tile of 16. All lanes of a warp call it; 16 neighbours have the rows of one tile. */
struct stream_out {
    float *x;          /* (rows, hidden) */
    float *normed;     /* (rows, ld); not written without norm */
    float *ss;         /* (rows, hidden/16) */
    const float *norm; /* (hidden) or NULL */
    int hidden, ld;
};

DI void stream_put(const stream_out &o, int row, int k, float h, float norm, bool in)
{
    float s = h * h;
#pragma unroll
    for (int d = 8; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
    if (!in) return;
    o.x[(size_t)row * o.hidden + k] = h;
    if (!o.norm) return;
    o.normed[(size_t)row * o.ld + k] = h * norm;
    if ((k & 15) == 0) o.ss[(size_t)row * (o.hidden / 16) + k / 16] = s;
}

/* The 8 highest of n <= 256 logits, best first, the lower index on a tie, with their softmax; one warp. */
DI void top_experts(const float *logits, int n, int *top, float *weight, int lane)
{
    u32 key[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int e = i * 32 + lane;
        u32 b = e < n ? __float_as_uint(logits[e]) : 0;
        key[i] = e < n ? b ^ (b >> 31 ? 0xffffffffu : 0x80000000u) : 0;
    }
    float first = 0, sum = 0, mine = 0;
    int mine_e = 0;
#pragma unroll 1
    for (int k = 0; k < TOP; k++) {
        u32 best = 0;
        int at = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (key[i] > best) best = key[i], at = i;
        u32 m = __reduce_max_sync(~0u, best);
        u32 e = __reduce_min_sync(~0u, best == m ? (u32)(at * 32 + lane) : 0xffffffffu);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (e == (u32)(i * 32 + lane)) key[i] = 0;
        float v = __uint_as_float(m ^ (m >> 31 ? 0x80000000u : 0xffffffffu));
        if (k == 0) first = v;
        float p = __expf(v - first);
        sum += p;
        if (lane == k) mine = p, mine_e = (int)e;
    }
    if (lane < TOP) {
        top[lane] = mine_e;
        weight[lane] = mine / sum;
    }
}

#endif
