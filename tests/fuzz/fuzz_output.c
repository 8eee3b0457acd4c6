/*
 * The output parser: whatever the model writes, the events joined are the same for every cut of the text, arguments are one
 * JSON object, texts are UTF-8, and nothing but markers and space is lost. The first byte chooses the options.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/output.h"

static const char tools_text[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"},"
    "\"c\":{\"type\":[\"array\",\"object\",\"null\"]},\"d\":{\"type\":\"number\"}}}}},{\"name\":\"g\"}]";

struct log {
    struct buf text;      /* reasoning, content and calls, each event's text behind the letter of its kind when that changes */
    struct buf arguments; /* of the call that is open */
    int last;
    int n_open, n_calls;
};

static void record(void *user, const struct output_event *e)
{
    struct log *log = user;
    size_t used;
    for (size_t i = 0; i < e->n; i += used)
        if (utf8_decode(e->text + i, e->n - i, &used) >= UTF8_PARTIAL) abort();
    if (log->n_open != (e->kind > OUTPUT_CALL_START && e->kind != OUTPUT_CALL_TEXT)) abort();
    if ((e->n == 0) != (e->kind == OUTPUT_CALL_END)) abort();
    if ((int)e->kind != log->last) buf_addc(&log->text, "RCSAET"[e->kind]);
    log->last = (int)e->kind;
    buf_add(&log->text, e->text, e->n);
    if (e->kind == OUTPUT_CALL_START) log->n_open++, log->n_calls++;
    if (e->kind == OUTPUT_CALL_ARGUMENTS) buf_add(&log->arguments, e->text, e->n);
    if (e->kind != OUTPUT_CALL_END) return;
    struct json *v;
    if (json_parse(buf_str(&log->arguments), log->arguments.len, "arguments", &v, NULL) != LILY_OK) abort();
    if (json_kind(v) != JSON_OBJECT) abort();
    json_free(v);
    buf_addc(&log->text, e->complete ? '1' : '0');
    buf_clear(&log->arguments);
    log->n_open--;
}

/* seed 0: in one piece; else in pieces of random sizes, most of them small. */
static void run(const struct output_options *opt, const char *text, size_t n, uint64_t seed, struct log *log)
{
    struct output_parser *p = output_new(opt, record, log);
    log->last = -1;
    for (size_t at = 0; at < n;) {
        size_t m = n - at;
        if (seed) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            size_t want = 1 + seed % (seed >> 32 & 7 ? 4 : 64);
            if (want < m) m = want;
        }
        char *piece = malloc(m);
        memcpy(piece, text + at, m);
        output_push(p, piece, m);
        free(piece);
        at += m;
    }
    output_finish(p);
    if (log->n_open || output_n_calls(p) != log->n_calls) abort();
    output_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json *tools;
    if (!tools && json_parse(tools_text, sizeof tools_text - 1, "tools", &tools, NULL) != LILY_OK) abort();
    if (size < 1) return 0;
    struct output_options opt = {.tools = data[0] & 1 ? tools : NULL, .thinking = data[0] & 2, .no_calls = (data[0] & 28) == 28};
    struct log whole = {.n_open = 0}, cut = {.n_open = 0};
    const char *text = (const char *)data + 1;
    run(&opt, text, size - 1, 0, &whole);
    run(&opt, text, size - 1, 0x9e3779b97f4a7c15u * (size + data[size - 1] + 1u), &cut);
    if (whole.text.len != cut.text.len || memcmp(buf_str(&whole.text), buf_str(&cut.text), whole.text.len) != 0) abort();
    buf_free(&whole.text);
    buf_free(&whole.arguments);
    buf_free(&cut.text);
    buf_free(&cut.arguments);
    return 0;
}
