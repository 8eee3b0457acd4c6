/* POST /v1/completions: a prompt as it is, or a gap to fill in, without template, thinking or calls. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/fields.h"
#include "serve/server_impl.h"
#include "serve/vendor.h"
#include "serve/write.h"

/* Of several prompts each is a choice of its own, with its own spec. */
struct many {
    struct job_spec specs[MAX_CHOICES];
    struct ids ids[MAX_CHOICES];   /* owned */
    struct buf texts[MAX_CHOICES]; /* owned; for echo and for scripts */
    int n;
};

static void many_free(void *p)
{
    struct many *m = p;
    for (int i = 0; i < MAX_CHOICES; i++) {
        ids_free(&m->ids[i]);
        buf_free(&m->texts[i]);
    }
    free(m);
}

/* ---- the request, on P ---- */

static bool all_of_kind(const struct json *array, enum json_kind kind)
{
    for (size_t i = 0; i < json_size(array); i++)
        if (json_kind(json_at(array, i)) != kind) return false;
    return true;
}

static lily_status add_prompt(struct call *c, struct many *m, const struct json *v, const char *suffix, struct lily_err *err)
{
    const struct tokenizer *t = c->server->texts->tokenizer;
    if (m->n == MAX_CHOICES) LILY_FAIL(err, LILY_ERR_FORMAT, "prompt holds more than %d prompts", MAX_CHOICES);
    struct ids *ids = &m->ids[m->n];
    struct buf *text = &m->texts[m->n++];
    text->tries = true;
    if (json_kind(v) == JSON_STRING) {
        if (suffix) buf_addz(text, "<|fim_prefix|>");
        buf_add(text, json_string(v), json_string_len(v));
        if (suffix) buf_printf(text, "<|fim_suffix|>%s<|fim_middle|>", suffix);
        LILY_TRY(buf_check(text, "the prompt", err));
        return tokenizer_encode_special(t, buf_str(text), text->len, ids, err);
    }
    for (size_t i = 0; i < json_size(v); i++) {
        int64_t id = json_int(json_at(v, i));
        int32_t token = (int32_t)id;
        if (id < 0 || id >= c->server->texts->n_tokens)
            LILY_FAIL(err, LILY_ERR_FORMAT, "prompt holds the token id %lld, expected 0 to %d", (long long)id, c->server->texts->n_tokens - 1);
        if (!ids_try_append(ids, &token, 1)) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for %zu tokens", json_size(v));
    }
    tokenizer_decode(t, ids->data, ids->n, true, text);
    return buf_check(text, "the prompt", err);
}

static lily_status read_prompts(struct call *c, struct many *m, struct lily_err *err)
{
    const struct json *v = json_get(c->json, "prompt");
    const char *suffix = NULL;
    LILY_TRY(json_get_string((struct json_field){c->json, "request", "suffix"}, &suffix, err));
    if (suffix && tokenizer_added(c->server->texts->tokenizer, "<|fim_middle|>") < 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "suffix is given, but this model has no tokens for filling in");
    if (v && json_kind(v) == JSON_STRING) return add_prompt(c, m, v, suffix, err);
    if (!v || json_kind(v) != JSON_ARRAY || json_size(v) == 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "prompt is %s, expected a string, an array of strings, or token ids",
                  !v ? "missing" : json_kind(v) == JSON_ARRAY ? "empty" : json_kind_name(v));
    if (all_of_kind(v, JSON_INTEGER)) return add_prompt(c, m, v, NULL, err);
    for (size_t i = 0; i < json_size(v); i++) {
        const struct json *one = json_at(v, i);
        bool fine = json_kind(one) == JSON_STRING || (json_kind(one) == JSON_ARRAY && json_size(one) && all_of_kind(one, JSON_INTEGER));
        if (!fine) LILY_FAIL(err, LILY_ERR_FORMAT, "prompt[%zu] is neither a string nor an array of token ids", i);
        LILY_TRY(add_prompt(c, m, one, suffix, err));
    }
    return LILY_OK;
}

