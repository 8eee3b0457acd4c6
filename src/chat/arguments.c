/* Values of tool calls to JSON by schema. */
#include "chat/arguments.h"

#include <string.h>
#include <strings.h>

#include "chat/tags.h"

static bool is_text(const struct json *v, const char *text)
{
    return v && json_kind(v) == JSON_STRING && strcmp(json_string(v), text) == 0;
}

const struct json *tool_properties(const struct json *tools, const char *name, bool *known)
{
    *known = false;
    for (size_t i = 0; tools && json_kind(tools) == JSON_ARRAY && i < json_size(tools); i++) {
        const struct json *tool = json_at(tools, i), *function = json_get(tool, "function");
        if (!function) function = tool;
        if (!is_text(json_get(function, "name"), name)) continue;
        *known = true;
        const struct json *properties = json_get(json_get(function, "parameters"), "properties");
        return properties && json_kind(properties) == JSON_OBJECT ? properties : NULL;
    }
    return NULL;
}

/* ---- types ---- */

static void add_kind(struct argument_types *t, enum json_kind kind)
{
    for (int i = 0; i < t->n; i++)
        if (t->kinds[i] == kind) return;
    t->kinds[t->n++] = kind; /* there are seven kinds */
}

static void add_named(struct argument_types *t, const struct json *name)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } names[] = {{"string", JSON_STRING}, {"integer", JSON_INTEGER}, {"number", JSON_REAL}, {"boolean", JSON_BOOL},
                 {"object", JSON_OBJECT}, {"array", JSON_ARRAY},     {"null", JSON_NULL}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is_text(name, names[i].name)) add_kind(t, names[i].kind);
}

/* depth bounds how far alternatives inside alternatives are followed. */
static void add_schema(struct argument_types *t, const struct json *schema, int depth)
{
    static const char *const alternatives[] = {"anyOf", "oneOf", "allOf"};
    const struct json *type = json_get(schema, "type"), *values = json_get(schema, "enum");
    if (type && json_kind(type) == JSON_ARRAY) {
        for (size_t i = 0; i < json_size(type); i++) add_named(t, json_at(type, i));
        return;
    }
    if (type) {
        add_named(t, type);
        return;
    }
    for (size_t k = 0; k < sizeof alternatives / sizeof alternatives[0]; k++) {
        const struct json *list = json_get(schema, alternatives[k]);
        for (size_t i = 0; depth < 4 && list && json_kind(list) == JSON_ARRAY && i < json_size(list); i++)
            add_schema(t, json_at(list, i), depth + 1);
    }
    for (size_t i = 0; values && json_kind(values) == JSON_ARRAY && i < json_size(values); i++)
        add_kind(t, json_kind(json_at(values, i)));
    if (json_get(schema, "const")) add_kind(t, json_kind(json_get(schema, "const")));
    if (t->n == 0 && json_get(schema, "properties")) add_kind(t, JSON_OBJECT);
    if (t->n == 0 && json_get(schema, "items")) add_kind(t, JSON_ARRAY);
}

struct argument_types argument_types(const struct json *properties, const char *key)
{
    struct argument_types t = {.n = 0};
    add_schema(&t, json_get(properties, key), 0);
    return t;
}

bool argument_is_text(const struct argument_types *types)
{
    return types->n == 0 || (types->n == 1 && types->kinds[0] == JSON_STRING);
}

/* ---- conversion ---- */

static bool equals(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && strncasecmp(s, word, n) == 0;
}

static bool is_json_of(const char *s, size_t n, enum json_kind kind)
{
    struct json *v;
    struct buf wrapped = {0}; /* one level deeper, as it will stand in the arguments */
    buf_addc(&wrapped, '[');
    buf_add(&wrapped, s, n);
    buf_addc(&wrapped, ']');
    bool good = json_parse(buf_str(&wrapped), wrapped.len, "", &v, NULL) == LILY_OK;
    buf_free(&wrapped);
    if (!good) return false;
    good = json_size(v) == 1 && json_kind(json_at(v, 0)) == kind;
    json_free(v);
    return good;
}

static bool is_integer(const char *s, size_t n)
{
    return json_number_valid(s, n) && !memchr(s, '.', n) && !memchr(s, 'e', n) && !memchr(s, 'E', n);
}

/* Appends s as that kind; false, and nothing appended, when it is none. */
static bool convert_to(enum json_kind kind, const char *s, size_t n, struct buf *out)
{
    switch (kind) {
    case JSON_NULL:
        if (!equals(s, n, "null") && !equals(s, n, "none")) return false;
        buf_addz(out, "null");
        return true;
    case JSON_BOOL:
        if (!equals(s, n, "true") && !equals(s, n, "false")) return false;
        buf_addz(out, n == 4 ? "true" : "false");
        return true;
    case JSON_INTEGER:
    case JSON_REAL:
        if (kind == JSON_INTEGER ? !is_integer(s, n) : !json_number_valid(s, n)) return false;
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        if (!is_json_of(s, n, kind)) return false;
        break;
    case JSON_STRING:
        return false;
    }
    buf_add(out, s, n);
    return true;
}

/* Text can look like a number or a word; it does not look like an array, an object or null by accident. */
static bool goes_before_text(enum json_kind kind)
{
    return kind == JSON_NULL || kind == JSON_ARRAY || kind == JSON_OBJECT;
}

void argument_convert(const struct argument_types *types, const char *s, size_t n, struct buf *out)
{
    const char *t = s;
    size_t m = n;
    bool text_seen = false;
    while (m && tag_is_space(t[0])) t++, m--;
    while (m && tag_is_space(t[m - 1])) m--;
    for (int i = 0; i < types->n; i++) {
        if (types->kinds[i] == JSON_STRING) text_seen = true;
        if (text_seen && !goes_before_text(types->kinds[i])) continue;
        if (convert_to(types->kinds[i], t, m, out)) return;
    }
    buf_addc(out, '"');
    json_write_escaped(s, n, out);
    buf_addc(out, '"');
}
