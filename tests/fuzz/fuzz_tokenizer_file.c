/*
 * Tokenizer files: tokenizer.json, tokenizer_config.json, vocab.json and merges.txt in any state, and images that are
 * damaged after they were built. Whatever loads must encode and decode within bounds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/impl.h"
#include "text/source.h"

static void use(struct tokenizer *t)
{
    static const char text[] = "Hello <think>w\xC3\xB6rld</think> 12\n\n  <|im_end|>";
    struct ids ids = {0};
    struct buf out = {0};
    tokenizer_encode_special(t, text, sizeof text - 1, &ids, NULL);
    for (size_t i = 0; i < ids.n; i++)
        if (ids.data[i] < 0 || ids.data[i] >= tokenizer_size(t)) abort();
    tokenizer_decode(t, ids.data, ids.n, true, &out);
    ids_free(&ids);
    buf_free(&out);
}

/* An image that passes the check is safe to use, whatever it holds. */
static void use_image(const void *block, size_t size)
{
    struct tokenizer *t = mem_new(sizeof *t);
    struct lily_err err;
    if (image_check(block, size, &t->image, &err) == LILY_OK && tokenizer_finish(t, &err) == LILY_OK) use(t);
    tokenizer_free(t);
}

static void damage_and_use(uint8_t *block, size_t size, const uint8_t *data, size_t n)
{
    use_image(block, size);
    for (size_t i = 0; i + 5 <= n && i < 40; i += 5) {
        uint32_t at;
        memcpy(&at, data + i, 4);
        block[at % size] ^= data[i + 4];
    }
    use_image(block, size);
}

static lily_status read_files(int kind, struct text_view a, struct text_view b, struct vocabulary *v, struct lily_err *err)
{
    struct tokenizer_json json;
    if (kind == 0) {
        LILY_TRY(tokenizer_json_read(a, &json, err));
        LILY_TRY(tokenizer_json_added(&json, v, err));
        if (b.n) LILY_TRY(tokenizer_config_added(b, v, err));
        return tokenizer_json_tokens(&json, v, err);
    }
    if (kind == 1) return tokenizer_config_added(a, v, err);
    LILY_TRY(vocab_json_tokens(a, v, err));
    return merges_txt_merges(b, v, err);
}

/* First byte: which files; then the first file up to a byte 0xFF, then the second. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    const char *text = (const char *)data + 1;
    const uint8_t *cut = memchr(data + 1, 0xFF, size - 1);
    size_t n = cut ? (size_t)(cut - data) - 1 : size - 1;
    struct text_view a = {text, n}, b = {cut ? text + n + 1 : text + n, cut ? size - n - 2 : 0};
    struct vocabulary *v = vocabulary_new(12345);
    struct lily_err err;
    void *block = NULL;
    size_t block_size = 0;
    err_clear(&err);
    lily_status st = read_files(data[0] % 3, a, b, v, &err);
    if (st == LILY_OK) st = vocabulary_build(v, true, &block, &block_size, &err);
    if (st != LILY_OK && (err.status != st || !err.msg[0] || block)) abort();
    if (st == LILY_OK) damage_and_use(block, block_size, data, size);
    if (block) mem_big_free(block, block_size);
    vocabulary_free(v);
    return 0;
}
