/*
 * Choosing the next token on the card: the same token as sample/sampler.c picks from the same logits. A cluster of 16 blocks
 * has one row of logits in its shared memory. Kept tokens stand in one order (the higher logit first, the lower id first on a
 * tie); weights are whole numbers (base/weight.h), so every sum is exact and every order of adding the same.
 *
 * A cut is the shortest beginning of the order whose tokens number, or weigh, at least so much. It is found by a histogram over
 * equal distances from the highest logit, then among the tokens of one bin alone.
 */
#include <cfloat>
#include <climits>
#include <cstdlib>
#include <cstring>

#include <cooperative_groups.h>

#include "backend/cuda/device.cuh"
#include "base/rng.h"
#include "base/weight.h"

namespace cg = cooperative_groups;

enum { CLUSTER = 16, THREADS = 1024, BINS = 2048, LIST = 2048 };

/* One thing that every block of a cluster tells all others. */
struct shares {
    u64 best[CLUSTER], sum[CLUSTER];
    float low[CLUSTER];
    int bad[CLUSTER];
};

struct cut {
    u64 last; /* place of the last kept token */
    u64 mass; /* of all kept */
};

struct pick_smem {
    u32 count[BINS];
    u64 mass[BINS], list[LIST], list_mass[LIST];
    u32 total_count[BINS]; /* first block alone: of the cluster, up to and with the bin */
    u64 total_mass[BINS];
    u64 warp_sum[THREADS / 32];
    struct shares shares;
    struct cut found;
    int bin, n_list;
    u64 before;            /* what the bins before `bin` hold */
};

struct pick_row {
    const pick_state *st;
    float *x;      /* this block's logits, after penalties and bias */
    int first, n;  /* ids */
    float high, scale;
    double high_d;
    bool whole;    /* the histogram reaches the lowest logit */
};

#if HAVE_BULK /* Hopper and later have clusters */

/* Place in the order: smaller comes first. */
DI u64 place_of(float x, int id)
{
    const u32 b = __float_as_uint(x == 0.0f ? 0.0f : x), rising = b ^ (b >> 31 ? 0xffffffffu : 0x80000000u);
    return (u64)~rising << 32 | (u32)id;
}

DI u64 weigh(const pick_row &r, float x)
{
    return mass_of(((double)x - r.high_d) / r.st->temperature);
}

/* The bin of a logit; -1: it weighs nothing. */
DI int bin_of(const pick_row &r, float x)
{
    const float d = (r.high - x) * r.scale;
    if (x == r.high) return 0;
    if (!(d < (float)BINS)) return r.whole ? BINS - 1 : -1;
    return (int)d;
}

template <typename T> DI T block_sum(pick_smem &m, T v)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if (lane == 0) m.warp_sum[warp] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < THREADS / 32; i++) v += (T)m.warp_sum[i];
    return v;
}

/* The sum over the cluster, in every block. */
DI u64 cluster_sum(cg::cluster_group &cl, pick_smem &m, u64 v)
{
    v = block_sum(m, v);
    if (threadIdx.x < CLUSTER) cl.map_shared_rank(&m, threadIdx.x)->shares.sum[cl.block_rank()] = v;
    cl.sync();
    v = 0;
    for (int i = 0; i < CLUSTER; i++) v += m.shares.sum[i];
    cl.sync();
    return v;
}

/* Loads the block's logits, with penalties and bias; `bad`: the first that is no finite number, or INT_MAX. */
DI int load_logits(const pick_row &r, const float *logits)
{
    const pick_state *st = r.st;
    int bad = INT_MAX;
    for (int i = threadIdx.x; i < r.n; i += THREADS) {
        const int id = r.first + i;
        float x = logits[id];
        if ((__float_as_uint(x) & 0x7f800000u) == 0x7f800000u && id < bad) bad = id;
        const u32 seen = st->counting ? st->seen[id] : 0;
        if (seen) {
            double d = x;
            d = d > 0 ? d / st->repetition : d * st->repetition;
            if (seen & ~PICK_SEEN) d -= st->presence + st->frequency * (double)(seen & ~PICK_SEEN);
            x = (float)d;
        }
        r.x[i] = fminf(x, FLT_MAX);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < st->n_bias; i += THREADS) {
        const int id = st->bias[i].id;
        if (id < r.first || id >= r.first + r.n || (i && st->bias[i - 1].id == id)) continue;
        float x = r.x[id - r.first];
        for (int k = i; k < st->n_bias && st->bias[k].id == id; k++) x += st->bias[k].value;
        r.x[id - r.first] = fminf(x, FLT_MAX);
    }
    __syncthreads();
    return bad;
}

