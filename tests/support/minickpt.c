/* Building the smallest checkpoint. */
#include "minickpt.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "load/config.h"
#include "load/inventory.h"
#include "load/safetensors.h"

static const char mini_config_text[] =
    "{\"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"], \"model_type\": \"qwen3_5_moe\",\n"
    " \"quantization\": {\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\",\n"
    "  \"language_model.model.layers.0.mlp.gate\": {\"group_size\": 64, \"bits\": 8},\n"
    "  \"language_model.model.layers.1.mlp.gate\": {\"group_size\": 64, \"bits\": 8}},\n"
    " \"text_config\": {\"model_type\": \"qwen3_5_moe_text\", \"attention_bias\": false, \"attn_output_gate\": true,\n"
    "  \"eos_token_id\": 60, \"full_attention_interval\": 2, \"head_dim\": 256, \"hidden_act\": \"silu\",\n"
    "  \"hidden_size\": 64, \"layer_types\": [\"linear_attention\", \"full_attention\"],\n"
    "  \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 128, \"linear_num_key_heads\": 1,\n"
    "  \"linear_num_value_heads\": 1, \"linear_value_head_dim\": 128, \"max_position_embeddings\": 4096,\n"
    "  \"moe_intermediate_size\": 64, \"mtp_num_hidden_layers\": 1, \"num_attention_heads\": 1, \"num_experts\": 8,\n"
    "  \"num_experts_per_tok\": 8, \"num_hidden_layers\": 2, \"num_key_value_heads\": 1,\n"
    "  \"partial_rotary_factor\": 0.25, \"rms_norm_eps\": 1e-06,\n"
    "  \"rope_parameters\": {\"mrope_interleaved\": true, \"mrope_section\": [11, 11, 10],\n"
    "   \"partial_rotary_factor\": 0.25, \"rope_theta\": 10000000, \"rope_type\": \"default\"},\n"
    "  \"shared_expert_intermediate_size\": 64, \"tie_word_embeddings\": false, \"vocab_size\": 64},\n"
    " \"tie_word_embeddings\": false}\n";
static const char mini_generation_text[] =
    "{\"do_sample\": true, \"eos_token_id\": [61, 60], \"temperature\": 0.9, \"top_k\": 17, \"top_p\": 0.9}\n";

static void must(lily_status st, const struct lily_err *err)
{
    if (st == LILY_OK) return;
    fprintf(stderr, "minickpt: %s\n", err->msg);
    exit(99);
}

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Numbers of about unit size, so that a model made of them stays finite. */
static void fill(struct mini_tensor *t, uint32_t seed)
{
    bool scales = strstr(t->name, ".scales") != NULL;
    for (size_t i = 0; i < t->bytes / dtype_bytes(t->dtype); i++) {
        float v = ((float)(noise(&seed) & 0xffff) / 65536.0f - 0.5f) * (scales ? 0.03f : 0.4f);
        uint32_t bits = t->dtype == DTYPE_F32 ? f32_bits(v) : t->dtype == DTYPE_BF16 ? bf16_from_f32(v) : noise(&seed) * 257u;
        for (size_t k = 0; k < dtype_bytes(t->dtype); k++)
            t->data[i * dtype_bytes(t->dtype) + k] = (uint8_t)(bits >> 8 * (k & 3));
    }
}

struct mini_tensor *mini_add(struct mini *m, const char *name, enum dtype dtype, const int64_t *dim, int n_dims)
{
    m->tensors = mem_resize(m->tensors, (size_t)(m->n_tensors + 1) * sizeof *m->tensors);
    struct mini_tensor *t = &m->tensors[m->n_tensors++];
    *t = (struct mini_tensor){.dtype = dtype, .n_dims = n_dims, .bytes = dtype_bytes(dtype)};
    snprintf(t->name, sizeof t->name, "%s", name);
    for (int i = 0; i < n_dims; i++) t->bytes *= (size_t)(t->dim[i] = dim[i]);
    t->data = mem_new(t->bytes);
    fill(t, (uint32_t)m->n_tensors * 77u);
    return t;
}

struct making {
    struct mini *m;
    struct mini_options o;
    const struct model_config *config;
};

static void add_module(const struct making *k, const char *name, const struct inventory_item *item)
{
    int bits = k->o.plain ? 0 : config_quant_rule(k->config, item->path).bits, n = 0;
    int64_t dim[3];
    if (item->experts) dim[n++] = item->experts;
    dim[n++] = item->rows;
    dim[n++] = bits ? item->cols * bits / 32 : item->cols;
    char full[128];
    snprintf(full, sizeof full, "%.110s.weight", name);
    mini_add(k->m, full, bits ? DTYPE_U32 : DTYPE_BF16, dim, n);
    if (!bits) return;
    dim[n - 1] = item->cols / 64;
    snprintf(full, sizeof full, "%.110s.scales", name);
    mini_add(k->m, full, DTYPE_BF16, dim, n);
    snprintf(full, sizeof full, "%.110s.biases", name);
    mini_add(k->m, full, DTYPE_BF16, dim, n);
}

