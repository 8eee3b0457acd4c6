/* Sequences on the card: pages of keys and values, recurrent and convolution state, borders. */
#include <climits>
#include <cstdlib>
#include <cstring>

#include <pthread.h>

#include "backend/cuda/device.cuh"

lily_status state_pool_init(struct state_pool *p, const struct model_shape *shape, bool kv_bf16, size_t budget, struct lily_err *err)
{
    memset(p, 0, sizeof *p);
    p->shape = shape;
    p->kv_bf16 = kv_bf16;
    p->head_bytes = (size_t)GRID * HEAD_DIM * (kv_bf16 ? 2 : 4);
    p->page_bytes = (size_t)shape->n_full * (size_t)shape->n_kv_heads * 2 * p->head_bytes;
    p->budget = budget;
    size_t n = p->page_bytes ? budget / p->page_bytes : 0;
    p->max_pages = n < INT_MAX / 2 ? (int)n : INT_MAX / 2;
    size_t bytes = (size_t)p->max_pages * p->page_bytes;
    CUDA_TRY(cudaMalloc((void **)&p->region, bytes ? bytes : 1), "the KV cache");
    /* Kernels read whole pages and mask what is not there yet: it must be numbers. */
    CUDA_TRY(cudaMemset(p->region, 0, bytes), "the KV cache");
    p->refs = (int *)calloc((size_t)p->max_pages + 1, sizeof *p->refs);
    p->free_list = (int *)calloc((size_t)p->max_pages + 1, sizeof *p->free_list);
    if (!p->refs || !p->free_list) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the list of %d pages", p->max_pages);
    while (p->n_free < p->max_pages) {
        p->free_list[p->n_free] = p->max_pages - 1 - p->n_free;
        p->n_free++;
    }
    return LILY_OK;
}

void state_pool_free(struct state_pool *p)
{
    cudaFree(p->region);
    free(p->refs);
    free(p->free_list);
    memset(p, 0, sizeof *p);
}

static int page_new(struct state_pool *p)
{
    if (!p->n_free || p->used + p->page_bytes > p->budget) return -1;
    int i = p->free_list[--p->n_free];
    p->refs[i] = 1;
    p->used += p->page_bytes;
    return i;
}

static void pages_unref(struct state_pool *p, const int32_t *pages, int n)
{
    for (int k = 0; k < n; k++) {
        int i = pages[k];
        if (--p->refs[i]) continue;
        p->free_list[p->n_free++] = i;
        p->used -= p->page_bytes;
    }
}

static size_t fixed_bytes(const struct state_pool *p)
{
    return (shape_recurrent_floats(p->shape) + shape_conv_floats(p->shape)) * sizeof(float);
}

static lily_status alloc_fixed(struct state_pool *p, float **out, struct lily_err *err)
{
    size_t n = fixed_bytes(p);
    *out = NULL;
    if (p->used + n > p->budget)
        LILY_FAIL(err, LILY_ERR_MEMORY, "the memory for states is used up: %zu of %zu bytes, %zu more needed", p->used, p->budget, n);
    CUDA_TRY(cudaMalloc((void **)out, n ? n : 1), "a sequence's state");
    p->used += n;
    return LILY_OK;
}

static void free_fixed(struct state_pool *p, float *fixed)
{
    if (!fixed) return;
    cudaFree(fixed);
    p->used -= fixed_bytes(p);
}

lily_status cuda_seq_new(struct backend *be, struct seq **out, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    *out = NULL;
    CUDA_TRY(cudaSetDevice(c->device), "the card");
    struct seq *s = (struct seq *)calloc(1, sizeof *s);
    if (!s) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for a sequence");
    s->pool = &c->states;
    lily_status st = alloc_fixed(s->pool, &s->recurrent, err);
    if (st != LILY_OK) {
        free(s);
        return st;
    }
    s->conv = s->recurrent + shape_recurrent_floats(s->pool->shape);
    cuda_seq_reset(be, s);
    *out = s;
    return LILY_OK;
}

