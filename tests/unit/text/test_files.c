/* Tokenizer files that are cut, changed or lie, and the compiled form in the cache folder. */
#include <dirent.h>

#include "../testing.h"
#include "base/file.h"
#include "text/impl.h"
#include "texts.h"

#define ORIGINAL "tests/data/tokenizer/forms/original/"

static lily_status load_text(const char *json, size_t n, const char *cache, struct tokenizer **t, struct lily_err *err)
{
    char *dir = make_dir();
    struct tokenizer_options opt = {cache};
    write_file(dir, "tokenizer.json", json, n);
    err_clear(err);
    lily_status st = tokenizer_load(dir, &opt, t, err);
    remove_dir(dir);
    return st;
}

/* Any cut is refused with a message that names the file. */
static void test_cut(void **state)
{
    (void)state;
    struct buf json = {0};
    struct lily_err err;
    struct tokenizer *t;
    assert_true(read_text(ORIGINAL "tokenizer.json", &json));
    while (json.len && json.data[json.len - 1] != '}') json.len--;
    for (size_t n = 0; n < json.len; n += 131) {
        assert_int_not_equal(load_text(json.data, n, NULL, &t, &err), LILY_OK);
        assert_null(t);
        assert_non_null(strstr(err.msg, "tokenizer.json"));
    }
    buf_free(&json);
}

static void test_flipped(void **state)
{
    (void)state;
    struct buf json = {0};
    struct lily_err err;
    struct tokenizer *t;
    assert_true(read_text(ORIGINAL "tokenizer.json", &json));
    int refused = 0;
    for (size_t i = 0; i < json.len; i += 149) {
        json.data[i] ^= 0x10;
        if (load_text(json.data, json.len, NULL, &t, &err) != LILY_OK) {
            assert_true(err.msg[0]);
            refused++;
        }
        tokenizer_free(t);
        json.data[i] ^= 0x10;
    }
    assert_true(refused > 10);
    buf_free(&json);
}

/* Replaces the first `from` by `to`; the load must fail and say `message`. */
static void check_lie(const char *from, const char *to, const char *message)
{
    struct buf json = {0}, lie = {0};
    struct lily_err err;
    struct tokenizer *t;
    assert_true(read_text("tests/data/tiny-mlx/tokenizer.json", &json));
    char *at = strstr(json.data, from);
    if (!at) fail_msg("the file has no %s", from);
    buf_add(&lie, json.data, (size_t)(at - json.data));
    buf_addz(&lie, to);
    buf_addz(&lie, at + strlen(from));
    if (load_text(lie.data, lie.len, NULL, &t, &err) == LILY_OK) fail_msg("%s was accepted", to);
    if (!strstr(err.msg, message)) fail_msg("the message \"%s\" does not say \"%s\"", err.msg, message);
    buf_free(&json);
    buf_free(&lie);
}

static void test_lies(void **state)
{
    (void)state;
    check_lie("\"BPE\"", "\"Unigram\"", "model.type: found \"Unigram\", expected \"BPE\"");
    check_lie("\"NFC\"", "\"NFKC\"", "normalizer.type: found \"NFKC\"");
    check_lie("\\\\p{N}| ?", "\\\\p{N}{1,3}| ?", "pre_tokenizer.pattern.Regex");
    check_lie("\"Isolated\"", "\"Removed\"", "behavior: found \"Removed\"");
    check_lie("\"ignore_merges\": false", "\"ignore_merges\": true", "model.ignore_merges: found true");
    check_lie("\"id\": 510", "\"id\": -1", "id -1");
    check_lie("\"id\": 510", "\"id\": 99999999", "99999999");
    check_lie("\"id\": 510", "\"id\": 511", "511");
    check_lie("\"lstrip\": false", "\"lstrip\": true", "lstrip");
    check_lie("\"merges\": []", "\"merges\": [[\"a\",\"zzz\"]]", "zzz");
    check_lie("\"merges\": []", "\"merges\": [\"ab\"]", "two parts");
    check_lie("\"merges\": []", "\"merges\": [[\"a\"]]", "two");
    check_lie("\"merges\": []", "\"merges\": 7", "an array");
    check_lie("\"!\": 0", "\"!\": 1", "already");
}

static void test_no_files(void **state)
{
    (void)state;
    struct lily_err err;
    struct tokenizer *t;
    char *dir = make_dir();
    assert_int_equal(tokenizer_load(dir, NULL, &t, &err), LILY_ERR_IO);
    assert_null(t);
    assert_non_null(strstr(err.msg, "tokenizer.json"));
    remove_dir(dir);
}

/* The one file of a cache folder; owned by the caller. */
static char *only_file(const char *dir)
{
    struct buf path = {0};
    DIR *d = opendir(dir);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            file_join(&path, dir, e->d_name);
            n++;
        }
    closedir(d);
    assert_int_equal(n, 1);
    return buf_take(&path);
}

static bool load_cached(const struct tokenizer_options *opt)
{
    struct lily_err err;
    struct tokenizer *t;
    struct ids ids = {0};
    assert_ok(tokenizer_load("tests/data/tiny", opt, &t, &err));
    tokenizer_encode_special(t, "a <think>", 9, &ids, NULL);
    assert_int_equal(ids.data[ids.n - 1], tokenizer_added(t, "<think>"));
    bool mapped = t->map.data != NULL;
    ids_free(&ids);
    tokenizer_free(t);
    return mapped;
}

/* Used when whole; ignored and written anew when a byte is wrong, cut, grown, or not there. */
static void test_compiled(void **state)
{
    (void)state;
    char *dir = make_dir();
    struct tokenizer_options opt = {dir};
    assert_false(load_cached(&opt));
    assert_true(load_cached(&opt));
    char *path = only_file(dir), *name = strrchr(path, '/') + 1;
    struct buf good = {0};
    assert_true(read_text(path, &good));
    for (size_t i = 0; i < good.len; i += good.len / 11) {
        good.data[i] ^= 1;
        write_file(dir, name, good.data, good.len);
        good.data[i] ^= 1;
        assert_false(load_cached(&opt));
        assert_true(load_cached(&opt));
    }
    write_file(dir, name, good.data, good.len - 64);
    assert_false(load_cached(&opt));
    write_file(dir, name, "", 0);
    assert_false(load_cached(&opt));
    remove(path);
    assert_false(load_cached(&opt));
    assert_true(load_cached(&opt));
    free(path);
    buf_free(&good);
    remove_dir(dir);
}

/* A folder that cannot be made is no reason to fail. */
static void test_no_cache(void **state)
{
    (void)state;
    struct tokenizer_options opt = {"/proc/no/such/folder"};
    assert_false(load_cached(&opt));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),      cmocka_unit_test(test_flipped),  cmocka_unit_test(test_lies),
        cmocka_unit_test(test_no_files), cmocka_unit_test(test_compiled), cmocka_unit_test(test_no_cache),
    };
    return RUN_TESTS(tests);
}
