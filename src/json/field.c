/* Typed members of JSON objects, with errors that name the field, what was found and what was expected. */
#include <inttypes.h>
#include <stdio.h>

#include "json/node.h"

/* A short text of the value for a message: scalars as JSON, cut at 60 bytes; containers by kind. */
static void describe(const struct json *v, char out[96])
{
    if (v->kind == JSON_ARRAY || v->kind == JSON_OBJECT) {
        snprintf(out, 96, v->kind == JSON_ARRAY ? "an array" : "an object");
        return;
    }
    struct buf text = {0};
    json_write(v, 0, &text);
    size_t n = text.len;
    if (n > 60) {
        n = 60;
        while (n > 0 && ((unsigned char)text.data[n] & 0xc0) == 0x80) n--;
    }
    snprintf(out, 96, "%.*s%s", (int)n, buf_str(&text), n < text.len ? "..." : "");
    buf_free(&text);
}

static lily_status fail_field(struct json_field f, const struct json *v, const char *expected, struct lily_err *err)
{
    char found[96];
    describe(v, found);
    LILY_FAIL(err, LILY_ERR_FORMAT, "%s: \"%s\" is %s, expected %s", f.what, f.key, found, expected);
}

/* The member, or NULL when it is absent or null. */
static const struct json *member(struct json_field f)
{
    const struct json *v = json_get(f.object, f.key);
    return v && v->kind != JSON_NULL ? v : NULL;
}

lily_status json_get_int(struct json_field f, int64_t lo, int64_t hi, int64_t *out, struct lily_err *err)
{
    const struct json *v = member(f);
    if (!v) return LILY_OK;
    if (v->kind == JSON_INTEGER && v->u.i >= lo && v->u.i <= hi) {
        *out = v->u.i;
        return LILY_OK;
    }
    char expected[96];
    snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, lo, hi);
    return fail_field(f, v, expected, err);
}

lily_status json_get_double(struct json_field f, double lo, double hi, double *out, struct lily_err *err)
{
    const struct json *v = member(f);
    if (!v) return LILY_OK;
    if (v->kind == JSON_INTEGER || v->kind == JSON_REAL) {
        double d = json_double(v);
        if (d >= lo && d <= hi) {
            *out = d;
            return LILY_OK;
        }
    }
    char expected[96];
    snprintf(expected, sizeof expected, "a number from %g to %g", lo, hi);
    return fail_field(f, v, expected, err);
}

lily_status json_get_bool(struct json_field f, bool *out, struct lily_err *err)
{
    const struct json *v = member(f);
    if (!v) return LILY_OK;
    if (v->kind != JSON_BOOL) return fail_field(f, v, "true or false", err);
    *out = v->u.b;
    return LILY_OK;
}

lily_status json_get_string(struct json_field f, const char **out, struct lily_err *err)
{
    const struct json *v = member(f);
    if (!v) return LILY_OK;
    if (v->kind != JSON_STRING) return fail_field(f, v, "a string", err);
    *out = v->u.s;
    return LILY_OK;
}
