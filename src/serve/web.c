/* GET / and /web/NAME: the page's files, which are in the program. */
#include "serve/web.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "serve/server_impl.h"

/* Of every file. They are asked for again each time and answered with 304 while they are the same. */
static const char common[] = "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-cache\r\n"
                             "Vary: Accept-Encoding\r\n";
/*
 * Of what runs scripts, the page and its worker: it asks this server and nobody else, runs no script but the page's files, and
 * no text becomes markup except through the sanitiser.
 */
static const char policy[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types dompurify lily\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n";

static const char *type_of(const char *name)
{
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *end = strrchr(name, '.');
    for (size_t i = 0; end && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(end, types[i][0]) == 0) return types[i][1];
    return "application/octet-stream";
}

static const struct web_file *find(const char *name)
{
    for (int i = 0; i < n_web_files; i++)
        if (strcmp(web_files[i].name, name) == 0) return &web_files[i];
    return NULL;
}

/* Whether one member of a list of codings is gzip and is not refused by a weight of zero. */
static bool is_gzip(const char *s, size_t n)
{
    if (n < 4 || strncasecmp(s, "gzip", 4) != 0) return false;
    const char *p = s + 4, *end = s + n;
    while (p < end && strchr(" \t;", *p)) p++;
    if (p == end) return true;
    if (p == s + 4 || end - p < 2 || strncasecmp(p, "q=", 2) != 0) return false;
    for (p += 2; p < end; p++)
        if (*p >= '1' && *p <= '9') return true;
    return false;
}

static bool takes_gzip(const struct http_head *h)
{
    const char *s = http_header(h, "Accept-Encoding");
    while (s && *s) {
        s += strspn(s, " \t,");
        size_t n = strcspn(s, ",");
        if (is_gzip(s, n)) return true;
        s += n;
    }
    return false;
}

void web_reply(struct server *s, struct http_exchange *x)
{
    const struct http_head *h = http_head(x);
    const char *wanted = strncmp(h->path, "/web/", 5) == 0 ? h->path + 5 : strcmp(h->path, "/") == 0 ? "index.html" : "";
    const struct web_file *f = find(wanted);
    if (!f) {
        struct api_error e;
        api_error_set(&e, 404, "not_found", "", "the page has no file %.100s", h->path);
        server_note_error(s, NULL, h, &e);
        server_reply_error(s, x, &e, DIALECT_OPENAI);
        return;
    }
    bool gz = takes_gzip(h);
    const struct web_bytes *body = gz ? &f->gz : &f->plain;
    bool runs = strcmp(f->name, "index.html") == 0 || strcmp(f->name, "md_worker.js") == 0;
    char tag[64], extra[sizeof common + sizeof policy + 200];
    snprintf(tag, sizeof tag, "\"%s%s\"", f->tag, gz ? "-gz" : "");
    snprintf(extra, sizeof extra, "%s%sETag: %s\r\n%s", common, runs ? policy : "", tag, gz ? "Content-Encoding: gzip\r\n" : "");
    const char *known = http_header(h, "If-None-Match");
    int status = known && strstr(known, tag) ? 304 : 200;
    server_note(s, NULL, h, status);
    http_reply(x, status, type_of(f->name), extra, body->at, status == 304 ? 0 : body->n);
}
