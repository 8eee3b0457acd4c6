/* The header of a safetensors file: parsed as untrusted data, checked against the file. */
#include "load/safetensors.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "json/json.h"

enum { LENGTH_BYTES = 8 };

static const struct {
    const char *name;
    enum dtype dtype;
    size_t bytes;
} dtypes[] = {
    {"F32", DTYPE_F32, 4},      {"F16", DTYPE_F16, 2},       {"BF16", DTYPE_BF16, 2},    {"U32", DTYPE_U32, 4},
    {"I32", DTYPE_I32, 4},      {"I64", DTYPE_I64, 8},       {"U8", DTYPE_U8, 1},        {"I8", DTYPE_OTHER, 1},
    {"BOOL", DTYPE_OTHER, 1},   {"I16", DTYPE_OTHER, 2},     {"U16", DTYPE_OTHER, 2},    {"U64", DTYPE_OTHER, 8},
    {"F64", DTYPE_OTHER, 8},    {"C64", DTYPE_OTHER, 8},     {"F8_E4M3", DTYPE_OTHER, 1}, {"F8_E5M2", DTYPE_OTHER, 1},
    {"F8_E8M0", DTYPE_OTHER, 1},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *dtype_name(enum dtype d)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == d && d != DTYPE_OTHER) return dtypes[i].name;
    return "another type";
}

size_t dtype_bytes(enum dtype d)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == d && d != DTYPE_OTHER) return dtypes[i].bytes;
    return 0;
}

const char *shape_text(const struct tensor_view *t, char out[SHAPE_TEXT])
{
    size_t at = 0;
    for (int i = 0; i < t->n_dims; i++)
        at += (size_t)snprintf(out + at, SHAPE_TEXT - at, "%s%" PRId64, i ? ", " : "[", t->dim[i]);
    snprintf(out + at, SHAPE_TEXT - at, "%s", t->n_dims ? "]" : "[]");
    return out;
}

struct header {
    const uint8_t *area; /* the data behind the header */
    size_t area_bytes;
    const char *file;
};

static lily_status find_json(const uint8_t *data, size_t n, const char *file, size_t *length, struct lily_err *err)
{
    static const char lfs[] = "version https://git-lfs";
    if (n >= sizeof lfs - 1 && memcmp(data, lfs, sizeof lfs - 1) == 0) {
        err_set(err, LILY_ERR_FORMAT, "%s: a Git LFS pointer, expected the weights themselves", file);
        err_hint(err, "fetch the file with `git lfs pull`, or download the model again");
        return LILY_ERR_FORMAT;
    }
    if (n < LENGTH_BYTES)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %zu bytes, too short for a safetensors file", file, n);
    uint64_t claimed = load_u64(data);
    if (claimed < 2 || claimed > MAX_HEADER_BYTES)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: header length %" PRIu64 ", expected 2 to %d: not a safetensors file", file,
                  claimed, MAX_HEADER_BYTES);
    if (claimed > n - LENGTH_BYTES) {
        err_set(err, LILY_ERR_FORMAT, "%s: the header takes %" PRIu64 " bytes, but only %zu are there", file, claimed,
                n - LENGTH_BYTES);
        err_hint(err, "the file is cut off: download it again");
        return LILY_ERR_FORMAT;
    }
    *length = (size_t)claimed;
    return LILY_OK;
}

static bool is_count(const struct json *v)
{
    return v && json_kind(v) == JSON_INTEGER && json_int(v) >= 0;
}

/* Reads "dtype" and returns the size of one element. */
static lily_status read_dtype(const struct header *h, const struct json *entry, struct tensor_view *t, size_t *element,
                              struct lily_err *err)
{
    const struct json *v = json_get(entry, "dtype");
    if (!v || json_kind(v) != JSON_STRING)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: dtype is %s, expected a string", h->file, t->name,
                  v ? json_kind_name(v) : "missing");
    for (int i = 0; i < N_DTYPES; i++) {
        if (strlen(dtypes[i].name) != json_string_len(v) || strcmp(dtypes[i].name, json_string(v)) != 0) continue;
        t->dtype = dtypes[i].dtype;
        *element = dtypes[i].bytes;
        return LILY_OK;
    }
    LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: tensor %s: dtype \"%.40s\" is unknown", h->file, t->name, json_string(v));
}

