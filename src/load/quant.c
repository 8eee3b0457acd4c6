/* The quantization block: defaults, per-module overrides, lookups. */
#include "load/quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "load/names.h"

/* Checks one {"bits", "group_size", "mode"} object; `where` is its key for messages. */
static lily_status read_rule(const struct json *v, const char *what, const char *where, struct quant_rule *out,
                             struct lily_err *err)
{
    const struct json *method = json_get(v, "quant_method"), *mode = json_get(v, "mode");
    if (method)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s.quant_method is \"%.40s\", expected the MLX affine format without that key",
                  what, where, json_kind(method) == JSON_STRING ? json_string(method) : json_kind_name(method));
    if (mode && json_kind(mode) != JSON_NULL &&
        (json_kind(mode) != JSON_STRING || strcmp(json_string(mode), "affine") != 0))
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s.mode is \"%.40s\", expected \"affine\"", what, where,
                  json_kind(mode) == JSON_STRING ? json_string(mode) : json_kind_name(mode));
    int64_t bits = -1, group = -1;
    LILY_TRY(json_get_int((struct json_field){v, what, "bits"}, 0, INT32_MAX, &bits, err));
    LILY_TRY(json_get_int((struct json_field){v, what, "group_size"}, 0, INT32_MAX, &group, err));
    if (bits < 0 || group < 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %s.%s is missing", what, where, bits < 0 ? "bits" : "group_size");
    if (bits != 4 && bits != 8)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s.bits is %" PRId64 ", expected 4 or 8", what, where, bits);
    if (group != QUANT_GROUP)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s: %s.group_size is %" PRId64 ", expected %d", what, where, group,
                  QUANT_GROUP);
    *out = (struct quant_rule){(int)bits, (int)group};
    return LILY_OK;
}

/* One member of the block: an object or a boolean under a module path is an override, anything else a plain setting. */
static lily_status read_override(const char *key, const struct json *v, const char *what, struct model_config *out,
                                 struct lily_err *err)
{
    if (json_kind(v) != JSON_OBJECT && json_kind(v) != JSON_BOOL) return LILY_OK;
    struct buf path = {0};
    if (!name_of_text_model(key, &path)) {
        buf_free(&path);
        return LILY_OK;
    }
    struct quant_override *o = &out->overrides[out->n_overrides++];
    o->path = buf_take(&path);
    if (json_kind(v) == JSON_OBJECT) {
        char where[160];
        snprintf(where, sizeof where, "quantization.%.140s", key);
        return read_rule(v, what, where, &o->rule, err);
    }
    if (json_bool(v)) o->rule = out->quant_default; /* false: not quantized */
    return LILY_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct quant_override *)a)->path, ((const struct quant_override *)b)->path);
}

static lily_status read_overrides(const struct json *block, const char *what, struct model_config *out,
                                  struct lily_err *err)
{
    size_t n = json_size(block);
    if (json_has_repeated_key(block)) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: quantization has two rules for one key", what);
    out->overrides = mem_try(n, sizeof *out->overrides);
    if (!out->overrides) LILY_FAIL(err, LILY_ERR_MEMORY, "%s: not enough memory for %zu quantization rules", what, n);
    for (size_t i = 0; i < n; i++) {
        const struct json *v;
        const char *key = json_key_at(block, i, &v);
        LILY_TRY(read_override(key, v, what, out, err));
    }
    qsort(out->overrides, (size_t)out->n_overrides, sizeof *out->overrides, by_path);
    for (int i = 1; i < out->n_overrides; i++)
        if (strcmp(out->overrides[i - 1].path, out->overrides[i].path) == 0)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: quantization has two rules for %.200s", what, out->overrides[i].path);
    return LILY_OK;
}

lily_status quant_parse(const struct json *root, const char *what, struct model_config *out, struct lily_err *err)
{
    const char *key = "quantization";
    const struct json *block = json_get(root, key);
    if (!block || json_kind(block) == JSON_NULL) {
        key = "quantization_config";
        block = json_get(root, key);
    }
    if (!block || json_kind(block) == JSON_NULL) return LILY_OK;
    if (json_kind(block) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %s is %s, expected an object", what, key, json_kind_name(block));
    LILY_TRY(read_rule(block, what, key, &out->quant_default, err));
    return read_overrides(block, what, out, err);
}

struct quant_rule config_quant_rule(const struct model_config *c, const char *path)
{
    struct buf name = {0};
    struct quant_rule rule = {0, 0};
    if (name_of_text_model(path, &name)) {
        struct quant_override want = {buf_take(&name), rule}, *found = NULL;
        if (c->n_overrides) found = bsearch(&want, c->overrides, (size_t)c->n_overrides, sizeof want, by_path);
        rule = found ? found->rule : c->quant_default;
        free(want.path);
    }
    buf_free(&name);
    return rule;
}
