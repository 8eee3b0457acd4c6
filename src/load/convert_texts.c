/* Configuration, index and the files that are only copied. */
#include "load/convert_texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "json/json.h"

enum { MAX_TEXT_BYTES = 256 << 20 };

static lily_status copy_text(const char *src, const char *dst, const char *name, struct lily_err *err)
{
    struct buf from = {0}, to = {0}, text = {0};
    file_join(&from, src, name);
    file_join(&to, dst, name);
    lily_status st = LILY_OK;
    if (file_exists(buf_str(&from))) {
        st = file_read(buf_str(&from), MAX_TEXT_BYTES, &text, err);
        if (st == LILY_OK) st = file_write_shared(buf_str(&to), buf_str(&text), text.len, err);
    }
    buf_free(&from);
    buf_free(&to);
    buf_free(&text);
    return st;
}

lily_status convert_copy_texts(const char *src, const char *dst, struct lily_err *err)
{
    static const char *const names[] = {"generation_config.json", "tokenizer.json",   "tokenizer_config.json", "vocab.json",
                                        "merges.txt",             "chat_template.jinja", "chat_template.json",    "special_tokens_map.json",
                                        "added_tokens.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) LILY_TRY(copy_text(src, dst, names[i], err));
    return LILY_OK;
}

static struct json *rule_json(int bits, bool mode)
{
    struct json *rule = json_new_object();
    json_put(rule, "group_size", json_new_int(QUANT_GROUP));
    json_put(rule, "bits", json_new_int(bits));
    if (mode) json_put(rule, "mode", json_new_string("affine"));
    return rule;
}

static lily_status add_override(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct buf key = {0};
    (void)err;
    if (!item->is_module || !convert_is_gate(item->path)) return LILY_OK;
    buf_printf(&key, "language_model.%s", item->path);
    json_put(arg, buf_str(&key), rule_json(8, false));
    buf_free(&key);
    return LILY_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The members of root but those that do not hold any more, with the quantization block twice, in the order of keys. */
static struct json *config_json(const struct json *root, const struct model_config *config)
{
    static const char *const dropped[] = {"_name_or_path", "vision_config", "quantization", "quantization_config"};
    size_t n = json_size(root), kept = 0;
    const char **keys = mem_new((n + 2) * sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        const struct json *v;
        const char *key = json_key_at(root, i, &v);
        bool drop = false;
        for (size_t k = 0; k < sizeof dropped / sizeof dropped[0]; k++) drop = drop || strcmp(key, dropped[k]) == 0;
        if (!drop) keys[kept++] = key;
    }
    keys[kept++] = "quantization";
    keys[kept++] = "quantization_config";
    qsort(keys, kept, sizeof *keys, by_text);
    struct json *block = rule_json(4, true), *out = json_new_object();
    inventory_walk(&config->shape, add_override, block, NULL);
    for (size_t i = 0; i < kept; i++)
        json_put(out, keys[i], json_copy(strncmp(keys[i], "quantization", 12) == 0 ? block : json_get(root, keys[i])));
    json_free(block);
    free(keys);
    return out;
}

/* Moves v into DIR/NAME, indented by four as Python's json.dump does it. */
static lily_status write_json(const char *dir, const char *name, struct json *moved, struct lily_err *err)
{
    struct buf path = {0}, text = {0};
    file_join(&path, dir, name);
    json_write(moved, 4, &text);
    json_free(moved);
    lily_status st = file_write_shared(buf_str(&path), buf_str(&text), text.len, err);
    buf_free(&path);
    buf_free(&text);
    return st;
}

lily_status convert_write_config(const char *src, const char *dst, const struct model_config *config, struct lily_err *err)
{
    struct buf path = {0};
    struct json *root = NULL;
    file_join(&path, src, "config.json");
    lily_status st = json_parse_file(buf_str(&path), MAX_CONFIG_BYTES, &root, err);
    buf_free(&path);
    LILY_TRY(st);
    st = write_json(dst, "config.json", config_json(root, config), err);
    json_free(root);
    return st;
}

void convert_shard_name(int shard, int n_shards, char out[48])
{
    if (n_shards == 1) snprintf(out, 48, "model.safetensors");
    else snprintf(out, 48, "model-%05d-of-%05d.safetensors", shard + 1, n_shards);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct tensor_decl *const *)a)->name, (*(const struct tensor_decl *const *)b)->name);
}

lily_status convert_write_index(const char *dst, const struct convert_plan *plan, struct lily_err *err)
{
    struct json *root = json_new_object(), *meta = json_new_object(), *map = json_new_object();
    const struct tensor_decl **sorted = mem_new((size_t)plan->n_tensors * sizeof *sorted);
    for (int i = 0; i < plan->n_tensors; i++) sorted[i] = &plan->tensors[i];
    qsort(sorted, (size_t)plan->n_tensors, sizeof *sorted, by_name);
    for (int i = 0; i < plan->n_tensors; i++) {
        char file[48];
        convert_shard_name(plan->shard[sorted[i] - plan->tensors], plan->n_shards, file);
        json_put(map, sorted[i]->name, json_new_string(file));
    }
    free(sorted);
    json_put(meta, "total_size", json_new_int(plan->bytes_out));
    json_put(root, "metadata", meta);
    json_put(root, "weight_map", map);
    return write_json(dst, "model.safetensors.index.json", root, err);
}
