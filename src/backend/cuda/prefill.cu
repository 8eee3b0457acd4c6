/* Prefill around the residual stream: norms, projections, and the mixture of experts. */
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/gemv.cuh"

/* ---- norm ---- */

struct norm_params {
    const float *x, *w;
    u16 *out;     /* (rows, ld) in the units' order */
    float *out_f; /* (rows, hidden) or NULL */
    int hidden, ld;
    float eps;
};

DI float block_sum(float v, float *part)
{
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    float s = part[0];
    for (int i = 1; i < WARPS; i++) s += part[i];
    return s;
}

__global__ void __launch_bounds__(CTA) k_norm(const __grid_constant__ norm_params p)
{
    __shared__ float part[WARPS];
    pdl_launch();
    pdl_wait();
    const size_t r = blockIdx.x;
    const float *x = p.x + r * p.hidden;
    float s = 0;
    for (int k = threadIdx.x; k < p.hidden; k += CTA) s = fmaf(x[k], x[k], s);
    const float f = rsqrtf(block_sum(s, part) / (float)p.hidden + p.eps);
    for (int k = threadIdx.x; k < p.hidden; k += CTA) {
        const float v = x[k] * f * p.w[k];
        p.out[r * p.ld + perm_of(k)] = f_bf(v);
        if (p.out_f) p.out_f[r * p.hidden + k] = v;
    }
}

static void norm_rows(struct cuda_backend *c, const struct vector *w, bool keep)
{
    struct workspace *ws = &c->ws;
    norm_params p = {ws->x, w->data, ws->norm, keep ? ws->norm_f : NULL, c->base.shape.hidden, ws->pad_hidden, c->base.shape.rms_eps};
    launch(c, k_norm, dim3((unsigned)c->batch->n_rows), CTA, 0, p);
}

void prefill_embed(struct cuda_backend *c, const struct matrix *table)
{
    decode_embed(c, table, NULL);
}

/* ---- projections ---- */

static int width_of(int n_rows)
{
    return n_rows <= 32 ? 32 : n_rows <= 512 ? 64 : 128;
}

static void dense(struct cuda_backend *c, gemm_params *p, int n_parts, const u16 *x, int ldx, int units)
{
    p->x = x;
    p->ldx = ldx;
    p->units = units;
    p->n_rows = c->batch->n_rows;
    int bn = width_of(p->n_rows);
    gemm_run(c, p, n_parts, bn, (p->n_rows + bn - 1) / bn);
}

void prefill_gdn_in(struct cuda_backend *c, const struct gdn_weights *w)
{
    struct workspace *ws = &c->ws;
    gemm_params p = {};
    norm_rows(c, w->norm, false);
    p.part[0] = gemm_part_of(w->in_qkv, GEMM_BF16, ws->qkv, ws->ld_qkv);
    p.part[1] = gemm_part_of(w->in_z, GEMM_BF16, ws->z, shape_gdn_value_dim(&c->base.shape));
    p.part[2] = gemm_part_of(w->in_b, GEMM_F32, ws->ba, 2 * ws->ld_heads);
    p.part[3] = gemm_part_of(w->in_a, GEMM_F32, ws->ba + ws->ld_heads, 2 * ws->ld_heads);
    dense(c, &p, 4, ws->norm, ws->pad_hidden, w->in_qkv->units);
}

static void add_out(struct cuda_backend *c, const struct matrix *m)
{
    gemm_params p = {};
    p.part[0] = gemm_part_of(m, GEMM_ADD, c->ws.x, c->base.shape.hidden);
    dense(c, &p, 1, c->ws.mixed, c->ws.pad_mix, m->units);
}

void prefill_gdn_out(struct cuda_backend *c, const struct gdn_weights *w)
{
    add_out(c, w->out);
}

void prefill_attn_out(struct cuda_backend *c, const struct attn_weights *w)
{
    add_out(c, w->o);
}

void prefill_attn_in(struct cuda_backend *c, const struct attn_weights *w, int index)
{
    struct workspace *ws = &c->ws;
    gemm_params p = {};
    norm_rows(c, w->norm, false);
    p.part[0] = gemm_part_of(w->q, GEMM_BF16, ws->qkv, ws->ld_qkv);
    p.part[1] = gemm_part_of(w->k, GEMM_BF16, ws->qkv + w->q->rows, ws->ld_qkv);
    p.part[2] = gemm_part_of(w->v, GEMM_BF16, ws->qkv + w->q->rows + w->k->rows, ws->ld_qkv);
    dense(c, &p, 3, ws->norm, ws->pad_hidden, w->q->units);
    prefill_append(c, w, index);
}

/* ---- router ---- */

/* Router logits and the shared gate in fp32, for the order of experts hangs on small differences. */
struct router_params {
    const uint8_t *w[2];
    int planes[2], rows[2];
    size_t tile_bytes[2];
    const float *x;
    int hidden, n_rows, blocks0; /* blocks of 64 rows of the first matrix */
    float *y[2];
    int ld[2];
};

