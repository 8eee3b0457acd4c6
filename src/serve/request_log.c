/* The request log: as text or as JSON. */
#include "serve/request_log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/safe.h"
#include "serve/write.h"

struct line {
    struct buf out;
    bool json;
};

static void put(struct line *l, const char *key, const char *format, double v)
{
    char number[40];
    snprintf(number, sizeof number, format, v);
    if (l->json) buf_printf(&l->out, ",\"%s\":%s", key, number);
    else buf_printf(&l->out, " %s=%s", key, number);
}

/* Whether a text could be taken for the end of its field. */
static bool needs_quotes(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr(" \"=", s[i])) return true; /* NUL, too */
    return n == 0;
}

/* DEL and the C1 controls (U+0080 … U+009F) as escapes, too: JSON does not ask for it, but whoever reads the log on a terminal does. */
static void add_visible(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i], next = i + 1 < n ? (unsigned char)s[i + 1] : 0;
        if (c == 0xc2 && next < 0xa0) buf_printf(out, "\\u%04x", next), i++;
        else if (c == 0x7f) buf_printf(out, "\\u%04x", c);
        else buf_addc(out, s[i]);
    }
}

static void put_quoted(struct line *l, const char *s, size_t n)
{
    struct json *v = json_new_text(s, n);
    struct buf text = {0};
    json_write(v, 0, &text);
    add_visible(&l->out, buf_str(&text), text.len);
    buf_free(&text);
    json_free(v);
}

/* Foreign text: as a JSON string, or made safe for a terminal, and quoted where it needs that. */
static void put_text(struct line *l, const char *key, const char *s, size_t n)
{
    if (l->json) {
        buf_printf(&l->out, "%s\"%s\":", l->out.len > 1 ? "," : "", key);
        put_quoted(l, s, n);
        return;
    }
    struct buf safe = {0};
    buf_printf(&l->out, "%s%s=", l->out.len ? " " : "", key);
    safe_text(&safe, s, n, false);
    if (needs_quotes(buf_str(&safe), safe.len)) put_quoted(l, buf_str(&safe), safe.len);
    else buf_add(&l->out, buf_str(&safe), safe.len);
    buf_free(&safe);
}

static void put_textz(struct line *l, const char *key, const char *s)
{
    size_t n = 0;
    while (s[n]) n++;
    put_text(l, key, s, n);
}

static void put_call(struct line *l, const struct call *c, bool failed)
{
    const struct job_result *r = &c->choices[0].result;
    struct call_usage u = call_usage(c);
    put(l, "queue_ms", "%.1f", r->queue_ms);
    put(l, "prefill_ms", "%.1f", r->prefill_ms);
    put(l, "decode_ms", "%.1f", r->decode_ms);
    put(l, "prompt", "%.0f", u.prompt);
    put(l, "cached", "%.0f", u.cached);
    if (r->miss.kind != MISS_NONE) put_textz(l, "miss", miss_name(r->miss.kind));
    if (r->miss.kind == MISS_DIFFERS) put(l, "miss_token", "%.0f", r->miss.at);
    put(l, "completion", "%.0f", u.completion);
    put(l, "tok_s", "%.1f", r->decode_ms > 0 ? 1e3 * u.completion / r->decode_ms : 0);
    if (c->choices[0].ended && r->status == LILY_OK && !failed) put_textz(l, "finish", c->status == 499 ? "gone" : choice_finish(&c->choices[0]));
}

static void put_error(struct line *l, const struct api_error *e)
{
    put_textz(l, "error", e->err.msg);
    if (e->code) put_textz(l, "code", e->code);
    if (e->param[0]) put_textz(l, "param", e->param);
}

void request_log(const struct server_options *o, const struct call *c, const struct http_head *h, int status, const struct api_error *e)
{
    struct line l = {.json = o->log_json};
    struct timespec t;
    struct tm tm;
    char when[40];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + n, sizeof when - n, ".%03ldZ", t.tv_nsec / 1000000);
    if (l.json) buf_addc(&l.out, '{');
    put_textz(&l, "time", when);
    if (c && c->id[0]) put_textz(&l, "id", c->id);
    put_textz(&l, "method", c ? c->method : h ? h->method : "-");
    put_textz(&l, "path", c ? c->path : h ? h->path : "-");
    put(&l, "status", "%.0f", status);
    if (c) put(&l, "ms", "%.1f", clock_ms() - c->arrived_ms);
    bool known = c && !c->preparing; /* else the rest is P's still */
    if (known && c->n_choices) put_call(&l, c, e != NULL);
    if (e) put_error(&l, e);
    if (known && o->log_text) {
        const struct buf *prompt = &c->prompt.rendering.text, *answer = &c->choices[0].content;
        put_text(&l, "prompt_text", buf_str(prompt), prompt->len);
        put_text(&l, "answer_text", buf_str(answer), answer->len);
    }
    buf_addz(&l.out, l.json ? "}\n" : "\n");
    log_lines(buf_str(&l.out), l.out.len);
    buf_free(&l.out);
}
