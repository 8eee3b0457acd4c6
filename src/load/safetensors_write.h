/*
 * Writing safetensors files as a stream: declare all tensors, then give their bytes in that order.
 *
 * The header is padded with spaces so that data begins at a multiple of 8. The file appears under its name only when it is
 * complete. Threads: a writer belongs to one thread. Lifetime: declarations are borrowed during the call only.
 */
#ifndef LILY_LOAD_SAFETENSORS_WRITE_H
#define LILY_LOAD_SAFETENSORS_WRITE_H

#include "base/buf.h"
#include "base/err.h"
#include "spec/tensor.h"

struct tensor_decl {
    const char *name; /* UTF-8, not empty, unique in its file */
    enum dtype dtype; /* not DTYPE_OTHER */
    int n_dims;
    int64_t dim[MAX_DIMS];
};

/* Bytes of one tensor's data. */
int64_t tensor_decl_bytes(const struct tensor_decl *d);

/* Everything in front of the data (length and JSON, metadata format "mlx") appended to out; any sink may follow. */
void safetensors_header(const struct tensor_decl *decls, int n, struct buf *out);

struct safetensors_writer;

/* Creates a temporary file beside path and writes the header. */
lily_status safetensors_create(const char *path, const struct tensor_decl *decls, int n, struct safetensors_writer **out,
                               struct lily_err *err);
/* The next n_bytes of data, across tensor borders as they come; LILY_ERR_INTERNAL when more than was declared. */
lily_status safetensors_put(struct safetensors_writer *w, const void *data, size_t n_bytes, struct lily_err *err);
/* Flushes, renames into place and frees the writer; on failure (also when bytes are missing) nothing is left behind. */
lily_status safetensors_finish(struct safetensors_writer *w, struct lily_err *err);
/* Frees the writer and removes what was written. NULL is fine. */
void safetensors_abandon(struct safetensors_writer *w);

#endif
