/* From a request's head to its endpoint: Host, browsers' origins, keys, paths and methods. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "serve/server_impl.h"

const struct endpoint endpoints[] = {
    {"POST", "/chat/completions", "chatcmpl-", DIALECT_OPENAI, false, false, NULL, chat_prepare, &chat_ops},
    {"POST", "/completions", "cmpl-", DIALECT_OPENAI, false, false, NULL, completions_prepare, &completions_ops},
    {"POST", "/responses", "resp_", DIALECT_OPENAI, false, false, NULL, responses_prepare, &responses_ops},
    {"POST", "/messages", "msg_", DIALECT_ANTHROPIC, false, false, NULL, messages_prepare, &messages_ops},
    {"POST", "/messages/count_tokens", "", DIALECT_ANTHROPIC, false, false, NULL, count_tokens_prepare, NULL},
    {"GET", "/models", "", DIALECT_OPENAI, true, false, models_reply, NULL, NULL},
    {"POST", "/tokenize", "", DIALECT_OPENAI, false, false, NULL, tokenize_prepare, NULL},
    {"POST", "/detokenize", "", DIALECT_OPENAI, false, false, NULL, detokenize_prepare, NULL},
    {"POST", "/apply-template", "", DIALECT_OPENAI, false, false, NULL, apply_template_prepare, NULL},
    {"GET", "/health", "", DIALECT_OPENAI, false, true, health_reply, NULL, NULL},
    {"GET", "/metrics", "", DIALECT_OPENAI, false, false, metrics_reply, NULL, NULL},
    {"GET", "/state", "", DIALECT_OPENAI, false, false, state_reply, NULL, NULL},
    {"GET", "/", "", DIALECT_OPENAI, false, true, web_reply, NULL, NULL},
    {"GET", "/web", "", DIALECT_OPENAI, true, true, web_reply, NULL, NULL},
};
const int n_endpoints = sizeof endpoints / sizeof endpoints[0];

/* ---- Host and Origin ---- */

/* The host part of "host", "host:port", "[v6]:port". */
static size_t host_length(const char *s)
{
    const char *end = *s == '[' ? strchr(s, ']') : NULL;
    return end ? (size_t)(end + 1 - s) : strcspn(s, ":");
}

static bool is_loopback(const char *host, size_t n)
{
    char name[64];
    struct in_addr a4;
    if (n == 0 || n >= sizeof name) return false;
    snprintf(name, sizeof name, "%.*s", (int)n, host);
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0 || strcmp(name, "::1") == 0) return true;
    return inet_pton(AF_INET, name, &a4) == 1 && (ntohl(a4.s_addr) >> 24) == 127;
}

/* On a loopback address, a page of another site could reach us by a name that it points here: names are not believed. */
static bool host_is_fine(const struct server *s, const struct http_head *h)
{
    const char *host = http_header(h, "Host");
    if (!is_loopback(s->opt->host, strlen(s->opt->host)) || !host) return true;
    return is_loopback(host, host_length(host));
}

static bool origin_is_listed(const struct server *s, const char *origin)
{
    for (int i = 0; origin && i < s->opt->n_cors; i++)
        if (strcmp(s->opt->cors[i], "*") == 0 || strcmp(s->opt->cors[i], origin) == 0) return true;
    return false;
}

/*
 * Any page may make a browser send a plain POST, if not read the reply: it would cost others' time. Browsers say whose page it
 * was; clients that are no browsers say nothing. Where a key is needed no page can send it unasked.
 */
static bool origin_is_fine(const struct server *s, const struct http_head *h)
{
    const char *origin = http_header(h, "Origin"), *host = http_header(h, "Host");
    if (!origin || s->opt->n_keys || strcmp(h->method, "POST") != 0 || origin_is_listed(s, origin)) return true;
    const char *name = strstr(origin, "://");
    return name && host && strncasecmp(origin, "http", 4) == 0 && strcasecmp(name + 3, host) == 0;
}

