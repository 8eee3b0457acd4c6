/* References and comparisons: a model against itself, against itself with one weight changed, and files that are wrong. */
#include "unit/testing.h"

#include <math.h>

#include "base/file.h"
#include "load/safetensors_write.h"
#include "run/compare.h"
#include "run/score.h"
#include "sample/sampler.h"
#include "support/golden.h"
#include "support/minickpt.h"

enum { TOKENS = 150, TOP = 5 };

static struct lily_err err;

static void fill_ids(int32_t *ids, int n, int vocab)
{
    for (int i = 0; i < n; i++) ids[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)vocab);
}

struct recording {
    struct reference *r;
    int vocab;
};

static lily_status record_row(void *ctx, int row, const float *logits, struct lily_err *e)
{
    struct recording *k = ctx;
    struct token_logprob top[TOP];
    (void)e;
    logits_logprobs(logits, k->vocab, row + 1 < k->r->n ? k->r->ids[row + 1] : 0, &k->r->chosen[row], top, TOP);
    for (int j = 0; j < TOP; j++) {
        k->r->top_ids[row * TOP + j] = top[j].id;
        k->r->top_logprobs[row * TOP + j] = top[j].logprob;
    }
    return LILY_OK;
}

struct comparing {
    struct comparison *c;
    const struct reference *r;
    int vocab;
};

static lily_status compare_row(void *ctx, int row, const float *logits, struct lily_err *e)
{
    const struct comparing *k = ctx;
    (void)e;
    comparison_add(k->c, k->r, row, row, row + 1 == k->r->n, logits, k->vocab);
    return LILY_OK;
}

static void record(struct model *m, struct reference *r)
{
    struct recording k = {r, model_shape(m)->vocab};
    struct score_request q = {r->ids, r->n, 0, NULL, record_row, &k};
    assert_ok(score_sequence(m, &q, &err));
    r->chosen[r->n - 1] = 0;
}

static void compare(struct model *m, const struct reference *r, struct comparison *c)
{
    struct comparing k = {c, r, model_shape(m)->vocab};
    struct score_request q = {r->ids, r->n, 0, NULL, compare_row, &k};
    assert_ok(comparison_new(r, c, &err));
    assert_ok(score_sequence(m, &q, &err));
}

static void write_mini(struct mini *m, char **dir)
{
    *dir = mini_dir();
    mini_write(m, *dir, 1);
}

static void test_itself(void **state)
{
    (void)state;
    struct mini mini;
    struct reference r;
    struct comparison c;
    char *dir;
    mini_make(&mini, (struct mini_options){0});
    write_mini(&mini, &dir);
    struct model *one = open_model(dir, cpu_best_tier(), 1, false), *three = open_model(dir, cpu_best_tier(), 3, false);
    assert_ok(reference_new(TOKENS, TOP, &r, &err));
    fill_ids(r.ids, TOKENS, model_shape(one)->vocab);
    record(one, &r);
    compare(three, &r, &c);
    assert_int_equal(c.all.n, TOKENS - 1);
    assert_int_equal(c.all.same, TOKENS);
    assert_true(c.all.kl == 0);
    assert_true(compare_kl_percentile(&c, 0.99) == 0);
    assert_true(compare_perplexity(&c.all, true) == compare_perplexity(&c.all, false));
    assert_int_equal(c.bucket[0].n_top, 64);
    assert_int_equal(c.bucket[1].n_top, 64);
    assert_int_equal(c.bucket[2].n_top, TOKENS - 128);
    comparison_free(&c);
    model_close(one);
    model_close(three);
    mini_remove(dir);

    /* One weight of one expert changed. */
    mini_find(&mini, "layers.0.linear_attn.in_proj_z.weight")->data[5] ^= 0x70;
    write_mini(&mini, &dir);
    one = open_model(dir, cpu_best_tier(), 1, false);
    compare(one, &r, &c);
    assert_true(c.all.kl > 0);
    assert_true(compare_perplexity(&c.all, true) != compare_perplexity(&c.all, false));
    comparison_free(&c);
    model_close(one);
    mini_remove(dir);
    mini_free(&mini);
    reference_free(&r);
}