/* Reads "shape"; *bytes gets the product with the element size. */
static lily_status read_shape(const struct header *h, const struct json *entry, struct tensor_view *t, size_t *bytes,
                              struct lily_err *err)
{
    const struct json *v = json_get(entry, "shape");
    if (!v || json_kind(v) != JSON_ARRAY)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: shape is %s, expected an array", h->file, t->name,
                  v ? json_kind_name(v) : "missing");
    if (json_size(v) > MAX_DIMS)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: tensor %s: %zu dimensions, at most %d are supported", h->file, t->name,
                  json_size(v), MAX_DIMS);
    t->n_dims = (int)json_size(v);
    for (int i = 0; i < t->n_dims; i++) {
        const struct json *d = json_at(v, (size_t)i);
        if (!is_count(d))
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: dimension %d of the shape is no count", h->file, t->name, i);
        t->dim[i] = json_int(d);
        if (__builtin_mul_overflow(*bytes, (size_t)t->dim[i], bytes))
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: the product of its shape overflows", h->file, t->name);
    }
    return LILY_OK;
}

static lily_status read_offsets(const struct header *h, const struct json *entry, struct tensor_view *t, size_t bytes,
                                struct lily_err *err)
{
    const struct json *v = json_get(entry, "data_offsets");
    bool pair = v && json_kind(v) == JSON_ARRAY && json_size(v) == 2;
    const struct json *lo = pair ? json_at(v, 0) : NULL, *hi = pair ? json_at(v, 1) : NULL;
    if (!is_count(lo) || !is_count(hi) || json_int(lo) > json_int(hi))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: data_offsets is not [begin, end] with 0 <= begin <= end", h->file,
                  t->name);
    uint64_t begin = (uint64_t)json_int(lo), end = (uint64_t)json_int(hi);
    char shape[SHAPE_TEXT];
    if (end - begin != bytes)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: %" PRIu64 " bytes by data_offsets, expected %zu by shape %s and dtype",
                  h->file, t->name, end - begin, bytes, shape_text(t, shape));
    if (end > h->area_bytes) {
        err_set(err, LILY_ERR_FORMAT, "%s: tensor %s: ends at data byte %" PRIu64 ", but the file has only %zu", h->file,
                t->name, end, h->area_bytes);
        err_hint(err, "the file is cut off or damaged: download it again");
        return LILY_ERR_FORMAT;
    }
    t->data = h->area + begin;
    t->bytes = bytes;
    return LILY_OK;
}

static lily_status read_tensor(const struct header *h, const struct json *entry, struct tensor_view *t,
                               struct lily_err *err)
{
    if (json_kind(entry) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: its entry is %s, expected an object", h->file, t->name,
                  json_kind_name(entry));
    size_t bytes = 0;
    t->file = h->file;
    LILY_TRY(read_dtype(h, entry, t, &bytes, err));
    LILY_TRY(read_shape(h, entry, t, &bytes, err));
    return read_offsets(h, entry, t, bytes, err);
}

/* Copies the names into one block; out->tensors gets room for all. */
static lily_status take_names(const struct header *h, const struct json *root, struct safetensors *out,
                              struct lily_err *err)
{
    size_t n = json_size(root), total = 0;
    if (json_has_repeated_key(root))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: the header names a tensor twice", h->file);
    if (n > MAX_TENSORS)
        LILY_FAIL(err, LILY_ERR_LIMIT, "%s: %zu tensors, at most %d are supported", h->file, n, MAX_TENSORS);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(json_key_at(root, i, NULL));
        if (length == 0 || length > MAX_TENSOR_NAME)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: a tensor name of %zu bytes, expected 1 to %d", h->file, length,
                      MAX_TENSOR_NAME);
        total += length + 1;
    }
    out->names = mem_try(total, 1);
    out->tensors = mem_try(n, sizeof *out->tensors);
    if (!out->names || !out->tensors)
        LILY_FAIL(err, LILY_ERR_MEMORY, "%s: not enough memory for the names of %zu tensors", h->file, n);
    return LILY_OK;
}