const char *server_cors(struct server *s, const struct http_exchange *x)
{
    static _Thread_local char text[600];
    const char *origin = http_header(http_head(x), "Origin");
    text[0] = 0;
    if (origin && strlen(origin) < 400 && origin_is_listed(s, origin))
        snprintf(text, sizeof text, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", origin);
    return text;
}

static void reply_preflight(struct server *s, struct http_exchange *x)
{
    char extra[1400] = "Allow: GET, POST, HEAD, OPTIONS\r\n";
    const char *cors = server_cors(s, x), *wanted = http_header(http_head(x), "Access-Control-Request-Headers");
    if (*cors)
        snprintf(extra, sizeof extra,
                 "%sAccess-Control-Allow-Methods: GET, POST, HEAD, OPTIONS\r\nAccess-Control-Allow-Headers: %s\r\n"
                 "Access-Control-Max-Age: 86400\r\n",
                 cors, wanted && strlen(wanted) < 600 ? wanted : "Authorization, Content-Type, X-Api-Key");
    server_note(s, NULL, http_head(x), 204);
    http_reply(x, 204, "", extra, "", 0);
}

/* ---- keys ---- */

/* The same time for every key of one length, right or wrong. */
static bool equal_in_constant_time(const char *a, const char *b)
{
    size_t n = strlen(a);
    unsigned char differ = n != strlen(b);
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)(a[i] ^ (differ & 1 ? a[i] ^ 1 : b[i]));
    return differ == 0;
}

int server_key(const struct server *s, const struct http_head *h)
{
    const char *given = http_header(h, "Authorization");
    int right = s->opt->n_keys == 0 ? 0 : -1;
    if (given && strncasecmp(given, "Bearer ", 7) == 0) given += 7 + strspn(given + 7, " ");
    else given = http_header(h, "X-Api-Key");
    for (int i = 0; given && i < s->opt->n_keys; i++)
        if (equal_in_constant_time(s->opt->keys[i], given)) right = i;
    return right;
}

/* ---- paths ---- */

static const char *without_version(const char *path)
{
    return strncmp(path, "/v1/", 4) == 0 ? path + 3 : path;
}

static bool path_fits(const struct endpoint *e, const char *path)
{
    size_t n = strlen(e->path);
    if (strncmp(e->path, path, n) != 0) return false;
    return path[n] == 0 || (e->prefix && path[n] == '/');
}

/* The endpoint, or NULL with what is wrong. GET serves HEAD, too. */
static const struct endpoint *find(const struct http_head *h, struct api_error *e, char *allow, size_t n_allow)
{
    const char *path = without_version(h->path), *method = strcmp(h->method, "HEAD") == 0 ? "GET" : h->method;
    const char *takes = NULL;
    for (int i = 0; i < n_endpoints; i++) {
        if (!path_fits(&endpoints[i], path)) continue;
        if (strcmp(endpoints[i].method, method) == 0) return &endpoints[i];
        takes = endpoints[i].method;
        snprintf(allow, n_allow, "Allow: %s, OPTIONS\r\n", strcmp(takes, "GET") == 0 ? "GET, HEAD" : takes);
    }
    if (takes) api_error_set(e, 405, "method_not_allowed", "", "%.100s takes %s, not %.20s", h->path, takes, h->method);
    else if (strncmp(h->path, "/api/", 5) == 0)
        api_error_set(e, 404, "not_found", "", "%.100s is of another protocol; lily speaks OpenAI's and Anthropic's under /v1", h->path);
    else api_error_set(e, 404, "not_found", "", "there is no %.100s here; see /v1/models, /v1/chat/completions, /v1/messages", h->path);
    return NULL;
}

static enum dialect dialect_of(const struct endpoint *e, const struct http_head *h)
{
    if (e) return e->dialect;
    return h && http_header(h, "anthropic-version") ? DIALECT_ANTHROPIC : DIALECT_OPENAI;
}