/* Two rows by hand: three tokens, of which the reference keeps one. */
static void test_by_hand(void **state)
{
    (void)state;
    struct reference r;
    struct comparison c;
    const float logits[3] = {logf(0.5f), logf(0.25f), logf(0.25f)};
    assert_ok(reference_new(2, 1, &r, &err));
    r.ids[0] = 0;
    r.ids[1] = 1;
    r.chosen[0] = logf(0.1f);
    r.top_ids[0] = r.top_ids[1] = 2;
    r.top_logprobs[0] = r.top_logprobs[1] = logf(0.8f);
    assert_ok(comparison_new(&r, &c, &err));
    comparison_add(&c, &r, 0, 0, false, logits, 3);
    comparison_add(&c, &r, 1, 1, true, logits, 3);
    assert_int_equal(c.all.same, 0);
    assert_true(fabs(compare_perplexity(&c.all, true) - 4) < 1e-5);
    assert_true(fabs(compare_perplexity(&c.all, false) - 10) < 1e-5);
    double kl = 0.8 * log(0.8 / 0.25) + 0.2 * log(0.2 / 0.75);
    assert_true(fabs(c.all.kl - 2 * kl) < 1e-6);
    assert_true(fabs(compare_kl_percentile(&c, 0.5) - kl) < 1e-6);
    comparison_free(&c);
    reference_free(&r);
}

/* Rows come out once each, those before `first` not at all, and what is asked of one row does not depend on the others. */
struct seen {
    int n, last;
    float sum[TOKENS];
};

static lily_status see(void *ctx, int row, const float *logits, struct lily_err *e)
{
    struct seen *s = ctx;
    (void)e;
    assert_true(row > s->last);
    s->last = row;
    s->sum[row] = logits[0] + logits[1];
    s->n++;
    return s->n == 5 && s->sum[0] == 12345 ? LILY_ERR_IO : LILY_OK;
}

static void test_rows(void **state)
{
    (void)state;
    struct mini mini;
    char *dir;
    static struct seen all, part;
    int32_t ids[TOKENS];
    mini_make(&mini, (struct mini_options){0});
    write_mini(&mini, &dir);
    struct model *m = open_model(dir, cpu_best_tier(), 1, false);
    fill_ids(ids, TOKENS, model_shape(m)->vocab);
    all.last = part.last = -1;
    struct score_request q = {ids, TOKENS, 0, NULL, see, &all};
    assert_ok(score_sequence(m, &q, &err));
    assert_int_equal(all.n, TOKENS);
    q = (struct score_request){ids, TOKENS, 97, NULL, see, &part};
    assert_ok(score_sequence(m, &q, &err));
    assert_int_equal(part.n, TOKENS - 97);
    assert_memory_equal(part.sum + 97, all.sum + 97, sizeof(float) * (TOKENS - 97));

    part = (struct seen){.last = -1};
    part.sum[0] = 12345;
    q.first = 1;
    assert_int_equal(score_sequence(m, &q, &err), LILY_ERR_IO);
    ids[3] = model_shape(m)->vocab;
    assert_int_equal(score_sequence(m, &q, &err), LILY_ERR_USAGE);
    q.n = 0;
    assert_int_equal(score_sequence(m, &q, &err), LILY_ERR_USAGE);
    q.n = 2049; /* open_model's context is 2048 */
    assert_int_equal(score_sequence(m, &q, &err), LILY_ERR_LIMIT);
    atomic_bool cancel = true;
    q = (struct score_request){ids, 2, 0, &cancel, see, &all};
    assert_int_equal(score_sequence(m, &q, &err), LILY_ERR_CANCELLED);
    model_close(m);
    mini_remove(dir);
    mini_free(&mini);
}

static char *dir_of_files;

static void make_reference(struct reference *r)
{
    assert_ok(reference_new(10, 2, r, &err));
    r->n_sequences = 2;
    r->starts[1] = 4;
    for (int i = 0; i < 10; i++) {
        r->ids[i] = i;
        r->chosen[i] = -0.5f * (float)i;
        for (int k = 0; k < 2; k++) r->top_ids[2 * i + k] = i + k, r->top_logprobs[2 * i + k] = -1.0f - (float)k;
    }
}

static lily_status write_and_read(const struct reference *r, int vocab, struct reference *back)
{
    char path[300];
    snprintf(path, sizeof path, "%s/reference.safetensors", dir_of_files);
    assert_ok(reference_write(path, r, &err));
    return reference_read(path, vocab, back, &err);
}

