/* libcurl's multi interface behind web.h. */
#include "web.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

#if __has_include(<curl/curl.h>)
#include <curl/curl.h>

enum { MAX_REDIRECTS = 10, CONNECT_S = 20, BUFFER_BYTES = 256 << 10 };

struct web {
    CURLM *multi; /* owned */
    long silence_s;
};

struct handle {
    CURL *easy;               /* owned */
    struct curl_slist *headers; /* owned */
};

lily_status web_open(double silence_s, struct web **out, struct lily_err *err)
{
    static bool started;
    *out = NULL;
    if (!started && curl_global_init(CURL_GLOBAL_DEFAULT) != 0) LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "libcurl cannot be used");
    started = true;
    struct web *w = mem_new(sizeof *w);
    w->silence_s = (long)(silence_s < 1 ? 1 : silence_s);
    w->multi = curl_multi_init();
    if (!w->multi) {
        free(w);
        LILY_FAIL(err, LILY_ERR_MEMORY, "libcurl has no memory");
    }
    *out = w;
    return LILY_OK;
}

void web_close(struct web *w)
{
    if (!w) return;
    curl_multi_cleanup(w->multi);
    free(w);
}

/* The value of a header line when it has that name, else NULL. */
static const char *header_value(const char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':') return NULL;
    line += n + 1;
    while (*line == ' ' || *line == '\t') line++;
    return line;
}

static void read_header(struct web_transfer *t, const char *line)
{
    const char *v;
    long long a, b, c;
    if (strncmp(line, "HTTP/", 5) == 0) { /* of the next answer, after a redirect */
        const char *space = strchr(line, ' ');
        t->status = space ? strtol(space, NULL, 10) : 0;
        t->total = t->first = -1;
        t->retry_after = 0;
    } else if ((v = header_value(line, "content-range"))) {
        if (sscanf(v, "bytes %lld-%lld/%lld", &a, &b, &c) == 3 && a >= 0 && c >= 0) t->first = a, t->total = c;
    } else if ((v = header_value(line, "content-length"))) {
        if (t->first < 0) t->total = strtoll(v, NULL, 10);
    } else if ((v = header_value(line, "retry-after"))) {
        t->retry_after = strtod(v, NULL);
    }
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx)
{
    char line[1024];
    size_t len = size * n < sizeof line - 1 ? size * n : sizeof line - 1;
    memcpy(line, data, len);
    while (len && (line[len - 1] == '\r' || line[len - 1] == '\n')) len--;
    line[len] = 0;
    read_header(ctx, line);
    return size * n;
}

static size_t on_data(char *data, size_t size, size_t n, void *ctx)
{
    struct web_transfer *t = ctx;
    n *= size;
    if (t->status >= 200 && t->status < 300) return t->data(t, data, n) ? n : CURL_WRITEFUNC_ERROR;
    size_t have = strlen(t->message), room = sizeof t->message - 1 - have, take = n < room ? n : room;
    memcpy(t->message + have, data, take);
    t->message[have + take] = 0;
    return n;
}

static void set_options(struct web *w, struct web_transfer *t, struct handle *h)
{
    CURL *e = h->easy;
    bool tls = strncasecmp(t->url, "https:", 6) == 0;
    curl_easy_setopt(e, CURLOPT_URL, t->url);
    curl_easy_setopt(e, CURLOPT_PRIVATE, (void *)t);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "lily/" LILY_VERSION);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(e, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
#else
    curl_easy_setopt(e, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS, (long)(tls ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, t->json ? 1L : 1024L);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, w->silence_s);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* ranges in parallel want connections of their own */
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    if (t->bearer) {
        curl_easy_setopt(e, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(e, CURLOPT_XOAUTH2_BEARER, t->bearer);
    }
    if (t->to) {
        char range[64];
        snprintf(range, sizeof range, "%lld-%lld", (long long)t->from, (long long)t->to);
        curl_easy_setopt(e, CURLOPT_RANGE, range);
    }
    if (t->json) {
        h->headers = curl_slist_append(NULL, "Content-Type: application/json");
        curl_easy_setopt(e, CURLOPT_HTTPHEADER, h->headers);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, t->json);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(t->json));
    }
}

lily_status web_start(struct web *w, struct web_transfer *t, struct lily_err *err)
{
    struct handle *h = mem_new(sizeof *h);
    h->easy = curl_easy_init();
    if (!h->easy) {
        free(h);
        LILY_FAIL(err, LILY_ERR_MEMORY, "libcurl has no memory");
    }
    t->handle = h;
    t->status = 0;
    t->complete = false;
    t->total = t->first = -1;
    t->retry_after = 0;
    t->error[0] = t->message[0] = 0;
    set_options(w, t, h);
    curl_multi_add_handle(w->multi, h->easy);
    return LILY_OK;
}

void web_cancel(struct web *w, struct web_transfer *t)
{
    struct handle *h = t->handle;
    if (!h) return;
    curl_multi_remove_handle(w->multi, h->easy);
    curl_easy_cleanup(h->easy);
    curl_slist_free_all(h->headers);
    free(h);
    t->handle = NULL;
}

struct web_transfer *web_poll(struct web *w, int ms)
{
    for (int round = 0; round < 2; round++) {
        int running, left;
        curl_multi_perform(w->multi, &running);
        for (CURLMsg *m; (m = curl_multi_info_read(w->multi, &left));) {
            char *private = NULL;
            if (m->msg != CURLMSG_DONE) continue;
            CURLcode code = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
            struct web_transfer *t = (struct web_transfer *)(void *)private;
            t->complete = code == CURLE_OK;
            if (code != CURLE_OK && !t->error[0]) snprintf(t->error, sizeof t->error, "%s", curl_easy_strerror(code));
            web_cancel(w, t);
            return t;
        }
        if (round == 0) curl_multi_poll(w->multi, NULL, 0, ms, NULL);
    }
    return NULL;
}

#else /* no libcurl */

lily_status web_open(double silence_s, struct web **out, struct lily_err *err)
{
    (void)silence_s;
    *out = NULL;
    err_set(err, LILY_ERR_UNSUPPORTED, "this build of lily has no libcurl, so it opens no connections");
    err_hint(err, "install libcurl's development files (libcurl4-openssl-dev) and build again");
    return LILY_ERR_UNSUPPORTED;
}

void web_close(struct web *w)
{
    free(w);
}

lily_status web_start(struct web *w, struct web_transfer *t, struct lily_err *err)
{
    (void)w;
    (void)t;
    LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "no libcurl");
}

struct web_transfer *web_poll(struct web *w, int ms)
{
    (void)w;
    (void)ms;
    return NULL;
}

void web_cancel(struct web *w, struct web_transfer *t)
{
    (void)w;
    (void)t;
}

#endif

struct collecting {
    struct buf *out;
    size_t max;
};

static bool collect(struct web_transfer *t, const char *bytes, size_t n)
{
    const struct collecting *c = t->ctx;
    if (c->out->len + n > c->max) return false;
    buf_add(c->out, bytes, n);
    return true;
}

bool web_get(struct web *w, struct web_transfer *t, size_t max, struct buf *out)
{
    struct lily_err err;
    struct collecting c = {out, max};
    t->data = collect;
    t->ctx = &c;
    if (web_start(w, t, &err) != LILY_OK) {
        snprintf(t->error, sizeof t->error, "%.200s", err.msg);
        return false;
    }
    while (!web_poll(w, 1000)) continue;
    return t->complete;
}
