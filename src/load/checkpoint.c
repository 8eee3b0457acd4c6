/* Opening a checkpoint folder: one file or shards by index, all tensors of the text model by name. */
#include "load/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/size.h"
#include "json/json.h"
#include "load/entries.h"
#include "load/names.h"
#include "load/safetensors.h"
#include "load/synth.h"

enum { MAX_INDEX_BYTES = 16 << 20, MAX_SHARDS = 1024, MAX_FILE_NAME = 255 };

struct shard {
    char *path; /* owned */
    struct file_map map;
    struct safetensors header;
};

struct checkpoint {
    char *dir;            /* owned */
    struct shard *shards; /* owned; never moved once tensors point into it */
    int n_shards;
    struct entry *entries; /* owned; sorted by name */
    int n_entries, cap_entries;
    size_t text_bytes;
    bool hf_form;
    bool (*name_of)(const char *name, struct buf *out); /* which tensors are kept, and how lookups write them */
};

/* Hugging Face keeps the convolution as (channels, 1, width). */
static bool is_hf_tensor(const struct tensor_view *t)
{
    const char *dot = strstr(t->name, "conv1d.weight");
    bool hf_conv = dot && t->n_dims == 3 && t->dim[1] == 1 && t->dim[2] == CONV_WIDTH;
    return hf_conv || name_is_hf_form(t->name);
}

/* Keeps a tensor unless it belongs to another part of the model. */
static lily_status add_tensor(struct checkpoint *c, const struct tensor_view *t, struct lily_err *err)
{
    struct buf name = {0};
    if (!c->name_of(t->name, &name)) {
        buf_free(&name);
        return LILY_OK;
    }
    if (c->n_entries == MAX_TENSORS) {
        buf_free(&name);
        LILY_FAIL(err, LILY_ERR_LIMIT, "%s: more than %d tensors", c->dir, MAX_TENSORS);
    }
    if (c->n_entries == c->cap_entries) {
        c->cap_entries += c->cap_entries / 2 + 256;
        c->entries = mem_resize(c->entries, (size_t)c->cap_entries * sizeof *c->entries);
    }
    c->entries[c->n_entries++] = (struct entry){buf_take(&name), *t, 0};
    c->text_bytes += t->bytes;
    c->hf_form |= is_hf_tensor(t);
    return LILY_OK;
}

/* Maps the next shard and parses its header. */
static lily_status open_shard(struct checkpoint *c, const char *name, struct shard **out, struct lily_err *err)
{
    struct shard *s = *out = &c->shards[c->n_shards++];
    struct buf path = {0};
    file_join(&path, c->dir, name);
    s->path = buf_take(&path);
    LILY_TRY(file_map_open(s->path, &s->map, err));
    return safetensors_parse_header(s->map.data, s->map.size, s->path, &s->header, err);
}

static lily_status open_single(struct checkpoint *c, struct lily_err *err)
{
    struct shard *s;
    c->shards = mem_new(sizeof *c->shards);
    LILY_TRY(open_shard(c, "model.safetensors", &s, err));
    for (int i = 0; i < s->header.n_tensors; i++) LILY_TRY(add_tensor(c, &s->header.tensors[i], err));
    return LILY_OK;
}

/* A place of the index: views of its JSON tree. */
struct place {
    const char *file, *name;
};

static int by_file(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = strcmp(x->file, y->file);
    return order ? order : strcmp(x->name, y->name);
}

/* An index is downloaded data: it may name files of its own folder only. */
static bool is_plain_name(const struct json *v)
{
    static const char end[] = ".safetensors";
    if (json_kind(v) != JSON_STRING) return false;
    const char *s = json_string(v);
    size_t n = strlen(s);
    return n == json_string_len(v) && n > sizeof end - 1 && n <= MAX_FILE_NAME && s[0] != '.' && !strpbrk(s, "/\\") &&
           strcmp(s + n - (sizeof end - 1), end) == 0;
}