/* First in the order, lowest logit and first bad id of the cluster, in every block. */
DI void find_ends(cg::cluster_group &cl, pick_smem &m, const pick_row &r, int bad, u64 *best, float *low, int *first_bad)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    u64 b = ~0ull;
    float l = FLT_MAX;
    for (int i = threadIdx.x; i < r.n; i += THREADS) {
        const u64 p = place_of(r.x[i], r.first + i);
        b = p < b ? p : b;
        l = fminf(l, r.x[i]);
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const u64 other = __shfl_xor_sync(~0u, b, o);
        b = other < b ? other : b;
        l = fminf(l, __shfl_xor_sync(~0u, l, o));
        bad = min(bad, __shfl_xor_sync(~0u, bad, o));
    }
    u64 *bests = m.list, *lows = m.list_mass;
    if (lane == 0) {
        bests[warp] = b;
        lows[warp] = (u64)__float_as_uint(l) << 32 | (u32)bad;
    }
    __syncthreads();
    if (threadIdx.x < CLUSTER) {
        for (int i = 0; i < THREADS / 32; i++) {
            b = bests[i] < b ? bests[i] : b;
            l = fminf(l, __uint_as_float((u32)(lows[i] >> 32)));
            bad = min(bad, (int)(u32)lows[i]);
        }
        struct shares *to = &cl.map_shared_rank(&m, threadIdx.x)->shares;
        to->best[cl.block_rank()] = b;
        to->low[cl.block_rank()] = l;
        to->bad[cl.block_rank()] = bad;
    }
    cl.sync();
    *best = ~0ull;
    *low = FLT_MAX;
    *first_bad = INT_MAX;
    for (int i = 0; i < CLUSTER; i++) {
        *best = m.shares.best[i] < *best ? m.shares.best[i] : *best;
        *low = fminf(*low, m.shares.low[i]);
        *first_bad = min(*first_bad, m.shares.bad[i]);
    }
}

/* Running sums over the bins, in the first block: two bins a thread. */
template <typename T> DI void running(pick_smem &m, T *bins)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const T a = bins[2 * threadIdx.x], b = bins[2 * threadIdx.x + 1];
    T v = a + b;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const T up = __shfl_up_sync(~0u, v, o);
        if (lane >= o) v += up;
    }
    __syncthreads();
    if (lane == 31) m.warp_sum[warp] = v;
    __syncthreads();
    for (int i = 0; i < warp; i++) v += (T)m.warp_sum[i];
    bins[2 * threadIdx.x] = v - b;
    bins[2 * threadIdx.x + 1] = v;
    __syncthreads();
}

/* The histogram of the whole cluster, in the first block. */
DI void histogram(cg::cluster_group &cl, pick_smem &m, const pick_row &r)
{
    for (int i = threadIdx.x; i < BINS; i += THREADS) m.count[i] = 0, m.mass[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < r.n; i += THREADS) {
        const int b = bin_of(r, r.x[i]);
        if (b < 0) continue;
        atomicAdd(&m.count[b], 1u);
        atomicAdd((unsigned long long *)&m.mass[b], (unsigned long long)weigh(r, r.x[i]));
    }
    cl.sync();
    pick_smem *home = cl.map_shared_rank(&m, 0);
    const int each = BINS / CLUSTER, b = cl.block_rank() * each + threadIdx.x;
    if (threadIdx.x < each) {
        u32 n = 0;
        u64 w = 0;
        for (int i = 0; i < CLUSTER; i++) {
            const pick_smem *other = cl.map_shared_rank(&m, i);
            n += other->count[b];
            w += other->mass[b];
        }
        home->total_count[b] = n;
        home->total_mass[b] = w;
    }
    cl.sync();
    if (cl.block_rank() == 0) {
        running(m, m.total_count);
        running(m, m.total_mass);
    }
}

/* Whether the tokens up to a place reach the target, over the cluster. */
DI u64 reached(cg::cluster_group &cl, pick_smem &m, const pick_row &r, u64 place, bool by_count)
{
    u64 v = 0;
    for (int i = threadIdx.x; i < r.n; i += THREADS)
        if (bin_of(r, r.x[i]) >= 0 && place_of(r.x[i], r.first + i) <= place) v += by_count ? 1 : weigh(r, r.x[i]);
    return cluster_sum(cl, m, v);
}

