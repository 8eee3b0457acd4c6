/*
 * Strict JSON text to a tree in one allocation. Two passes: the first checks everything and adds up sizes, the second
 * fills; so hostile text costs at most a fixed multiple of its length, and nothing is built from text that is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "json/node.h"

struct parser {
    const char *text, *p, *end;
    const char *what;
    struct lily_err *err;
    int depth;
    /* Members of each container in the order of their opening brackets: written by the first pass, read by the second. */
    uint32_t *counts; /* owned */
    size_t n_counts, cap_counts;
    /* What the tree needs. */
    size_t n_nodes, table_bytes, text_bytes;
    /* Where the second pass writes. */
    struct json *next_node;
    char *next_table, *next_text;
};

static lily_status fail_at(struct parser *ps, const char *at, const char *problem)
{
    size_t line = 1, column = 1;
    for (const char *q = ps->text; q < at; q++) {
        if (*q == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*q & 0xc0) != 0x80) { /* columns count characters */
            column++;
        }
    }
    LILY_FAIL(ps->err, LILY_ERR_FORMAT, "%s: line %zu, column %zu: %s", ps->what, line, column, problem);
}

static lily_status fail_unexpected(struct parser *ps, const char *expected)
{
    char problem[160];
    unsigned char c = ps->p < ps->end ? (unsigned char)*ps->p : 0;
    if (ps->p == ps->end) snprintf(problem, sizeof problem, "the text ends where %s was expected", expected);
    else if (c > 0x20 && c < 0x7f) snprintf(problem, sizeof problem, "found '%c', expected %s", c, expected);
    else snprintf(problem, sizeof problem, "found the byte 0x%02x, expected %s", c, expected);
    return fail_at(ps, ps->p, problem);
}

static inline void skip_space(struct parser *ps)
{
    while (ps->p < ps->end && (*ps->p == ' ' || *ps->p == '\n' || *ps->p == '\r' || *ps->p == '\t')) ps->p++;
}

/* ---- first pass: strings ---- */

static bool hex4(const struct parser *ps, const char *s, uint32_t *out)
{
    if (ps->end - s < 4) return false;
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        if (c >= '0' && c <= '9') v = v << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f') v = v << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else return false;
    }
    *out = v;
    return true;
}

/* \uXXXX at p, pairs of surrogates joined; moves p behind it. */
static lily_status scan_unicode_escape(struct parser *ps, uint32_t *cp)
{
    const char *at = ps->p;
    uint32_t low;
    if (!hex4(ps, at + 2, cp)) return fail_at(ps, at, "\\u needs four hexadecimal digits");
    ps->p += 6;
    if (*cp < 0xd800 || *cp > 0xdfff) return LILY_OK;
    if (*cp > 0xdbff || ps->end - ps->p < 6 || ps->p[0] != '\\' || ps->p[1] != 'u' || !hex4(ps, ps->p + 2, &low) ||
        low < 0xdc00 || low > 0xdfff)
        return fail_at(ps, at, "a lone surrogate (\\ud800 to \\udfff come in pairs)");
    *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
    ps->p += 6;
    return LILY_OK;
}

static lily_status scan_escape(struct parser *ps, bool is_key, size_t *bytes)
{
    const char *at = ps->p;
    char c = ps->end - at > 1 ? at[1] : 0;
    if (c == 'u') {
        uint32_t cp = 0;
        LILY_TRY(scan_unicode_escape(ps, &cp));
        if (cp == 0 && is_key) return fail_at(ps, at, "a key contains the character U+0000");
        *bytes += cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        return LILY_OK;
    }
    if (!c || !strchr("\"\\/bfnrt", c)) return fail_at(ps, at, "an unknown escape (a backslash is written \\\\)");
    ps->p += 2;
    *bytes += 1;
    return LILY_OK;
}

