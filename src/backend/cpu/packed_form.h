/* The bytes of the packed file's front, for its reader and its writer only. */
#ifndef LILY_BACKEND_CPU_PACKED_FORM_H
#define LILY_BACKEND_CPU_PACKED_FORM_H

#include <stdint.h>

#include "base/hash.h"

enum {
    PACKED_HEADER = 4096,
    PACKED_NAME = 120,       /* of a matrix, with its NUL */
    PACKED_ALIGN = 4096,     /* of a matrix */
    PACKED_DATA_ALIGN = 2 << 20,
    PACKED_CHUNK = 4 << 20,  /* bytes under one hash */
    PACKED_MAX = 4096        /* matrices */
};

struct packed_header {
    char magic[8]; /* "lilypack" */
    uint32_t version, n_matrices;
    uint64_t file_bytes, data_at, n_chunks;
    char key[65];   /* of the checkpoint, with NUL */
    char front[65]; /* SHA-256 of table and hashes, with NUL */
    char self[65];  /* SHA-256 of everything above it in this struct, with NUL */
};

struct packed_entry {
    char name[PACKED_NAME];
    uint32_t kind, n_experts, rows, cols;
    uint64_t at, bytes;
};

/* Notes that the file is as it was written or verified. */
void packed_stamp(const char *path);

static inline uint64_t packed_round(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static inline uint64_t packed_hashes_at(uint64_t n_matrices)
{
    return PACKED_HEADER + n_matrices * sizeof(struct packed_entry);
}

#endif
