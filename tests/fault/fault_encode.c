/* The tokenizer without memory: whichever request for memory is refused, that is an error, and what was there stays. */
#include "unit/testing.h"

#include <errno.h>

#include "inject.h"
#include "text/tokenizer.h"

/* Text that needs every kind of work space: repair, normalization, long pieces, many tokens. */
static void make_text(struct buf *text)
{
    buf_addz(text, "Ordinary words, unremarkable punctuation, \xFF an invalid byte, <|im_end|> a token; e");
    for (int i = 0; i < 100; i++) buf_addz(text, i % 2 ? "\xCC\x81" : "\xCC\xA3");
    for (int i = 0; i < 1000; i++) buf_addc(text, (char)('a' + i * i % 7));
    for (int i = 0; i < 1000; i++) buf_printf(text, " %d", i);
}

static void each_refusal(const struct tokenizer *t, enum inject_call call)
{
    struct buf text = {0};
    struct ids whole = {0};
    struct lily_err err;
    make_text(&text);
    assert_ok(tokenizer_encode_special(t, buf_str(&text), text.len, &whole, &err));
    int n = 0;
    for (bool refused = true; refused; n += refused) {
        struct ids ids = {0};
        ids_add(&ids, 7);
        inject_fail(call, n, ENOMEM);
        lily_status st = tokenizer_encode_special(t, buf_str(&text), text.len, &ids, &err);
        refused = inject_end();
        assert_int_equal(st, refused ? LILY_ERR_MEMORY : LILY_OK);
        assert_int_equal(ids.n, refused ? 1 : 1 + whole.n);
        assert_int_equal(ids.data[0], 7);
        if (refused) assert_non_null(strstr(err.msg, "memory"));
        else assert_memory_equal(ids.data + 1, whole.data, whole.n * sizeof *whole.data);
        ids_free(&ids);
    }
    assert_true(n > 0);
    print_message("%d refusals of %s\n", n, inject_names[call]);
    ids_free(&whole);
    buf_free(&text);
}

static void test_no_memory(void **state)
{
    struct tokenizer *t;
    struct lily_err err;
    (void)state;
    assert_ok(tokenizer_load("models/demo", NULL, &t, &err));
    each_refusal(t, INJECT_MEM_TRY);
    each_refusal(t, INJECT_MEM_TRY_RESIZE);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_memory)};
    return RUN_TESTS(tests);
}
