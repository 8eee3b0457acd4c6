/*
 * One safetensors file in memory: its header parsed and checked, so that every tensor's bytes lie inside the file, match
 * shape and dtype, and overlap no other tensor.
 *
 * Layout: u64 little-endian header length n; n bytes of JSON (trailing spaces allowed); data. Data begins at any address.
 * Threads: immutable after parsing; any thread. Lifetime: names are owned by struct safetensors, data are views of the
 * caller's bytes.
 */
#ifndef LILY_LOAD_SAFETENSORS_H
#define LILY_LOAD_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "spec/tensor.h"

enum {
    MAX_TENSORS = 100000,     /* of one file; a 35B model with separate experts has 31,000 */
    MAX_TENSOR_NAME = 256,    /* bytes */
    MAX_HEADER_BYTES = 16 << 20
};

struct safetensors {
    struct tensor_view *tensors; /* owned; sorted by name (bytes) */
    int n_tensors;
    char *names; /* owned; the text behind tensors[].name */
};

const char *dtype_name(enum dtype d);  /* "BF16"; "another type" for DTYPE_OTHER */
size_t dtype_bytes(enum dtype d);      /* bytes of one element; 0 for DTYPE_OTHER */

/* Parses the header of a whole file of n bytes; `file` (borrowed, must outlive out) names it in errors and views. */
lily_status safetensors_parse_header(const uint8_t *data, size_t n, const char *file, struct safetensors *out,
                                     struct lily_err *err);
void safetensors_free(struct safetensors *st);
/* The tensor of that name, or NULL. */
const struct tensor_view *safetensors_find(const struct safetensors *st, const char *name);

/* "[2, 3]" into out. Returns out. */
enum { SHAPE_TEXT = 192 };
const char *shape_text(const struct tensor_view *t, char out[SHAPE_TEXT]);

#endif