static void forget_kept(struct seq *s)
{
    free_fixed(s->pool, s->kept);
    s->kept = NULL;
}

void cuda_seq_free(struct backend *be, struct seq *s)
{
    if (!s) return;
    cudaSetDevice(cuda_of(be)->device);
    cudaStreamSynchronize(cuda_of(be)->stream);
    pages_unref(s->pool, s->pages, s->n_pages);
    free_fixed(s->pool, s->recurrent);
    forget_kept(s);
    picks_forget(s);
    cudaFree(s->device_pages);
    free(s->pages);
    free(s);
}

void cuda_seq_reset(struct backend *be, struct seq *s)
{
    cudaSetDevice(cuda_of(be)->device);
    pages_unref(s->pool, s->pages, s->n_pages);
    forget_kept(s);
    s->n_pages = 0;
    s->length = 0;
    cudaMemsetAsync(s->recurrent, 0, fixed_bytes(s->pool), cuda_of(be)->stream);
}

int cuda_seq_length(const struct seq *s)
{
    return s->length;
}

static lily_status grow(struct cuda_backend *c, struct seq *s, int n, struct lily_err *err)
{
    if (n <= s->cap_pages) return LILY_OK;
    int cap = n + n / 2 + 8;
    int32_t *pages = (int32_t *)realloc(s->pages, sizeof *pages * (size_t)cap), *device;
    if (!pages) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for a list of %d pages", cap);
    s->pages = pages;
    CUDA_TRY(cudaStreamSynchronize(c->stream), "the card");
    CUDA_TRY(cudaMalloc((void **)&device, sizeof *device * (size_t)cap), "a list of pages");
    cudaFree(s->device_pages);
    s->device_pages = device;
    s->cap_pages = cap;
    return LILY_OK;
}

static lily_status send_pages(struct cuda_backend *c, struct seq *s, struct lily_err *err)
{
    if (!s->n_pages) return LILY_OK;
    CUDA_TRY(cudaMemcpyAsync(s->device_pages, s->pages, sizeof *s->pages * (size_t)s->n_pages, cudaMemcpyHostToDevice, c->stream), "a list of pages");
    return LILY_OK;
}

lily_status cuda_seq_reserve(struct backend *be, struct seq *s, int n, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    int need = (s->length + n + GRID - 1) / GRID;
    if (need <= s->n_pages) return LILY_OK;
    CUDA_TRY(cudaSetDevice(c->device), "the card");
    LILY_TRY(grow(c, s, need, err));
    while (s->n_pages < need) {
        int page = page_new(s->pool);
        if (page < 0)
            LILY_FAIL(err, LILY_ERR_MEMORY, "no KV page left for token %d: %zu of %zu bytes for states are in use", s->length + n,
                      s->pool->used, s->pool->budget);
        s->pages[s->n_pages++] = page;
    }
    return send_pages(c, s, err);
}

/* A border of the sequence's first `length` tokens; `fixed`, the state there, is moved, unless there is no memory. */
static lily_status border_of(const struct seq *s, int length, float *fixed, struct border **out, struct lily_err *err)
{
    const int n = length / GRID;
    struct border *b = (struct border *)calloc(1, sizeof *b);
    int32_t *pages = (int32_t *)calloc((size_t)n + 1, sizeof *pages);
    if (!b || !pages) {
        free(pages);
        free(b);
        LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for a border");
    }
    for (int i = 0; i < n; i++) s->pool->refs[pages[i] = s->pages[i]]++;
    *b = (struct border){s->pool, pages, n, length, fixed};
    *out = b;
    return LILY_OK;
}

