/*
 * The decode product: up to 8 rows times tiles of 16 weight rows, for one CTA of 8 warps.
 *
 * Warp w has the places [w*units/8, (w+1)*units/8) of 128 columns; its weights come by bulk copy into its own slots, so warps
 * wait for nobody until their sums meet in shared memory. A row takes two columns of the tensor cores' 8, one for the high
 * part of its numbers and one for the rest, so that activations count with 16 bits and weights exactly. The sum of a row is
 * taken in one order: group after group in a warp, then warp after warp; it depends on no other row.
 */
#ifndef LILY_BACKEND_CUDA_GEMV_CUH
#define LILY_BACKEND_CUDA_GEMV_CUH

#include "backend/cuda/common.cuh"

template <int SETS> struct unit_frags {
    u32 b[SETS][2][4][2]; /* set of 4 rows, group, mask, register */
    float n[SETS][2];     /* sum of the group's numbers of row 4*set + lane%4, on the scale of the products */
};

/*
 * The fragments of up to MAXU units from `unit`: all are requested before any is used, for each costs a trip to the L2 cache.
 * Row r of the rows begins at frag + r*ld; rows from n_rows and units from `end` on count as zero.
 */
template <int SETS, int MAXU> DI void frags_load(unit_frags<SETS> (&f)[MAXU], const u16 *frag, int ld, int n_rows, int unit, int end, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int j = 0; j < MAXU; j++)
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            const int row = s * 4 + (g >> 1);
            const u16 *p = frag + (size_t)row * ld + (unit + j) * 256 + (g & 1) * 32 + t * 8;
#pragma unroll
            for (int gr = 0; gr < 2; gr++)
#pragma unroll
                for (int mp = 0; mp < 2; mp++) {
                    uint4 v = make_uint4(0, 0, 0, 0);
                    if (row < n_rows && unit + j < end) v = *(const uint4 *)(p + gr * 128 + mp * 64);
                    f[j].b[s][gr][2 * mp][0] = v.x;
                    f[j].b[s][gr][2 * mp][1] = v.y;
                    f[j].b[s][gr][2 * mp + 1][0] = v.z;
                    f[j].b[s][gr][2 * mp + 1][1] = v.w;
                }
        }
}

/* Their sums by group. */
template <int SETS, int MAXU> DI void frags_sum(unit_frags<SETS> (&f)[MAXU])
{
#pragma unroll
    for (int j = 0; j < MAXU; j++)
#pragma unroll
        for (int s = 0; s < SETS; s++)
#pragma unroll
            for (int gr = 0; gr < 2; gr++) {
                float d[4] = {0, 0, 0, 0};
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    const u32 one = m & 1 ? 0x41804180u : 0x3f803f80u; /* 16 undoes the scale of high columns */
                    mma16(d, one, one, one, one, f[j].b[s][gr][m][0], f[j].b[s][gr][m][1]);
                }
                f[j].n[s][gr] = (d[0] + d[1]) * 7.888609052210118e-31f * 1.1641532182693481e-10f; /* 2^-100, 2^-33 */
            }
}

/* a[s][0], a[s][1]: rows g and g+8 of the tile for row 4s + lane%4, on the scale 2^-33. */
template <int SETS> DI void unit_mul(float (&a)[SETS][2], const uint8_t *unit, const unit_frags<SETS> &f, int lane)
{
    const int g = lane >> 2;
    const uint2 sc = *(const uint2 *)(unit + 1024 + g * 8), bi = *(const uint2 *)(unit + 1088 + g * 8);
#pragma unroll
    for (int gr = 0; gr < 2; gr++) {
        const u32 L = 0x000f000fu, H = 0x00f000f0u;
        uint4 w = *(const uint4 *)(unit + gr * 512 + lane * 16);
        const u32 x = w.x >> 8, y = w.y >> 8, z = w.z >> 8, q = w.w >> 8;
        const float s0 = gr ? bf_hi(sc.x) : bf_lo(sc.x), s1 = gr ? bf_hi(sc.y) : bf_lo(sc.y);
        const float b0 = gr ? bf_hi(bi.x) : bf_lo(bi.x), b1 = gr ? bf_hi(bi.y) : bf_lo(bi.y);
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            float d[4] = {0, 0, 0, 0};
            mma16(d, w.x & L, w.y & L, w.z & L, w.w & L, f.b[s][gr][0][0], f.b[s][gr][0][1]);
            mma16(d, w.x & H, w.y & H, w.z & H, w.w & H, f.b[s][gr][1][0], f.b[s][gr][1][1]);
            mma16(d, x & L, y & L, z & L, q & L, f.b[s][gr][2][0], f.b[s][gr][2][1]);
            mma16(d, x & H, y & H, z & H, q & H, f.b[s][gr][3][0], f.b[s][gr][3][1]);
            a[s][0] = fmaf(b0, f.n[s][gr], fmaf(s0, d[0] + d[1], a[s][0]));
            a[s][1] = fmaf(b1, f.n[s][gr], fmaf(s1, d[2] + d[3], a[s][1]));
        }
    }
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
}

/* red: (WARPS, n_tiles, 4*SETS, 16) floats. */
template <int SETS> DI void red_put(float *red, int n_tiles, int tile, const float (&a)[SETS][2], int warp, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int s = 0; s < SETS; s++) {
        float *p = red + (((size_t)warp * n_tiles + tile) * (4 * SETS) + s * 4 + t) * 16 + g;
        p[0] = a[s][0];
        p[8] = a[s][1];
    }
}

template <int SETS> DI float red_sum(const float *red, int n_tiles, int tile, int row, int r16)
{
    const float *p = red + ((size_t)tile * (4 * SETS) + row) * 16 + r16;
    const int ld = n_tiles * 4 * SETS * 16;
    float v = p[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++) v += p[w * ld];
    return v * FRAG_BACK;
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

/* One number of a row of the residual stream: x, its fragment for the next norm (whose weight is given), and the sum of
 * squares of its tile of 16. All lanes of a warp call it; 16 neighbours have the rows of one tile. */
struct stream_out {
    float *x;          /* (rows, hidden) */
    u16 *frag;         /* (rows, ld_frag); not written without norm */
    float *ss;         /* (rows, hidden/16) */
    const float *norm; /* (hidden) or NULL */
    int hidden, ld_frag;
};

DI void stream_put(const stream_out &o, int row, int k, float h, float norm, bool in)
{
    float s = h * h;
#pragma unroll
    for (int d = 8; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
    if (!in) return;
    o.x[(size_t)row * o.hidden + k] = h;
    if (!o.norm) return;
    frag_put(o.frag + (size_t)row * o.ld_frag, k, h * norm);
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
