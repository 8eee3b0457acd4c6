/* Modules and vectors of a checkpoint: shapes and types checked, values dequantized one by one. */
#include <stdbool.h>
#include <string.h>

#include "base/num.h"
#include "load/checkpoint.h"
#include "load/entries.h"
#include "load/safetensors.h"
#include "spec/synth.h"

static bool is_float(enum dtype d)
{
    return d == DTYPE_BF16 || d == DTYPE_F16 || d == DTYPE_F32;
}

/* Element i of a float tensor. */
static float widen(const struct tensor_view *t, size_t i)
{
    if (t->synth) return bf16_to_f32((uint16_t)synth_bf16(t->synth, (uint32_t)i));
    if (t->dtype == DTYPE_BF16) return bf16_to_f32(load_u16(t->data + 2 * i));
    if (t->dtype == DTYPE_F16) return f16_to_f32(load_u16(t->data + 2 * i));
    return f32_from_bits(load_u32(t->data + 4 * i));
}

/* The shape of one tensor of a module: (experts, rows, cols), without experts for a plain module. */
static struct tensor_view wanted_shape(const struct module_want *w, int cols)
{
    struct tensor_view t = {0};
    if (w->experts) t.dim[t.n_dims++] = w->experts;
    t.dim[t.n_dims++] = w->rows;
    t.dim[t.n_dims++] = cols;
    return t;
}

static lily_status expect_shape(const struct tensor_view *t, const struct module_want *w, int cols, struct lily_err *err)
{
    struct tensor_view want = wanted_shape(w, cols);
    char found[SHAPE_TEXT], expected[SHAPE_TEXT];
    if (t->n_dims != want.n_dims || memcmp(t->dim, want.dim, sizeof want.dim) != 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: shape %s, expected %s", t->file, t->name, shape_text(t, found),
                  shape_text(&want, expected));
    return LILY_OK;
}

static lily_status expect_dtype(const struct tensor_view *t, enum dtype want, struct lily_err *err)
{
    if (t->dtype != want)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: tensor %s: dtype %s, expected %s", t->file, t->name,
                  dtype_name(t->dtype), dtype_name(want));
    return LILY_OK;
}

static lily_status expect_float(const struct tensor_view *t, struct lily_err *err)
{
    if (!is_float(t->dtype))
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: tensor %s: dtype %s, expected BF16, F16 or F32", t->file, t->name,
                  dtype_name(t->dtype));
    return LILY_OK;
}

static lily_status find_part(const struct checkpoint *c, const struct module_want *w, const char *suffix,
                             struct tensor_view *out, struct lily_err *err)
{
    const struct entry *e = entries_find_part(c, w->path, suffix);
    if (!e) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s.%s is missing", entries_dir(c), w->path, suffix);
    *out = e->view;
    return LILY_OK;
}

static lily_status check_quantized(const struct module_view *m, const struct module_want *w, struct lily_err *err)
{
    if (m->bits == 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s is there, but config.json says that its module is not quantized",
                  m->scales.file, m->scales.name);
    if (w->cols % QUANT_GROUP)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: tensor %s: %d columns, expected a multiple of %d", m->scales.file,
                  m->scales.name, w->cols, QUANT_GROUP);
    LILY_TRY(expect_dtype(&m->weight, DTYPE_U32, err));
    LILY_TRY(expect_dtype(&m->scales, DTYPE_BF16, err));
    LILY_TRY(expect_dtype(&m->biases, DTYPE_BF16, err));
    lily_status st = expect_shape(&m->weight, w, w->cols / (32 / m->bits), err);
    if (st != LILY_OK) {
        err_hint(err, "config.json says that this module has %d bits", m->bits);
        return st;
    }
    LILY_TRY(expect_shape(&m->scales, w, w->cols / QUANT_GROUP, err));
    return expect_shape(&m->biases, w, w->cols / QUANT_GROUP, err);
}

lily_status checkpoint_module(const struct checkpoint *c, const struct module_want *want, struct module_view *out,
                              struct lily_err *err)
{
    struct module_view m = {.n_experts = want->experts ? want->experts : 1, .rows = want->rows, .cols = want->cols};
    const struct entry *scales = entries_find_part(c, want->path, "scales");
    LILY_TRY(find_part(c, want, "weight", &m.weight, err));
    if (scales) {
        m.scales = scales->view;
        m.bits = scales->rule_bits;
        LILY_TRY(find_part(c, want, "biases", &m.biases, err));
        LILY_TRY(check_quantized(&m, want, err));
    } else {
        LILY_TRY(expect_float(&m.weight, err));
        LILY_TRY(expect_shape(&m.weight, want, want->cols, err));
    }
    *out = m;
    return LILY_OK;
}

lily_status entry_check_vector(const struct entry *e, size_t n, struct lily_err *err)
{
    const struct tensor_view *t = &e->view;
    char shape[SHAPE_TEXT];
    LILY_TRY(expect_float(t, err));
    if (t->bytes != n * dtype_bytes(t->dtype))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s: shape %s, expected %zu elements", t->file, t->name,
                  shape_text(t, shape), n);
    return LILY_OK;
}

lily_status checkpoint_vector(const struct checkpoint *c, const char *name, size_t n, float *out, struct lily_err *err)
{
    const struct entry *e = entries_find(c, name);
    if (!e) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s is missing", entries_dir(c), name);
    LILY_TRY(entry_check_vector(e, n, err));
    for (size_t i = 0; i < n; i++) out[i] = widen(&e->view, i);
    return LILY_OK;
}

static unsigned byte_at(const struct tensor_view *t, size_t i)
{
    return t->synth ? synth_word(t->synth, (uint32_t)(i / 4)) >> 8 * (i % 4) & 255 : t->data[i];
}

static unsigned code_at(const struct module_view *m, size_t i)
{
    if (m->bits == 8) return byte_at(&m->weight, i);
    return byte_at(&m->weight, i / 2) >> (i % 2 * 4) & 15;
}

float module_element(const struct module_view *m, int expert, int row, int col)
{
    size_t i = ((size_t)expert * (size_t)m->rows + (size_t)row) * (size_t)m->cols + (size_t)col;
    if (m->bits == 0) return widen(&m->weight, i);
    float scale = widen(&m->scales, i / QUANT_GROUP);
    float bias = widen(&m->biases, i / QUANT_GROUP);
    return scale * (float)code_at(m, i) + bias;
}

void module_row(const struct module_view *m, int expert, int row, float *out)
{
    size_t at = ((size_t)expert * (size_t)m->rows + (size_t)row) * (size_t)m->cols;
    for (size_t i = 0; i < (size_t)m->cols; i++) {
        if (m->bits == 0) {
            out[i] = widen(&m->weight, at + i);
            continue;
        }
        float scale = widen(&m->scales, (at + i) / QUANT_GROUP);
        float bias = widen(&m->biases, (at + i) / QUANT_GROUP);
        out[i] = scale * (float)code_at(m, at + i) + bias;
    }
}
