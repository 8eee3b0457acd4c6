/* The growable buffer: always terminated, grows by any step, keeps NUL bytes. */
#include "../testing.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"

static void an_empty_buffer_is_valid(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_string_equal(buf_str(&b), "");
    buf_clear(&b);
    buf_add(&b, NULL, 0);
    assert_int_equal(b.len, 0);
    assert_string_equal(buf_str(&b), "");
    buf_free(&b);
    buf_free(&b);
    char *taken = buf_take(&b);
    assert_string_equal(taken, "");
    free(taken);
}

static void reserve_leaves_a_terminated_text(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_reserve(&b, 1000);
    assert_true(b.cap > 1000);
    assert_string_equal(buf_str(&b), "");
    buf_addz(&b, "abc");
    buf_reserve(&b, 100000);
    assert_string_equal(buf_str(&b), "abc");
    buf_free(&b);
}

static void pieces_add_up(void **state)
{
    (void)state;
    struct buf b = {0};
    char want[10001];
    for (int i = 0; i < 10000; i++) {
        want[i] = (char)('a' + i % 26);
        if (i % 3 == 0) buf_addc(&b, want[i]);
        else if (i % 3 == 1) buf_add(&b, &want[i], 1);
        else buf_printf(&b, "%c", want[i]);
        assert_int_equal(b.data[b.len], 0);
    }
    want[10000] = 0;
    assert_int_equal(b.len, 10000);
    assert_string_equal(buf_str(&b), want);
    size_t cap = b.cap;
    buf_clear(&b);
    assert_string_equal(buf_str(&b), "");
    assert_int_equal(b.cap, cap);
    buf_free(&b);
    assert_null(b.data);
}

static void nul_bytes_are_kept(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add(&b, "a\0b", 3);
    buf_addc(&b, 0);
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.data, "a\0b\0", 5);
    buf_free(&b);
}

static void printf_grows_as_needed(void **state)
{
    (void)state;
    struct buf b = {0};
    char text[5001];
    memset(text, 'x', 5000);
    text[5000] = 0;
    buf_printf(&b, "%s%d", text, 42);
    buf_printf(&b, "%s", "");
    assert_int_equal(b.len, 5002);
    assert_string_equal(b.data + 5000, "42");
    buf_free(&b);
}

static void take_moves_the_text(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_addz(&b, "moved");
    char *p = buf_take(&b);
    assert_string_equal(p, "moved");
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    buf_addz(&b, "new");
    assert_string_equal(buf_str(&b), "new");
    assert_string_equal(p, "moved");
    free(p);
    buf_free(&b);
}

static void a_length_that_wraps_does_not_corrupt(void **state)
{
    (void)state;
    int status, quiet[2];
    assert_int_equal(pipe(quiet), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(quiet[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        struct buf b = {0};
        buf_addz(&b, "abc");
        buf_reserve(&b, SIZE_MAX - 2);
        _exit(0);
    }
    close(quiet[0]);
    close(quiet[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_buffer_is_valid), cmocka_unit_test(reserve_leaves_a_terminated_text),
        cmocka_unit_test(pieces_add_up),            cmocka_unit_test(nul_bytes_are_kept),
        cmocka_unit_test(printf_grows_as_needed),   cmocka_unit_test(take_moves_the_text),
        cmocka_unit_test(a_length_that_wraps_does_not_corrupt),
    };
    return RUN_TESTS(tests);
}
