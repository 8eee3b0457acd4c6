/* Every published form of the tokenizer files gives the same tokenizer. */
#include "../testing.h"
#include "texts.h"

#define FORMS "tests/data/tokenizer/forms/"

static void check_line(const struct json *line, void *arg)
{
    struct ids ids = {0};
    const struct json *text = member(line, "text");
    tokenizer_encode_special(arg, json_string(text), json_string_len(text), &ids, NULL);
    assert_ids(&ids, member(line, "ids"), json_string(text));
    ids_free(&ids);
}

static void check_form(const char *dir)
{
    struct tokenizer *t = load_from(dir);
    assert_int_equal(each_json_line(FORMS "expected.jsonl", check_line, t), 40);
    assert_true(tokenizer_is_special(t, tokenizer_added(t, "<|im_end|>")));
    assert_true(tokenizer_is_added(t, tokenizer_added(t, "<think>")));
    assert_false(tokenizer_is_special(t, tokenizer_added(t, "<think>")));
    assert_true(tokenizer_added(t, "<|audio_pad|>") >= 0);
    tokenizer_free(t);
}

static void test_array_merges(void **state)
{
    (void)state;
    check_form("tests/data/tiny");
}

static void test_string_merges(void **state)
{
    (void)state;
    check_form(FORMS "original");
}

static void test_vocab_and_merges(void **state)
{
    (void)state;
    check_form(FORMS "vocab_merges");
}

static void test_no_merges(void **state)
{
    (void)state;
    struct tokenizer *t = load_from("tests/data/tiny-mlx");
    struct ids ids = {0};
    tokenizer_encode(t, "Hi", 2, &ids, NULL);
    assert_int_equal(ids.n, 2);
    ids_free(&ids);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_array_merges),
        cmocka_unit_test(test_string_merges),
        cmocka_unit_test(test_vocab_and_merges),
        cmocka_unit_test(test_no_merges),
    };
    return RUN_TESTS(tests);
}
