/* tokenizer.json's settings: refuses every pipeline but the family's. */
#include <string.h>

#include "text/source.h"
#include "text/split.h"

enum { N_ALLOWED = 3, MAX_RULES = 6 };

/* The values (as JSON text, compact) that a member may have; "" stands for none. */
struct rule {
    const char *key;
    const char *allowed[N_ALLOWED];
};

static lily_status refuse(const char *where, const char *key, struct text_view found, const char *expected,
                          struct lily_err *err)
{
    if (!found.n) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s%s: found nothing, expected %s", where, key, expected);
    LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s%s: found %.*s, expected %s", where, key,
              text_shown(found), found.data, expected);
}

static bool allowed(const struct rule *rule, struct text_view found)
{
    for (int i = 0; i < N_ALLOWED && rule->allowed[i]; i++)
        if (text_is(found, rule->allowed[i])) return true;
    return false;
}

static lily_status check_rules(const char *where, struct text_view object, const struct rule *rules, int n,
                               struct lily_err *err)
{
    struct scan_want wants[MAX_RULES];
    for (int i = 0; i < n; i++) wants[i].key = rules[i].key;
    if (!object.n || object.data[0] != '{') return refuse(where, "", object, "an object", err);
    LILY_TRY(scan_members(object, wants, n, err));
    for (int i = 0; i < n; i++)
        if (!allowed(&rules[i], wants[i].value)) {
            const char *first = rules[i].allowed[0], *second = rules[i].allowed[1];
            return refuse(where, rules[i].key, wants[i].value, *first || !second ? first : second, err);
        }
    return LILY_OK;
}

static lily_status check_model(struct text_view model, struct tokenizer_json *out, struct lily_err *err)
{
    static const struct rule rules[] = {
        {"type", {"\"BPE\""}},
        {"dropout", {"null", "", "0.0"}},
        {"continuing_subword_prefix", {"\"\"", "", "null"}},
        {"end_of_word_suffix", {"\"\"", "", "null"}},
        {"byte_fallback", {"false", ""}},
        {"ignore_merges", {"false", ""}},
    };
    enum { N_RULES = sizeof rules / sizeof *rules };
    struct scan_want wants[N_RULES + 2] = {[N_RULES] = {.key = "vocab"}, [N_RULES + 1] = {.key = "merges"}};
    for (int i = 0; i < N_RULES; i++) wants[i].key = rules[i].key;
    if (!model.n || model.data[0] != '{') return refuse("model", "", model, "an object", err);
    LILY_TRY(scan_members(model, wants, N_RULES + 2, err));
    for (int i = 0; i < N_RULES; i++)
        if (!allowed(&rules[i], wants[i].value))
            return refuse("model.", rules[i].key, wants[i].value, rules[i].allowed[0], err);
    out->vocab = wants[N_RULES].value;
    out->merges = wants[N_RULES + 1].value;
    if (!out->vocab.n) return refuse("model.", "vocab", out->vocab, "an object", err);
    if (!out->merges.n) return refuse("model.", "merges", out->merges, "an array", err);
    return LILY_OK;
}

static lily_status check_normalizer(struct text_view v, bool *nfc, struct lily_err *err)
{
    static const struct rule rules[] = {{"type", {"\"NFC\""}}};
    *nfc = v.n && !text_is(v, "null");
    return *nfc ? check_rules("normalizer.", v, rules, 1, err) : LILY_OK;
}

/* {"Regex": pattern}: the pattern may be spelled with escapes, so its text is compared. */
static lily_status check_pattern(struct text_view object, struct lily_err *err)
{
    struct scan_want w = {.key = "Regex"};
    struct buf scratch = {0};
    struct text_view pattern = {0};
    if (!object.n || object.data[0] != '{') return refuse("pre_tokenizer", ".pattern", object, "an object", err);
    LILY_TRY(scan_members(object, &w, 1, err));
    struct scan s = scan_begin(w.value.data, w.value.n);
    lily_status st = scan_string(&s, &scratch, &pattern, err);
    if (st == LILY_OK && !text_is(pattern, SPLIT_PATTERN))
        st = refuse("pre_tokenizer", ".pattern.Regex", w.value, "the split pattern of Qwen3.5 and Qwen3.6", err);
    buf_free(&scratch);
    return st;
}