static lily_status read_rest(struct call *c, struct lily_err *err)
{
    int64_t logprobs = -1;
    const struct json *options = json_get(c->json, "stream_options");
    LILY_TRY(fields_sampling(c, c->json, err));
    LILY_TRY(fields_stop(c, c->json, "stop", err));
    c->ask.spec.max_tokens = 16; /* the dialect's default */
    LILY_TRY(fields_max_tokens(c, c->json, "max_tokens", err));
    LILY_TRY(json_get_int((struct json_field){c->json, "request", "logprobs"}, 0, MAX_TOP_LOGPROBS, &logprobs, err));
    LILY_TRY(json_get_bool((struct json_field){c->json, "request", "echo"}, &c->ask.echo, err));
    if (options && json_kind(options) == JSON_OBJECT)
        LILY_TRY(json_get_bool((struct json_field){options, "stream_options", "include_usage"}, &c->ask.include_usage, err));
    if (c->ask.echo && logprobs >= 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "logprobs together with echo is not supported yet");
    c->ask.spec.n_logprobs = (int)logprobs;
    c->ask.spec.raw = true;
    return LILY_OK;
}

static void use_prompt(struct job_spec *s, const struct many *m, int i)
{
    s->ids = m->ids[i].data;
    s->n_ids = (int)m->ids[i].n;
    s->text = buf_str(&m->texts[i]);
    s->n_text = m->texts[i].len;
}

void completions_prepare(struct call *c)
{
    struct lily_err err;
    if (!call_parse(c)) return;
    struct many *m = mem_new(sizeof *m);
    c->dialect = m;
    c->dialect_free = many_free;
    lily_status st = read_rest(c, &err);
    if (st == LILY_OK) st = read_prompts(c, m, &err);
    if (st == LILY_OK && m->n > 1 && c->ask.n * m->n > MAX_CHOICES)
        st = err_set(&err, LILY_ERR_FORMAT, "n times the number of prompts is %d, at most %d are possible", c->ask.n * m->n, MAX_CHOICES);
    if (st != LILY_OK) {
        call_fail(c, &err);
        return;
    }
    int n = c->ask.n;
    use_prompt(&c->ask.spec, m, 0);
    for (int i = 0; i < m->n; i++) {
        m->specs[i] = c->ask.spec;
        use_prompt(&m->specs[i], m, i);
        c->prompts[i] = &m->specs[i];
    }
    c->n_prompts = m->n;
    c->ask.n = n * m->n;
    call_submit(c);
}

/* ---- replies ---- */

static int per_prompt(const struct call *c)
{
    const struct many *m = c->dialect;
    return c->n_choices / (m->n ? m->n : 1);
}

static void put_echo(const struct call *c, int i, struct buf *text)
{
    const struct many *m = c->dialect;
    const struct buf *prompt = &m->texts[i / per_prompt(c)];
    struct json *safe;
    if (!c->ask.echo) return;
    safe = json_new_text(buf_str(prompt), prompt->len);
    buf_add(text, json_string(safe), json_string_len(safe));
    json_free(safe);
}

static void begin_object(const struct call *c, struct buf *out)
{
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%ld,", c->id, c->created);
    put_memberz(out, "model", c->server->opt->model_id);
}

/* {tokens, token_logprobs, top_logprobs, text_offset} from the collected objects [from, to). */
static void put_logprobs(const struct call *c, struct choice *ch, struct buf *out)
{
    struct buf list = {0}, tokens = {0}, values = {0}, tops = {0}, offsets = {0};
    struct json *v = NULL;
    size_t at = ch->logprobs_sent;
    const char *from = buf_str(&ch->logprobs) + at;
    if (c->ask.spec.n_logprobs < 0 || (c->streaming && !*from)) {
        buf_addz(out, "null");
        return;
    }
    buf_printf(&list, "[%s]", from + (*from == ','));
    ch->logprobs_sent = ch->logprobs.len;
    if (json_parse(buf_str(&list), list.len, "", &v, NULL) != LILY_OK) v = json_new_array();
    size_t offset = ch->logprob_offset;
    for (size_t i = 0; i < json_size(v); i++) {
        const struct json *one = json_at(v, i), *token = json_get(one, "token"), *top = json_get(one, "top_logprobs");
        const char *comma = i ? "," : "";
        buf_addz(&tokens, comma);
        json_write(token, 0, &tokens);
        buf_addz(&values, comma);
        json_write(json_get(one, "logprob"), 0, &values);
        buf_printf(&offsets, "%s%zu", comma, offset);
        offset += json_string_len(token);
        buf_printf(&tops, "%s{", comma);
        for (size_t k = 0; k < json_size(top); k++) {
            if (k) buf_addc(&tops, ',');
            json_write(json_get(json_at(top, k), "token"), 0, &tops);
            buf_addc(&tops, ':');
            json_write(json_get(json_at(top, k), "logprob"), 0, &tops);
        }
        buf_addc(&tops, '}');
    }
    ch->logprob_offset = offset;
    buf_printf(out, "{\"tokens\":[%s],\"token_logprobs\":[%s],\"top_logprobs\":[%s],\"text_offset\":[%s]}", buf_str(&tokens),
               buf_str(&values), buf_str(&tops), buf_str(&offsets));
    json_free(v);
    buf_free(&list);
    buf_free(&tokens);
    buf_free(&values);
    buf_free(&tops);
    buf_free(&offsets);
}

