/* The JSON of a fake engine's script. */
#include "run/fake_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_SCRIPT = 64 << 20, MAX_TOKENS = 1 << 22, MAX_LOOK_BACK = 256 };

/* ---- tokens ---- */

static void token_free(struct fake_token *t)
{
    buf_free(&t->text);
    free(t->error);
}

static lily_status read_hex(const char *hex, const char *what, struct buf *out, struct lily_err *err)
{
    for (size_t i = 0; hex[i]; i += 2) {
        char two[3] = {hex[i], hex[i + 1], 0}, *end;
        long byte = strtol(two, &end, 16);
        if (end != two + 2) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: \"hex\" is \"%.60s\", expected pairs of hexadecimal digits", what, hex);
        buf_addc(out, (char)byte);
    }
    return LILY_OK;
}

static char *dup_or_null(const char *s)
{
    return s ? mem_dupz(s) : NULL;
}

static lily_status read_token(const struct json *v, const char *what, const struct tokenizer *t, struct fake_token *out,
                              int64_t *repeat, struct lily_err *err)
{
    const char *hex = NULL, *error = NULL, *ignored = NULL;
    if (json_kind(v) == JSON_STRING) {
        buf_add(&out->text, json_string(v), json_string_len(v));
    } else if (json_kind(v) == JSON_OBJECT) {
        LILY_TRY(json_get_string((struct json_field){v, what, "text"}, &ignored, err));
        LILY_TRY(json_get_string((struct json_field){v, what, "hex"}, &hex, err));
        LILY_TRY(json_get_string((struct json_field){v, what, "error"}, &error, err));
        LILY_TRY(json_get_double((struct json_field){v, what, "delay_ms"}, 0, 1e7, &out->delay_ms, err));
        LILY_TRY(json_get_bool((struct json_field){v, what, "crash"}, &out->crash, err));
        LILY_TRY(json_get_int((struct json_field){v, what, "repeat"}, 1, MAX_TOKENS, repeat, err));
        const struct json *text = json_get(v, "text");
        if (text) buf_add(&out->text, json_string(text), json_string_len(text));
        if (hex) LILY_TRY(read_hex(hex, what, &out->text, err));
        out->error = dup_or_null(error);
    } else {
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s is of kind %s, expected a string or an object", what, json_kind_name(v));
    }
    out->id = strlen(buf_str(&out->text)) == out->text.len ? tokenizer_added(t, buf_str(&out->text)) : -1;
    return LILY_OK;
}

static struct fake_token *add_token(struct fake_reply *r)
{
    if ((r->n_tokens & (r->n_tokens - 1)) == 0)
        r->tokens = mem_resize(r->tokens, sizeof *r->tokens * (size_t)(r->n_tokens ? 2 * r->n_tokens : 1));
    struct fake_token *t = &r->tokens[r->n_tokens++];
    memset(t, 0, sizeof *t);
    return t;
}

/* Equal texts get equal ids, as far as a look back at some hundred tokens tells. */
static void number_tokens(struct fake_reply *r)
{
    for (int i = 0; i < r->n_tokens; i++) {
        struct fake_token *t = &r->tokens[i];
        t->same = i;
        for (int k = i - 1; k >= 0 && i - k <= MAX_LOOK_BACK && t->same == i; k--) {
            const struct buf *a = &t->text, *b = &r->tokens[k].text;
            if (a->len == b->len && memcmp(buf_str(a), buf_str(b), a->len) == 0) t->same = r->tokens[k].same;
        }
    }
}

static lily_status read_tokens(const struct json *list, const char *what, double delay_ms, const struct tokenizer *t,
                               struct fake_reply *out, struct lily_err *err)
{
    if (list && json_kind(list) != JSON_ARRAY)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: \"tokens\" is of kind %s, expected an array", what, json_kind_name(list));
    for (size_t i = 0; list && i < json_size(list); i++) {
        char place[200];
        int64_t repeat = 1;
        int at = out->n_tokens;
        snprintf(place, sizeof place, "%.150s: tokens[%zu]", what, i);
        add_token(out)->delay_ms = delay_ms;
        LILY_TRY(read_token(json_at(list, i), place, t, &out->tokens[at], &repeat, err));
        if (repeat + out->n_tokens > MAX_TOKENS) LILY_FAIL(err, LILY_ERR_LIMIT, "%s: more than %d tokens", place, MAX_TOKENS);
        while (--repeat > 0) {
            struct fake_token *copy = add_token(out);
            const struct fake_token *from = &out->tokens[at];
            copy->id = from->id;
            copy->delay_ms = from->delay_ms;
            buf_add(&copy->text, buf_str(&from->text), from->text.len);
        }
    }
    return LILY_OK;
}

/* ---- replies ---- */

void fake_reply_free(struct fake_reply *r)
{
    for (int i = 0; i < r->n_match; i++) free(r->match[i]);
    for (int i = 0; i < r->n_tokens; i++) token_free(&r->tokens[i]);
    free(r->match);
    free(r->tokens);
    free(r->prefill_error);
    memset(r, 0, sizeof *r);
}

