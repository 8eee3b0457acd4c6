/* Running the output parser in tests. */
#include "outputs.h"

#include "../testing.h"
#include "base/utf8.h"

static void require(struct collected *c, bool good, const char *rule)
{
    if (!good && !c->broken) c->broken = rule;
}

static bool is_utf8(const char *s, size_t n)
{
    size_t used;
    for (size_t i = 0; i < n; i += used)
        if (utf8_decode(s + i, n - i, &used) >= UTF8_PARTIAL) return false;
    return true;
}

static void end_call(struct collected *c, bool complete)
{
    struct json *v = NULL;
    require(c, json_parse(buf_str(&c->arguments), c->arguments.len, "", &v, NULL) == LILY_OK, "arguments are JSON");
    require(c, v && json_kind(v) == JSON_OBJECT, "arguments are an object");
    json_free(v);
    buf_add(&c->calls, buf_str(&c->arguments), c->arguments.len);
    buf_addz(&c->calls, complete ? ")" : ")...");
    buf_clear(&c->arguments);
    c->n_open--;
}

void collect(void *user, const struct output_event *e)
{
    struct collected *c = user;
    require(c, is_utf8(e->text, e->n), "texts are UTF-8");
    require(c, (e->n > 0) == (e->kind != OUTPUT_CALL_END), "texts are not empty");
    require(c, e->call == (e->kind < OUTPUT_CALL_START ? -1 : e->kind == OUTPUT_CALL_START ? c->n_calls : c->n_calls - 1),
            "calls are numbered");
    require(c, c->n_open == (e->kind > OUTPUT_CALL_START && e->kind != OUTPUT_CALL_TEXT), "calls do not overlap with anything");
    switch (e->kind) {
    case OUTPUT_REASONING:
        buf_add(&c->reasoning, e->text, e->n);
        return;
    case OUTPUT_CONTENT:
        buf_add(&c->content, e->text, e->n);
        return;
    case OUTPUT_CALL_START:
        c->n_open++;
        c->n_calls++;
        buf_printf(&c->calls, " %.*s(", (int)e->n, e->text);
        return;
    case OUTPUT_CALL_ARGUMENTS:
        buf_add(&c->arguments, e->text, e->n);
        return;
    case OUTPUT_CALL_END:
        end_call(c, e->complete);
        return;
    case OUTPUT_CALL_TEXT:
        require(c, ++c->n_texts <= c->n_calls && e->text[0] == '<', "a call has one text");
        return;
    }
}

void collected_clear(struct collected *c)
{
    buf_clear(&c->reasoning);
    buf_clear(&c->content);
    buf_clear(&c->calls);
    buf_clear(&c->arguments);
    c->n_open = c->n_calls = c->n_texts = 0;
    c->broken = NULL;
}

void collected_free(struct collected *c)
{
    buf_free(&c->reasoning);
    buf_free(&c->content);
    buf_free(&c->calls);
    buf_free(&c->arguments);
}

void collected_line(struct collected *c, struct buf *out)
{
    require(c, c->n_open == 0, "every call ends");
    buf_clear(out);
    if (c->reasoning.len) {
        buf_addz(out, "R:");
        buf_add(out, c->reasoning.data, c->reasoning.len);
    }
    if (c->content.len) {
        buf_addz(out, "C:");
        buf_add(out, c->content.data, c->content.len);
    }
    buf_add(out, buf_str(&c->calls), c->calls.len);
}

/* step 0: in two pieces at cut; else in pieces of step bytes. Each piece is a copy of just its size. */
static void run(const struct output_options *opt, const char *text, size_t n, size_t cut, size_t step, struct collected *c)
{
    struct output_parser *p = output_new(opt, collect, c);
    collected_clear(c);
    for (size_t at = 0; at < n;) {
        size_t m = step ? step : at < cut ? cut - at : n - at;
        if (m > n - at) m = n - at;
        char *piece = malloc(m);
        memcpy(piece, text + at, m);
        output_push(p, piece, m);
        free(piece);
        at += m;
    }
    output_finish(p);
    require(c, output_n_calls(p) == c->n_calls, "the number of calls");
    output_free(p);
}

static void compare(struct collected *c, const char *text, const char *want, size_t cut)
{
    struct buf line = {0};
    collected_line(c, &line);
    if (c->broken) fail_msg("broken rule: %s\ntext: %s\ncut: %zu", c->broken, text, cut);
    if (strcmp(buf_str(&line), want) != 0) fail_msg("text: %s\ncut: %zu\ngot:  %s\nwant: %s", text, cut, buf_str(&line), want);
    buf_free(&line);
}

void check_output(const struct output_options *opt, const char *text, size_t n, const char *want)
{
    struct collected c = {0};
    for (size_t cut = 0; cut <= n; cut++) {
        run(opt, text, n, cut, 0, &c);
        compare(&c, text, want, cut);
    }
    for (size_t step = 1; step <= 3; step++) {
        run(opt, text, n, 0, step, &c);
        compare(&c, text, want, step);
    }
    collected_free(&c);
}
