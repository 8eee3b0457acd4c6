/* The CUDA backend object, the card it runs on, and the plug-in's table. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend/cuda/device.cuh"
#include "backend/cuda/wgmma.cuh"

extern "C" {
#include "backend/cuda/plugin.h"
}

enum { MIN_MAJOR = 8, MIN_SHARED = 160 * 1024 }; /* products of bytes, mbarriers; bytes of shared memory a block: attention */

lily_status cuda_failed(cudaError_t e, const char *what, struct lily_err *err)
{
    cudaGetLastError();
    if (e == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total = 0;
        cudaMemGetInfo(&free_bytes, &total);
        err_set(err, LILY_ERR_MEMORY, "the card has no memory for %s: %.2f of %.2f GB are free", what, (double)free_bytes / 1e9, (double)total / 1e9);
        err_hint(err, "lower --ctx, or run with --device cpu");
        return LILY_ERR_MEMORY;
    }
    err_set(err, LILY_ERR_DEVICE, "CUDA: %s failed: %s", what, cudaGetErrorString(e));
    err_hint(err, "nvidia-smi shows the state of the card");
    return LILY_ERR_DEVICE;
}

static lily_status count_cards(int *n, struct lily_err *err)
{
    int driver = 0;
    cudaError_t e = cudaGetDeviceCount(n);
    cudaDriverGetVersion(&driver);
    if (e == cudaSuccess && *n > 0) return LILY_OK;
    cudaGetLastError();
    if (e == cudaErrorInsufficientDriver && driver == 0) err_set(err, LILY_ERR_UNSUPPORTED, "no NVIDIA driver is loaded");
    else if (e == cudaErrorInsufficientDriver)
        err_set(err, LILY_ERR_UNSUPPORTED, "the NVIDIA driver knows CUDA %d.%d, lily was built with %d.%d", driver / 1000, driver % 1000 / 10,
                CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    else err_set(err, LILY_ERR_UNSUPPORTED, "no CUDA card: %s", e == cudaSuccess ? "the driver lists none" : cudaGetErrorString(e));
    err_hint(err, "leave --device out to run on the CPU");
    return LILY_ERR_UNSUPPORTED;
}

static lily_status probe_one(int device, struct cuda_card *out, struct lily_err *err)
{
    cudaDeviceProp p;
    CUDA_TRY(cudaGetDeviceProperties(&p, device), "reading a card's properties");
    out->device = device;
    snprintf(out->name, sizeof out->name, "%.90s", p.name);
    out->major = p.major;
    out->minor = p.minor;
    if (p.major < MIN_MAJOR)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "card %d (%s) has compute capability %d.%d, expected %d.0 or more", device, p.name, p.major, p.minor, MIN_MAJOR);
    if (p.sharedMemPerBlockOptin < MIN_SHARED)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "card %d (%s) has %zu bytes of shared memory for a block, expected %d or more", device, p.name,
                  p.sharedMemPerBlockOptin, MIN_SHARED);
    CUDA_TRY(cudaSetDevice(device), "the card");
    CUDA_TRY(cudaMemGetInfo(&out->free, &out->total), "reading a card's memory");
    return LILY_OK;
}

static lily_status probe(int device, struct cuda_card *out, struct lily_err *err)
{
    int n = 0;
    LILY_TRY(count_cards(&n, err));
    if (device >= n) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "cuda:%d: this machine has %d card%s, from 0", device, n, n == 1 ? "" : "s");
    if (device >= 0) return probe_one(device, out, err);
    lily_status st = LILY_OK;
    for (int i = 0; i < n; i++) {
        st = probe_one(i, out, err);
        if (st == LILY_OK) break;
    }
    return st;
}