/* A bin with more tokens than the list holds (most logits are equal, say): by halves of the order. */
DI struct cut cut_by_halves(cg::cluster_group &cl, pick_smem &m, const pick_row &r, u64 target, bool by_count)
{
    u64 lo = 0, hi = ~0ull;
    while (lo < hi) {
        const u64 mid = lo + (hi - lo) / 2;
        if (reached(cl, m, r, mid, by_count) >= target) hi = mid;
        else lo = mid + 1;
    }
    struct cut c = {lo, reached(cl, m, r, lo, false)};
    return c;
}

/* In the first block: the list's token at which the target is reached; `before` lies in front of the list. */
DI void cut_list(pick_smem &m, u64 target, u64 before_mass, bool by_count)
{
    const int n = m.n_list;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const u64 place = m.list[i];
        u64 mass = before_mass, value = m.before;
        for (int k = 0; k < n; k++)
            if (m.list[k] < place) {
                mass += m.list_mass[k];
                value += by_count ? 1 : m.list_mass[k];
            }
        const u64 own = by_count ? 1 : m.list_mass[i];
        if (value < target && value + own >= target) m.found = (struct cut){place, mass + m.list_mass[i]};
    }
    __syncthreads();
}

/* The shortest beginning of the order with at least `target`, which all tokens together have; in every block. */
DI struct cut cut_at(cg::cluster_group &cl, pick_smem &m, const pick_row &r, u64 target, bool by_count)
{
    pick_smem *home = cl.map_shared_rank(&m, 0);
    if (cl.block_rank() == 0) {
        for (int b = threadIdx.x; b < BINS; b += THREADS) {
            const u64 upto = by_count ? m.total_count[b] : m.total_mass[b], before = b == 0 ? 0 : by_count ? m.total_count[b - 1] : m.total_mass[b - 1];
            if (before < target && upto >= target) m.bin = b, m.before = before;
        }
        if (threadIdx.x == 0) m.n_list = 0;
    }
    cl.sync();
    const int bin = home->bin;
    const u32 in_bin = home->total_count[bin] - (bin ? home->total_count[bin - 1] : 0);
    if (in_bin > LIST) return cut_by_halves(cl, m, r, target, by_count);
    for (int i = threadIdx.x; i < r.n; i += THREADS) {
        if (bin_of(r, r.x[i]) != bin) continue;
        const int at = atomicAdd(&home->n_list, 1);
        home->list[at] = place_of(r.x[i], r.first + i);
        home->list_mass[at] = weigh(r, r.x[i]);
    }
    cl.sync();
    if (cl.block_rank() == 0) cut_list(m, target, bin ? m.total_mass[bin - 1] : 0, by_count);
    cl.sync();
    return home->found;
}

/* Draws a token: top-k, top-p, min-p, then the seeded number (sample/sampler.c, draw). */
DI int draw(cg::cluster_group &cl, pick_smem &m, pick_row &r, u64 best, float low)
{
    const pick_state *st = r.st;
    const u32 key = ~(u32)(best >> 32);
    r.high = __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key);
    r.high_d = r.high;
    const float reach = (float)(29.2 * st->temperature), range = r.high - low; /* beyond it mass_of is 0 */
    r.whole = !(range > reach);
    r.scale = (float)BINS / (r.whole ? range : reach);
    histogram(cl, m, r);
    cl.sync();
    pick_smem *home = cl.map_shared_rank(&m, 0);
    struct cut kept = {~0ull, home->total_mass[BINS - 1]};
    if (st->top_k > 0 && (u32)st->top_k < home->total_count[BINS - 1]) kept = cut_at(cl, m, r, (u64)st->top_k, true);
    if (st->top_p < 1) kept = cut_at(cl, m, r, mass_share(st->top_p, kept.mass), false);
    if (st->min_p > 0) {
        const u64 least = mass_share(st->min_p, (u64)MASS_ONE);
        u64 v = 0;
        for (int i = threadIdx.x; i < r.n; i += THREADS) {
            if (bin_of(r, r.x[i]) < 0 || place_of(r.x[i], r.first + i) > kept.last) continue;
            const u64 w = weigh(r, r.x[i]);
            if (w >= least) v += w;
        }
        kept.mass = cluster_sum(cl, m, v);
    }
    return (int)(u32)cut_at(cl, m, r, mass_share(rng_uniform(st->seed, st->step), kept.mass), false).last;
}

