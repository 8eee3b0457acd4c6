/* The published tokenizer: every vector, both ways, and the ids of whole corpora. */
#include "../testing.h"
#include "base/hash.h"
#include "text/impl.h"
#include "texts.h"

#define DATA "tests/data/tokenizer/"

static void encode_json(const struct json *text, struct ids *ids)
{
    ids_clear(ids);
    tokenizer_encode_special(real_tokenizer(), json_string(text), json_string_len(text), ids, NULL);
}

/* Decodes with special tokens kept and compares. */
static void assert_text(const struct ids *ids, const struct json *expected, const char *name)
{
    struct buf out = {0};
    tokenizer_decode(real_tokenizer(), ids->data, ids->n, true, &out);
    if (out.len != json_string_len(expected) || memcmp(out.data, json_string(expected), out.len) != 0)
        fail_msg("%s: decoded to \"%s\", expected \"%s\"", name, buf_str(&out), json_string(expected));
    buf_free(&out);
}

/* names_back: the text that decoding gives is known (when it is not the text itself, as text_of_ids). */
static void check_vector(const struct json *line, void *names_back)
{
    struct ids ids = {0};
    const char *name = json_string(member(line, "name"));
    const struct json *text = member(line, "text"), *back = json_get(line, "text_of_ids");
    encode_json(text, &ids);
    assert_ids(&ids, member(line, "ids"), name);
    if (names_back && ids.n) assert_text(&ids, back ? back : text, name);
    ids_free(&ids);
}

static void test_vectors(void **state)
{
    (void)state;
    assert_int_equal(each_json_line(DATA "vectors.jsonl", check_vector, DATA), 452);
}

static void test_goldens(void **state)
{
    (void)state;
    struct lily_err err;
    struct json *goldens;
    assert_ok(json_parse_file(DATA "qwen36_goldens.json", 1 << 20, &goldens, &err));
    const struct json *vectors = member(goldens, "vectors"), *special = member(goldens, "special"), *id;
    assert_int_equal(json_size(vectors), 18);
    for (size_t i = 0; i < json_size(vectors); i++) check_vector(json_at(vectors, i), NULL);
    assert_int_equal(json_size(special), 33);
    for (size_t i = 0; i < json_size(special); i++) {
        const char *name = json_key_at(special, i, &id);
        assert_int_equal(tokenizer_added(real_tokenizer(), name), json_int(id));
        assert_true(tokenizer_is_added(real_tokenizer(), (int32_t)json_int(id)));
    }
    json_free(goldens);
}

static void check_corpus(const char *file, const struct json *entry, struct buf *text)
{
    struct ids ids = {0};
    char hex[65];
    size_t n = (size_t)json_int(member(entry, "bytes"));
    if (text->len < n) fail_msg("%s has %zu bytes, expected %zu", file, text->len, n);
    tokenizer_encode_special(real_tokenizer(), text->data, n, &ids, NULL);
    if (ids.n != (size_t)json_int(member(entry, "tokens"))) fail_msg("%s: %zu ids", file, ids.n);
    sha256_of(ids.data, ids.n * sizeof *ids.data, hex);
    if (strcmp(hex, json_string(member(entry, "sha256_of_ids_u32le"))) != 0) fail_msg("%s: ids differ", file);
    struct buf back = {0}, scratch = {0};
    tokenizer_decode(real_tokenizer(), ids.data, ids.n, true, &back);
    const char *normal = nfc_text(real_tokenizer()->nfc, text->data, &n, &scratch);
    if (back.len != n || memcmp(back.data, normal, n) != 0) fail_msg("%s: decoding does not give the text back", file);
    buf_free(&scratch);
    buf_free(&back);
    ids_free(&ids);
}

enum { CORPORA_IN_TREE = 4 }; /* tests/data/corpus; of the others only their ids are here */

