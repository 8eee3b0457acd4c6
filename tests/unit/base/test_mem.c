/* Heap memory: zeroed, aligned, and failing where it may. */
#include "../testing.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

static void new_memory_is_zeroed(void **state)
{
    (void)state;
    for (size_t n = 0; n < 300; n += 37) {
        unsigned char *p = mem_new(n);
        assert_non_null(p);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xa5, n); /* dirt for the next round */
        free(p);
    }
}

static void lines_are_aligned_and_zeroed(void **state)
{
    (void)state;
    for (size_t n = 0; n < 300; n += 37) {
        unsigned char *p = mem_new_lines(n);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xa5, n);
        free(p);
    }
}

static void resize_keeps_the_contents(void **state)
{
    (void)state;
    char *p = mem_resize(NULL, 4);
    memcpy(p, "abc", 4);
    p = mem_resize(p, 100000);
    assert_string_equal(p, "abc");
    p = mem_resize(p, 2);
    assert_memory_equal(p, "ab", 2);
    free(mem_resize(p, 0));
}

static void copies_are_terminated(void **state)
{
    (void)state;
    char *a = mem_dup("hello", 3), *b = mem_dupz("text"), *c = mem_dup(NULL, 0), *d = mem_dup("a\0b", 3);
    assert_string_equal(a, "hel");
    assert_string_equal(b, "text");
    assert_string_equal(c, "");
    assert_memory_equal(d, "a\0b", 4);
    free(a);
    free(b);
    free(c);
    free(d);
}

static void try_refuses_overflow_and_the_impossible(void **state)
{
    (void)state;
    assert_null(mem_try(SIZE_MAX / 2 + 1, 2));
    assert_null(mem_try(SIZE_MAX, SIZE_MAX));
    assert_null(mem_try(SIZE_MAX / 16, 8)); /* no overflow, but no machine has it */
    unsigned char *p = mem_try(1000, 8);
    assert_non_null(p);
    for (int i = 0; i < 8000; i++) assert_int_equal(p[i], 0);
    free(p);
    void *empty = mem_try(0, 8), *none = mem_try(8, 0);
    assert_non_null(empty); /* NULL always means failure */
    assert_non_null(none);
    free(empty);
    free(none);
}

static void big_blocks_are_zeroed_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 4096, 100001, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct lily_err err;
        void *p = NULL;
        assert_ok(mem_big(sizes[i], "a test", &p, &err));
        assert_int_equal((uintptr_t)p % 64, 0);
        const unsigned char *b = p;
        for (size_t k = 0; k < sizes[i]; k++)
            if (b[k]) fail_msg("byte %zu of %zu is not zero", k, sizes[i]);
        memset(p, 0xff, sizes[i]);
        mem_big_free(p, sizes[i]);
    }
    mem_big_free(NULL, 5);
}

static void a_big_block_that_is_refused_names_its_use(void **state)
{
    (void)state;
    struct lily_err err;
    void *p = &err;
    assert_int_equal(mem_big(SIZE_MAX / 2, "the KV cache", &p, &err), LILY_ERR_MEMORY);
    assert_null(p);
    assert_non_null(strstr(err.msg, "the KV cache"));
    assert_int_equal(mem_big(SIZE_MAX, "x", &p, NULL), LILY_ERR_MEMORY);
}

static void what_is_dropped_of_a_sparse_block_reads_as_zero(void **state)
{
    (void)state;
    struct lily_err err = {0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 4 * page;
    void *p;
    assert_ok(mem_sparse(n, "test", &p, &err));
    unsigned char *bytes = p;
    for (size_t i = 0; i < n; i++) assert_int_equal(bytes[i], 0);
    memset(bytes, 7, n);
    mem_sparse_drop(bytes + page, 2 * page);
    for (size_t i = 0; i < n; i++) assert_int_equal(bytes[i], i / page == 1 || i / page == 2 ? 0 : 7);
    mem_sparse_drop(bytes + 1, page - 2); /* no whole page: nothing need go, and nothing beside it may */
    assert_int_equal(bytes[0], 7);
    assert_int_equal(bytes[page - 1], 7);
    mem_big_free(p, n);
    assert_int_equal(mem_sparse(SIZE_MAX, "x", &p, NULL), LILY_ERR_MEMORY);
}

static void exhausting_small_memory_ends_the_process_with_a_message(void **state)
{
    (void)state;
    int fds[2], status;
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        mem_new(SIZE_MAX / 2);
        _exit(0);
    }
    close(fds[1]);
    char text[4096] = {0};
    size_t n = 0;
    for (ssize_t got; n < sizeof text - 1 && (got = read(fds[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
    close(fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_non_null(strstr(text, "lily: not enough memory: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_memory_is_zeroed), cmocka_unit_test(lines_are_aligned_and_zeroed),
        cmocka_unit_test(resize_keeps_the_contents),
        cmocka_unit_test(copies_are_terminated),
        cmocka_unit_test(try_refuses_overflow_and_the_impossible),
        cmocka_unit_test(big_blocks_are_zeroed_and_aligned),
        cmocka_unit_test(a_big_block_that_is_refused_names_its_use),
        cmocka_unit_test(what_is_dropped_of_a_sparse_block_reads_as_zero),
        cmocka_unit_test(exhausting_small_memory_ends_the_process_with_a_message),
    };
    return RUN_TESTS(tests);
}
