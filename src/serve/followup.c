/* The conversation behind an answer. */
#include "serve/followup.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/server_impl.h"
#include "spec/family.h"

struct followup {
    struct followup *next;
    struct engine *engine;       /* borrowed */
    const struct bundle *texts;  /* borrowed */
    struct json *json, *converted; /* owned; what the request's texts lie in */
    struct chat_request chat;    /* owned; the answer and what follows are added to its messages */
};

/* Whether the client sends the reasoning of earlier answers back: what it did so far, else what its dialect does. */
static bool sends_reasoning(const struct call *c)
{
    bool any = false;
    for (size_t i = 0; i < json_size(c->chat.messages); i++) {
        const struct json *m = json_at(c->chat.messages, i), *role = json_get(m, "role");
        if (!role || strcmp(json_string(role), "assistant") != 0) continue;
        if (json_get(m, "reasoning_content")) return true;
        any = true;
    }
    return !any && c->endpoint->ops != &chat_ops;
}

static struct json *text_of(const struct buf *b)
{
    return json_new_text(buf_str(b), b->len);
}

static struct json *calls_of(const struct choice *ch)
{
    struct json *calls = json_new_array();
    for (int i = 0; i < ch->n_calls; i++) {
        struct json *call = json_new_object(), *function = json_new_object();
        json_put(function, "name", text_of(&ch->calls[i].name));
        json_put(function, "arguments", text_of(&ch->calls[i].arguments));
        json_put(call, "id", json_new_string(ch->calls[i].id));
        json_put(call, "type", json_new_string("function"));
        json_put(call, "function", function);
        json_add(calls, call);
    }
    return calls;
}

static struct json *message_of(const char *role, struct json *content)
{
    struct json *m = json_new_object();
    json_put(m, "role", json_new_string(role));
    json_put(m, "content", content);
    return m;
}

struct followup *followup_of(struct call *c)
{
    const struct choice *ch = &c->choices[0];
    if (!c->chat.messages || c->n_choices != 1 || !ch->ended || ch->result.status != LILY_OK || ch->result.finish == FINISH_CANCELLED)
        return NULL;
    if (!engine_cache(c->server->engine)) return NULL;
    struct json *answer = message_of("assistant", text_of(&ch->content));
    if (ch->reasoning.len && sends_reasoning(c)) json_put(answer, "reasoning_content", text_of(&ch->reasoning));
    if (ch->n_calls) json_put(answer, "tool_calls", calls_of(ch));
    struct followup *f = mem_new(sizeof *f);
    *f = (struct followup){.engine = c->server->engine, .texts = c->server->texts, .json = c->json, .converted = c->converted, .chat = c->chat};
    c->json = c->converted = NULL;
    memset(&c->chat, 0, sizeof c->chat);
    json_add(f->chat.messages, answer);
    json_add(f->chat.messages, message_of(ch->n_calls ? "tool" : "user", json_new_string("next")));
    return f;
}

void followup_free(struct followup *f)
{
    if (!f) return;
    chat_request_free(&f->chat);
    json_free(f->converted);
    json_free(f->json);
    free(f);
}

/* The end of the answer, which is the last message but one; 0: it cannot be told. */
static size_t answer_end(const struct prompt *p)
{
    size_t last = 0, before = 0;
    for (int i = 0; i < p->rendering.n_marks; i++) {
        if (p->marks[i].kind != MARK_MESSAGE_END) continue;
        before = last;
        last = p->marks[i].at;
    }
    return before;
}

void followup_run(struct followup *f)
{
    struct prompt p;
    f->chat.options.no_generation_prompt = true;
    if (prompt_render(f->texts, f->chat.messages, f->chat.tools, &f->chat.options, &p, NULL) == LILY_OK) {
        size_t n = answer_end(&p) / GRID * GRID;
        if (n > 0 && (int)n < engine_ctx(f->engine)) {
            struct read_ahead *a = mem_new(sizeof *a);
            a->ids = p.ids;
            a->ids.n = n;
            memset(&p.ids, 0, sizeof p.ids);
            engine_read_ahead(f->engine, a);
        }
        prompt_free(&p);
    }
    followup_free(f);
}

struct followup **followup_next(struct followup *f)
{
    return &f->next;
}
