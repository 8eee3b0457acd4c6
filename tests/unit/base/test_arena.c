/* The arena: blocks of any size, zeroed, aligned, apart from each other, and failing where memory ends. */
#include "../testing.h"

#include "base/arena.h"

enum { BLOCKS = 40 };

/* Sizes around those of lines, pages, huge pages and chunks, so that small ones follow big ones. */
static size_t size_of(int i)
{
    static const size_t sizes[] = {1, 64, 65, 4096, 100000, (2 << 20) + 1, 5 << 20, (32 << 20) - 64, 33 << 20, 0};
    return sizes[i % 10];
}

static void blocks_lie_apart(void **state)
{
    (void)state;
    struct arena a = {0};
    struct lily_err err;
    uint8_t *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        void *p;
        size_t n = size_of(i);
        assert_ok(arena_take(&a, n, "a block", &p, &err));
        assert_int_equal((uintptr_t)p % 64, 0);
        block[i] = p;
        for (size_t k = 0; k < n; k += 1000) {
            assert_int_equal(block[i][k], 0);
            block[i][k] = (uint8_t)(i + 1);
        }
        if (n) block[i][n - 1] = (uint8_t)(i + 1);
    }
    for (int i = 0; i < BLOCKS; i++) {
        size_t n = size_of(i);
        if (n) assert_int_equal(block[i][0], i + 1);
        if (n) assert_int_equal(block[i][n - 1], i + 1);
    }
    arena_free(&a);
    assert_null(a.chunks);
}

static void too_much_is_refused(void **state)
{
    (void)state;
    struct arena a = {0};
    struct lily_err err;
    void *p;
    assert_int_equal(arena_take(&a, SIZE_MAX, "the impossible", &p, &err), LILY_ERR_MEMORY);
    assert_non_null(strstr(err.msg, "the impossible"));
    assert_int_equal(arena_take(&a, SIZE_MAX / 2, "the impossible", &p, &err), LILY_ERR_MEMORY);
    assert_null(p);
    assert_ok(arena_take(&a, 100, "a small one", &p, &err));
    arena_free(&a);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_lie_apart), cmocka_unit_test(too_much_is_refused)};
    return RUN_TESTS(tests);
}
