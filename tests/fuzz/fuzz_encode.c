/*
 * Encoding and decoding of any bytes with the tiny checkpoint's tokenizer: decoding gives the repaired, normalized text
 * back, and the stream of a detokenizer, whole characters only, equals decoding at once.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/impl.h"

static struct tokenizer *tiny(void)
{
    static struct tokenizer *t;
    struct lily_err err;
    if (!t && tokenizer_load("tests/data/tiny", NULL, &t, &err) != LILY_OK) {
        printf("%s (run from the root of the repository)\n", err.msg);
        abort();
    }
    return t;
}

static void check_stream(const struct tokenizer *t, const struct ids *ids, const struct buf *whole)
{
    struct detokenizer d;
    struct buf out = {0};
    detokenizer_init(&d, t, true);
    for (size_t i = 0; i < ids->n; i++) {
        detokenizer_push(&d, ids->data[i], &out);
        if (!utf8_valid(buf_str(&out), out.len)) abort();
    }
    detokenizer_flush(&d, &out);
    if (out.len != whole->len || memcmp(buf_str(&out), buf_str(whole), out.len) != 0) abort();
    buf_free(&out);
}

static void check_text(const struct tokenizer *t, const char *text, size_t n)
{
    struct ids ids = {0};
    struct buf repaired = {0}, scratch = {0}, back = {0};
    tokenizer_encode(t, text, n, &ids, NULL);
    tokenizer_decode(t, ids.data, ids.n, false, &back);
    utf8_add_repaired(&repaired, text, n);
    size_t len = repaired.len;
    const char *normal = nfc_text(t->nfc, buf_str(&repaired), &len, &scratch);
    if (back.len != len || memcmp(buf_str(&back), normal, len) != 0) abort();
    check_stream(t, &ids, &back);
    ids_clear(&ids);
    tokenizer_encode_special(t, text, n, &ids, NULL);
    for (size_t i = 0; i < ids.n; i++)
        if (!tokenizer_token(t, ids.data[i], &len)) abort();
    ids_free(&ids);
    buf_free(&repaired);
    buf_free(&scratch);
    buf_free(&back);
}

/* The input as text, and as ids of any kind. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tokenizer *t = tiny();
    struct ids ids = {0};
    struct buf whole = {0};
    check_text(t, (const char *)data, size);
    for (size_t i = 0; i + 2 <= size; i += 2) ids_add(&ids, (int16_t)(data[i] | data[i + 1] << 8) % 400);
    tokenizer_decode(t, ids.data, ids.n, true, &whole);
    if (!utf8_valid(buf_str(&whole), whole.len)) abort();
    check_stream(t, &ids, &whole);
    ids_free(&ids);
    buf_free(&whole);
    return 0;
}