/* Checks a string; *bytes gets its length without escapes. */
static lily_status scan_string(struct parser *ps, bool is_key, size_t *bytes)
{
    const char *start = ps->p++;
    size_t used;
    *bytes = 0;
    while (ps->p < ps->end && *ps->p != '"') {
        unsigned char c = (unsigned char)*ps->p;
        if (c == '\\') {
            LILY_TRY(scan_escape(ps, is_key, bytes));
            continue;
        }
        if (c < 0x20) return fail_at(ps, ps->p, "a control character inside a string (a newline is written \\n)");
        if (c < 0x80) {
            used = 1;
        } else if (utf8_decode(ps->p, (size_t)(ps->end - ps->p), &used) >= UTF8_PARTIAL) {
            return fail_at(ps, ps->p, "invalid UTF-8");
        }
        ps->p += used;
        *bytes += used;
    }
    if (ps->p == ps->end) return fail_at(ps, start, "a string that never ends");
    ps->p++;
    return LILY_OK;
}

/* ---- first pass: the rest ---- */

static lily_status check_value(struct parser *ps);

static lily_status open_container(struct parser *ps, size_t *index)
{
    if (ps->depth == JSON_MAX_DEPTH) return fail_at(ps, ps->p, "nested deeper than 512 levels");
    if (ps->n_counts == ps->cap_counts) {
        size_t cap = ps->cap_counts ? ps->cap_counts * 2 : 64;
        uint32_t *counts = mem_try_resize(ps->counts, cap, sizeof *counts);
        if (!counts) LILY_FAIL(ps->err, LILY_ERR_MEMORY, "%s: not enough memory to read the JSON", ps->what);
        ps->counts = counts;
        ps->cap_counts = cap;
    }
    ps->depth++;
    ps->p++;
    *index = ps->n_counts++;
    ps->counts[*index] = 0;
    skip_space(ps);
    return LILY_OK;
}

/* After a member: true when another one follows. Fails on anything but a comma or the closing bracket. */
static lily_status next_member(struct parser *ps, char close, bool *more)
{
    skip_space(ps);
    *more = ps->p < ps->end && *ps->p == ',';
    if (!*more && (ps->p == ps->end || *ps->p != close))
        return fail_unexpected(ps, close == ']' ? "',' or ']'" : "',' or '}'");
    ps->p++;
    skip_space(ps);
    return LILY_OK;
}

static lily_status check_array(struct parser *ps)
{
    size_t index;
    LILY_TRY(open_container(ps, &index));
    bool more = true;
    if (ps->p < ps->end && *ps->p == ']') {
        ps->p++;
        more = false;
    }
    while (more) {
        LILY_TRY(check_value(ps));
        ps->counts[index]++;
        LILY_TRY(next_member(ps, ']', &more));
    }
    ps->depth--;
    ps->table_bytes += ps->counts[index] * sizeof(struct json *);
    return LILY_OK;
}

static size_t table_size(uint32_t n)
{
    size_t size = sizeof(struct json_table) + n * sizeof(struct json_member);
    if (n > NODE_PLAIN_MEMBERS) size += node_index_slots(n) * sizeof(uint32_t);
    return n ? (size + 7) & ~(size_t)7 : 0;
}

static lily_status check_object(struct parser *ps)
{
    size_t index, bytes;
    LILY_TRY(open_container(ps, &index));
    bool more = true;
    if (ps->p < ps->end && *ps->p == '}') {
        ps->p++;
        more = false;
    }
    while (more) {
        if (ps->p == ps->end || *ps->p != '"') return fail_unexpected(ps, "a key in double quotes");
        LILY_TRY(scan_string(ps, true, &bytes));
        ps->text_bytes += bytes + 1;
        skip_space(ps);
        if (ps->p == ps->end || *ps->p != ':') return fail_unexpected(ps, "':'");
        ps->p++;
        skip_space(ps);
        LILY_TRY(check_value(ps));
        ps->counts[index]++;
        LILY_TRY(next_member(ps, '}', &more));
    }
    ps->depth--;
    ps->table_bytes += table_size(ps->counts[index]);
    return LILY_OK;
}

static lily_status check_number(struct parser *ps)
{
    bool integer;
    int64_t small;
    size_t n = node_scan_number(ps->p, (size_t)(ps->end - ps->p), &integer);
    if (n == 0) return fail_at(ps, ps->p, "a malformed number");
    if (integer ? !node_fits_int64(ps->p, n, &small) : !isfinite(node_number(ps->p, n))) ps->text_bytes += n + 1;
    ps->p += n;
    return LILY_OK;
}

static size_t literal_length(const struct parser *ps)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(ps->end - ps->p) >= n && memcmp(ps->p, words[i], n) == 0) return n;
    }
    return 0;
}