static void put_choice(struct call *c, int i, const char *s, size_t n, const char *finish, struct buf *out)
{
    buf_printf(out, "{\"index\":%d,", i);
    put_member(out, "text", s, n);
    buf_addz(out, ",\"logprobs\":");
    put_logprobs(c, &c->choices[i], out);
    buf_addz(out, ",\"finish_reason\":");
    if (finish) put_stringz(out, finish);
    else buf_addz(out, "null");
    buf_addc(out, '}');
}

static void put_chunk(struct call *c, int i, const char *s, size_t n, const char *finish, struct buf *out)
{
    sse_begin(out, NULL);
    begin_object(c, out);
    buf_addz(out, ",\"choices\":[");
    put_choice(c, i, s, n, finish, out);
    buf_addc(out, ']');
    if (finish) put_vendor(c, i, out);
    buf_addc(out, '}');
    sse_end(out);
}

static void stream_begin(struct call *c, struct buf *out)
{
    for (int i = 0; i < c->n_choices; i++) {
        struct buf text = {0};
        put_echo(c, i, &text);
        put_chunk(c, i, buf_str(&text), text.len, NULL, out);
        buf_free(&text);
    }
}

static void stream_record(struct call *c, int i, enum job_record kind, const char *data, size_t n, struct buf *out)
{
    if (kind == JOB_CONTENT) put_chunk(c, i, data, n, NULL, out);
}

static void stream_choice_end(struct call *c, int i, struct buf *out)
{
    put_chunk(c, i, "", 0, choice_finish(&c->choices[i]), out);
}

static void stream_end(struct call *c, struct buf *out)
{
    if (c->ask.include_usage) {
        sse_begin(out, NULL);
        begin_object(c, out);
        buf_addz(out, ",\"choices\":[],");
        put_usage(c, out);
        buf_addc(out, '}');
        sse_end(out);
    }
    buf_addz(out, "data: [DONE]\n\n");
}

static void stream_error(struct call *c, const struct api_error *e, struct buf *out)
{
    (void)c;
    sse_begin(out, NULL);
    api_error_body(e, DIALECT_OPENAI, out);
    sse_end(out);
    buf_addz(out, "data: [DONE]\n\n");
}

static void stream_keepalive(struct call *c, struct buf *out)
{
    put_chunk(c, 0, "", 0, NULL, out);
}

static void stream_progress(struct call *c, const char *state, struct buf *out)
{
    sse_begin(out, NULL);
    begin_object(c, out);
    buf_addz(out, ",\"choices\":[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":null}],");
    put_progress(c, state, out);
    buf_addc(out, '}');
    sse_end(out);
}

static void whole(struct call *c, struct buf *out)
{
    begin_object(c, out);
    buf_addz(out, ",\"choices\":[");
    for (int i = 0; i < c->n_choices; i++) {
        struct buf text = {0};
        if (i) buf_addc(out, ',');
        put_echo(c, i, &text);
        buf_add(&text, buf_str(&c->choices[i].content), c->choices[i].content.len);
        put_choice(c, i, buf_str(&text), text.len, choice_finish(&c->choices[i]), out);
        buf_free(&text);
    }
    buf_addz(out, "],");
    put_usage(c, out);
    put_vendor(c, 0, out);
    buf_addc(out, '}');
}

const struct dialect_ops completions_ops = {stream_begin, stream_record, stream_choice_end, stream_end,
                                            whole, stream_error, stream_keepalive, stream_progress};
