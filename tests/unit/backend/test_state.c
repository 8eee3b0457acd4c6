/* The state of sequences on the CPU: shared pages, and borders as bytes and back. */
#include "unit/testing.h"

#include "backend/backend.h"
#include "backend/cpu/state.h"

static const struct model_shape shape = {.hidden = 64, .n_layers = 2, .n_q_heads = 2, .n_kv_heads = 1, .n_gdn_k_heads = 1,
                                         .n_gdn_v_heads = 1, .n_full = 1, .n_linear = 1};
enum { ROWS = 3 * GRID };

/* A sequence of n tokens whose state is made of seed. */
static struct seq *filled(struct state_pool *p, int n, float seed)
{
    struct lily_err err = {0};
    struct seq *s;
    assert_ok(state_seq_new(p, &s, &err));
    assert_ok(state_seq_reserve(s, n, &err));
    float row[HEAD_DIM];
    for (int pos = 0; pos < n; pos++) {
        for (int i = 0; i < HEAD_DIM; i++) row[i] = seed + (float)pos + (float)i / 512;
        state_kv_store(s, state_k_offset(p, 0, 0), pos, row);
        state_kv_store(s, state_k_offset(p, 0, 0) + p->head_bytes, pos, row);
    }
    for (size_t i = 0; i < shape_recurrent_floats(&shape) + shape_conv_floats(&shape); i++) s->recurrent[i] = seed * (float)i;
    s->length = n;
    return s;
}

/* Reads parts of another border; fails at part `fails`. */
struct source {
    const struct border *from;
    int fails, reads;
};

static lily_status read_part(void *ctx, int part, size_t at, size_t n, void *out, struct lily_err *err)
{
    struct source *s = ctx;
    s->reads++;
    if (part == s->fails) LILY_FAIL(err, LILY_ERR_IO, "part %d cannot be read", part);
    assert_int_equal(n, part == BORDER_FIXED ? state_border_bytes(s->from->pool) : s->from->pool->pages.page_bytes);
    memcpy(out, state_border_part(s->from, part) + at, n);
    return LILY_OK;
}

static void assert_equal_borders(const struct border *a, const struct border *b)
{
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->n_pages, b->n_pages);
    assert_memory_equal(a->recurrent, b->recurrent, state_border_bytes(a->pool));
    for (int i = 0; i < a->n_pages; i++) assert_memory_equal(a->pages[i], b->pages[i], a->pool->pages.page_bytes);
}

static void test_import(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct state_pool p;
    assert_ok(state_pool_init(&p, &shape, true, 8 << 20, &err));
    struct seq *s = filled(&p, ROWS, 1);
    struct border *b, *whole, *shared;
    assert_ok(state_border_save(s, &b, &err));
    struct source from = {b, 99, 0};
    const struct border_source src = {read_part, &from};
    assert_ok(state_border_import(&p, &(struct border_shape){ROWS, NULL, 0}, &src, &whole, &err));
    assert_int_equal(from.reads, 4);
    assert_equal_borders(b, whole);
    size_t before = p.used;
    assert_ok(state_border_import(&p, &(struct border_shape){ROWS, b, 2}, &src, &shared, &err));
    assert_equal_borders(b, shared);
    assert_ptr_equal(shared->pages[1], b->pages[1]);
    assert_int_equal(p.used - before, p.pages.page_bytes + state_border_bytes(&p));
    state_seq_free(s);
    state_border_free(b);
    assert_equal_borders(whole, shared); /* the shared pages live on */
    state_border_free(whole);
    state_border_free(shared);
    assert_int_equal(p.used, 0);
    state_pool_free(&p);
}

static void test_import_fails(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct state_pool p;
    assert_ok(state_pool_init(&p, &shape, true, 8 << 20, &err));
    struct seq *s = filled(&p, ROWS, 2);
    struct border *b, *out;
    assert_ok(state_border_save(s, &b, &err));
    size_t before = p.used;
    struct source from = {b, 1, 0};
    const struct border_source src = {read_part, &from};
    assert_int_equal(state_border_import(&p, &(struct border_shape){ROWS, b, 1}, &src, &out, &err), LILY_ERR_IO);
    assert_null(out);
    from.fails = BORDER_FIXED;
    assert_int_equal(state_border_import(&p, &(struct border_shape){ROWS, NULL, 0}, &src, &out, &err), LILY_ERR_IO);
    assert_int_equal(p.used, before);
    p.budget = p.used + state_border_bytes(&p) + p.pages.page_bytes; /* room for one page of three */
    from.fails = 99;
    assert_int_equal(state_border_import(&p, &(struct border_shape){ROWS, NULL, 0}, &src, &out, &err), LILY_ERR_MEMORY);
    assert_int_equal(p.used, before);
    assert_int_equal(state_border_import(&p, &(struct border_shape){65, NULL, 0}, &src, &out, &err), LILY_ERR_USAGE);
    state_border_free(b);
    state_seq_free(s);
    state_pool_free(&p);
}

static void test_share(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct state_pool p;
    assert_ok(state_pool_init(&p, &shape, true, 8 << 20, &err));
    struct seq *a = filled(&p, ROWS, 3), *b = filled(&p, ROWS, 3); /* the same tokens, read twice */
    struct border *border;
    assert_ok(state_border_save(a, &border, &err));
    size_t before = p.used;
    state_seq_share(b, border, 2);
    assert_int_equal(before - p.used, 2 * p.pages.page_bytes);
    state_seq_share(b, border, 3);
    state_seq_share(b, border, 3);
    assert_int_equal(before - p.used, 3 * p.pages.page_bytes);
    state_seq_free(a);
    state_border_free(border);
    for (int i = 0; i < 3; i++) assert_non_null(b->pages[i]);
    state_seq_free(b);
    assert_int_equal(p.used, 0);
    state_pool_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_import), cmocka_unit_test(test_import_fails), cmocka_unit_test(test_share)};
    return RUN_TESTS(tests);
}
