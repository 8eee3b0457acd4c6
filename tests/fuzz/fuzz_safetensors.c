/* safetensors headers from any bytes; every byte of every accepted tensor is read. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "load/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct lily_err err;
    struct safetensors st;
    if (safetensors_parse_header(data, n, "fuzz", &st, &err) != LILY_OK) {
        if (!err.msg[0] || st.tensors) abort();
        return 0;
    }
    volatile unsigned sum = 0; /* so that every byte is read */
    size_t total = 0;
    for (int i = 0; i < st.n_tensors; i++) {
        const struct tensor_view *t = &st.tensors[i];
        for (size_t k = 0; k < t->bytes; k++) sum += t->data[k];
        total += t->bytes;
        if (safetensors_find(&st, t->name) != t) abort();
    }
    (void)sum;
    if (total > n) abort(); /* no overlaps */
    safetensors_free(&st);
    return 0;
}
