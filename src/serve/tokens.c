/* POST /tokenize, /detokenize, /apply-template: text to ids, ids to text, messages to a prompt. All on P. */
#include <string.h>

#include "serve/fields.h"
#include "serve/server_impl.h"
#include "serve/write.h"

static void put_ids(const struct ids *ids, struct buf *out)
{
    buf_addc(out, '[');
    for (size_t i = 0; i < ids->n; i++) buf_printf(out, "%s%d", i ? "," : "", (int)ids->data[i]);
    buf_addc(out, ']');
}

/* {content | prompt | text, special} → {tokens, count} */
void tokenize_prepare(struct call *c)
{
    static const char *const keys[] = {"content", "prompt", "text"};
    struct lily_err err;
    bool special = true;
    const struct json *v = NULL;
    if (!call_parse(c)) return;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !v; i++) v = json_get(c->json, keys[i]);
    lily_status st = json_get_bool((struct json_field){c->json, "request", "parse_special"}, &special, &err);
    if (st == LILY_OK && (!v || json_kind(v) != JSON_STRING))
        st = err_set(&err, LILY_ERR_FORMAT, "content is %s, expected a string", v ? json_kind_name(v) : "missing");
    if (st != LILY_OK) {
        call_fail(c, &err);
        return;
    }
    const struct tokenizer *t = c->server->texts->tokenizer;
    st = special ? tokenizer_encode_special(t, json_string(v), json_string_len(v), &c->ids, &err)
                 : tokenizer_encode(t, json_string(v), json_string_len(v), &c->ids, &err);
    if (st != LILY_OK) {
        call_fail(c, &err);
        return;
    }
    buf_addz(&c->reply, "{\"tokens\":");
    put_ids(&c->ids, &c->reply);
    buf_printf(&c->reply, ",\"count\":%zu}", c->ids.n);
}

/* {tokens} → {content, text} */
void detokenize_prepare(struct call *c)
{
    struct lily_err err;
    struct buf text = {.tries = true};
    if (!call_parse(c)) return;
    const struct json *v = json_get(c->json, "tokens");
    int n_tokens = tokenizer_size(c->server->texts->tokenizer);
    lily_status st = LILY_OK;
    if (!v || json_kind(v) != JSON_ARRAY)
        st = err_set(&err, LILY_ERR_FORMAT, "tokens is %s, expected an array of token ids", v ? json_kind_name(v) : "missing");
    for (size_t i = 0; st == LILY_OK && i < json_size(v); i++) {
        const struct json *one = json_at(v, i);
        int32_t id = json_kind(one) == JSON_INTEGER && json_int(one) >= 0 && json_int(one) < n_tokens ? (int32_t)json_int(one) : -1;
        if (id < 0) st = err_set(&err, LILY_ERR_FORMAT, "tokens[%zu] is no token id from 0 to %d", i, n_tokens - 1);
        else if (!ids_try_append(&c->ids, &id, 1)) st = err_set(&err, LILY_ERR_MEMORY, "not enough memory for %zu tokens", json_size(v));
    }
    if (st == LILY_OK) tokenizer_decode(c->server->texts->tokenizer, c->ids.data, c->ids.n, true, &text);
    if (st == LILY_OK) st = buf_check(&text, "the text", &err);
    if (st != LILY_OK) {
        call_fail(c, &err);
        buf_free(&text);
        return;
    }
    buf_addc(&c->reply, '{');
    put_member(&c->reply, "content", buf_str(&text), text.len);
    buf_addc(&c->reply, ',');
    put_member(&c->reply, "text", buf_str(&text), text.len);
    buf_addc(&c->reply, '}');
    buf_free(&text);
}

/* A chat-completions body → {prompt, tokens, count} */
void apply_template_prepare(struct call *c)
{
    struct lily_err err;
    if (!call_parse(c)) return;
    if (call_render(c, c->json, &err) != LILY_OK) {
        call_fail(c, &err);
        return;
    }
    struct json *text = json_new_text(buf_str(&c->prompt.rendering.text), c->prompt.rendering.text.len);
    buf_addz(&c->reply, "{\"prompt\":");
    json_write(text, 0, &c->reply);
    buf_addz(&c->reply, ",\"tokens\":");
    put_ids(&c->prompt.ids, &c->reply);
    buf_printf(&c->reply, ",\"count\":%zu}", c->prompt.ids.n);
    json_free(text);
}