lily_status cuda_border_save(struct backend *be, const struct seq *s, struct border **out, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    float *fixed = NULL;
    *out = NULL;
    if (s->length % GRID) LILY_FAIL(err, LILY_ERR_USAGE, "a border at token %d: expected a multiple of %d", s->length, GRID);
    CUDA_TRY(cudaSetDevice(c->device), "the card");
    LILY_TRY(alloc_fixed(s->pool, &fixed, err));
    cudaError_t e = cudaMemcpyAsync(fixed, s->recurrent, fixed_bytes(s->pool), cudaMemcpyDeviceToDevice, c->stream);
    lily_status st = e == cudaSuccess ? border_of(s, s->length, fixed, out, err) : cuda_failed(e, "a border", err);
    if (st != LILY_OK) free_fixed(s->pool, fixed);
    return st;
}

lily_status cuda_seq_keep(struct backend *be, struct seq *s, int length, struct lily_err *err)
{
    if (length % GRID || length <= s->length)
        LILY_FAIL(err, LILY_ERR_USAGE, "a state kept at token %d: expected a multiple of %d beyond %d", length, GRID, s->length);
    CUDA_TRY(cudaSetDevice(cuda_of(be)->device), "the card");
    if (!s->kept) LILY_TRY(alloc_fixed(s->pool, &s->kept, err));
    s->kept_at = length;
    return LILY_OK;
}

lily_status cuda_border_kept(struct backend *be, struct seq *s, int length, struct border **out, struct lily_err *err)
{
    (void)be;
    *out = NULL;
    if (!s->kept || s->kept_at != length || length > s->length) return LILY_OK;
    LILY_TRY(border_of(s, s->kept_at, s->kept, out, err));
    s->kept = NULL;
    return LILY_OK;
}

void cuda_border_restore(struct backend *be, struct seq *s, const struct border *b)
{
    struct cuda_backend *c = cuda_of(be);
    struct lily_err err;
    cudaSetDevice(c->device);
    for (int i = 0; i < b->n_pages; i++) s->pool->refs[b->pages[i]]++;
    pages_unref(s->pool, s->pages, s->n_pages);
    forget_kept(s);
    s->n_pages = 0;
    s->length = b->length;
    /* A failure here shows at the end of the next pass. */
    if (grow(c, s, b->n_pages, &err) != LILY_OK) return;
    if (b->n_pages) memcpy(s->pages, b->pages, sizeof *s->pages * (size_t)b->n_pages);
    s->n_pages = b->n_pages;
    send_pages(c, s, &err);
    cudaMemcpyAsync(s->recurrent, b->recurrent, fixed_bytes(s->pool), cudaMemcpyDeviceToDevice, c->stream);
}

void cuda_border_free(struct backend *be, struct border *b)
{
    if (!b) return;
    cudaSetDevice(cuda_of(be)->device);
    cudaStreamSynchronize(cuda_of(be)->stream);
    pages_unref(b->pool, b->pages, b->n_pages);
    free_fixed(b->pool, b->recurrent);
    free(b->pages);
    free(b);
}

size_t cuda_border_bytes(const struct backend *be)
{
    return fixed_bytes(&((const struct cuda_backend *)be)->states);
}

/* Numbers between -size and size, from a seed; bf16 or fp32. */
__global__ void k_noise(void *out, size_t n, bool bf16, float size, u32 seed)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        u32 x = (u32)i * 0x9e3779b9u + seed;
        x = (x ^ x >> 16) * 0x7feb352du;
        x = (x ^ x >> 15) * 0x846ca68bu;
        float v = ((float)(x >> 8) * 0x1p-23f - 1.0f) * size;
        if (bf16) ((u16 *)out)[i] = f_bf(v);
        else ((float *)out)[i] = v;
    }
}

