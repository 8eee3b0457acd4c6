/* lily tokenize: the token ids of a text. */
#include <stdio.h>
#include <string.h>

#include "base/safe.h"
#include "base/size.h"
#include "base/utf8.h"
#include "commands.h"
#include "model_args.h"

struct tokenize_args {
    struct common_args common;
    struct model_args model;
    bool special; /* the spelling of a special token is the token */
};

static void init(void *args)
{
    struct tokenize_args *a = args;
    model_args_init(&a->model);
}

/* A token's text as it is in the data: bytes that are no UTF-8 (a part of a character) become U+FFFD. */
static void token_text(const struct tokenizer *t, int32_t id, struct buf *out)
{
    size_t n;
    const char *bytes = tokenizer_token(t, id, &n);
    buf_clear(out);
    if (bytes) utf8_add_repaired(out, bytes, n);
}

static void print_as_json(const struct tokenizer *t, const struct ids *ids)
{
    struct json *top = json_new_object(), *list = json_new_array(), *texts = json_new_array();
    struct buf text = {0};
    for (size_t i = 0; i < ids->n; i++) {
        token_text(t, ids->data[i], &text);
        json_add(list, json_new_int(ids->data[i]));
        json_add(texts, json_new_text(buf_str(&text), text.len));
    }
    buf_free(&text);
    json_put(top, "ids", list);
    json_put(top, "tokens", texts);
    print_json(top);
}

/* One token a line: its id, and its text as a JSON string, with bytes that are no character as <E4>. */
static void print_lines(const struct tokenizer *t, const struct ids *ids)
{
    struct buf line = {0}, safe = {0};
    for (size_t i = 0; i < ids->n; i++) {
        size_t n, used;
        const char *bytes = tokenizer_token(t, ids->data[i], &n);
        buf_clear(&line);
        buf_clear(&safe);
        for (size_t at = 0; bytes && at < n; at += used) {
            if (utf8_decode(bytes + at, n - at, &used) < UTF8_PARTIAL) json_write_escaped(bytes + at, used, &line);
            else buf_add(&line, bytes + at, used);
        }
        safe_text(&safe, buf_str(&line), line.len, false);
        printf("%7d  \"%s\"\n", (int)ids->data[i], buf_str(&safe));
    }
    buf_free(&line);
    buf_free(&safe);
    fprintf(stderr, "%s\n", COUNT_TEXT(ids->n, "token"));
}

static lily_status run_tokenize(void *args, int n, char **words, struct lily_err *err)
{
    const struct tokenize_args *a = args;
    struct bundle b;
    struct buf text = {0};
    struct ids ids = {0};
    LILY_TRY(check_word("TEXT", n ? words[0] : NULL, err));
    LILY_TRY(model_texts(&a->model, &b, err));
    lily_status st = LILY_OK;
    if (n) buf_addz(&text, words[0]);
    else st = read_stdin(&text, err);
    if (st == LILY_OK)
        st = a->special ? tokenizer_encode_special(b.tokenizer, buf_str(&text), text.len, &ids, err)
                        : tokenizer_encode(b.tokenizer, buf_str(&text), text.len, &ids, err);
    if (st == LILY_OK) {
        if (a->common.json) print_as_json(b.tokenizer, &ids);
        else print_lines(b.tokenizer, &ids);
    }
    ids_free(&ids);
    buf_free(&text);
    bundle_close(&b);
    return st;
}

static const struct opt options[] = {
    {"special", 0, NULL, "take the spelling of a special token, as in <|im_end|>, for the token", OPT_ON,
     offsetof(struct tokenize_args, special), 0, 0, NULL},
};
static const struct opt_group group = {"Text", options, 1};

const struct command cmd_tokenize = {
    .name = "tokenize",
    .usage = "[TEXT]",
    .summary = "show the tokens of a text",
    .about = "Shows the token ids of TEXT, or of stdin, one a line with its text.\n"
             "User text never becomes a special token; --special shows what a template would\n"
             "get.\n"
             "With --json: {ids, tokens}.",
    .uses = {{&opts_dir, offsetof(struct tokenize_args, model)}, {&group, 0}, {&opts_json, offsetof(struct tokenize_args, common)}},
    .max_args = 1,
    .args_size = sizeof(struct tokenize_args),
    .init = init,
    .run = run_tokenize,
};
