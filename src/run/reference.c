/* Reading and writing references. */
#include "run/reference.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "load/safetensors.h"
#include "load/safetensors_write.h"

lily_status reference_new(int n, int k, struct reference *out, struct lily_err *err)
{
    size_t rows = (size_t)n, wide = rows * (size_t)k;
    *out = (struct reference){.n = n, .n_sequences = 1, .k = k};
    out->ids = mem_try(rows, sizeof *out->ids);
    out->starts = mem_try(rows, sizeof *out->starts);
    out->chosen = mem_try(rows, sizeof *out->chosen);
    out->top_ids = mem_try(wide, sizeof *out->top_ids);
    out->top_logprobs = mem_try(wide, sizeof *out->top_logprobs);
    if (out->ids && out->starts && out->chosen && out->top_ids && out->top_logprobs) return LILY_OK;
    reference_free(out);
    LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for a reference of %d tokens", n);
}

void reference_free(struct reference *r)
{
    free(r->ids);
    free(r->starts);
    free(r->chosen);
    free(r->top_ids);
    free(r->top_logprobs);
    memset(r, 0, sizeof *r);
}

/* The tensor of a name, held against its type and number of dimensions. */
static lily_status find(const struct safetensors *st, const char *path, const char *name, enum dtype dtype, int n_dims,
                        const struct tensor_view **out, struct lily_err *err)
{
    char shape[SHAPE_TEXT];
    const struct tensor_view *t = *out = safetensors_find(st, name);
    if (!t) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: no tensor %s; expected a file of lily eval record", path, name);
    if (t->dtype != dtype || t->n_dims != n_dims)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: %s %s, expected %s in %d dimensions", path, name, dtype_name(t->dtype),
                  shape_text(t, shape), dtype_name(dtype), n_dims);
    return LILY_OK;
}

struct parts {
    const struct tensor_view *ids, *starts, *chosen, *top_ids, *top_logprobs;
};

static lily_status find_parts(const struct safetensors *st, const char *path, struct parts *p, struct lily_err *err)
{
    LILY_TRY(find(st, path, "ids", DTYPE_I32, 1, &p->ids, err));
    LILY_TRY(find(st, path, "starts", DTYPE_I32, 1, &p->starts, err));
    LILY_TRY(find(st, path, "chosen", DTYPE_F32, 1, &p->chosen, err));
    LILY_TRY(find(st, path, "top_ids", DTYPE_I32, 2, &p->top_ids, err));
    LILY_TRY(find(st, path, "top_logprobs", DTYPE_F32, 2, &p->top_logprobs, err));
    int64_t n = p->ids->dim[0], k = p->top_ids->dim[1];
    if (n < 2 || n > REFERENCE_MAX_TOKENS || k < 1 || k > REFERENCE_MAX_TOP || p->starts->dim[0] < 1 || p->starts->dim[0] > n / 2)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %lld tokens in %lld sequences with the top %lld; expected 2 to %d tokens, sequences of 2 or more, the top 1 to %d",
                  path, (long long)n, (long long)p->starts->dim[0], (long long)k, REFERENCE_MAX_TOKENS, REFERENCE_MAX_TOP);
    if (p->chosen->dim[0] != n || p->top_ids->dim[0] != n || p->top_logprobs->dim[0] != n || p->top_logprobs->dim[1] != k)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensors of different lengths, expected %lld rows of each", path, (long long)n);
    return LILY_OK;
}

static lily_status check_numbers(const char *path, const struct reference *r, int vocab, struct lily_err *err)
{
    for (int s = 0; s < r->n_sequences; s++)
        if (s == 0 ? r->starts[0] != 0 : r->starts[s] < r->starts[s - 1] + 2 || r->starts[s] > r->n - 2)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: sequence %d begins at token %d", path, s, (int)r->starts[s]);
    for (int i = 0; i < r->n; i++) {
        bool bad = r->ids[i] < 0 || r->ids[i] >= vocab || !(r->chosen[i] <= 0.0f);
        for (int k = 0; k < r->k; k++) {
            size_t at = (size_t)i * (size_t)r->k + (size_t)k;
            bad = bad || r->top_ids[at] < 0 || r->top_ids[at] >= vocab || !(r->top_logprobs[at] <= 1e-4f);
        }
        if (bad) {
            err_set(err, LILY_ERR_FORMAT, "%s: row %d has an id past the vocabulary of %d, or a log-probability above 0", path, i, vocab);
            err_hint(err, "a reference belongs to one tokenizer: record it again for this model");
            return LILY_ERR_FORMAT;
        }
    }
    return LILY_OK;
}

lily_status reference_read(const char *path, int vocab, struct reference *out, struct lily_err *err)
{
    struct file_map map;
    struct safetensors file;
    struct parts p;
    memset(out, 0, sizeof *out);
    LILY_TRY(file_map_open(path, &map, err));
    lily_status st = safetensors_parse_header(map.data, map.size, path, &file, err);
    if (st == LILY_OK) {
        st = find_parts(&file, path, &p, err);
        if (st == LILY_OK) st = reference_new((int)p.ids->dim[0], (int)p.top_ids->dim[1], out, err);
        if (st == LILY_OK) {
            out->n_sequences = (int)p.starts->dim[0];
            memcpy(out->ids, p.ids->data, p.ids->bytes);
            memcpy(out->starts, p.starts->data, p.starts->bytes);
            memcpy(out->chosen, p.chosen->data, p.chosen->bytes);
            memcpy(out->top_ids, p.top_ids->data, p.top_ids->bytes);
            memcpy(out->top_logprobs, p.top_logprobs->data, p.top_logprobs->bytes);
            st = check_numbers(path, out, vocab, err);
            if (st != LILY_OK) reference_free(out);
        }
        safetensors_free(&file);
    }
    file_map_close(&map);
    return st;
}

lily_status reference_write(const char *path, const struct reference *r, struct lily_err *err)
{
    const struct tensor_decl decls[] = {{"chosen", DTYPE_F32, 1, {r->n}},
                                        {"ids", DTYPE_I32, 1, {r->n}},
                                        {"starts", DTYPE_I32, 1, {r->n_sequences}},
                                        {"top_ids", DTYPE_I32, 2, {r->n, r->k}},
                                        {"top_logprobs", DTYPE_F32, 2, {r->n, r->k}}};
    const void *data[] = {r->chosen, r->ids, r->starts, r->top_ids, r->top_logprobs};
    struct safetensors_writer *w;
    LILY_TRY(safetensors_create(path, decls, 5, &w, err));
    for (int i = 0; i < 5; i++) {
        lily_status st = safetensors_put(w, data[i], (size_t)tensor_decl_bytes(&decls[i]), err);
        if (st == LILY_OK) continue;
        safetensors_abandon(w);
        return st;
    }
    return safetensors_finish(w, err);
}
