/*
 * The prefill product on tensor cores: weights as units, made fp16 in registers; activations as rows of fp16 in the units'
 * order. Two forms: warpgroup products (Hopper, 4-bit matrices; gemm_wg.cu) and mma.sync (gemm.cu). A block takes 128 weight
 * rows and some tokens; an element's sum runs over the columns in one order, 16 at a time, whatever the block, so the number of
 * tokens may follow their count without changing a bit. The form follows the card and the matrix.
 */
#ifndef LILY_BACKEND_CUDA_GEMM_CUH
#define LILY_BACKEND_CUDA_GEMM_CUH

#include "backend/cuda/device.cuh"

enum gemm_out {
    GEMM_F16,  /* y as fp16; of activations in one part */
    GEMM_F32,  /* y as fp32; of activations in two parts */
    GEMM_ADD,  /* y (fp32) +=; the same */
    GEMM_SILU, /* silu(first matrix) * second * INNER_SCALE, as fp16 in the units' order; of activations in one part */
};

/* One matrix (or the pair of GEMM_SILU) and where its results go. */
struct gemm_part {
    const uint8_t *w, *w2;
    int planes, tiles;
    int end;        /* blocks of weight rows up to and with this part */
    enum gemm_out kind;
    void *y;
    int ldy;
};

enum { GEMM_PARTS = 4, GEMM_TILES = 8 };

/* Tokens of one expert that go through its weights together: slots [first, first + n). */
struct token_block {
    int expert, first, n;
};

/* An expert of the same shape that all rows go through; its tiles come first. */
struct gemm_beside {
    const uint8_t *w, *w2;
    const u16 *x; /* rows in order, ldx as of the others; so is y */
    void *y;
    int n_rows;   /* 0: there is none */
};

struct gemm_params {
    struct gemm_part part[GEMM_PARTS];
    int units;
    const u16 *x;    /* (rows, ldx) */
    const u16 *rest; /* the same: what fp16 left of x, which counts, too; NULL: nothing */
    int ldx, n_rows;
    /* experts; n_blocks NULL: rows in order */
    const int32_t *n_blocks, *slot_row;
    const struct token_block *blocks;
    size_t expert_bytes;
    bool gather;    /* x rows are batch rows, to be found through slot_row; else slots */
    bool plain;     /* mma.sync, whatever the card has */
    struct gemm_beside beside; /* of experts; gemm_takes_beside */
    int width;      /* tokens of a block at most */
};

/* Launches the parts. most_blocks: of experts. */
void gemm_run(struct cuda_backend *c, gemm_params *p, int n_parts, int most_blocks);
struct gemm_part gemm_part_of(const struct matrix *m, enum gemm_out kind, void *y, int ldy);
/* Whether experts of these matrices can have a beside: their weights, its. */
bool gemm_takes_beside(const struct cuda_backend *c, const struct matrix *experts, const struct matrix *beside);
/* Tokens of an expert's block, for about `mean` tokens an expert. */
int gemm_expert_width(const struct cuda_backend *c, int planes, int mean);
/* gemm_wg.cu: parts of 4-bit matrices, on a card that has these products. */
void gemm_wg_run(struct cuda_backend *c, const gemm_params *p, int n_parts, int most_blocks);

/* Which part block `block` of weight rows belongs to, and its number there. */
DI const gemm_part &gemm_part_at(const gemm_params &p, int block, int *group)
{
    int m = 0;
    while (block >= p.part[m].end) m++;
    *group = block - (m ? p.part[m - 1].end : 0);
    return p.part[m];
}

#endif