static lily_status read_match(const struct json *v, const char *what, struct fake_reply *out, struct lily_err *err)
{
    size_t n = !v ? 0 : json_kind(v) == JSON_ARRAY ? json_size(v) : 1;
    out->match = mem_new(sizeof *out->match * (n + 1));
    for (size_t i = 0; i < n; i++) {
        const struct json *one = json_kind(v) == JSON_ARRAY ? json_at(v, i) : v;
        if (json_kind(one) != JSON_STRING)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: \"match\" holds a value of kind %s, expected strings", what, json_kind_name(one));
        out->match[out->n_match++] = mem_dupz(json_string(one));
    }
    return LILY_OK;
}

static lily_status read_reply(const struct json *v, const char *what, const struct tokenizer *t, struct fake_reply *out,
                              struct lily_err *err)
{
    int64_t times = -1;
    double delay = 0;
    const char *error = NULL;
    if (json_kind(v) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s is of kind %s, expected an object", what, json_kind_name(v));
    LILY_TRY(read_match(json_get(v, "match"), what, out, err));
    LILY_TRY(json_get_int((struct json_field){v, what, "times"}, 1, INT32_MAX, &times, err));
    LILY_TRY(json_get_double((struct json_field){v, what, "delay_ms"}, 0, 1e7, &delay, err));
    LILY_TRY(json_get_double((struct json_field){v, what, "prefill_tokens_per_s"}, 0, 1e12, &out->prefill_rate, err));
    LILY_TRY(json_get_string((struct json_field){v, what, "prefill_error"}, &error, err));
    LILY_TRY(json_get_bool((struct json_field){v, what, "prefill_crash"}, &out->prefill_crash, err));
    out->times = (int)times;
    out->prefill_error = dup_or_null(error);
    LILY_TRY(read_tokens(json_get(v, "tokens"), what, delay, t, out, err));
    number_tokens(out);
    return LILY_OK;
}

lily_status fake_reply_read(const struct json *v, const char *what, const struct tokenizer *t, struct fake_reply *out,
                            struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    lily_status st = read_reply(v, what, t, out, err);
    if (st != LILY_OK) fake_reply_free(out);
    return st;
}

struct fake_reply *fake_script_choose(struct fake_script *s, const char *prompt, size_t n)
{
    for (int i = 0; i < s->n_replies; i++) {
        struct fake_reply *r = &s->replies[i];
        bool fits = r->times != 0;
        for (int k = 0; k < r->n_match && fits; k++) fits = memmem(prompt, n, r->match[k], strlen(r->match[k])) != NULL;
        if (!fits) continue;
        if (r->times > 0) r->times--;
        return r;
    }
    return NULL;
}

/* ---- the file ---- */

void fake_script_free(struct fake_script *s)
{
    for (int i = 0; i < s->n_replies; i++) fake_reply_free(&s->replies[i]);
    free(s->replies);
    free(s->load_error);
    memset(s, 0, sizeof *s);
}

static lily_status read_script(const struct json *v, const char *path, const struct tokenizer *t, struct fake_script *out,
                               struct lily_err *err)
{
    int64_t piece = 512, slices = 1, crash = 0;
    const char *error = NULL;
    const struct json *replies = json_get(v, "replies");
    LILY_TRY(json_get_double((struct json_field){v, path, "load_ms"}, 0, 1e7, &out->load_ms, err));
    LILY_TRY(json_get_string((struct json_field){v, path, "load_error"}, &error, err));
    LILY_TRY(json_get_double((struct json_field){v, path, "prefill_tokens_per_s"}, 0, 1e12, &out->prefill_rate, err));
    LILY_TRY(json_get_int((struct json_field){v, path, "piece"}, 1, 1 << 20, &piece, err));
    LILY_TRY(json_get_int((struct json_field){v, path, "slices"}, 1, 1000, &slices, err));
    LILY_TRY(json_get_int((struct json_field){v, path, "crash_at_step"}, 0, INT32_MAX, &crash, err));
    LILY_TRY(json_get_bool((struct json_field){v, path, "prompt_scripts"}, &out->prompt_scripts, err));
    out->load_error = dup_or_null(error);
    out->piece = (int)piece;
    out->slices = (int)slices;
    out->crash_at_step = (int)crash;
    if (json_kind(v) != JSON_OBJECT || (replies && json_kind(replies) != JSON_ARRAY))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: expected an object with an array \"replies\"", path);
    out->replies = mem_new(sizeof *out->replies * (replies ? json_size(replies) + 1 : 1));
    for (size_t i = 0; replies && i < json_size(replies); i++) {
        char what[200];
        snprintf(what, sizeof what, "%.150s: replies[%zu]", path, i);
        LILY_TRY(fake_reply_read(json_at(replies, i), what, t, &out->replies[out->n_replies], err));
        out->n_replies++;
    }
    return LILY_OK;
}

lily_status fake_script_read(const char *path, const struct tokenizer *t, struct fake_script *out, struct lily_err *err)
{
    struct json *v;
    memset(out, 0, sizeof *out);
    LILY_TRY(json_parse_file(path, MAX_SCRIPT, &v, err));
    lily_status st = read_script(v, path, t, out, err);
    json_free(v);
    if (st != LILY_OK) fake_script_free(out);
    return st;
}