enum { RT = 64, RK = 32 };

__global__ void __launch_bounds__(CTA) k_router(const __grid_constant__ router_params p)
{
    __shared__ float ws[RK][RT + 4], xs[RK][RT + 4];
    pdl_launch();
    pdl_wait();
    const int m = (int)blockIdx.x >= p.blocks0, n0 = ((int)blockIdx.x - (m ? p.blocks0 : 0)) * RT, r0 = blockIdx.y * RT;
    const int tn = (threadIdx.x & 15) * 4, tr = (threadIdx.x >> 4) * 4;
    float acc[4][4] = {};
    for (int k0 = 0; k0 < p.hidden; k0 += RK) {
        for (int i = threadIdx.x; i < RT * RK; i += CTA) {
            const int k = i & (RK - 1), j = i / RK, n = n0 + j, r = r0 + j;
            ws[k][j] = n < p.rows[m] ? unit_weight(p.w[m] + (size_t)(n >> 4) * p.tile_bytes[m], p.planes[m], n, k0 + k) : 0.0f;
            xs[k][j] = r < p.n_rows ? p.x[(size_t)r * p.hidden + k0 + k] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < RK; k++) {
            const float4 a = *(const float4 *)&ws[k][tn], b = *(const float4 *)&xs[k][tr];
            const float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] = fmaf(bv[i], av[j], acc[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (r0 + tr + i < p.n_rows && n0 + tn + j < p.rows[m]) p.y[m][(size_t)(r0 + tr + i) * p.ld[m] + n0 + tn + j] = acc[i][j];
}

/* ---- choice of experts, tokens sorted by expert ---- */

struct choice_params {
    const float *logits;
    int ld, n_experts, n_rows, bn;
    int32_t *top, *count, *first, *cursor, *blocks, *slot_row, *slot_of;
    float *weight;
};

__global__ void k_choose(const __grid_constant__ choice_params p)
{
    __shared__ int top[WARPS][TOP];
    __shared__ float weight[WARPS][TOP];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = blockIdx.x * WARPS + warp;
    pdl_launch();
    pdl_wait();
    if (r >= p.n_rows) return;
    top_experts(p.logits + (size_t)r * p.ld, p.n_experts, top[warp], weight[warp], lane);
    __syncwarp();
    if (lane >= TOP) return;
    p.top[(size_t)r * TOP + lane] = top[warp][lane];
    p.weight[(size_t)r * TOP + lane] = weight[warp][lane];
    atomicAdd(&p.count[top[warp][lane]], 1);
}

/* Where each expert's slots begin, and the list of blocks of bn slots; counts go back to zero for the next layer. */
__global__ void __launch_bounds__(CTA) k_plan(const __grid_constant__ choice_params p)
{
    __shared__ int slots[CTA], blocks[CTA];
    pdl_launch();
    pdl_wait();
    const int e = threadIdx.x, n = e < p.n_experts ? p.count[e] : 0, nb = (n + p.bn - 1) / p.bn;
    slots[e] = n;
    blocks[e] = nb;
    __syncthreads();
    for (int d = 1; d < CTA; d <<= 1) {
        const int s = e >= d ? slots[e - d] : 0, b = e >= d ? blocks[e - d] : 0;
        __syncthreads();
        slots[e] += s;
        blocks[e] += b;
        __syncthreads();
    }
    const int first = slots[e] - n, at = blocks[e] - nb;
    if (e < p.n_experts) {
        p.first[e] = first;
        p.cursor[e] = first;
        p.count[e] = 0;
        for (int i = 0; i < nb; i++) {
            p.blocks[2 + 2 * (at + i)] = e;
            p.blocks[3 + 2 * (at + i)] = first + i * p.bn;
        }
    }
    if (e == CTA - 1) {
        p.first[p.n_experts] = slots[e];
        p.blocks[0] = blocks[e];
    }
}

/* The order of an expert's slots may differ from run to run; no row's bits depend on it. */
__global__ void k_scatter(const __grid_constant__ choice_params p)
{
    pdl_launch();
    pdl_wait();
    const int i = blockIdx.x * CTA + threadIdx.x;
    if (i >= p.n_rows * TOP) return;
    const int slot = atomicAdd(&p.cursor[p.top[i]], 1);
    p.slot_row[slot] = i / TOP;
    p.slot_of[i] = slot;
}

static int expert_width(const struct cuda_backend *c)
{
    int mean = c->batch->n_rows * TOP / c->base.shape.n_experts;
    return mean <= 24 ? 32 : mean <= 96 ? 64 : 128;
}

void prefill_moe_route(struct cuda_backend *c, const struct moe_weights *w)
{
    struct workspace *ws = &c->ws;
    const struct model_shape *s = &c->base.shape;
    int n = c->batch->n_rows;
    norm_rows(c, w->norm, true);
    int blocks0 = (s->n_experts + RT - 1) / RT;
    router_params r = {{w->router->data, w->shared_gate->data}, {w->router->planes, w->shared_gate->planes}, {s->n_experts, 1},
                       {w->router->tile_bytes, w->shared_gate->tile_bytes}, ws->norm_f, s->hidden, n, blocks0, {ws->router_p, ws->shared_gate_p},
                       {ws->ld_experts, 1}};
    launch(c, k_router, dim3((unsigned)blocks0 + 1, (unsigned)(n + RT - 1) / RT), CTA, 0, r);
    choice_params p = {ws->router_p, ws->ld_experts, s->n_experts, n, expert_width(c), ws->top, ws->expert_count, ws->expert_first, ws->expert_cursor,
                       ws->blocks, ws->slot_row, ws->slot_of, ws->top_weight};
    launch(c, k_choose, dim3((unsigned)(n + WARPS - 1) / WARPS), CTA, 0, p);
    launch(c, k_plan, dim3(1), CTA, 0, p);
    launch(c, k_scatter, dim3((unsigned)(n * TOP + CTA - 1) / CTA), CTA, 0, p);
}

/* ---- experts ---- */

struct combine_params {
    float *x;
    const u16 *expert_out;
    const float *shared_out, *shared_gate, *weight;
    const int32_t *slot_of;
    int hidden;
};

__global__ void __launch_bounds__(CTA) k_combine(const __grid_constant__ combine_params p)
{
    __shared__ float weight[TOP];
    __shared__ int slot[TOP];
    pdl_launch();
    pdl_wait();
    const size_t r = blockIdx.x;
    if (threadIdx.x < TOP) {
        weight[threadIdx.x] = p.weight[r * TOP + threadIdx.x];
        slot[threadIdx.x] = p.slot_of[r * TOP + threadIdx.x];
    }
    __syncthreads();
    const float gate = sigmoidf(p.shared_gate[r]);
    for (int k = threadIdx.x * 2; k < p.hidden; k += CTA * 2) {
        const float2 sh = *(const float2 *)(p.shared_out + r * p.hidden + k);
        float2 x = *(float2 *)(p.x + r * p.hidden + k);
        float a = gate * sh.x, b = gate * sh.y;
#pragma unroll
        for (int i = 0; i < TOP; i++) {
            const u32 v = *(const u32 *)(p.expert_out + (size_t)slot[i] * p.hidden + k);
            a = fmaf(weight[i], bf_lo(v), a);
            b = fmaf(weight[i], bf_hi(v), b);
        }
        x.x += a;
        x.y += b;
        *(float2 *)(p.x + r * p.hidden + k) = x;
    }
}

static void experts(struct cuda_backend *c, struct gemm_part part, const struct matrix *m, const u16 *x, int ldx, bool gather)
{
    struct workspace *ws = &c->ws;
    gemm_params p = {};
    int bn = expert_width(c), slots = c->batch->n_rows * TOP, most = slots < c->base.shape.n_experts ? slots : c->base.shape.n_experts;
    p.part[0] = part;
    p.units = m->units;
    p.x = x;
    p.ldx = ldx;
    p.n_rows = slots;
    p.blocks = ws->blocks;
    p.expert_first = ws->expert_first;
    p.slot_row = ws->slot_row;
    p.expert_bytes = m->expert_bytes;
    p.gather = gather;
    gemm_run(c, &p, 1, bn, slots / bn + most);
}

void prefill_moe_experts(struct cuda_backend *c, const struct moe_weights *w)
{
    struct workspace *ws = &c->ws;
    int hidden = c->base.shape.hidden;
    struct gemm_part part = gemm_part_of(w->gate, GEMM_SILU, ws->inner, ws->pad_expert);
    part.w2 = w->up->data;
    experts(c, part, w->gate, ws->norm, ws->pad_hidden, true);
    gemm_params shared = {};
    shared.part[0] = gemm_part_of(w->shared_gate_proj, GEMM_SILU, ws->shared, ws->pad_shared);
    shared.part[0].w2 = w->shared_up->data;
    dense(c, &shared, 1, ws->norm, ws->pad_hidden, w->shared_up->units);
    gemm_params down = {};
    down.part[0] = gemm_part_of(w->shared_down, GEMM_F32, ws->shared_out, hidden);
    dense(c, &down, 1, ws->shared, ws->pad_shared, w->shared_down->units);
    experts(c, gemm_part_of(w->down, GEMM_BF16, ws->expert_out, hidden), w->down, ws->inner, ws->pad_expert, false);
    combine_params p = {ws->x, ws->expert_out, ws->shared_out, ws->shared_gate_p, ws->top_weight, ws->slot_of, hidden};
    launch(c, k_combine, dim3((unsigned)c->batch->n_rows), CTA, 0, p);
}