static lily_status check_steps(struct text_view array, struct lily_err *err)
{
    static const struct rule split[] = {{"type", {"\"Split\""}}, {"behavior", {"\"Isolated\""}}, {"invert", {"false", ""}}};
    static const struct rule bytes[] = {
        {"type", {"\"ByteLevel\""}}, {"add_prefix_space", {"false"}}, {"use_regex", {"false"}}};
    struct text_view steps[2] = {{0}, {0}};
    struct scan_want pattern = {.key = "pattern"};
    struct scan s = scan_begin(array.data, array.n);
    bool more;
    LILY_TRY(scan_open(&s, '[', err));
    for (int i = 0;; i++) {
        LILY_TRY(scan_item(&s, &more, err));
        if (more != (i < 2)) return refuse("pre_tokenizer", ".pretokenizers", array, "Split, then ByteLevel", err);
        if (!more) break;
        LILY_TRY(scan_value(&s, &steps[i], err));
    }
    LILY_TRY(check_rules("pre_tokenizer.pretokenizers[0].", steps[0], split, 3, err));
    LILY_TRY(check_rules("pre_tokenizer.pretokenizers[1].", steps[1], bytes, 3, err));
    LILY_TRY(scan_members(steps[0], &pattern, 1, err));
    return check_pattern(pattern.value, err);
}

static lily_status check_pre_tokenizer(struct text_view v, struct lily_err *err)
{
    static const struct rule rules[] = {{"type", {"\"Sequence\""}}};
    struct scan_want steps = {.key = "pretokenizers"};
    LILY_TRY(check_rules("pre_tokenizer.", v, rules, 1, err));
    LILY_TRY(scan_members(v, &steps, 1, err));
    if (!steps.value.n) return refuse("pre_tokenizer", ".pretokenizers", steps.value, "an array", err);
    return check_steps(steps.value, err);
}

/* Anything that would put tokens around the text is refused; ByteLevel here only moves offsets. */
static lily_status check_post_processor(struct text_view v, struct lily_err *err)
{
    static const struct rule rules[] = {{"type", {"\"ByteLevel\"", "\"TemplateProcessing\""}},
                                        {"special_tokens", {"", "{}"}}};
    if (!v.n || text_is(v, "null")) return LILY_OK;
    return check_rules("post_processor.", v, rules, 2, err);
}

enum { ADDED, NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, MODEL, N_SECTIONS };

lily_status tokenizer_json_read(struct text_view text, struct tokenizer_json *out, struct lily_err *err)
{
    static const struct rule decoder[] = {{"type", {"\"ByteLevel\""}}};
    struct scan_want w[N_SECTIONS] = {
        [ADDED] = {.key = "added_tokens"},           [NORMALIZER] = {.key = "normalizer"},
        [PRE_TOKENIZER] = {.key = "pre_tokenizer"},  [POST_PROCESSOR] = {.key = "post_processor"},
        [DECODER] = {.key = "decoder"},              [MODEL] = {.key = "model"},
    };
    memset(out, 0, sizeof *out);
    LILY_TRY(scan_members(text, w, N_SECTIONS, err));
    out->added = w[ADDED].value;
    LILY_TRY(check_model(w[MODEL].value, out, err));
    LILY_TRY(check_normalizer(w[NORMALIZER].value, &out->nfc, err));
    LILY_TRY(check_pre_tokenizer(w[PRE_TOKENIZER].value, err));
    LILY_TRY(check_post_processor(w[POST_PROCESSOR].value, err));
    return check_rules("decoder.", w[DECODER].value, decoder, 1, err);
}