static void destroy(struct backend *be)
{
    struct cuda_backend *c = cuda_of(be);
    cudaSetDevice(c->device);
    cudaDeviceSynchronize();
    pass_graphs_free(c);
    workspace_free(&c->ws);
    state_pool_free(&c->states);
    for (int i = 0; i < 2; i++) {
        cudaFreeHost(c->staging[i]);
        cudaFree(c->device_staging[i]);
        if (c->staged[i]) cudaEventDestroy(c->staged[i]);
    }
    cudaFree(c->frequency);
    cudaFreeHost(c->host_rows);
    cudaFreeHost(c->requests);
    cudaFree(c->requests_read);
    cudaFree(c->nowhere);
    cudaFreeHost(c->host_logits);
    if (c->rows_read) cudaEventDestroy(c->rows_read);
    if (c->stream) cudaStreamDestroy(c->stream);
    free(c);
}

static lily_status load_vector(struct backend *be, const float *data, size_t n, struct vector **out, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    *out = NULL;
    CUDA_TRY(cudaSetDevice(c->device), "the card");
    struct vector *v = (struct vector *)calloc(1, sizeof *v);
    if (!v) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for a vector");
    cudaError_t e = cudaMalloc((void **)&v->data, n ? n * sizeof(float) : 4);
    if (e == cudaSuccess) e = cudaMemcpy(v->data, data, n * sizeof(float), cudaMemcpyHostToDevice);
    if (e != cudaSuccess) {
        cudaFree(v->data);
        free(v);
        return cuda_failed(e, "a vector", err);
    }
    v->n = n;
    *out = v;
    return LILY_OK;
}

static void free_vector(struct backend *be, struct vector *v)
{
    (void)be;
    if (v) cudaFree(v->data);
    free(v);
}

static const struct backend_ops cuda_ops = {
    .step = cuda_steps,
    .destroy = destroy,
    .load_matrix = cuda_load_matrix,
    .free_matrix = cuda_free_matrix,
    .load_vector = load_vector,
    .free_vector = free_vector,
    .seq_new = cuda_seq_new,
    .seq_free = cuda_seq_free,
    .seq_reset = cuda_seq_reset,
    .seq_length = cuda_seq_length,
    .seq_reserve = cuda_seq_reserve,
    .border_save = cuda_border_save,
    .seq_keep = cuda_seq_keep,
    .border_kept = cuda_border_kept,
    .border_restore = cuda_border_restore,
    .border_free = cuda_border_free,
    .border_bytes = cuda_border_bytes,
    .page_bytes = cuda_page_bytes,
    .seq_share = cuda_seq_share,
    .border_export = cuda_border_export,
    .border_import = cuda_border_import,
    .pick_rules = cuda_pick_rules,
    .pick_take = cuda_pick_take,
    .seq_fill = cuda_seq_fill,
    .measure = cuda_measure,
    .joules = NULL,
    .set_aside = NULL,
    .take_rows = NULL,
};

/* Which of the plug-in's codes the driver took for this card: its architecture, and whether that is Hopper's own. */
__global__ void k_compiled_for(int *out)
{
#ifdef __CUDA_ARCH__
    out[0] = __CUDA_ARCH__;
    out[1] = HAVE_WGMMA;
#endif
}

static lily_status look_at_code(struct cuda_backend *c, struct lily_err *err)
{
    int *device, host[2] = {0, 0};
    CUDA_TRY(cudaMalloc((void **)&device, sizeof host), "a few bytes");
    k_compiled_for<<<1, 1, 0, c->stream>>>(device);
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) e = cudaMemcpyAsync(host, device, sizeof host, cudaMemcpyDeviceToHost, c->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(c->stream);
    cudaFree(device);
    CUDA_TRY(e, "the first kernel");
    c->overlap = host[0] >= 900;
    c->wgmma = host[1];
    return LILY_OK;
}

