/*
 * The prefill product on tensor cores (mma.sync, from sm_80): weights as units, made bf16 in registers; activations as rows of
 * bf16 in the units' order. A block takes 128 weight rows and BN tokens; an element's sum runs over the columns in one order,
 * 16 at a time, whatever the block, so BN may follow the number of tokens without changing a bit.
 */
#ifndef LILY_BACKEND_CUDA_GEMM_CUH
#define LILY_BACKEND_CUDA_GEMM_CUH

#include "backend/cuda/device.cuh"

enum gemm_out {
    GEMM_BF16, /* y as bf16 */
    GEMM_F32,  /* y as fp32 */
    GEMM_ADD,  /* y (fp32) += */
    GEMM_SILU, /* silu(first matrix) * second, as bf16 in the units' order */
};

/* One matrix (or the pair of GEMM_SILU) and where its results go. */
struct gemm_part {
    const uint8_t *w, *w2;
    int planes, tiles;
    int end;        /* blocks of 8 tiles up to and with this part (GEMM_SILU: of 4 tiles) */
    enum gemm_out kind;
    void *y;
    int ldy;
};

enum { GEMM_PARTS = 4, GEMM_TILES = 8 };

struct gemm_params {
    struct gemm_part part[GEMM_PARTS];
    int units;
    const u16 *x;   /* (rows, ldx) */
    int ldx, n_rows;
    /* experts: blocks of tokens of one expert; NULL: rows in order */
    const int32_t *blocks, *expert_first, *slot_row;
    size_t expert_bytes;
    bool gather;    /* x rows are batch rows, to be found through slot_row; else slots */
};

/* Launches blocks over the parts. n_blocks: token blocks at most. */
void gemm_run(struct cuda_backend *c, gemm_params *p, int n_parts, int bn, int n_blocks);
struct gemm_part gemm_part_of(const struct matrix *m, enum gemm_out kind, void *y, int ldy);

#endif