static void reply_refusal(struct server *s, struct http_exchange *x, const struct endpoint *ep, const struct api_error *e, const char *allow)
{
    struct buf body = {0}, extra = {0};
    api_error_body(e, dialect_of(ep, http_head(x)), &body);
    buf_addc(&body, '\n');
    buf_printf(&extra, "%s%s%s", allow, server_cors(s, x), e->http == 401 ? "WWW-Authenticate: Bearer\r\n" : "");
    server_note_error(s, NULL, http_head(x), e);
    http_reply(x, e->http, "application/json", buf_str(&extra), buf_str(&body), body.len);
    buf_free(&body);
    buf_free(&extra);
}

static bool on_head(void *ctx, struct http_exchange *x)
{
    struct server *s = ctx;
    const struct http_head *h = http_head(x);
    struct api_error e = {0};
    char allow[64] = "";
    http_set_user(x, NULL);
    if (!host_is_fine(s, h)) {
        api_error_set(&e, 421, "host_not_allowed", "", "the Host header names \"%.100s\", but this server is only for this machine",
                      http_header(h, "Host"));
        reply_refusal(s, x, NULL, &e, "");
        return false;
    }
    if (strcmp(h->method, "OPTIONS") == 0) {
        reply_preflight(s, x);
        return false;
    }
    const struct endpoint *ep = find(h, &e, allow, sizeof allow);
    if ((!ep || !ep->is_open) && server_key(s, h) < 0) {
        allow[0] = 0;
        api_error_set(&e, 401, "invalid_api_key", "", "a right API key is needed: Authorization: Bearer KEY, or X-Api-Key: KEY");
    } else if (ep && !origin_is_fine(s, h)) {
        api_error_set(&e, 403, "origin_not_allowed", "", "pages of %.100s may not call this server; it can allow them with --cors %.100s",
                      http_header(h, "Origin"), http_header(h, "Origin"));
    }
    if (e.http) reply_refusal(s, x, ep, &e, allow);
    return e.http == 0;
}

/* ---- requests ---- */

/* Whether answers can be made now. */
static bool is_ready(struct server *s, struct api_error *e)
{
    struct lily_err why;
    switch (engine_state(s->engine)) {
    case ENGINE_LOADING:
        api_error_set(e, 503, "loading", "", "the model is still loading");
        return false;
    case ENGINE_FAILED:
        engine_error(s->engine, &why);
        api_error_set(e, 503, "engine_failed", "", "the engine has failed: %.300s", why.msg);
        return false;
    default:
        if (s->drain_until_ms > 0) api_error_set(e, 503, "shutting_down", "", "the server is shutting down");
        return s->drain_until_ms == 0;
    }
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct server *s = ctx;
    struct api_error e = {0};
    char allow[64];
    const struct endpoint *ep = find(http_head(x), &e, allow, sizeof allow);
    if (ep->at_once) {
        ep->at_once(s, x);
    } else if (ep->ops && !is_ready(s, &e)) {
        server_note_error(s, NULL, http_head(x), &e);
        server_reply_error(s, x, &e, ep->dialect);
    } else {
        prep_add(s->prep, call_new(s, ep, x));
    }
}

static void on_fin(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    if (http_user(x)) call_client_fin(http_user(x));
}

static void on_gone(void *ctx, struct http_exchange *x)
{
    struct call *c = http_user(x);
    (void)ctx;
    if (!c) return;
    call_client_gone(c);
    if (!c->preparing) call_pump(c);
}

static void on_drained(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    if (http_user(x)) call_pump(http_user(x));
}

static const char *error_body(void *ctx, const struct http_head *h, int status, const char *why, struct buf *out)
{
    struct api_error e;
    api_error_set(&e, status, status == 413 ? "request_too_large" : NULL, "", "%s", why);
    api_error_body(&e, dialect_of(NULL, h), out);
    buf_addc(out, '\n');
    server_note_error(ctx, NULL, h, &e);
    return "application/json";
}

const struct http_handler route_handler = {on_head, on_request, on_fin, on_gone, on_drained, error_body, NULL};
