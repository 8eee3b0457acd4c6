/* Merging, streaming, long runs, threads: against simple forms of the same, and with bounded work. */
#include <pthread.h>
#include <utf8proc.h>

#include "../testing.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/impl.h"
#include "texts.h"

/* The definition: join the pair of lowest rank, the leftmost of equals, until there is none. Quadratic. */
static void merge_plainly(const struct image *im, const uint8_t *p, size_t n, struct ids *out)
{
    size_t first = out->n;
    for (size_t i = 0; i < n; i++) ids_add(out, im->byte_ids[p[i]]);
    while (true) {
        struct merge best = {RANK_NONE, 0};
        size_t at = 0;
        for (size_t i = first; i + 1 < out->n; i++) {
            struct merge m = pair_find(im, (uint32_t)out->data[i], (uint32_t)out->data[i + 1]);
            if (m.rank < best.rank) best = m, at = i;
        }
        if (best.rank == RANK_NONE) return;
        out->data[at] = (int32_t)best.result;
        memmove(out->data + at + 1, out->data + at + 2, (out->n - at - 2) * sizeof *out->data);
        out->n--;
    }
}

static void merge_batch(const struct image *im, const uint8_t *p, size_t n, struct ids *out)
{
    struct bpe_batch *b = bpe_batch_new();
    for (int i = 0; i < 3; i++) bpe_batch_add(im, b, p, n);
    bpe_batch_run(im, b);
    bpe_batch_ids(im, b, 1, out);
    bpe_batch_free(b);
}

static uint32_t next_random(uint32_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 17;
    *s ^= *s << 5;
    return *s;
}

/* Pieces around the lengths where the method changes, out of tokens so that merges are many. */
static void test_merging(void **state)
{
    (void)state;
    const struct tokenizer *t = real_tokenizer();
    uint32_t seed = 1;
    for (int round = 0; round < 600; round++) {
        struct buf piece = {0};
        struct ids a = {0}, b = {0};
        size_t n, wanted = 1 + next_random(&seed) % 140;
        while (piece.len < wanted) {
            const char *token = tokenizer_token(t, (int32_t)(next_random(&seed) % (round % 2 ? 2000 : 248044)), &n);
            buf_add(&piece, token, n);
        }
        n = round % 3 ? wanted : piece.len;
        merge_plainly(&t->image, (const uint8_t *)piece.data, n, &a);
        merge_batch(&t->image, (const uint8_t *)piece.data, n, &b);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.data, b.data, a.n * sizeof *a.data);
        buf_free(&piece);
        ids_free(&a);
        ids_free(&b);
    }
}

static uint64_t steps_of_run(size_t n, const char *unit)
{
    struct buf text = {0};
    struct ids ids = {0};
    struct bpe_batch *b = bpe_batch_new();
    while (text.len < n) buf_addz(&text, unit);
    bpe_batch_add(&real_tokenizer()->image, b, (const uint8_t *)text.data, text.len);
    bpe_batch_run(&real_tokenizer()->image, b);
    bpe_batch_ids(&real_tokenizer()->image, b, 0, &ids);
    uint64_t steps = b->steps;
    assert_true(ids.n > 0);
    bpe_batch_free(b);
    ids_free(&ids);
    buf_free(&text);
    return steps;
}

/* Twice the text: little more than twice the work; at most 3 log2(n) moves in the heap per byte. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "ab", "\xE4\xB8\xAD", "\xD0\xB0"};
    for (int i = 0; i < 4; i++) {
        uint64_t half = steps_of_run(1 << 19, units[i]), whole = steps_of_run(1 << 20, units[i]);
        assert_true(half > 0);
        assert_true(whole < 3 * half);
        assert_true(whole < (UINT64_C(1) << 20) * 60);
    }
}

/* A quarter of a megabyte of one character of each class encodes, and comes back. */
static void test_long_classes(void **state)
{
    (void)state;
    static const char *const units[] = {" ", "\n", " \n", "a", "!", "1", "\xCC\x81", "\xE2\x80\x83", "'s", "<|im_end|>"};
    for (int i = 0; i < 10; i++) {
        struct buf text = {0}, back = {0};
        struct ids ids = {0};
        while (text.len < 1 << 18) buf_addz(&text, units[i]);
        tokenizer_encode_special(real_tokenizer(), text.data, text.len, &ids, NULL);
        tokenizer_decode(real_tokenizer(), ids.data, ids.n, true, &back);
        assert_int_equal(back.len, text.len);
        assert_memory_equal(back.data, text.data, text.len);
        buf_free(&text);
        buf_free(&back);
        ids_free(&ids);
    }
}