static lily_status check_value(struct parser *ps)
{
    size_t bytes, n;
    if (ps->p == ps->end) return fail_unexpected(ps, "a value");
    ps->n_nodes++;
    switch (*ps->p) {
    case '[':
        return check_array(ps);
    case '{':
        return check_object(ps);
    case '"':
        LILY_TRY(scan_string(ps, false, &bytes));
        ps->text_bytes += bytes + 1;
        return LILY_OK;
    default:
        if (*ps->p == '-' || (*ps->p >= '0' && *ps->p <= '9')) return check_number(ps);
        n = literal_length(ps);
        if (n == 0) return fail_unexpected(ps, "a value");
        ps->p += n;
        return LILY_OK;
    }
}

/* ---- second pass: the text is known to be right ---- */

static uint32_t fill_escape(struct parser *ps)
{
    char c = ps->p[1];
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    uint32_t cp = 0;
    if (c == 'u') {
        (void)scan_unicode_escape(ps, &cp);
        return cp;
    }
    ps->p += 2;
    const char *at = strchr(from, c);
    return (unsigned char)(at ? to[at - from] : c);
}

static char *put_utf8(char *q, uint32_t cp)
{
    if (cp < 0x80) {
        *q++ = (char)cp;
        return q;
    }
    int extra = cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
    *q++ = (char)((0xff00u >> (extra + 1) & 0xff) | cp >> (6 * extra));
    while (extra-- > 0) *q++ = (char)(0x80 | (cp >> (6 * extra) & 0x3f));
    return q;
}

static const char *fill_string(struct parser *ps, uint32_t *len)
{
    char *start = ps->next_text, *q = start;
    ps->p++;
    for (;;) {
        const char *run = ps->p;
        while (*ps->p != '"' && *ps->p != '\\') ps->p++;
        memcpy(q, run, (size_t)(ps->p - run));
        q += ps->p - run;
        if (*ps->p == '"') break;
        q = put_utf8(q, fill_escape(ps));
    }
    ps->p++;
    *len = (uint32_t)(q - start);
    *q++ = 0;
    ps->next_text = q;
    return start;
}

static void fill_value(struct parser *ps, struct json *v);

static struct json *take_node(struct parser *ps)
{
    struct json *v = ps->next_node++;
    v->flags = NODE_IN_BLOCK;
    return v;
}

static void fill_array(struct parser *ps, struct json *v)
{
    uint32_t n = ps->counts[ps->n_counts++];
    v->kind = JSON_ARRAY;
    v->n = n;
    v->u.items = (struct json **)ps->next_table;
    ps->next_table += n * sizeof(struct json *);
    ps->p++;
    skip_space(ps);
    for (uint32_t i = 0; i < n; i++) {
        v->u.items[i] = take_node(ps);
        fill_value(ps, v->u.items[i]);
        skip_space(ps);
        if (*ps->p == ',') ps->p++;
        skip_space(ps);
    }
    ps->p++;
}

static void fill_object(struct parser *ps, struct json *v)
{
    uint32_t n = ps->counts[ps->n_counts++];
    v->kind = JSON_OBJECT;
    if (n > 0) {
        struct json_table *t = (struct json_table *)ps->next_table;
        ps->next_table += table_size(n);
        t->cap = n;
        if (n > NODE_PLAIN_MEMBERS) {
            t->mask = node_index_slots(n) - 1;
            t->index = (uint32_t *)&t->m[n];
        }
        v->u.table = t;
    }
    ps->p++;
    skip_space(ps);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len;
        const char *key = fill_string(ps, &len);
        skip_space(ps);
        ps->p++;
        skip_space(ps);
        struct json *value = take_node(ps);
        fill_value(ps, value);
        uint32_t hash = node_hash(key, len);
        struct json_member *m = node_find(v, key, len, hash);
        if (m) {
            m->value = value; /* the last one wins at the place of the first, as in Python */
            v->flags |= NODE_REPEATED;
        } else {
            node_append(v, (struct json_member){key, value, len, hash & 0x7fffffffu, false});
        }
        skip_space(ps);
        if (*ps->p == ',') ps->p++;
        skip_space(ps);
    }
    ps->p++;
}

