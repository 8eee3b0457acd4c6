/* Recognising the tags of a model's text. */
#include "chat/tags.h"

#include <string.h>

static const struct {
    const char *text;
    enum tag tag;
} fixed_tags[] = {
    {"<think>", TAG_THINK},
    {"</think>", TAG_THINK_CLOSE},
    {"<tool_call>", TAG_CALL},
    {"</tool_call>", TAG_CALL_CLOSE},
    {"<function_invocation>", TAG_CALL_ALIAS},
    {"</function_invocation>", TAG_CALL_ALIAS_CLOSE},
    {"<tool_response>", TAG_RESPONSE},
    {"</tool_response>", TAG_RESPONSE_CLOSE},
    {"</function>", TAG_FUNCTION_CLOSE},
    {"</parameter>", TAG_PARAMETER_CLOSE},
};

static const struct {
    const char *text;
    enum tag tag;
} named_tags[] = {
    {"<function=", TAG_FUNCTION},
    {"<parameter=", TAG_PARAMETER},
};

bool tag_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void trim_name(struct tag_found *f)
{
    while (f->n_name && tag_is_space(f->name[0])) f->name++, f->n_name--;
    while (f->n_name && tag_is_space(f->name[f->n_name - 1])) f->n_name--;
    char quote = f->n_name >= 2 ? f->name[0] : 0;
    if ((quote == '"' || quote == '\'') && f->name[f->n_name - 1] == quote) f->name++, f->n_name -= 2;
}

/* NAME> behind the n_prefix bytes at s. */
static void read_name(const char *s, size_t n, size_t n_prefix, enum tag tag, struct tag_found *f)
{
    for (size_t i = n_prefix; i <= n_prefix + TAG_MAX_NAME; i++) {
        if (i == n) {
            f->tag = TAG_PARTIAL;
            return;
        }
        if ((unsigned char)s[i] < 0x20 || s[i] == '<') return; /* no name: other text */
        if (s[i] != '>') continue;
        f->name = s + n_prefix;
        f->n_name = i - n_prefix;
        trim_name(f);
        if (f->n_name == 0) return;
        f->tag = tag;
        f->len = i + 1;
        return;
    }
}

struct tag_found tag_at(struct tag_text text, size_t at)
{
    struct tag_found f = {.at = at};
    const char *s = text.s + at;
    size_t n = text.n - at;
    for (size_t i = 0; i < sizeof fixed_tags / sizeof fixed_tags[0]; i++) {
        size_t len = strlen(fixed_tags[i].text), common = n < len ? n : len;
        if (memcmp(s, fixed_tags[i].text, common) != 0) continue;
        f.tag = common == len ? fixed_tags[i].tag : TAG_PARTIAL;
        f.len = common;
        return f;
    }
    for (size_t i = 0; i < sizeof named_tags / sizeof named_tags[0]; i++) {
        size_t len = strlen(named_tags[i].text), common = n < len ? n : len;
        if (memcmp(s, named_tags[i].text, common) != 0) continue;
        f.len = n;
        if (common < len) f.tag = TAG_PARTIAL;
        else read_name(s, n, len, named_tags[i].tag, &f);
        return f;
    }
    return f;
}

struct tag_found tag_after(struct tag_text text, size_t at)
{
    size_t limit = at + TAG_MAX_SPACE;
    while (at < text.n && at < limit && tag_is_space(text.s[at])) at++;
    struct tag_found f = {.tag = TAG_PARTIAL, .at = at};
    if (at < text.n) f = tag_at(text, at);
    if (f.tag == TAG_PARTIAL && text.final) f.tag = TAG_END;
    return f;
}
