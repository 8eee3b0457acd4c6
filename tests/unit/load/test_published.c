/* The published 35B model: its inventory by its config, and a checkpoint of its true size, of holes instead of weights. */
#include "../testing.h"

#include <fcntl.h>
#include <unistd.h>

#include "../../support/minickpt.h"
#include "base/buf.h"
#include "base/file.h"
#include "load/checkpoint.h"
#include "load/inventory.h"

enum { N_TENSORS = 1757 };
#define N_BYTES INT64_C(19508787456)

/* config.json of the 4-bit conversion: the published file and its quantization block. */
static char *quantized_config(void)
{
    struct lily_err err;
    struct buf text = {0}, quant = {0};
    assert_ok(file_read("tests/data/templates/Qwen3.6-35B-A3B.config.json", 1 << 20, &text, &err));
    buf_addz(&quant, "{\n    \"quantization\": {\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\"");
    for (int l = 0; l < 40; l++)
        for (int k = 0; k < 2; k++)
            buf_printf(&quant, ", \"language_model.model.layers.%d.mlp.%s\": {\"group_size\": 64, \"bits\": 8}", l,
                       k ? "shared_expert_gate" : "gate");
    buf_addz(&quant, "},");
    char *full = mini_replace(text.data, "{", quant.data);
    buf_free(&text);
    buf_free(&quant);
    return full;
}

static void inventory_has_its_known_size(void **state)
{
    (void)state;
    struct lily_err err;
    struct model_config c;
    char *text = quantized_config();
    assert_ok(config_parse(text, strlen(text), "config.json", &c, &err));
    struct inventory_sum sum = inventory_sum(&c);
    assert_int_equal(sum.n_tensors, N_TENSORS);
    assert_true(sum.bytes == N_BYTES);
    assert_int_equal(config_quant_rule(&c, "model.layers.39.mlp.gate").bits, 8);
    assert_int_equal(config_quant_rule(&c, "language_model.model.layers.39.mlp.gate").bits, 8);
    assert_int_equal(config_quant_rule(&c, "model.layers.39.mlp.gate_proj").bits, 4);
    config_free(&c);
    /* Without the block: the parameters of the text model, as BF16. */
    char *plain = mini_replace(text, "\"quantization\"", "\"ignored\"");
    assert_ok(config_parse(plain, strlen(plain), "config.json", &c, &err));
    sum = inventory_sum(&c);
    assert_true(sum.bytes == 2 * INT64_C(34660610688));
    config_free(&c);
    free(plain);
    free(text);
}

struct listing {
    const struct model_config *config;
    struct tensor_decl decls[N_TENSORS];
    char names[N_TENSORS][128];
    int n;
};

static void list_tensor(struct listing *l, const char *path, const char *suffix, struct tensor_decl d)
{
    assert_true(l->n < N_TENSORS);
    d.name = l->names[l->n];
    snprintf(l->names[l->n], sizeof l->names[0], "language_model.%.90s%s", path, suffix);
    l->decls[l->n++] = d;
}

static lily_status list_item(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct listing *l = arg;
    struct tensor_decl d = {.dtype = DTYPE_BF16};
    int bits = config_quant_rule(l->config, item->path).bits;
    (void)err;
    if (item->experts) d.dim[d.n_dims++] = item->experts;
    d.dim[d.n_dims++] = item->rows;
    if (item->is_module || item->cols > 1) d.dim[d.n_dims++] = item->cols;
    if (!item->is_module) {
        list_tensor(l, item->path, "", d);
        return LILY_OK;
    }
    d.dim[d.n_dims - 1] = item->cols / 64;
    list_tensor(l, item->path, ".scales", d);
    list_tensor(l, item->path, ".biases", d);
    d.dtype = DTYPE_U32;
    d.dim[d.n_dims - 1] = item->cols * bits / 32;
    list_tensor(l, item->path, ".weight", d);
    return LILY_OK;
}

static void checkpoint_of_true_size_loads(void **state)
{
    (void)state;
    struct lily_err err;
    struct model_config c;
    struct checkpoint *ck;
    struct buf header = {0}, path = {0};
    struct listing *l = calloc(1, sizeof *l);
    char *dir = mini_dir(), *text = quantized_config();
    mini_put(dir, "config.json", text, strlen(text));
    assert_ok(config_load(dir, &c, &err));
    l->config = &c;
    assert_ok(inventory_walk(&c.shape, list_item, l, &err));
    assert_int_equal(l->n, N_TENSORS);
    safetensors_header(l->decls, l->n, &header);
    mini_put(dir, "model.safetensors", header.data, header.len);
    file_join(&path, dir, "model.safetensors");
    bool holes = truncate(path.data, (off_t)header.len + N_BYTES) == 0;
    if (holes) {
        assert_ok(checkpoint_open(dir, &c, &ck, &err));
        assert_ok(checkpoint_check(ck, &c, &err));
        assert_int_equal(checkpoint_n_tensors(ck), N_TENSORS);
        assert_true(checkpoint_text_bytes(ck) == (size_t)N_BYTES);
        struct module_view m;
        assert_ok(checkpoint_module(ck, &(struct module_want){"lm_head", 0, 248320, 2048}, &m, &err));
        assert_true(module_element(&m, 0, 248319, 2047) == 0); /* beyond 4 GiB, in a hole */
        checkpoint_close(ck);
    }
    config_free(&c);
    mini_remove(dir);
    buf_free(&header);
    buf_free(&path);
    free(text);
    free(l);
    if (!holes) TEST_SKIP("/tmp takes no file of 19.5 GB with holes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inventory_has_its_known_size),
        cmocka_unit_test(checkpoint_of_true_size_loads),
    };
    return RUN_TESTS(tests);
}
