/* JSON values to text: compact or indented JSON, Python's json.dumps. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json/node.h"

void json_write_escaped(const char *s, size_t n, struct buf *out)
{
    static const char letters[] = "\b\f\n\r\t\"\\", names[] = "bfnrt\"\\";
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        buf_add(out, s + start, i - start);
        start = i + 1;
        const char *at = c ? strchr(letters, c) : NULL;
        if (at) {
            buf_addc(out, '\\');
            buf_addc(out, names[at - letters]);
        } else {
            buf_printf(out, "\\u%04x", c);
        }
    }
    buf_add(out, s + start, n - start);
}

static void add_quoted(const char *s, size_t n, struct buf *out)
{
    buf_addc(out, '"');
    json_write_escaped(s, n, out);
    buf_addc(out, '"');
}

void node_write_number(const struct json *v, bool python, struct buf *out)
{
    char text[32];
    bool integer;
    if (v->kind == JSON_INTEGER) {
        snprintf(text, sizeof text, "%" PRId64, v->u.i);
        buf_addz(out, text);
        return;
    }
    bool kept = v->flags & NODE_BIG;
    if (kept && (!python || (node_scan_number(v->u.s, v->n, &integer) && integer) || isfinite(json_double(v)))) {
        buf_add(out, v->u.s, v->n);
    } else {
        node_repr_double(json_double(v), text);
        buf_addz(out, text);
    }
}

/* How the three forms differ. */
struct style {
    const char *comma, *colon;
    int indent; /* > 0: one member a line */
    bool python; /* doubles that JSON lacks are written as Python's json does, else null */
};

static void new_line(const struct style *style, int depth, struct buf *out)
{
    if (style->indent > 0) buf_printf(out, "\n%*s", style->indent * depth, "");
}

static void write_value(const struct json *v, const struct style *style, int depth, struct buf *out);

static void write_container(const struct json *v, const struct style *style, int depth, struct buf *out)
{
    bool array = v->kind == JSON_ARRAY;
    buf_addc(out, array ? '[' : '{');
    for (uint32_t i = 0; i < v->n; i++) {
        if (i) buf_addz(out, style->comma);
        new_line(style, depth + 1, out);
        const struct json *member = array ? v->u.items[i] : v->u.table->m[i].value;
        if (!array) {
            add_quoted(v->u.table->m[i].key, v->u.table->m[i].len, out);
            buf_addz(out, style->colon);
        }
        write_value(member, style, depth + 1, out);
    }
    if (v->n) new_line(style, depth, out);
    buf_addc(out, array ? ']' : '}');
}

static void write_value(const struct json *v, const struct style *style, int depth, struct buf *out)
{
    switch (json_kind(v)) {
    case JSON_NULL:
        buf_addz(out, "null");
        return;
    case JSON_BOOL:
        buf_addz(out, v->u.b ? "true" : "false");
        return;
    case JSON_INTEGER:
    case JSON_REAL:
        if (!style->python && v->kind == JSON_REAL && !(v->flags & NODE_BIG) && !isfinite(v->u.d)) buf_addz(out, "null");
        else node_write_number(v, style->python, out);
        return;
    case JSON_STRING:
        add_quoted(v->u.s, v->n, out);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        write_container(v, style, depth, out);
        return;
    }
}

void json_write(const struct json *v, int indent, struct buf *out)
{
    struct style style = {.comma = ",", .colon = indent > 0 ? ": " : ":", .indent = indent};
    write_value(v, &style, 0, out);
}

void json_write_python(const struct json *v, struct buf *out)
{
    static const struct style style = {.comma = ", ", .colon = ": ", .python = true};
    write_value(v, &style, 0, out);
}
