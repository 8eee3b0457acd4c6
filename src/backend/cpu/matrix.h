/*
 * Packed matrices: a module of a checkpoint in the tile layout of cpu/kernels.h. Rows are padded to 16 and columns to 128
 * with zero weights, so kernels never see a ragged edge.
 *
 * Layout in memory: experts, then row blocks, then tiles along the columns, each as kernels.h says. Immutable after pack.
 */
#ifndef LILY_BACKEND_CPU_MATRIX_H
#define LILY_BACKEND_CPU_MATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels.h"
#include "base/err.h"
#include "base/arena.h"
#include "base/pool.h"
#include "spec/tensor.h"

enum matrix_kind { MATRIX_Q4, MATRIX_Q8, MATRIX_F32 };

struct matrix {
    enum matrix_kind kind;
    int n_experts, rows, cols; /* logical */
    int n_blocks;              /* row blocks per expert */
    int col_tiles;             /* even */
    size_t tile_bytes, block_bytes, expert_bytes, bytes;
    const uint8_t *data; /* 64-byte aligned; borrowed from an arena or a packed file */
};

/* Everything but the data: what a module's matrix will be. LILY_ERR_UNSUPPORTED for a module that cannot be packed. */
lily_status matrix_describe(const struct module_view *src, struct matrix *out, struct lily_err *err);
/*
 * Packs the row blocks [lo, hi), counted over all experts, one after another to dst (hi - lo times block_bytes, every byte is
 * written). Any thread. LILY_ERR_MEMORY without a message: no memory for one row.
 */
lily_status matrix_pack_blocks(const struct matrix *m, const struct module_view *src, long lo, long hi, uint8_t *dst);


/* Packs into the arena on all threads of the pool. The result is owned: free(). */
lily_status matrix_pack(const struct module_view *m, struct pool *pool, struct arena *arena, struct matrix **out, struct lily_err *err);

static inline const uint8_t *matrix_block(const struct matrix *m, int expert, int block)
{
    return m->data + (size_t)expert * m->expert_bytes + (size_t)block * m->block_bytes;
}

/* Rows from … to-1 of a matrix without experts, as a matrix of their own over the same data; `from` is a multiple of BLOCK_ROWS. */
struct matrix matrix_rows(const struct matrix *m, int from, int to);

/* One row as fp32: cols values of scale*q + bias. */
void matrix_row(const struct matrix *m, int expert, int row, float *out);

/* Row blocks behind each other. */
struct block_run {
    const uint8_t *at;
    int n;
};

/*
 * Runs the kernel of the matrix's kind over n_blocks row blocks from job->block on; those of block b go to job->y + 16*b.
 * Codes are multiplied with digits where the activations have them, those of 8 bits with three. next: as in digit_job.
 */
void matrix_run(const struct cpu_kernels *k, const struct matrix *m, const struct block_job *job, int n_blocks, struct block_run next);

#endif