/* The wanted tensors of the index, sorted by file, into places (owned by the caller). */
static lily_status read_places(const struct checkpoint *c, const struct json *map, const char *index, struct place **places,
                               size_t *n_places, struct lily_err *err)
{
    size_t n = json_size(map);
    if (json_has_repeated_key(map)) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: weight_map names a tensor twice", index);
    if (n > MAX_TENSORS) LILY_FAIL(err, LILY_ERR_LIMIT, "%s: %zu tensors, at most %d are supported", index, n, MAX_TENSORS);
    struct place *p = *places = mem_try(n, sizeof *p);
    if (!p) LILY_FAIL(err, LILY_ERR_MEMORY, "%s: not enough memory for %zu tensors", index, n);
    struct buf text = {0};
    size_t kept = 0;
    lily_status st = LILY_OK;
    for (size_t i = 0; i < n && st == LILY_OK; i++) {
        const struct json *file;
        const char *name = json_key_at(map, i, &file);
        if (!is_plain_name(file))
            st = err_set(err, LILY_ERR_FORMAT, "%s: weight_map puts %.200s into %s%.120s%s, expected a plain NAME.safetensors",
                         index, name, json_kind(file) == JSON_STRING ? "\"" : "",
                         json_kind(file) == JSON_STRING ? json_string(file) : json_kind_name(file),
                         json_kind(file) == JSON_STRING ? "\"" : "");
        else if (c->name_of(name, &text))
            p[kept++] = (struct place){json_string(file), name};
    }
    buf_free(&text);
    qsort(p, kept, sizeof *p, by_file);
    *n_places = kept;
    return st;
}

static size_t end_of_file(const struct place *p, size_t at, size_t n)
{
    size_t end = at;
    while (end < n && strcmp(p[end].file, p[at].file) == 0) end++;
    return end;
}

/* One shard with its part [lo, hi) of the places. */
static lily_status open_listed(struct checkpoint *c, const struct place *p, size_t n, const char *index,
                               struct lily_err *err)
{
    struct buf path = {0};
    file_join(&path, c->dir, p->file);
    bool there = file_exists(path.data);
    if (!there) {
        err_set(err, LILY_ERR_IO, "%s: missing; %s puts %s into it", path.data, index, COUNT_TEXT(n, "tensor"));
        err_hint(err, "the download is incomplete: fetch the model again");
    }
    buf_free(&path);
    if (!there) return LILY_ERR_IO;
    struct shard *s;
    LILY_TRY(open_shard(c, p->file, &s, err));
    for (size_t i = 0; i < n; i++) {
        const struct tensor_view *t = safetensors_find(&s->header, p[i].name);
        if (!t)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %.200s is not in it, but %s says so", s->path, p[i].name, index);
        LILY_TRY(add_tensor(c, t, err));
    }
    return LILY_OK;
}

static lily_status open_places(struct checkpoint *c, const struct place *p, size_t n, const char *index,
                               struct lily_err *err)
{
    size_t files = 0;
    for (size_t at = 0; at < n; at = end_of_file(p, at, n)) files++;
    if (files > MAX_SHARDS)
        LILY_FAIL(err, LILY_ERR_LIMIT, "%s: %zu files, at most %d are supported", index, files, MAX_SHARDS);
    c->shards = mem_new(files * sizeof *c->shards);
    for (size_t at = 0, end; at < n; at = end) {
        end = end_of_file(p, at, n);
        LILY_TRY(open_listed(c, p + at, end - at, index, err));
    }
    return LILY_OK;
}

