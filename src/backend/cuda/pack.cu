/* Uploading modules and packing them into units (common.cuh) on the card, through two pinned buffers in turn. */
#include <cstdlib>
#include <cstring>

#include "backend/cuda/device.cuh"
#include "spec/synth.h"

/* Words [first, first + n) of a synthetic tensor. */
__global__ void k_synth(u32 *out, struct synth_rule rule, u32 first, u32 n)
{
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = synth_word(&rule, first + i);
}

/* One thread makes 16 bytes of nibbles of one plane; the first threads of a unit also move scales and biases. */
struct pack_job {
    const uint8_t *codes, *scales, *biases; /* of the first row */
    uint8_t *out;                           /* first tile */
    int rows, cols, bits, planes, units;    /* rows in this piece */
};

/* Four codes of a row from column k, as nibbles of one plane in the low 16 bits. */
DI u32 four_codes(const struct pack_job &j, int row, int k, int plane)
{
    if (row >= j.rows || k >= j.cols) return 0;
    if (j.bits == 4) return *(const u16 *)(j.codes + ((size_t)row * j.cols + k) / 2);
    u32 q = *(const u32 *)(j.codes + (size_t)row * j.cols + k) >> (4 * plane) & 0x0f0f0f0fu;
    return (q & 15) | (q >> 4 & 0xf0) | (q >> 8 & 0xf00) | (q >> 12 & 0xf000);
}

DI u16 scale_at(const struct pack_job &j, const uint8_t *from, int row, int group)
{
    if (row >= j.rows || group * 64 >= j.cols) return 0;
    return *(const u16 *)(from + ((size_t)row * (j.cols / 64) + group) * 2);
}

__global__ void k_pack(struct pack_job j)
{
    int unit = blockIdx.x / j.planes, plane = blockIdx.x % j.planes, tile = blockIdx.y;
    int gr = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    uint8_t *u = j.out + ((size_t)tile * gridDim.x + blockIdx.x) * UNIT;
    u32 word[4];
    for (int i = 0; i < 4; i++) {
        int row = tile * 16 + g + 8 * (i & 1), k = unit * 128 + gr * 64 + 16 * (i >> 1) + 4 * t;
        u32 low = four_codes(j, row, k, plane), high = four_codes(j, row, k + 32, plane);
        word[i] = 0;
        for (int b = 0; b < 4; b++) word[i] |= ((low >> (4 * b) & 15) | (high >> (4 * b) & 15) << 4) << (8 * b);
    }
    *(uint4 *)(u + gr * 512 + lane * 16) = make_uint4(word[0], word[1], word[2], word[3]);
    if (threadIdx.x < 32) {
        int e = threadIdx.x & 3, row = tile * 16 + (threadIdx.x >> 2) + 8 * (e >> 1), group = unit * 2 + (e & 1);
        u16 s = scale_at(j, j.scales, row, group);
        if (plane) s = f_bf(16.0f * bf_f(s)); /* a power of two: exact */
        *(u16 *)(u + 1024 + threadIdx.x * 2) = s;
        *(u16 *)(u + 1088 + threadIdx.x * 2) = plane ? (u16)0 : scale_at(j, j.biases, row, group);
    }
}

lily_status cuda_need_staging(struct cuda_backend *c, struct lily_err *err)
{
    for (int i = 0; i < 2; i++) {
        if (c->staging[i]) continue;
        CUDA_TRY(cudaMallocHost((void **)&c->staging[i], STAGING), "pinned memory");
        CUDA_TRY(cudaMalloc((void **)&c->device_staging[i], STAGING), "upload buffers");
        CUDA_TRY(cudaEventCreateWithFlags(&c->staged[i], cudaEventDisableTiming), "an event");
    }
    return LILY_OK;
}

/* A piece of a tensor to the card's buffer: through pinned memory, or made there by rule. */
static cudaError_t send_piece(struct cuda_backend *c, const struct tensor_view *t, size_t at, size_t bytes, int buffer, size_t to)
{
    uint8_t *d = c->device_staging[buffer] + to;
    if (t->synth) {
        k_synth<<<1024, 256, 0, c->stream>>>((u32 *)d, *t->synth, (u32)(at / 4), (u32)((bytes + 3) / 4));
        return cudaGetLastError();
    }
    memcpy(c->staging[buffer] + to, t->data + at, bytes);
    return cudaMemcpyAsync(d, c->staging[buffer] + to, bytes, cudaMemcpyHostToDevice, c->stream);
}