static lily_status add_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    const struct making *k = arg;
    char name[128];
    (void)err;
    snprintf(name, sizeof name, "%s%s", k->o.prefix ? k->o.prefix : "language_model.", item->path);
    if (item->is_module) {
        add_module(k, name, item);
        return LILY_OK;
    }
    bool conv = strstr(name, "conv1d") != NULL, a_log = strstr(name, "A_log") != NULL;
    int64_t dim[3] = {item->rows, conv ? item->cols : 1, 1};
    mini_add(k->m, name, a_log && k->o.f32_a_log ? DTYPE_F32 : DTYPE_BF16, dim, conv ? 3 : 1);
    return LILY_OK;
}

void mini_make(struct mini *m, struct mini_options options)
{
    struct lily_err err;
    struct model_config config;
    *m = (struct mini){.config = mem_dupz(mini_config_text)};
    must(config_parse(m->config, strlen(m->config), "mini config", &config, &err), &err);
    struct making k = {m, options, &config};
    must(inventory_walk(&config.shape, add_item, &k, &err), &err);
    config_free(&config);
}

void mini_free(struct mini *m)
{
    for (int i = 0; i < m->n_tensors; i++) free(m->tensors[i].data);
    free(m->tensors);
    free(m->config);
    *m = (struct mini){0};
}

struct mini_tensor *mini_find(struct mini *m, const char *end)
{
    for (int i = 0; i < m->n_tensors; i++) {
        size_t n = strlen(m->tensors[i].name), k = strlen(end);
        if (n >= k && strcmp(m->tensors[i].name + n - k, end) == 0) return &m->tensors[i];
    }
    fprintf(stderr, "minickpt: no tensor ends with %s\n", end);
    exit(99);
}

void mini_drop(struct mini *m, const char *end)
{
    struct mini_tensor *t = mini_find(m, end);
    free(t->data);
    *t = m->tensors[--m->n_tensors];
}

char *mini_replace(const char *text, const char *from, const char *to)
{
    struct buf out = {0};
    const char *at = strstr(text, from);
    if (!at) {
        fprintf(stderr, "minickpt: the text has no %s\n", from);
        exit(99);
    }
    buf_add(&out, text, (size_t)(at - text));
    buf_addz(&out, to);
    buf_addz(&out, at + strlen(from));
    return buf_take(&out);
}

void mini_config(struct mini *m, const char *from, const char *to)
{
    char *text = mini_replace(m->config, from, to);
    free(m->config);
    m->config = text;
}

void mini_put(const char *dir, const char *name, const void *data, size_t n)
{
    struct buf path = {0};
    file_join(&path, dir, name);
    /* Not truncated first: file systems wait for the disk when a file is emptied and written again. */
    int fd = open(path.data, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || ftruncate(fd, (off_t)n) != 0 || close(fd) != 0) {
        perror(path.data);
        exit(99);
    }
    buf_free(&path);
}

uint8_t *mini_read(const char *dir, const char *name, size_t *n)
{
    struct lily_err err;
    struct buf path = {0}, text = {0};
    file_join(&path, dir, name);
    must(file_read(path.data, 1u << 30, &text, &err), &err);
    buf_free(&path);
    *n = text.len;
    return (uint8_t *)buf_take(&text);
}

/* Tensors lo, lo+step, … as one file. */
static void write_part(const struct mini *m, const char *path, int lo, int step)
{
    struct lily_err err;
    struct safetensors_writer *w;
    struct tensor_decl *decls = mem_new((size_t)m->n_tensors * sizeof *decls);
    int n = 0;
    for (int i = lo; i < m->n_tensors; i += step) {
        const struct mini_tensor *t = &m->tensors[i];
        decls[n] = (struct tensor_decl){.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims};
        memcpy(decls[n++].dim, t->dim, sizeof t->dim);
    }
    must(safetensors_create(path, decls, n, &w, &err), &err);
    for (int i = lo; i < m->n_tensors; i += step)
        must(safetensors_put(w, m->tensors[i].data, m->tensors[i].bytes, &err), &err);
    must(safetensors_finish(w, &err), &err);
    free(decls);
}

void mini_write(const struct mini *m, const char *dir, int n_shards)
{
    struct buf path = {0}, index = {0};
    mini_put(dir, "config.json", m->config, strlen(m->config));
    mini_put(dir, "generation_config.json", mini_generation_text, sizeof mini_generation_text - 1);
    buf_addz(&index, "{\"metadata\": {}, \"weight_map\": {");
    for (int s = 0; s < n_shards; s++) {
        char name[64] = "model.safetensors";
        if (n_shards > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, n_shards);
        file_join(&path, dir, name);
        write_part(m, path.data, s, n_shards);
        for (int i = s; i < m->n_tensors; i += n_shards)
            buf_printf(&index, "%s\n\"%s\": \"%s\"", s || i ? "," : "", m->tensors[i].name, name);
    }
    buf_addz(&index, "}}");
    if (n_shards > 1) mini_put(dir, "model.safetensors.index.json", index.data, index.len);
    buf_free(&path);
    buf_free(&index);
}

char *mini_dir(void)
{
    char *dir = mem_dupz("/tmp/lily-test-XXXXXX");
    if (!mkdtemp(dir)) {
        perror(dir);
        exit(99);
    }
    return dir;
}

void mini_remove(char *dir)
{
    struct buf path = {0};
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        file_join(&path, dir, e->d_name);
        if (unlink(path.data) != 0) rmdir(path.data);
    }
    if (d) closedir(d);
    rmdir(dir);
    buf_free(&path);
    free(dir);
}