static lily_status open_sharded(struct checkpoint *c, const char *index, struct lily_err *err)
{
    struct json *root = NULL;
    LILY_TRY(json_parse_file(index, MAX_INDEX_BYTES, &root, err));
    const struct json *map = json_get(root, "weight_map");
    struct place *places = NULL;
    size_t n = 0;
    lily_status st;
    if (!map || json_kind(map) != JSON_OBJECT)
        st = err_set(err, LILY_ERR_FORMAT, "%s: weight_map is %s, expected an object", index,
                     map ? json_kind_name(map) : "missing");
    else
        st = read_places(c, map, index, &places, &n, err);
    if (st == LILY_OK) st = open_places(c, places, n, index, err);
    free(places);
    json_free(root);
    return st;
}

static lily_status open_files(struct checkpoint *c, struct lily_err *err)
{
    struct buf index = {0}, single = {0};
    file_join(&index, c->dir, "model.safetensors.index.json");
    file_join(&single, c->dir, "model.safetensors");
    lily_status st;
    if (file_exists(index.data)) {
        st = open_sharded(c, index.data, err);
    } else if (file_exists(single.data)) {
        st = open_single(c, err);
    } else {
        st = err_set(err, LILY_ERR_IO, "%s: neither model.safetensors nor model.safetensors.index.json is there", c->dir);
        err_hint(err, "a model folder holds config.json, tokenizer.json and *.safetensors");
    }
    buf_free(&index);
    buf_free(&single);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Sorts the entries, refuses doubles, notes what config.json says of each one's module. */
static lily_status finish(struct checkpoint *c, const struct model_config *config, struct lily_err *err)
{
    if (c->n_entries) qsort(c->entries, (size_t)c->n_entries, sizeof *c->entries, by_name);
    for (int i = 0; i < c->n_entries; i++) {
        struct entry *e = &c->entries[i];
        if (i && strcmp(e[-1].name, e->name) == 0)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s is there twice (%s in %s, %s in %s)", c->dir, e->name,
                      e[-1].view.name, e[-1].view.file, e->view.name, e->view.file);
        char *last = strrchr(e->name, '.');
        if (!last) continue;
        *last = 0;
        e->rule_bits = config_quant_rule(config, e->name).bits;
        *last = '.';
    }
    return LILY_OK;
}

static lily_status open_part(const char *dir, const struct model_config *config, bool (*name_of)(const char *, struct buf *),
                             struct checkpoint **out, struct lily_err *err)
{
    struct checkpoint *c = mem_new(sizeof *c);
    c->name_of = name_of;
    c->dir = mem_dupz(dir);
    *out = NULL;
    lily_status st = open_files(c, err);
    if (st == LILY_OK) st = finish(c, config, err);
    if (st != LILY_OK) {
        checkpoint_close(c);
        return st;
    }
    *out = c;
    return LILY_OK;
}

void checkpoint_of_synth(const struct synth_plan *p, struct checkpoint **out)
{
    struct checkpoint *c = *out = mem_new(sizeof *c);
    struct buf dir = {0};
    c->name_of = name_of_text_model;
    buf_printf(&dir, "synthetic %s", synth_preset_name(p->preset));
    c->dir = buf_take(&dir);
    for (int i = 0; i < p->n_tensors; i++) {
        const struct synth_tensor *t = &p->tensors[i];
        struct tensor_view v = {.name = t->name,
                                .file = c->dir,
                                .dtype = t->decl.dtype,
                                .n_dims = t->decl.n_dims,
                                .bytes = (size_t)tensor_decl_bytes(&t->decl),
                                .synth = &t->rule};
        memcpy(v.dim, t->decl.dim, sizeof v.dim);
        add_tensor(c, &v, NULL);
    }
    finish(c, &p->config, NULL);
}

lily_status checkpoint_open(const char *dir, const struct model_config *config, struct checkpoint **out,
                            struct lily_err *err)
{
    return open_part(dir, config, name_of_text_model, out, err);
}

