/* The pull reader of JSON. */
#include "text/scan.h"

#include <string.h>

#include "base/file.h"
#include "base/utf8.h"

enum { MAX_DEPTH = 64 };

struct scan scan_begin(const char *text, size_t n)
{
    return (struct scan){.text = n ? text : "", .n = n};
}

static lily_status unexpected(const struct scan *s, const char *expected, struct lily_err *err)
{
    size_t line = 1;
    for (const char *p = s->text; (p = memchr(p, '\n', (size_t)(s->text + s->at - p))); p++) line++;
    if (s->at >= s->n) {
        err_set(err, LILY_ERR_FORMAT, "line %zu: the text ends where %s is expected", line, expected);
        file_hint_cut(err, s->n);
        return LILY_ERR_FORMAT;
    }
    unsigned char c = (unsigned char)s->text[s->at];
    if (c < 0x21 || c > 0x7E)
        LILY_FAIL(err, LILY_ERR_FORMAT, "line %zu (byte %zu): found byte 0x%02x, expected %s", line, s->at, c, expected);
    LILY_FAIL(err, LILY_ERR_FORMAT, "line %zu (byte %zu): found '%c', expected %s", line, s->at, c, expected);
}

char scan_peek(struct scan *s)
{
    while (s->at < s->n) {
        char c = s->text[s->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
        s->at++;
    }
    return 0;
}

static bool take(struct scan *s, char c)
{
    if (scan_peek(s) != c || s->at == s->n) return false;
    s->at++;
    return true;
}

lily_status scan_open(struct scan *s, char bracket, struct lily_err *err)
{
    if (!take(s, bracket)) return unexpected(s, bracket == '{' ? "an object" : "an array", err);
    if (++s->depth > MAX_DEPTH) LILY_FAIL(err, LILY_ERR_FORMAT, "nested deeper than %d", MAX_DEPTH);
    s->first = true;
    return LILY_OK;
}

/* After a value: a comma and another one, or the closing bracket. */
static lily_status next_or_close(struct scan *s, char close, bool *more, struct lily_err *err)
{
    *more = false;
    if (take(s, close)) {
        s->depth--;
        s->first = false;
        return LILY_OK;
    }
    if (!s->first && !take(s, ',')) return unexpected(s, close == '}' ? "',' or '}'" : "',' or ']'", err);
    s->first = false;
    *more = true;
    return LILY_OK;
}

lily_status scan_key(struct scan *s, struct buf *scratch, struct text_view *key, bool *more, struct lily_err *err)
{
    LILY_TRY(next_or_close(s, '}', more, err));
    if (!*more) return LILY_OK;
    if (scan_peek(s) != '"') return unexpected(s, "a key", err);
    LILY_TRY(scan_string(s, scratch, key, err));
    return take(s, ':') ? LILY_OK : unexpected(s, "':'", err);
}

lily_status scan_item(struct scan *s, bool *more, struct lily_err *err)
{
    return next_or_close(s, ']', more, err);
}

static lily_status hex4(struct scan *s, uint32_t *out, struct lily_err *err)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        char c = s->at < s->n ? s->text[s->at] : 0;
        uint32_t d;
        if (c >= '0' && c <= '9')
            d = (uint32_t)(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            d = (uint32_t)((c | 0x20) - 'a' + 10);
        else
            return unexpected(s, "a hexadecimal digit", err);
        *out = *out << 4 | d;
    }
    return LILY_OK;
}

static lily_status unicode_escape(struct scan *s, struct buf *scratch, struct lily_err *err)
{
    uint32_t c, low;
    LILY_TRY(hex4(s, &c, err));
    if (c >= 0xD800 && c < 0xE000) {
        if (c >= 0xDC00 || s->n - s->at < 2 || memcmp(s->text + s->at, "\\u", 2) != 0)
            return unexpected(s, "a surrogate pair", err);
        s->at += 2;
        LILY_TRY(hex4(s, &low, err));
        if (low < 0xDC00 || low >= 0xE000) return unexpected(s, "the low half of a surrogate pair", err);
        c = 0x10000 + ((c & 0x3FF) << 10 | (low & 0x3FF));
    }
    utf8_add(scratch, c);
    return LILY_OK;
}

static lily_status escape(struct scan *s, struct buf *scratch, struct lily_err *err)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = ++s->at < s->n ? s->text[s->at] : 0;
    const char *name = c ? strchr(names, c) : NULL;
    if (!name && c != 'u') return unexpected(s, "an escape", err);
    s->at++;
    if (c == 'u') return unicode_escape(s, scratch, err);
    buf_addc(scratch, values[name - names]);
    return LILY_OK;
}

/* Passes over the plain characters of a string. */
static lily_status plain(struct scan *s, struct lily_err *err)
{
    while (s->at < s->n) {
        uint8_t c = (uint8_t)s->text[s->at];
        size_t used = 1;
        if (c == '"' || c == '\\') return LILY_OK;
        if (c < 0x20) return unexpected(s, "an escaped control character", err);
        if (c >= 0x80 && utf8_decode(s->text + s->at, s->n - s->at, &used) >= UTF8_PARTIAL)
            return unexpected(s, "well-formed UTF-8", err);
        s->at += used;
    }
    return unexpected(s, "'\"'", err);
}

