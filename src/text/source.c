/* Vocabulary, merges and added tokens out of the tokenizer files. */
#include "text/source.h"

#include <string.h>

/* ---- base tokens ---- */

lily_status vocab_json_tokens(struct text_view text, struct vocabulary *v, struct lily_err *err)
{
    struct scan s = scan_begin(text.data, text.n);
    struct buf scratch = {0};
    struct text_view spelling;
    lily_status st;
    int64_t id;
    bool more;
    LILY_TRY_GOTO(scan_open(&s, '{', err), out);
    while (true) {
        LILY_TRY_GOTO(scan_key(&s, &scratch, &spelling, &more, err), out);
        if (!more) break;
        LILY_TRY_GOTO(scan_integer(&s, &id, err), out);
        LILY_TRY_GOTO(vocabulary_add_base(v, id, spelling, err), out);
    }
    st = scan_end(&s, err);
out:
    buf_free(&scratch);
    return st;
}

/* ---- merges ---- */

/* "left right" with exactly one space. */
static lily_status add_spaced(struct vocabulary *v, struct text_view pair, struct lily_err *err)
{
    const char *space = memchr(pair.data, ' ', pair.n);
    if (!space)
        LILY_FAIL(err, LILY_ERR_FORMAT, "found the merge \"%.*s\", expected two parts with a space between",
                  text_shown(pair), pair.data);
    size_t n = (size_t)(space - pair.data);
    return vocabulary_add_merge(v, (struct text_view){pair.data, n}, (struct text_view){space + 1, pair.n - n - 1}, err);
}

/* ["left", "right"], already entered. */
static lily_status add_array(struct scan *s, struct buf scratch[2], struct vocabulary *v, struct lily_err *err)
{
    struct text_view parts[2];
    bool more;
    for (int i = 0; i < 2; i++) {
        LILY_TRY(scan_item(s, &more, err));
        if (!more) LILY_FAIL(err, LILY_ERR_FORMAT, "found a merge of %d parts, expected two", i);
        LILY_TRY(scan_string(s, &scratch[i], &parts[i], err));
    }
    LILY_TRY(scan_item(s, &more, err));
    if (more) LILY_FAIL(err, LILY_ERR_FORMAT, "found a merge of more than two parts");
    return vocabulary_add_merge(v, parts[0], parts[1], err);
}

static lily_status add_merges(struct text_view text, struct vocabulary *v, struct lily_err *err)
{
    struct scan s = scan_begin(text.data, text.n);
    struct buf scratch[2] = {{0}, {0}};
    struct text_view pair;
    lily_status st;
    bool more;
    LILY_TRY_GOTO(scan_open(&s, '[', err), out);
    while (true) {
        LILY_TRY_GOTO(scan_item(&s, &more, err), out);
        if (!more) break;
        if (scan_peek(&s) == '[') {
            LILY_TRY_GOTO(scan_open(&s, '[', err), out);
            LILY_TRY_GOTO(add_array(&s, scratch, v, err), out);
        } else {
            LILY_TRY_GOTO(scan_string(&s, &scratch[0], &pair, err), out);
            LILY_TRY_GOTO(add_spaced(v, pair, err), out);
        }
    }
    st = scan_end(&s, err);
out:
    buf_free(&scratch[0]);
    buf_free(&scratch[1]);
    return st;
}

lily_status merges_txt_merges(struct text_view text, struct vocabulary *v, struct lily_err *err)
{
    static const char version[] = "#version";
    const char *p = text.data, *end = text.data + text.n;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        struct text_view line = {p, (size_t)((newline ? newline : end) - p)};
        bool first = p == text.data;
        p = newline ? newline + 1 : end;
        if (line.n && line.data[line.n - 1] == '\r') line.n--;
        if (first && line.n >= sizeof version - 1 && memcmp(line.data, version, sizeof version - 1) == 0) continue;
        if (line.n) LILY_TRY(add_spaced(v, line, err));
    }
    return LILY_OK;
}

lily_status tokenizer_json_tokens(const struct tokenizer_json *json, struct vocabulary *v, struct lily_err *err)
{
    lily_status st = vocab_json_tokens(json->vocab, v, err);
    if (st != LILY_OK) {
        err_prefix(err, "model.vocab");
        return st;
    }
    st = add_merges(json->merges, v, err);
    if (st != LILY_OK) err_prefix(err, "model.merges");
    return st;
}

