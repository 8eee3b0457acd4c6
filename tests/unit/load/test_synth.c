/*
 * Synthetic checkpoints: the published index rebuilt to its hash, files that open and check, the same values with and
 * without files, every tensor inside one shard of the published cut.
 */
#include "../testing.h"

#include "../../support/minickpt.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/num.h"
#include "load/synth_write.h"

enum { N_VISION = 333 };
#define VISION_BYTES INT64_C(893142496)

/* The names of the published vision tower, which lily skips; owned texts. */
static void vision_names(char *names[N_VISION])
{
    static const char *const parts[] = {"norm1", "norm2", "attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2"};
    static const char *const ends[] = {"norm", "linear_fc1", "linear_fc2"};
    int n = 0;
    struct buf b = {0};
    for (int i = 0; i < 2; i++) {
        const char *kind = i ? "bias" : "weight";
        buf_printf(&b, "vision_tower.patch_embed.proj.%s", kind);
        names[n++] = buf_take(&b);
        for (int block = 0; block < 27; block++)
            for (int p = 0; p < 6; p++) {
                buf_printf(&b, "vision_tower.blocks.%d.%s.%s", block, parts[p], kind);
                names[n++] = buf_take(&b);
            }
        for (int e = 0; e < 3; e++) {
            buf_printf(&b, "vision_tower.merger.%s.%s", ends[e], kind);
            names[n++] = buf_take(&b);
        }
    }
    buf_addz(&b, "vision_tower.pos_embed.weight");
    names[n++] = buf_take(&b);
    assert_int_equal(n, N_VISION);
}

static void the_published_index_comes_out(void **state)
{
    (void)state;
    struct lily_err err;
    struct synth_plan p;
    struct buf index = {0};
    char *names[N_VISION], hex[65];
    vision_names(names);
    assert_ok(synth_plan_make(SYNTH_35B, 1, &p, &err));
    synth_index(&p, (const char *const *)names, N_VISION, VISION_BYTES, &index);
    sha256_of(index.data, index.len, hex);
    assert_string_equal(hex, "0b28df60e33753a14e816d3b31577ae2c93884c58430a4a6de6ae9ea483842ea");
    for (int i = 0; i < N_VISION; i++) free(names[i]);
    buf_free(&index);
    synth_plan_free(&p);
}

static void shards_are_the_published_ones(void **state)
{
    (void)state;
    static const int n_tensors[4] = {716 - N_VISION, 498, 504, 372};
    static const int64_t n_bytes[4] = {INT64_C(5288107104) - VISION_BYTES, INT64_C(5368405504), INT64_C(5368256256), INT64_C(4377161088)};
    struct lily_err err;
    struct synth_plan p;
    assert_ok(synth_plan_make(SYNTH_35B, 1, &p, &err));
    assert_int_equal(p.n_tensors, 1757);
    assert_true(p.bytes == INT64_C(19508787456));
    assert_int_equal(p.n_shards, 4);
    int tensors[4] = {0};
    int64_t bytes[4] = {0};
    for (int i = 0; i < p.n_tensors; i++) {
        tensors[p.tensors[i].shard]++;
        bytes[p.tensors[i].shard] += tensor_decl_bytes(&p.tensors[i].decl);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tensors[i], n_tensors[i]);
        assert_true(bytes[i] == n_bytes[i]);
    }
    synth_plan_free(&p);
}

/* A preset on disk, and the same without files. */
struct both {
    char *dir;
    struct synth_plan plan;
    struct model_config config;
    struct checkpoint *files, *rules;
};

static void open_both(struct both *b, enum synth_preset preset, int threads)
{
    struct lily_err err;
    struct pool *pool;
    struct buf index = {0};
    b->dir = mini_dir();
    assert_ok(synth_plan_make(preset, 5, &b->plan, &err));
    assert_ok(pool_create(threads, &pool, &err));
    assert_ok(synth_write_shards(&b->plan, b->dir, pool, &err));
    pool_free(pool);
    synth_index(&b->plan, NULL, 0, 0, &index);
    mini_put(b->dir, "model.safetensors.index.json", index.data, index.len);
    mini_put(b->dir, "config.json", b->plan.config_text.data, b->plan.config_text.len);
    mini_put(b->dir, "generation_config.json", b->plan.generation_text.data, b->plan.generation_text.len);
    buf_free(&index);
    assert_ok(config_load(b->dir, &b->config, &err));
    assert_ok(checkpoint_open(b->dir, &b->config, &b->files, &err));
    checkpoint_of_synth(&b->plan, &b->rules);
}

static void close_both(struct both *b)
{
    checkpoint_close(b->files);
    checkpoint_close(b->rules);
    config_free(&b->config);
    synth_plan_free(&b->plan);
    mini_remove(b->dir);
}

static void files_and_rules_agree(void **state)
{
    (void)state;
    struct lily_err err;
    for (int threads = 1; threads <= 3; threads++) {
        struct both b;
        open_both(&b, SYNTH_TINY, threads);
        assert_ok(checkpoint_check(b.files, &b.config, &err));
        assert_ok(checkpoint_check(b.rules, &b.plan.config, &err));
        assert_int_equal(checkpoint_n_tensors(b.files), b.plan.n_tensors);
        for (int i = 0; i < b.plan.n_tensors; i++) {
            struct tensor_view f = checkpoint_tensor_at(b.files, i, NULL), r = checkpoint_tensor_at(b.rules, i, NULL);
            assert_string_equal(f.name, r.name);
            assert_int_equal(f.bytes, r.bytes);
            for (size_t w = 0; w < f.bytes / 4; w++)
                if (load_u32(f.data + 4 * w) != synth_word(r.synth, (uint32_t)w)) fail_msg("%s, word %zu", f.name, w);
        }
        close_both(&b);
    }
}

static void lookups_give_the_same_numbers(void **state)
{
    (void)state;
    struct lily_err err;
    struct both b;
    float f[512], r[512];
    open_both(&b, SYNTH_TINY, 1);
    const struct module_want want[] = {{"model.layers.1.mlp.gate", 0, 16, 128}, {"model.layers.3.mlp.switch_mlp.down_proj", 16, 128, 64}};
    for (int i = 0; i < 2; i++) {
        struct module_view mf, mr;
        assert_ok(checkpoint_module(b.files, &want[i], &mf, &err));
        assert_ok(checkpoint_module(b.rules, &want[i], &mr, &err));
        for (int row = 0; row < want[i].rows; row++) {
            module_row(&mf, mf.n_experts - 1, row, f);
            module_row(&mr, mr.n_experts - 1, row, r);
            assert_memory_equal(f, r, sizeof *f * (size_t)want[i].cols);
            assert_true(f[3] == module_element(&mr, mr.n_experts - 1, row, 3));
        }
    }
    assert_ok(checkpoint_vector(b.files, "model.layers.0.linear_attn.A_log", 4, f, &err));
    assert_ok(checkpoint_vector(b.rules, "model.layers.0.linear_attn.A_log", 4, r, &err));
    assert_memory_equal(f, r, sizeof *f * 4);
    close_both(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_index_comes_out), cmocka_unit_test(shards_are_the_published_ones),
        cmocka_unit_test(files_and_rules_agree),         cmocka_unit_test(lookups_give_the_same_numbers),
    };
    return RUN_TESTS(tests);
}
