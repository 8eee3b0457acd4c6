/* Errors in the words of the dialects. */
#include "serve/api_error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int http_status(lily_status st)
{
    switch (st) {
    case LILY_ERR_USAGE:
    case LILY_ERR_FORMAT:
    case LILY_ERR_UNSUPPORTED:
        return 400;
    case LILY_ERR_LIMIT:
        return 429;
    case LILY_ERR_MEMORY:
        return 503;
    default:
        return 500;
    }
}

/* The length of a path like messages[2].content at the start of a text. */
static size_t path_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || (s[n] && strchr("_.[]", s[n]))) n++;
    return n;
}

/* Messages name their field either first ("top_p is 3, …") or as json_get_* do ("stream_options: \"x\" is …"). */
static void find_param(struct api_error *e, const struct json *body)
{
    const char *msg = e->err.msg, *colon = strstr(msg, ": \"");
    size_t n = path_length(msg);
    char root[64];
    if (colon) {
        const char *key = colon + 3;
        size_t n_key = strcspn(key, "\"");
        bool nested = msg + n == colon && strncmp(msg, "request:", 8) != 0;
        if (key[n_key] && strncmp(key + n_key, "\" is ", 5) == 0) {
            snprintf(e->param, sizeof e->param, "%.*s%s%.*s", nested ? (int)n : 0, msg, nested ? "." : "", (int)n_key, key);
            return;
        }
    }
    snprintf(root, sizeof root, "%.*s", (int)strcspn(msg, ".[ "), msg);
    bool named = json_get(body, root) || strcmp(root, "messages") == 0 || strncmp(msg + n, " is missing,", 12) == 0;
    if (n > 0 && named) snprintf(e->param, sizeof e->param, "%.*s", (int)n, msg);
}

void api_error_from(struct api_error *e, const struct lily_err *err, const struct json *body)
{
    memset(e, 0, sizeof *e);
    e->err = *err;
    e->http = http_status(err->status);
    if (e->http == 429) e->code = "rate_limit_exceeded";
    if (e->http == 400 && body && json_kind(body) == JSON_OBJECT) find_param(e, body);
}

void api_error_set(struct api_error *e, int http, const char *code, const char *param, const char *fmt, ...)
{
    va_list ap;
    memset(e, 0, sizeof *e);
    e->http = http;
    e->code = code;
    snprintf(e->param, sizeof e->param, "%s", param);
    va_start(ap, fmt);
    vsnprintf(e->err.msg, sizeof e->err.msg, fmt, ap);
    va_end(ap);
}

static const char *type_word(int http, enum dialect d)
{
    bool a = d == DIALECT_ANTHROPIC;
    switch (http) {
    case 401:
        return a ? "authentication_error" : "invalid_request_error";
    case 403:
    case 421:
        return a ? "permission_error" : "invalid_request_error";
    case 404:
        return a ? "not_found_error" : "invalid_request_error";
    case 413:
        return a ? "request_too_large" : "invalid_request_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return a ? "overloaded_error" : "server_error";
    default:
        return http < 500 ? "invalid_request_error" : a ? "api_error" : "server_error";
    }
}

static void add_string(struct buf *out, const char *s, size_t n)
{
    buf_addc(out, '"');
    json_write_escaped(s, n, out);
    buf_addc(out, '"');
}

static void add_or_null(struct buf *out, const char *s)
{
    if (s && *s) add_string(out, s, strlen(s));
    else buf_addz(out, "null");
}

void api_error_object(const struct api_error *e, enum dialect d, struct buf *out)
{
    struct buf text = {0};
    struct json *safe;
    buf_addz(&text, e->err.msg);
    if (e->err.hint[0]) buf_printf(&text, " (%s)", e->err.hint);
    safe = json_new_text(buf_str(&text), text.len); /* a message may quote bytes that are no UTF-8 */
    buf_printf(out, "{\"type\":\"%s\",\"message\":", type_word(e->http, d));
    json_write(safe, 0, out);
    if (d == DIALECT_OPENAI) {
        buf_addz(out, ",\"param\":");
        add_or_null(out, e->param);
        buf_addz(out, ",\"code\":");
        add_or_null(out, e->code);
    }
    buf_addc(out, '}');
    json_free(safe);
    buf_free(&text);
}

void api_error_body(const struct api_error *e, enum dialect d, struct buf *out)
{
    buf_addz(out, d == DIALECT_ANTHROPIC ? "{\"type\":\"error\",\"error\":" : "{\"error\":");
    api_error_object(e, d, out);
    buf_addc(out, '}');
}