lily_status cuda_seq_fill(struct backend *be, struct seq *s, int n, uint64_t seed, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    struct state_pool *p = s->pool;
    if (n % GRID) LILY_FAIL(err, LILY_ERR_USAGE, "a filled state of %d tokens: expected a multiple of %d", n, GRID);
    cuda_seq_reset(be, s);
    LILY_TRY(cuda_seq_reserve(be, s, n, err));
    for (int i = 0; i < s->n_pages; i++)
        k_noise<<<256, 256, 0, c->stream>>>(p->region + (size_t)s->pages[i] * p->page_bytes, p->page_bytes / (p->kv_bf16 ? 2 : 4), p->kv_bf16, 1.0f,
                                            (u32)seed + (u32)i * 7919u);
    k_noise<<<256, 256, 0, c->stream>>>(s->recurrent, fixed_bytes(p) / sizeof(float), false, 0.05f, (u32)seed ^ 0x5bd1e995u);
    CUDA_TRY(cudaStreamSynchronize(c->stream), "filling a state");
    s->length = n;
    return LILY_OK;
}

size_t cuda_page_bytes(const struct backend *be)
{
    return ((const struct cuda_backend *)be)->states.page_bytes;
}

void cuda_seq_share(struct backend *be, struct seq *s, const struct border *b, int n)
{
    struct cuda_backend *c = cuda_of(be);
    struct lily_err err;
    cudaSetDevice(c->device);
    for (int i = 0; i < n && i < b->n_pages; i++) {
        if (s->pages[i] == b->pages[i]) continue;
        s->pool->refs[b->pages[i]]++;
        pages_unref(s->pool, &s->pages[i], 1);
        s->pages[i] = b->pages[i];
    }
    send_pages(c, s, &err);
}

lily_status cuda_border_export(struct backend *be, const struct border *b, int part, size_t at, size_t n, void *out, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    const struct state_pool *p = b->pool;
    const uint8_t *from = part == BORDER_FIXED ? (const uint8_t *)b->recurrent : p->region + (size_t)b->pages[part] * p->page_bytes;
    CUDA_TRY(cudaSetDevice(c->device), "the card");
    CUDA_TRY(cudaMemcpyAsync(out, from + at, n, cudaMemcpyDeviceToHost, c->stream), "copying a saved state");
    CUDA_TRY(cudaStreamSynchronize(c->stream), "copying a saved state");
    return LILY_OK;
}

/*
 * Parts of a saved state on their way to the card: a thread reads a slice into its own pinned memory and sends it, then the next.
 * The source is what takes the time.
 */
enum { IMPORT_THREADS = 8, SLICES = STAGING / BORDER_SLICE };

struct import_job {
    struct cuda_backend *c;
    const struct border *b;
    const struct border_source *src;
    int first, n_fixed, per_page, n; /* first page; slices of the fixed part, of a page, of all */
    pthread_mutex_t lock;            /* of what follows */
    int next;
    lily_status st;
    struct lily_err err;
};

struct import_thread {
    pthread_t thread;
    struct import_job *job;
    uint8_t *slice; /* borrowed, pinned; (BORDER_SLICE) */
};

static lily_status import_slice(struct import_job *j, int k, uint8_t *slice, cudaEvent_t sent, struct lily_err *err)
{
    const struct state_pool *p = j->b->pool;
    const bool fixed = k < j->n_fixed;
    const int part = fixed ? BORDER_FIXED : j->first + (k - j->n_fixed) / j->per_page;
    const size_t at = (size_t)(fixed ? k : (k - j->n_fixed) % j->per_page) * BORDER_SLICE, bytes = fixed ? fixed_bytes(p) : p->page_bytes;
    const size_t n = bytes - at < (size_t)BORDER_SLICE ? bytes - at : (size_t)BORDER_SLICE;
    uint8_t *to = fixed ? (uint8_t *)j->b->recurrent : p->region + (size_t)j->b->pages[part] * p->page_bytes;
    CUDA_TRY(cudaEventSynchronize(sent), "copying a saved state");
    LILY_TRY(j->src->read(j->src->ctx, part, at, n, slice, err));
    CUDA_TRY(cudaMemcpyAsync(to + at, slice, n, cudaMemcpyHostToDevice, j->c->stream), "copying a saved state");
    CUDA_TRY(cudaEventRecord(sent, j->c->stream), "copying a saved state");
    return LILY_OK;
}