/* ---- added tokens ---- */

enum { ID, CONTENT, SPECIAL, LSTRIP, RSTRIP, SINGLE_WORD, NORMALIZED, N_ADDED_KEYS };

/* An added token's object; id is taken from the object unless `key` (then a decimal string) gives it. */
static lily_status add_added(struct text_view object, const struct text_view *key, struct vocabulary *v,
                             struct buf *scratch, struct lily_err *err)
{
    struct scan_want w[N_ADDED_KEYS] = {
        [ID] = {.key = "id"},         [CONTENT] = {.key = "content"},         [SPECIAL] = {.key = "special"},
        [LSTRIP] = {.key = "lstrip"}, [RSTRIP] = {.key = "rstrip"},           [SINGLE_WORD] = {.key = "single_word"},
        [NORMALIZED] = {.key = "normalized"},
    };
    struct text_view content;
    int64_t id;
    LILY_TRY(scan_members(object, w, N_ADDED_KEYS, err));
    struct text_view id_text = key ? *key : w[ID].value;
    struct scan s = scan_begin(id_text.data, id_text.n);
    LILY_TRY(scan_integer(&s, &id, err));
    LILY_TRY(scan_end(&s, err));
    s = scan_begin(w[CONTENT].value.data, w[CONTENT].value.n);
    LILY_TRY(scan_string(&s, scratch, &content, err));
    for (int i = LSTRIP; i < N_ADDED_KEYS; i++)
        if (w[i].value.n && !text_is(w[i].value, "false"))
            LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "token %lld has %s: found %.*s, expected false", (long long)id, w[i].key,
                      text_shown(w[i].value), w[i].value.data);
    bool special = text_is(w[SPECIAL].value, "true");
    if (!special && w[SPECIAL].value.n && !text_is(w[SPECIAL].value, "false"))
        LILY_FAIL(err, LILY_ERR_FORMAT, "token %lld has special: found %.*s, expected true or false", (long long)id,
                  text_shown(w[SPECIAL].value), w[SPECIAL].value.data);
    return vocabulary_add_added(v, id, content, special, err);
}

lily_status tokenizer_json_added(const struct tokenizer_json *json, struct vocabulary *v, struct lily_err *err)
{
    if (!json->added.n || text_is(json->added, "null")) return LILY_OK;
    struct scan s = scan_begin(json->added.data, json->added.n);
    struct buf scratch = {0};
    struct text_view object;
    lily_status st;
    bool more;
    LILY_TRY_GOTO(scan_open(&s, '[', err), out);
    while (true) {
        LILY_TRY_GOTO(scan_item(&s, &more, err), out);
        if (!more) break;
        LILY_TRY_GOTO(scan_value(&s, &object, err), out);
        LILY_TRY_GOTO(add_added(object, NULL, v, &scratch, err), out);
    }
out:
    buf_free(&scratch);
    if (st != LILY_OK) err_prefix(err, "added_tokens");
    return st;
}

static lily_status add_decoder(struct text_view decoder, struct vocabulary *v, struct lily_err *err)
{
    struct scan s = scan_begin(decoder.data, decoder.n);
    struct buf scratch = {0}, key_scratch = {0};
    struct text_view key, object;
    lily_status st;
    bool more;
    LILY_TRY_GOTO(scan_open(&s, '{', err), out);
    while (true) {
        LILY_TRY_GOTO(scan_key(&s, &key_scratch, &key, &more, err), out);
        if (!more) break;
        LILY_TRY_GOTO(scan_value(&s, &object, err), out);
        LILY_TRY_GOTO(add_added(object, &key, v, &scratch, err), out);
    }
out:
    buf_free(&scratch);
    buf_free(&key_scratch);
    return st;
}

lily_status tokenizer_config_added(struct text_view text, struct vocabulary *v, struct lily_err *err)
{
    struct scan_want w = {.key = "added_tokens_decoder"};
    LILY_TRY(scan_members(text, &w, 1, err));
    if (!w.value.n || text_is(w.value, "null")) return LILY_OK;
    lily_status st = add_decoder(w.value, v, err);
    if (st != LILY_OK) err_prefix(err, "added_tokens_decoder");
    return st;
}