/* Rows [row, row + n) of the flat module into the tiles that begin at out. */
static lily_status upload_rows(struct cuda_backend *c, const struct module_view *v, const struct matrix *m, size_t row, int n, uint8_t *out,
                               int buffer, struct lily_err *err)
{
    size_t code_row = (size_t)v->cols * (size_t)v->bits / 8, scale_row = (size_t)v->cols / 64 * 2;
    size_t code_bytes = ((size_t)n * code_row + 15) / 16 * 16, scale_bytes = ((size_t)n * scale_row + 15) / 16 * 16;
    uint8_t *d = c->device_staging[buffer];
    CUDA_TRY(cudaEventSynchronize(c->staged[buffer]), "an upload");
    CUDA_TRY(send_piece(c, &v->weight, row * code_row, (size_t)n * code_row, buffer, 0), "an upload");
    CUDA_TRY(send_piece(c, &v->scales, row * scale_row, (size_t)n * scale_row, buffer, code_bytes), "an upload");
    CUDA_TRY(send_piece(c, &v->biases, row * scale_row, (size_t)n * scale_row, buffer, code_bytes + scale_bytes), "an upload");
    struct pack_job j = {d, d + code_bytes, d + code_bytes + scale_bytes, out, n, v->cols, v->bits, m->planes, m->units};
    k_pack<<<dim3((unsigned)(m->units * m->planes), (unsigned)((n + 15) / 16)), 64, 0, c->stream>>>(j);
    CUDA_TRY(cudaGetLastError(), "packing");
    CUDA_TRY(cudaEventRecord(c->staged[buffer], c->stream), "an upload");
    return LILY_OK;
}

static lily_status upload(struct cuda_backend *c, const struct module_view *v, const struct matrix *m, struct lily_err *err)
{
    /* Without padded rows a stack of experts is one tall matrix. */
    bool flat = v->rows % UNIT_ROWS == 0;
    int stacks = flat ? 1 : v->n_experts, buffer = 0;
    size_t rows = flat ? (size_t)v->rows * (size_t)v->n_experts : (size_t)v->rows;
    size_t row_bytes = (size_t)v->cols * (size_t)v->bits / 8 + (size_t)v->cols / 64 * 4;
    size_t piece = (STAGING - 64) / row_bytes / UNIT_ROWS * UNIT_ROWS;
    if (piece > 65535 * UNIT_ROWS) piece = 65535 * UNIT_ROWS;
    if (!piece) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: rows of %d columns are too wide", v->weight.name, v->cols);
    for (int e = 0; e < stacks; e++)
        for (size_t at = 0; at < rows; at += piece, buffer ^= 1) {
            size_t n = rows - at < piece ? rows - at : piece;
            LILY_TRY(upload_rows(c, v, m, (size_t)e * rows + at, (int)n, m->data + (size_t)e * m->expert_bytes + at / UNIT_ROWS * m->tile_bytes,
                                 buffer, err));
        }
    return LILY_OK;
}

static lily_status check_source(const struct module_view *v, struct lily_err *err)
{
    if (v->bits != 4 && v->bits != 8) {
        err_set(err, LILY_ERR_UNSUPPORTED, "%s: CUDA takes modules of 4 or 8 bits, this one is not quantized", v->weight.name);
        err_hint(err, "run with --device cpu, or convert the checkpoint with all modules quantized");
        return LILY_ERR_UNSUPPORTED;
    }
    if (v->cols % 64) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %d columns, expected a multiple of 64", v->weight.name, v->cols);
    if (v->scales.dtype != DTYPE_BF16 || v->biases.dtype != DTYPE_BF16)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: scales and biases must be BF16", v->weight.name);
    return LILY_OK;
}

lily_status cuda_load_matrix(struct backend *be, const struct module_view *v, struct matrix **out, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    *out = NULL;
    CUDA_TRY(cudaSetDevice(c->device), "the card");
    LILY_TRY(check_source(v, err));
    LILY_TRY(cuda_need_staging(c, err));
    struct matrix *m = (struct matrix *)calloc(1, sizeof *m);
    if (!m) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for %s", v->weight.name);
    m->planes = v->bits / 4;
    m->n_experts = v->n_experts;
    m->rows = v->rows;
    m->cols = v->cols;
    m->tiles = (v->rows + UNIT_ROWS - 1) / UNIT_ROWS;
    m->units = (v->cols + UNIT_COLS - 1) / UNIT_COLS;
    m->tile_bytes = (size_t)m->units * (size_t)m->planes * UNIT;
    m->expert_bytes = m->tile_bytes * (size_t)m->tiles;
    m->bytes = m->expert_bytes * (size_t)m->n_experts;
    cudaError_t e = cudaMalloc((void **)&m->data, m->bytes);
    lily_status st = e == cudaSuccess ? upload(c, v, m, err) : cuda_failed(e, v->weight.name, err);
    if (st != LILY_OK) cuda_free_matrix(be, m);
    else *out = m;
    return st;
}

void cuda_free_matrix(struct backend *be, struct matrix *m)
{
    (void)be;
    if (m) cudaFree(m->data);
    free(m);
}