lily_status scan_string(struct scan *s, struct buf *scratch, struct text_view *out, struct lily_err *err)
{
    if (!take(s, '"')) return unexpected(s, "a string", err);
    size_t start = s->at;
    LILY_TRY(plain(s, err));
    if (s->text[s->at] == '"') {
        *out = (struct text_view){s->text + start, s->at++ - start};
        return LILY_OK;
    }
    buf_clear(scratch);
    while (true) {
        buf_add(scratch, s->text + start, s->at - start);
        if (s->text[s->at] == '"') break;
        LILY_TRY(escape(s, scratch, err));
        start = s->at;
        LILY_TRY(plain(s, err));
    }
    s->at++;
    *out = (struct text_view){buf_str(scratch), scratch->len};
    return LILY_OK;
}

static size_t digits(struct scan *s)
{
    size_t from = s->at;
    while (s->at < s->n && s->text[s->at] >= '0' && s->text[s->at] <= '9') s->at++;
    return s->at - from;
}

static bool take_byte(struct scan *s, const char *any)
{
    if (s->at == s->n || !s->text[s->at] || !strchr(any, s->text[s->at])) return false;
    s->at++;
    return true;
}

static lily_status number(struct scan *s, struct lily_err *err)
{
    take_byte(s, "-");
    if (!take_byte(s, "0") && !digits(s)) return unexpected(s, "a value", err);
    if (take_byte(s, ".") && !digits(s)) return unexpected(s, "a digit", err);
    if (take_byte(s, "eE")) {
        take_byte(s, "+-");
        if (!digits(s)) return unexpected(s, "a digit", err);
    }
    return LILY_OK;
}

lily_status scan_integer(struct scan *s, int64_t *out, struct lily_err *err)
{
    char c = scan_peek(s);
    size_t from = s->at;
    int64_t v = 0;
    if (c != '-' && (c < '0' || c > '9')) return unexpected(s, "an integer", err);
    LILY_TRY(number(s, err));
    if (s->at - from > 18) LILY_FAIL(err, LILY_ERR_FORMAT, "a number of %zu digits, expected an id", s->at - from);
    for (size_t i = from + (c == '-'); i < s->at; i++) {
        if (s->text[i] < '0' || s->text[i] > '9') {
            s->at = i;
            return unexpected(s, "an integer", err);
        }
        v = v * 10 + (s->text[i] - '0');
    }
    *out = c == '-' ? -v : v;
    return LILY_OK;
}

static lily_status literal(struct scan *s, struct lily_err *err)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (s->n - s->at >= n && memcmp(s->text + s->at, words[i], n) == 0) {
            s->at += n;
            return LILY_OK;
        }
    }
    return number(s, err);
}

static lily_status skip(struct scan *s, struct buf *scratch, struct lily_err *err)
{
    struct text_view ignored;
    bool more;
    switch (scan_peek(s)) {
    case '{':
        LILY_TRY(scan_open(s, '{', err));
        while (true) {
            LILY_TRY(scan_key(s, scratch, &ignored, &more, err));
            if (!more) return LILY_OK;
            LILY_TRY(skip(s, scratch, err));
        }
    case '[':
        LILY_TRY(scan_open(s, '[', err));
        while (true) {
            LILY_TRY(scan_item(s, &more, err));
            if (!more) return LILY_OK;
            LILY_TRY(skip(s, scratch, err));
        }
    case '"':
        return scan_string(s, scratch, &ignored, err);
    default:
        return literal(s, err);
    }
}

lily_status scan_value(struct scan *s, struct text_view *out, struct lily_err *err)
{
    struct buf scratch = {0};
    scan_peek(s);
    size_t from = s->at;
    lily_status st = skip(s, &scratch, err);
    buf_free(&scratch);
    *out = (struct text_view){s->text + from, s->at - from};
    return st;
}

lily_status scan_end(struct scan *s, struct lily_err *err)
{
    scan_peek(s);
    return s->at == s->n ? LILY_OK : unexpected(s, "the end of the text", err);
}

bool text_is(struct text_view v, const char *s)
{
    size_t n = strlen(s);
    return v.n == n && (n == 0 || memcmp(v.data, s, n) == 0);
}

int text_shown(struct text_view v)
{
    enum { MAX_SHOWN = 60 };
    size_t i = 0, used;
    while (i < v.n && i < MAX_SHOWN && (uint8_t)v.data[i] >= 0x20 && v.data[i] != 0x7F) {
        if (utf8_decode(v.data + i, v.n - i, &used) >= UTF8_PARTIAL) break;
        i += used;
    }
    return (int)i;
}

static lily_status note_member(struct scan_want *wants, int n_wants, struct text_view key, struct text_view **value,
                               struct lily_err *err)
{
    *value = NULL;
    for (int i = 0; i < n_wants; i++) {
        if (!text_is(key, wants[i].key)) continue;
        if (wants[i].value.n) LILY_FAIL(err, LILY_ERR_FORMAT, "the key \"%s\" comes twice", wants[i].key);
        *value = &wants[i].value;
    }
    return LILY_OK;
}

lily_status scan_members(struct text_view object, struct scan_want *wants, int n_wants, struct lily_err *err)
{
    struct scan s = scan_begin(object.data, object.n);
    struct buf scratch = {0};
    struct text_view key, ignored, *value;
    lily_status st;
    bool more;
    for (int i = 0; i < n_wants; i++) wants[i].value = (struct text_view){NULL, 0};
    LILY_TRY_GOTO(scan_open(&s, '{', err), out);
    while (true) {
        LILY_TRY_GOTO(scan_key(&s, &scratch, &key, &more, err), out);
        if (!more) break;
        LILY_TRY_GOTO(note_member(wants, n_wants, key, &value, err), out);
        LILY_TRY_GOTO(scan_value(&s, value ? value : &ignored, err), out);
    }
    st = scan_end(&s, err);
out:
    buf_free(&scratch);
    return st;
}