lily_status checkpoint_open_mtp(const char *dir, const struct model_config *config, struct checkpoint **out,
                                struct lily_err *err)
{
    return open_part(dir, config, name_of_mtp, out, err);
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_entries; i++) free(c->entries[i].name);
    for (int i = 0; i < c->n_shards; i++) {
        safetensors_free(&c->shards[i].header);
        file_map_close(&c->shards[i].map);
        free(c->shards[i].path);
    }
    free(c->entries);
    free(c->shards);
    free(c->dir);
    free(c);
}

size_t checkpoint_text_bytes(const struct checkpoint *c)
{
    return c->text_bytes;
}

int checkpoint_n_tensors(const struct checkpoint *c)
{
    return c->n_entries;
}

bool checkpoint_is_hf_form(const struct checkpoint *c)
{
    return c->hf_form;
}

struct tensor_view checkpoint_tensor_at(const struct checkpoint *c, int i, const char **name)
{
    if (name) *name = c->entries[i].name;
    return c->entries[i].view;
}

const struct entry *entries_find(const struct checkpoint *c, const char *name)
{
    struct entry key = {.name = (char *)(uintptr_t)name};
    return c->n_entries ? bsearch(&key, c->entries, (size_t)c->n_entries, sizeof key, by_name) : NULL;
}

const struct entry *entries_find_part(const struct checkpoint *c, const char *path, const char *suffix)
{
    struct buf name = {0};
    buf_printf(&name, "%s.%s", path, suffix);
    const struct entry *e = entries_find(c, name.data);
    buf_free(&name);
    return e;
}

int entries_index(const struct checkpoint *c, const struct entry *e)
{
    return (int)(e - c->entries);
}

const char *entries_dir(const struct checkpoint *c)
{
    return c->dir;
}

static void add_number(struct sha256 *h, int64_t v)
{
    sha256_add(h, &v, sizeof v);
}

static void add_view(struct sha256 *h, const struct checkpoint *c, const struct entry *e)
{
    const struct tensor_view *v = &e->view;
    sha256_add(h, e->name, strlen(e->name) + 1);
    add_number(h, v->dtype);
    add_number(h, e->rule_bits);
    for (int i = 0; i < v->n_dims; i++) add_number(h, v->dim[i]);
    if (v->synth) sha256_add(h, v->synth, sizeof *v->synth);
    for (int i = 0; i < c->n_shards && !v->synth; i++)
        if (v->file == c->shards[i].path) add_number(h, v->data - c->shards[i].map.data);
}

void checkpoint_key(const struct checkpoint *c, bool times, char hex[65])
{
    struct sha256 *h = sha256_begin();
    for (int i = 0; i < c->n_shards; i++) {
        struct stat sb;
        const char *name = strrchr(c->shards[i].path, '/');
        sha256_add(h, name ? name : "", name ? strlen(name) : 0);
        add_number(h, (int64_t)c->shards[i].map.size);
        if (!times || stat(c->shards[i].path, &sb) != 0) continue;
        add_number(h, sb.st_mtim.tv_sec);
        add_number(h, sb.st_mtim.tv_nsec);
    }
    for (int i = 0; i < c->n_entries; i++) add_view(h, c, &c->entries[i]);
    sha256_end(h, hex);
}

lily_status checkpoint_tensor(const struct checkpoint *c, const char *name, struct tensor_view *out,
                              struct lily_err *err)
{
    const struct entry *e = entries_find(c, name);
    if (!e) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: tensor %s is missing", c->dir, name);
    *out = e->view;
    return LILY_OK;
}

static void drop_view(const struct checkpoint *c, const struct tensor_view *t)
{
    for (int i = 0; i < c->n_shards; i++)
        if (t->file == c->shards[i].path)
            file_map_drop(&c->shards[i].map, (size_t)(t->data - c->shards[i].map.data), t->bytes);
}

void checkpoint_drop(const struct checkpoint *c, const struct module_view *m)
{
    drop_view(c, &m->weight);
    drop_view(c, &m->scales);
    drop_view(c, &m->biases);
}