static void *import_slices(void *arg)
{
    const struct import_thread *t = (const struct import_thread *)arg;
    struct import_job *j = t->job;
    struct lily_err err = {};
    cudaEvent_t sent = NULL;
    cudaSetDevice(j->c->device);
    cudaError_t e = cudaEventCreateWithFlags(&sent, cudaEventDisableTiming);
    lily_status st = e == cudaSuccess ? LILY_OK : cuda_failed(e, "an event", &err);
    for (;;) {
        pthread_mutex_lock(&j->lock);
        if (st != LILY_OK && j->st == LILY_OK) j->st = st, j->err = err;
        const int k = j->st == LILY_OK && j->next < j->n ? j->next++ : -1;
        pthread_mutex_unlock(&j->lock);
        if (k < 0) break;
        st = import_slice(j, k, t->slice, sent, &err);
    }
    if (sent) cudaEventSynchronize(sent); /* the memory is somebody else's afterwards */
    if (sent) cudaEventDestroy(sent);
    return NULL;
}

static lily_status import_parts(struct cuda_backend *c, struct border *b, int first, const struct border_source *src, struct lily_err *err)
{
    struct state_pool *p = b->pool;
    for (int n = b->length / GRID; b->n_pages < n;) {
        int page = page_new(p);
        if (page < 0) LILY_FAIL(err, LILY_ERR_MEMORY, "no KV page left for a saved state: %zu of %zu bytes are in use", p->used, p->budget);
        b->pages[b->n_pages++] = page;
    }
    LILY_TRY(cuda_need_staging(c, err));
    struct import_job j = {c, b, src, first, (int)((fixed_bytes(p) + BORDER_SLICE - 1) / BORDER_SLICE), (int)((p->page_bytes + BORDER_SLICE - 1) / BORDER_SLICE),
                           0, PTHREAD_MUTEX_INITIALIZER, 0, LILY_OK, {}};
    j.n = j.n_fixed + (b->n_pages - first) * j.per_page;
    struct import_thread threads[IMPORT_THREADS];
    int started = 1;
    for (int i = 0; i < IMPORT_THREADS; i++) threads[i] = {pthread_t(), &j, c->staging[i / SLICES] + (size_t)(i % SLICES) * BORDER_SLICE};
    while (started < IMPORT_THREADS && started < j.n && pthread_create(&threads[started].thread, NULL, import_slices, &threads[started]) == 0) started++;
    import_slices(&threads[0]);
    while (--started > 0) pthread_join(threads[started].thread, NULL);
    if (j.st != LILY_OK) *err = j.err;
    return j.st;
}

lily_status cuda_border_import(struct backend *be, int length, const struct border *base, int n_shared, const struct border_source *src,
                               struct border **out, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    struct state_pool *p = &c->states;
    *out = NULL;
    if (length % GRID || length < 0 || n_shared * GRID > length)
        LILY_FAIL(err, LILY_ERR_USAGE, "a saved state of %d tokens: expected a multiple of %d", length, GRID);
    CUDA_TRY(cudaSetDevice(c->device), "the card");
    struct border *b = (struct border *)calloc(1, sizeof *b);
    int32_t *pages = (int32_t *)calloc((size_t)length / GRID + 1, sizeof *pages);
    float *fixed = NULL;
    lily_status st = b && pages ? alloc_fixed(p, &fixed, err) : err_set(err, LILY_ERR_MEMORY, "no memory for a saved state");
    if (st != LILY_OK) {
        free(pages);
        free(b);
        return st;
    }
    *b = (struct border){p, pages, 0, length, fixed};
    for (int i = 0; i < n_shared; i++) p->refs[pages[b->n_pages++] = base->pages[i]]++;
    st = import_parts(c, b, n_shared, src, err);
    if (st == LILY_OK) *out = b;
    else cuda_border_free(be, b);
    return st;
}