static lily_status fill(struct cuda_backend *c, const struct cuda_options *o, struct lily_err *err)
{
    double f[ROTARY_DIM / 2];
    cudaDeviceProp p;
    for (int j = 0; j < ROTARY_DIM / 2; j++) f[j] = pow(o->shape.rope_theta, -2.0 * j / ROTARY_DIM);
    CUDA_TRY(cudaGetDeviceProperties(&p, c->device), "reading a card's properties");
    c->n_sms = p.multiProcessorCount;
    c->max_shared = (int)p.sharedMemPerBlockOptin;
    CUDA_TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream");
    CUDA_TRY(cudaEventCreateWithFlags(&c->rows_read, cudaEventDisableTiming), "an event");
    LILY_TRY(look_at_code(c, err));
    CUDA_TRY(cudaMalloc((void **)&c->frequency, sizeof f), "frequencies");
    CUDA_TRY(cudaMemcpy(c->frequency, f, sizeof f, cudaMemcpyHostToDevice), "frequencies");
    CUDA_TRY(cudaMallocHost((void **)&c->host_logits, sizeof(float) * DECODE_ROWS * (size_t)shape_logits_ld(&o->shape)), "pinned memory");
    LILY_TRY(state_pool_init(&c->states, &c->base.shape, !o->kv_f32, o->state_bytes, err));
    LILY_TRY(workspace_new(&c->ws, &c->base.shape, o->max_rows, err));
    CUDA_TRY(cudaMallocHost((void **)&c->host_rows, c->ws.rows_bytes), "pinned memory");
    CUDA_TRY(cudaMallocHost((void **)&c->requests, sizeof *c->requests), "pinned memory");
    CUDA_TRY(cudaMalloc((void **)&c->requests_read, sizeof *c->requests_read), "a counter");
    CUDA_TRY(cudaMemset(c->requests_read, 0, sizeof *c->requests_read), "a counter");
    c->requests->done = 0;
    LILY_TRY(picks_init(c, err));
    return LILY_OK;
}

static lily_status open_backend(const struct cuda_options *o, struct backend **out, struct lily_err *err)
{
    struct cuda_card card;
    *out = NULL;
    LILY_TRY(probe(o->device, &card, err));
    struct cuda_backend *c = (struct cuda_backend *)calloc(1, sizeof *c);
    if (!c) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the CUDA backend");
    c->device = card.device;
    c->base.ops = &cuda_ops;
    c->base.shape = o->shape;
    c->base.limits = (struct backend_limits){o->max_rows, o->max_logits, 0, 0, true};
    snprintf(c->base.code, sizeof c->base.code, "cuda %d.%d %s %s", card.major, card.minor, o->kv_f32 ? "f32" : "bf16", LILY_CUDA_BUILD);
    lily_status st = fill(c, o, err);
    if (st != LILY_OK) {
        destroy(&c->base);
        return st;
    }
    *out = &c->base;
    return LILY_OK;
}

static lily_status peek(struct backend *be, enum cuda_peek what, int row, float *out, size_t n, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    const struct workspace *ws = &c->ws;
    const int heads = be->shape.n_gdn_v_heads;
    const struct {
        const float *rows;
        int ld;
    } at[] = {{ws->u, ws->ld_u},           {ws->gates, 2 * heads},          {ws->mix, ws->pad_mix},   {ws->o_ss, heads * 4},
              {ws->router, ws->ld_experts}, {ws->inner_shared, ws->pad_shared}, {ws->shared_gate, 1}, {ws->inner_experts, TOP * ws->pad_expert}};
    CUDA_TRY(cudaStreamSynchronize(c->stream), "a pass");
    CUDA_TRY(cudaMemcpy(out, at[what].rows + (size_t)row * (size_t)at[what].ld, n * sizeof *out, cudaMemcpyDeviceToHost), "reading the workspace");
    c->first_launch = true;
    return LILY_OK;
}

extern "C" __attribute__((visibility("default"))) const struct cuda_plugin *lily_cuda_plugin(void)
{
    static const struct cuda_plugin plugin = {cuda_fingerprint(), probe, open_backend, peek};
    return &plugin;
}