static void fill_number(struct parser *ps, struct json *v)
{
    bool integer;
    size_t n = node_scan_number(ps->p, (size_t)(ps->end - ps->p), &integer);
    v->kind = JSON_REAL;
    const char *text = ps->p;
    ps->p += n;
    if (integer && node_fits_int64(text, n, &v->u.i)) {
        v->kind = JSON_INTEGER;
        return;
    }
    if (!integer) v->u.d = node_number(text, n);
    if (!integer && isfinite(v->u.d)) return;
    v->flags |= NODE_BIG;
    v->n = (uint32_t)n;
    v->u.s = ps->next_text;
    memcpy(ps->next_text, text, n);
    ps->next_text += n;
    *ps->next_text++ = 0;
}

static void fill_value(struct parser *ps, struct json *v)
{
    switch (*ps->p) {
    case '[':
        fill_array(ps, v);
        return;
    case '{':
        fill_object(ps, v);
        return;
    case '"':
        v->kind = JSON_STRING;
        v->u.s = fill_string(ps, &v->n);
        return;
    case 't':
    case 'f':
        v->kind = JSON_BOOL;
        v->u.b = *ps->p == 't';
        ps->p += v->u.b ? 4 : 5;
        return;
    case 'n':
        v->kind = JSON_NULL;
        ps->p += 4;
        return;
    default:
        fill_number(ps, v);
    }
}

/* ---- entry points ---- */

static lily_status check_text(struct parser *ps)
{
    if (ps->end - ps->text >= 3 && memcmp(ps->text, "\xef\xbb\xbf", 3) == 0)
        return fail_at(ps, ps->text, "a byte order mark before the JSON (save it as UTF-8 without one)");
    skip_space(ps);
    if (ps->p == ps->end) LILY_FAIL(ps->err, LILY_ERR_FORMAT, "%s: empty, expected JSON", ps->what);
    LILY_TRY(check_value(ps));
    skip_space(ps);
    if (ps->p < ps->end) return fail_unexpected(ps, "the end of the text");
    return LILY_OK;
}

static lily_status build(struct parser *ps, struct json **out)
{
    size_t nodes = ps->n_nodes * sizeof(struct json);
    char *block = mem_try(1, nodes + ps->table_bytes + ps->text_bytes);
    if (!block) {
        LILY_FAIL(ps->err, LILY_ERR_MEMORY, "%s: not enough memory for the JSON (%zu bytes of text)", ps->what,
                  (size_t)(ps->end - ps->text));
    }
    ps->next_node = (struct json *)block;
    ps->next_table = block + nodes;
    ps->next_text = block + nodes + ps->table_bytes;
    ps->p = ps->text;
    ps->n_counts = 0;
    skip_space(ps);
    struct json *root = take_node(ps);
    fill_value(ps, root);
    root->flags &= (uint8_t)~NODE_IN_BLOCK;
    *out = root;
    return LILY_OK;
}

/* *cut: the text is wrong in that it ends. */
static lily_status parse(const char *text, size_t n, const char *what, bool *cut, struct json **out, struct lily_err *err)
{
    *out = NULL;
    if (n > INT32_MAX) LILY_FAIL(err, LILY_ERR_LIMIT, "%s: %zu bytes of JSON, expected at most 2 GiB", what, n);
    struct parser ps = {.text = text, .p = text, .end = text + n, .what = what, .err = err};
    lily_status st = check_text(&ps);
    *cut = st == LILY_ERR_FORMAT && ps.p == ps.end;
    if (st == LILY_OK) st = build(&ps, out);
    free(ps.counts);
    return st;
}

lily_status json_parse(const char *text, size_t n, const char *what, struct json **out, struct lily_err *err)
{
    bool cut;
    return parse(text, n, what, &cut, out, err);
}

lily_status json_parse_read(const char *text, size_t n, const char *path, struct json **out, struct lily_err *err)
{
    bool cut = false;
    lily_status st = parse(text, n, path, &cut, out, err);
    if (cut) file_hint_cut(err, n);
    return st;
}

lily_status json_parse_file(const char *path, size_t max_bytes, struct json **out, struct lily_err *err)
{
    struct buf text = {0};
    *out = NULL;
    lily_status st = file_read(path, max_bytes, &text, err);
    if (st == LILY_OK) st = json_parse_read(buf_str(&text), text.len, path, out, err);
    buf_free(&text);
    return st;
}