/* One thread notes what was chosen, for the next pass and for the host. */
DI void note(pick_state *st, int id, int bad, float bad_value)
{
    bool stopped = false;
    for (int i = 0; i < st->n_stop; i++) stopped |= st->stop[i] == id;
    if (bad == INT_MAX && st->counting) st->seen[id] = (st->seen[id] | PICK_SEEN) + 1;
    st->step++;
    st->next = id;
    st->halted = stopped || bad != INT_MAX;
    st->picks++;
    volatile pick_result *out = st->results + st->picks % PICK_RING;
    out->id = id;
    out->bad_id = bad == INT_MAX ? -1 : bad;
    out->bad = bad_value;
    out->stopped = stopped;
    __threadfence_system();
    out->serial = st->serial + st->picks;
}

#endif

__global__ void __launch_bounds__(THREADS) k_pick(const pass *ps, const float *logits, int ld, int per_block)
{
#if HAVE_BULK
    extern __shared__ __align__(16) uint8_t sm[];
    pick_smem &m = *(pick_smem *)sm;
    cg::cluster_group cl = cg::this_cluster();
    pdl_launch();
    cl.sync(); /* all have begun, so that their memory may be written */
    pdl_wait();
    const int row = blockIdx.x / CLUSTER;
    pick_state *st = ps->seq[row].pick;
    pick_row r = {};
    r.st = st;
    r.x = (float *)(sm + sizeof(pick_smem));
    r.first = (int)cl.block_rank() * per_block;
    r.n = max(0, min(st->n_tokens - r.first, per_block));
    if (st->halted) return; /* the whole cluster: nothing is fed behind a stop */
    u64 best;
    float low;
    int bad = load_logits(r, logits + (size_t)row * ld);
    find_ends(cl, m, r, bad, &best, &low, &bad);
    int id = (int)(u32)best;
    if (bad == INT_MAX && st->temperature > 0) id = draw(cl, m, r, best, low);
    cl.sync(); /* all have read the state, and nobody reads another's memory any more */
    if (cl.block_rank() == 0 && threadIdx.x == 0) note(st, id, bad, bad == INT_MAX ? 0.0f : logits[(size_t)row * ld + bad]);
#endif
}

static int block_share(const struct cuda_backend *c)
{
    return round_up((c->base.shape.vocab + CLUSTER - 1) / CLUSTER, 4);
}