static lily_status read_tensors(const struct header *h, const struct json *root, struct safetensors *out,
                                struct lily_err *err)
{
    LILY_TRY(take_names(h, root, out, err));
    char *name = out->names;
    for (size_t i = 0; i < json_size(root); i++) {
        const struct json *entry;
        const char *key = json_key_at(root, i, &entry);
        if (strcmp(key, "__metadata__") == 0) continue;
        struct tensor_view *t = &out->tensors[out->n_tensors];
        size_t length = strlen(key) + 1;
        t->name = memcpy(name, key, length);
        name += length;
        LILY_TRY(read_tensor(h, entry, t, err));
        out->n_tensors++;
    }
    return LILY_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct tensor_view *x = *(const struct tensor_view *const *)a, *y = *(const struct tensor_view *const *)b;
    return x->data != y->data ? (x->data > y->data) - (x->data < y->data) : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor_view *)a)->name, ((const struct tensor_view *)b)->name);
}

static lily_status refuse_overlaps(const struct safetensors *st, const char *file, struct lily_err *err)
{
    size_t n = (size_t)st->n_tensors;
    const struct tensor_view **order = mem_try(n, sizeof *order);
    if (!order) LILY_FAIL(err, LILY_ERR_MEMORY, "%s: not enough memory to check %zu tensors", file, n);
    for (size_t i = 0; i < n; i++) order[i] = &st->tensors[i];
    qsort(order, n, sizeof *order, by_offset);
    const struct tensor_view *last = NULL; /* the one that reaches furthest; empty tensors occupy nothing */
    lily_status found = LILY_OK;
    for (size_t i = 0; i < n && found == LILY_OK; i++) {
        if (!order[i]->bytes) continue;
        if (last && order[i]->data < last->data + last->bytes)
            found = err_set(err, LILY_ERR_FORMAT, "%s: the bytes of tensor %s overlap those of %s", file, order[i]->name,
                            last->name);
        last = order[i];
    }
    free(order);
    return found;
}

lily_status safetensors_parse_header(const uint8_t *data, size_t n, const char *file, struct safetensors *out,
                                     struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    size_t length = 0;
    LILY_TRY(find_json(data, n, file, &length, err));
    struct json *root = NULL;
    LILY_TRY(json_parse((const char *)data + LENGTH_BYTES, length, file, &root, err));
    struct header h = {data + LENGTH_BYTES + length, n - LENGTH_BYTES - length, file};
    lily_status st = json_kind(root) == JSON_OBJECT
                         ? read_tensors(&h, root, out, err)
                         : err_set(err, LILY_ERR_FORMAT, "%s: the header is %s, expected an object", file,
                                   json_kind_name(root));
    json_free(root);
    if (st == LILY_OK) st = refuse_overlaps(out, file, err);
    if (st != LILY_OK) {
        safetensors_free(out);
        return st;
    }
    qsort(out->tensors, (size_t)out->n_tensors, sizeof *out->tensors, by_name);
    return LILY_OK;
}

void safetensors_free(struct safetensors *st)
{
    free(st->tensors);
    free(st->names);
    memset(st, 0, sizeof *st);
}

const struct tensor_view *safetensors_find(const struct safetensors *st, const char *name)
{
    struct tensor_view key = {.name = name};
    return st->n_tensors ? bsearch(&key, st->tensors, (size_t)st->n_tensors, sizeof key, by_name) : NULL;
}