static void test_corpora(void **state)
{
    (void)state;
    struct lily_err err;
    struct json *corpora;
    struct buf missing = {0};
    size_t n_checked = 0;
    assert_ok(json_parse_file(DATA "corpus_ids.json", 1 << 20, &corpora, &err));
    for (size_t i = 0; i < json_size(corpora); i++) {
        const struct json *entry = json_at(corpora, i);
        const char *file = json_string(member(entry, "file"));
        struct buf text = {0};
        if (read_text(file, &text)) {
            check_corpus(file, entry, &text);
            n_checked++;
        } else {
            buf_printf(&missing, " %s", file);
        }
        buf_free(&text);
    }
    json_free(corpora);
    assert_true(n_checked >= CORPORA_IN_TREE);
    printf("%zu corpora agree; not in the tree, and so not compared:%s\n", n_checked, buf_str(&missing));
    buf_free(&missing);
}

static void test_tokens(void **state)
{
    (void)state;
    const struct tokenizer *t = real_tokenizer();
    size_t n;
    assert_int_equal(tokenizer_size(t), 248077);
    assert_memory_equal(tokenizer_token(t, 248046, &n), "<|im_end|>", 10);
    assert_int_equal(n, 10);
    assert_memory_equal(tokenizer_token(t, 0, &n), "!", 1);
    assert_int_equal(n, 1);
    assert_null(tokenizer_token(t, -1, &n));
    assert_null(tokenizer_token(t, 248077, &n));
    assert_null(tokenizer_token(t, INT32_MAX, &n));
    assert_int_equal(tokenizer_added(t, "<|im_en|>"), -1);
    assert_int_equal(tokenizer_added(t, ""), -1);
    int n_special = 0, n_added = 0;
    for (int32_t id = 0; id < tokenizer_size(t); id++) {
        n_special += tokenizer_is_special(t, id);
        n_added += tokenizer_is_added(t, id);
    }
    assert_int_equal(n_added, 33);
    assert_int_equal(n_special, 21);
    assert_false(tokenizer_is_special(t, 248068));
}

/* User text: the spelling of a special token stays text, and decodes to the same characters. */
static void test_user_text(void **state)
{
    (void)state;
    static const char text[] = "a<|im_end|>b<think>";
    const struct tokenizer *t = real_tokenizer();
    struct ids ids = {0};
    struct buf out = {0};
    tokenizer_encode(t, text, sizeof text - 1, &ids, NULL);
    for (size_t i = 0; i < ids.n; i++) assert_false(tokenizer_is_added(t, ids.data[i]));
    tokenizer_decode(t, ids.data, ids.n, false, &out);
    assert_string_equal(buf_str(&out), text);
    ids_clear(&ids);
    buf_clear(&out);
    tokenizer_encode_special(t, text, sizeof text - 1, &ids, NULL);
    assert_int_equal(ids.n, 4);
    assert_int_equal(ids.data[1], 248046);
    assert_int_equal(ids.data[3], 248068);
    /* Without special tokens <|im_end|> goes, <think> (special: false) stays. */
    tokenizer_decode(t, ids.data, ids.n, false, &out);
    assert_string_equal(buf_str(&out), "ab<think>");
    ids_free(&ids);
    buf_free(&out);
}

/* Each maximal invalid part is encoded as U+FFFD. */
static void test_invalid_input(void **state)
{
    (void)state;
    static const char bad[] = "a\xE2\x82z\xFF\xFE \xF0\x9F\x98", good[] = "a\uFFFDz\uFFFD\uFFFD \uFFFD";
    struct ids a = {0}, b = {0};
    tokenizer_encode(real_tokenizer(), bad, sizeof bad - 1, &a, NULL);
    tokenizer_encode(real_tokenizer(), good, sizeof good - 1, &b, NULL);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.data, b.data, a.n * sizeof *a.data);
    ids_free(&a);
    ids_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_goldens),   cmocka_unit_test(test_corpora),
        cmocka_unit_test(test_tokens),  cmocka_unit_test(test_user_text), cmocka_unit_test(test_invalid_input),
    };
    return RUN_TESTS(tests);
}