/* Rows of vocabularies that do not fit the shared memory of a cluster are left to the host, and all where there are no clusters. */
lily_status picks_init(struct cuda_backend *c, struct lily_err *err)
{
    size_t shared = sizeof(pick_smem) + sizeof(float) * (size_t)block_share(c);
    int most = 0;
    CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->device), "reading a card's properties");
    if (!c->overlap || shared > (size_t)most) return LILY_OK;
    CUDA_TRY(cudaFuncSetAttribute((const void *)k_pick, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "the sampler");
    CUDA_TRY(cudaFuncSetAttribute((const void *)k_pick, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "the sampler");
    c->base.limits.max_chosen = DECODE_ROWS;
    return LILY_OK;
}

void decode_pick(struct cuda_backend *c)
{
    cudaLaunchConfig_t cfg = {};
    cudaLaunchAttribute attr[2];
    cfg.gridDim = dim3((unsigned)(CLUSTER * c->batch->n_rows));
    cfg.blockDim = dim3(THREADS);
    cfg.dynamicSmemBytes = sizeof(pick_smem) + sizeof(float) * (size_t)block_share(c);
    cfg.stream = c->stream;
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    attr[1].id = cudaLaunchAttributeClusterDimension;
    attr[1].val.clusterDim.x = CLUSTER;
    attr[1].val.clusterDim.y = attr[1].val.clusterDim.z = 1;
    cfg.attrs = attr;
    cfg.numAttrs = 2;
    cudaError_t e = cudaLaunchKernelEx(&cfg, k_pick, (const pass *)c->ws.pass, (const float *)c->ws.logits, c->ws.ld_logits, block_share(c));
    if (e != cudaSuccess && c->error == cudaSuccess) c->error = e;
}

/* ---- the host's side ---- */

static lily_status state_of(struct cuda_backend *c, struct seq *s, struct lily_err *err)
{
    if (s->pick) return LILY_OK;
    CUDA_TRY(cudaMalloc((void **)&s->pick, sizeof *s->pick), "the state of a sampler");
    CUDA_TRY(cudaMallocHost((void **)&s->results, sizeof *s->results * PICK_RING), "pinned memory");
    memset((void *)s->results, 0, sizeof *s->results * PICK_RING);
    /* Where passes behind a stop go: one for all, written by any, read by none that counts. */
    if (!c->nowhere) CUDA_TRY(cudaMalloc((void **)&c->nowhere, (shape_recurrent_floats(&c->base.shape) + shape_conv_floats(&c->base.shape)) * sizeof(float)), "a sequence's state");
    return LILY_OK;
}

static lily_status send_counts(struct cuda_backend *c, struct seq *s, const struct pick_rules *r, struct lily_err *err)
{
    size_t n = (size_t)r->n_tokens;
    u32 *seen = (u32 *)malloc(n * sizeof *seen);
    if (!seen) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the token counts of a sampler (%d tokens)", r->n_tokens);
    for (size_t i = 0; i < n; i++) seen[i] = (r->known[i] ? PICK_SEEN : 0) | (r->count[i] < PICK_SEEN ? r->count[i] : PICK_SEEN - 1);
    cudaError_t e = s->seen ? cudaSuccess : cudaMalloc((void **)&s->seen, n * sizeof *seen);
    if (e == cudaSuccess) e = cudaMemcpyAsync(s->seen, seen, n * sizeof *seen, cudaMemcpyHostToDevice, c->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(c->stream);
    free(seen);
    return e == cudaSuccess ? LILY_OK : cuda_failed(e, "the state of a sampler", err);
}

static lily_status send_bias(struct cuda_backend *c, struct seq *s, const struct pick_rules *r, struct lily_err *err)
{
    CUDA_TRY(cudaStreamSynchronize(c->stream), "the card");
    cudaFree(s->bias);
    s->bias = NULL;
    if (!r->n_bias) return LILY_OK;
    CUDA_TRY(cudaMalloc((void **)&s->bias, sizeof *s->bias * (size_t)r->n_bias), "the state of a sampler");
    CUDA_TRY(cudaMemcpy(s->bias, r->bias, sizeof *s->bias * (size_t)r->n_bias, cudaMemcpyHostToDevice), "the state of a sampler");
    return LILY_OK;
}

lily_status cuda_pick_rules(struct backend *be, struct seq *s, const struct pick_rules *r, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    if (!be->limits.max_chosen || r->n_stop > PICK_STOPS) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "the card cannot choose tokens by these rules");
    CUDA_TRY(cudaSetDevice(c->device), "the card");
    LILY_TRY(state_of(c, s, err));
    if (r->count) LILY_TRY(send_counts(c, s, r, err));
    if (r->n_bias || s->bias) LILY_TRY(send_bias(c, s, r, err));
    /* What passes that are still under way write has an older number. */
    s->serial += 1u << 24;
    s->launched = s->taken = 0;
    pick_state st = {};
    st.temperature = r->temperature;
    st.top_p = r->top_p;
    st.min_p = r->min_p;
    st.repetition = r->repetition;
    st.presence = r->presence;
    st.frequency = r->frequency;
    st.seed = r->seed;
    st.step = r->step;
    st.top_k = r->top_k;
    st.n_tokens = r->n_tokens;
    st.n_bias = r->n_bias;
    st.n_stop = r->n_stop;
    for (int i = 0; i < r->n_stop; i++) st.stop[i] = r->stop[i];
    st.counting = r->count != NULL;
    st.bias = s->bias;
    st.seen = s->seen;
    st.serial = s->serial;
    st.results = s->results;
    CUDA_TRY(cudaMemcpyAsync(s->pick, &st, sizeof st, cudaMemcpyHostToDevice, c->stream), "the state of a sampler");
    return LILY_OK;
}

lily_status cuda_pick_take(struct backend *be, struct seq *s, struct pick *out, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    if (s->taken == s->launched) LILY_FAIL(err, LILY_ERR_USAGE, "no pass has chosen a token that was not taken");
    const volatile pick_result *r = s->results + (s->taken + 1) % PICK_RING;
    for (u32 spins = 1; r->serial != s->serial + s->taken + 1; spins++) {
        if (spins % 512) continue;
        cudaError_t e = cudaStreamQuery(c->stream);
        if (e == cudaErrorNotReady) continue;
        if (e != cudaSuccess) return cuda_failed(e, "a pass", err);
        if (r->serial != s->serial + s->taken + 1) LILY_FAIL(err, LILY_ERR_DEVICE, "CUDA: a pass ended without the token that it was to choose");
    }
    __sync_synchronize();
    *out = (struct pick){r->id, r->bad_id, r->bad, r->stopped != 0};
    s->taken++;
    if (out->stopped) {
        s->length -= (int)(s->launched - s->taken); /* those passes changed nothing */
        s->launched = s->taken;
    }
    return LILY_OK;
}

void picks_forget(struct seq *s)
{
    cudaFree(s->pick);
    cudaFree(s->seen);
    cudaFree(s->bias);
    cudaFreeHost((void *)s->results);
}
