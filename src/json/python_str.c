/* JSON values to text as Python's str() writes them. */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "json/node.h"

/* What str.isprintable says no to: the categories Other and Separator, but for the space. */
static bool is_printable(uint32_t cp)
{
    if (cp == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

static void repr_character(uint32_t cp, const char *bytes, size_t n, struct buf *out)
{
    if (cp == '\n') buf_addz(out, "\\n");
    else if (cp == '\r') buf_addz(out, "\\r");
    else if (cp == '\t') buf_addz(out, "\\t");
    else if (is_printable(cp)) buf_add(out, bytes, n);
    else if (cp < 0x100) buf_printf(out, "\\x%02x", cp);
    else if (cp < 0x10000) buf_printf(out, "\\u%04x", cp);
    else buf_printf(out, "\\U%08x", cp);
}

static void repr_string(const char *s, size_t n, struct buf *out)
{
    char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
    size_t used;
    buf_addc(out, quote);
    for (size_t i = 0; i < n; i += used) {
        uint32_t cp = utf8_decode(s + i, n - i, &used);
        if (cp == (unsigned char)quote || cp == '\\') buf_addc(out, '\\');
        repr_character(cp, s + i, used, out);
    }
    buf_addc(out, quote);
}

static void repr_value(const struct json *v, struct buf *out)
{
    switch (json_kind(v)) {
    case JSON_NULL:
        buf_addz(out, "None");
        return;
    case JSON_BOOL:
        buf_addz(out, v->u.b ? "True" : "False");
        return;
    case JSON_INTEGER:
    case JSON_REAL:
        node_write_number(v, true, out);
        return;
    case JSON_STRING:
        repr_string(v->u.s, v->n, out);
        return;
    case JSON_ARRAY:
        buf_addc(out, '[');
        for (uint32_t i = 0; i < v->n; i++) {
            if (i) buf_addz(out, ", ");
            repr_value(v->u.items[i], out);
        }
        buf_addc(out, ']');
        return;
    case JSON_OBJECT:
        buf_addc(out, '{');
        for (uint32_t i = 0; i < v->n; i++) {
            const struct json_member *m = &v->u.table->m[i];
            if (i) buf_addz(out, ", ");
            repr_string(m->key, m->len, out);
            buf_addz(out, ": ");
            repr_value(m->value, out);
        }
        buf_addc(out, '}');
        return;
    }
}

void json_write_python_str(const struct json *v, struct buf *out)
{
    if (v->kind == JSON_STRING) buf_add(out, v->u.s, v->n);
    else repr_value(v, out);
}