static void test_file(void **state)
{
    (void)state;
    struct reference r, back;
    dir_of_files = mini_dir();
    make_reference(&r);
    assert_ok(write_and_read(&r, 11, &back));
    assert_int_equal(back.n, 10);
    assert_int_equal(back.k, 2);
    assert_int_equal(back.n_sequences, 2);
    assert_int_equal(reference_end(&back, 0), 4);
    assert_int_equal(reference_end(&back, 1), 10);
    assert_memory_equal(back.ids, r.ids, 40);
    assert_memory_equal(back.chosen, r.chosen, 40);
    assert_memory_equal(back.top_ids, r.top_ids, 80);
    assert_memory_equal(back.top_logprobs, r.top_logprobs, 80);
    reference_free(&back);

    assert_int_equal(write_and_read(&r, 10, &back), LILY_ERR_FORMAT); /* top_ids has a 10 */
    r.starts[1] = 9;
    assert_int_equal(write_and_read(&r, 11, &back), LILY_ERR_FORMAT);
    r.starts[1] = 1;
    assert_int_equal(write_and_read(&r, 11, &back), LILY_ERR_FORMAT);
    r.starts[1] = -4;
    assert_int_equal(write_and_read(&r, 11, &back), LILY_ERR_FORMAT);
    r.starts[1] = 4;
    r.starts[0] = 1;
    assert_int_equal(write_and_read(&r, 11, &back), LILY_ERR_FORMAT);
    r.starts[0] = 0;
    r.ids[3] = -1;
    assert_int_equal(write_and_read(&r, 11, &back), LILY_ERR_FORMAT);
    r.ids[3] = 3;
    r.chosen[2] = NAN;
    assert_int_equal(write_and_read(&r, 11, &back), LILY_ERR_FORMAT);
    r.chosen[2] = 0;
    r.top_logprobs[7] = 0.5f;
    assert_int_equal(write_and_read(&r, 11, &back), LILY_ERR_FORMAT);
    reference_free(&r);
    mini_remove(dir_of_files);
}

/* Tensors of other lengths, types, numbers. */
static void test_broken_file(void **state)
{
    (void)state;
    static const struct tensor_decl good[5] = {{"ids", DTYPE_I32, 1, {4}}, {"starts", DTYPE_I32, 1, {1}}, {"chosen", DTYPE_F32, 1, {4}},
                                               {"top_ids", DTYPE_I32, 2, {4, 2}}, {"top_logprobs", DTYPE_F32, 2, {4, 2}}};
    static const struct {
        int which;
        struct tensor_decl with;
    } bad[] = {{0, {"ids", DTYPE_U32, 1, {4}}},       {0, {"ids", DTYPE_I32, 1, {1}}},   {0, {"ids", DTYPE_I32, 2, {4, 1}}},
               {1, {"starts", DTYPE_I32, 1, {3}}},    {1, {"begin", DTYPE_I32, 1, {1}}}, {2, {"chosen", DTYPE_F32, 1, {3}}},
               {3, {"top_ids", DTYPE_I32, 2, {4, 3}}}, {4, {"top_logprobs", DTYPE_F32, 2, {5, 2}}},
               {3, {"top_ids", DTYPE_I32, 1, {8}}}};
    char *dir = mini_dir(), path[300];
    static const char zeros[4096];
    snprintf(path, sizeof path, "%s/r.safetensors", dir);
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        struct tensor_decl d[5];
        struct safetensors_writer *w;
        struct reference r;
        memcpy(d, good, sizeof d);
        bool is_bad = i < sizeof bad / sizeof bad[0];
        if (is_bad) d[bad[i].which] = bad[i].with;
        assert_ok(safetensors_create(path, d, 5, &w, &err));
        for (int k = 0; k < 5; k++) assert_ok(safetensors_put(w, zeros, (size_t)tensor_decl_bytes(&d[k]), &err));
        assert_ok(safetensors_finish(w, &err));
        assert_int_equal(reference_read(path, 11, &r, &err), is_bad ? LILY_ERR_FORMAT : LILY_OK);
        if (!is_bad) reference_free(&r);
    }
    mini_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_itself), cmocka_unit_test(test_by_hand), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_file), cmocka_unit_test(test_broken_file)};
    return RUN_TESTS(tests);
}