/* Our NFC against utf8proc's own, for all characters of Unicode 9 in three places. */
static void test_normal_form(void **state)
{
    (void)state;
    struct nfc *nfc = nfc_new();
    struct buf scratch = {0}, text = {0};
    for (uint32_t c = 1; c < 0x30000; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        /* What came after Unicode 9 is kept in place on purpose: test_newer_marks. */
        if (c == 0x7FD || (c >= 0x897 && c <= 0x8D3) || c == 0x9FE || c == 0xC3C || c == 0xD3B || c == 0xD3C || c == 0xEBA ||
            c == 0xECE || c == 0x1715 || (c >= 0x1ABF && c <= 0x1ACE) || (c >= 0x1DF6 && c <= 0x1DFA) || c == 0xA82C ||
            c >= 0x10000)
            continue;
        buf_clear(&text);
        buf_addz(&text, "a\u0327");
        utf8_add(&text, c);
        buf_addz(&text, "\u0301e\u0323");
        utf8_add(&text, c);
        size_t n = text.len;
        const char *got = nfc_text(nfc, text.data, &n, &scratch);
        utf8proc_uint8_t *want = utf8proc_NFC((const utf8proc_uint8_t *)text.data);
        if (strlen((char *)want) != n || memcmp(want, got, n) != 0) fail_msg("U+%04X: another normal form", c);
        free(want);
    }
    nfc_free(nfc);
    buf_free(&scratch);
    buf_free(&text);
}

static void test_newer_marks(void **state)
{
    (void)state;
    /* U+1DF6 (Unicode 10, class 232) does not move; U+0359 (class 220) does. */
    static const char kept[] = "a\u1DF6\u0323", moved[] = "a\u0301\u0359";
    struct nfc *nfc = nfc_new();
    struct buf scratch = {0};
    size_t n = sizeof kept - 1;
    const char *got = nfc_text(nfc, kept, &n, &scratch);
    assert_memory_equal(got, kept, n);
    n = sizeof moved - 1;
    got = nfc_text(nfc, moved, &n, &scratch);
    assert_int_equal(n, strlen("\u00E1\u0359"));
    assert_memory_equal(got, "\u00E1\u0359", n);
    nfc_free(nfc);
    buf_free(&scratch);
}

/* Python: bytes.decode('utf-8', errors='replace'), at every cut into tokens of one byte or more. */
static void test_streaming(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"\xF0\x9F\x98\x80", "\U0001F600"},         {"\xF0\x9F\x98", "\uFFFD"},
        {"\xF0\x9F\x98x", "\uFFFDx"},               {"\xE2\x82\xE2\x82\xAC", "\uFFFD\u20AC"},
        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},     {"\xC0\x80", "\uFFFD\uFFFD"},
        {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"}, {"a\x80\xBFz", "a\uFFFD\uFFFDz"},
        {"\xE4\xB8\xE4\xB8\xAD\xE4", "\uFFFD\u4E2D\uFFFD"},
    };
    const struct tokenizer *t = real_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct detokenizer d;
        struct buf out = {0};
        detokenizer_init(&d, t, true);
        for (const char *p = cases[i].bytes; *p; p++) {
            detokenizer_push(&d, t->image.byte_ids[(uint8_t)*p], &out);
            assert_true(utf8_valid(buf_str(&out), out.len));
        }
        detokenizer_flush(&d, &out);
        assert_string_equal(buf_str(&out), cases[i].text);
        buf_free(&out);
    }
}

static void *encode_often(void *arg)
{
    const struct ids *expected = arg;
    static const char text[] = "Threads share one tokenizer: caf\u00E9, \u4E2D\u6587, unspeakablywordlike 123.\n";
    for (int i = 0; i < 300; i++) {
        struct ids ids = {0};
        tokenizer_encode_special(real_tokenizer(), text, sizeof text - 1, &ids, NULL);
        if (expected && (ids.n != expected->n || memcmp(ids.data, expected->data, ids.n * sizeof *ids.data) != 0)) return arg;
        ids_free(&ids);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static const char text[] = "Threads share one tokenizer: caf\u00E9, \u4E2D\u6587, unspeakablywordlike 123.\n";
    struct ids expected = {0};
    pthread_t threads[4];
    tokenizer_encode_special(real_tokenizer(), text, sizeof text - 1, &expected, NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &expected), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    ids_free(&expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merging),      cmocka_unit_test(test_long_runs),   cmocka_unit_test(test_long_classes),
        cmocka_unit_test(test_normal_form),  cmocka_unit_test(test_newer_marks), cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_threads),
    };
    return RUN_TESTS(tests);
}
