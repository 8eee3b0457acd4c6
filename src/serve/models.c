/* GET /v1/models and /v1/models/{id}. */
#include <string.h>

#include "serve/fields.h"
#include "serve/server_impl.h"
#include "serve/write.h"

/* What holds for a chat that says nothing. */
static void put_sampling(const struct model_config *c, struct buf *out)
{
    struct sampler_params p;
    fields_sampling_defaults(c, &p);
    buf_printf(out, ",\"default_sampling\":{\"temperature\":%g,\"top_p\":%g,\"top_k\":%d,\"min_p\":%g", p.temperature, p.top_p, p.top_k, p.min_p);
    buf_printf(out, ",\"presence_penalty\":%g,\"frequency_penalty\":%g,\"repetition_penalty\":%g", p.presence_penalty, p.frequency_penalty,
               p.repetition_penalty);
    if (c->max_new_tokens) buf_printf(out, ",\"max_tokens\":%d}", c->max_new_tokens);
    else buf_addz(out, ",\"max_tokens\":null}");
}

static void put_model(const struct server *s, struct buf *out)
{
    int ctx = engine_ctx(s->engine);
    buf_addc(out, '{');
    put_memberz(out, "id", s->opt->model_id);
    buf_printf(out, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"lily\",\"type\":\"model\",");
    put_memberz(out, "display_name", s->opt->model_id);
    buf_addz(out, ",\"created_at\":\"1970-01-01T00:00:00Z\"");
    if (ctx) buf_printf(out, ",\"context_length\":%d,\"max_model_len\":%d", ctx, ctx);
    put_sampling(&s->texts->config, out);
    buf_addc(out, '}');
}

void models_reply(struct server *s, struct http_exchange *x)
{
    struct buf out = {0};
    const char *path = http_head(x)->path, *name = strstr(path, "/models");
    name += strlen("/models");
    name += *name == '/';
    if (*name && strcmp(name, s->opt->model_id) != 0 && s->opt->strict_model) {
        struct api_error e;
        api_error_set(&e, 404, "model_not_found", "model", "the model \"%.100s\" is not here; this is %s", name, s->opt->model_id);
        server_note_error(s, NULL, http_head(x), &e);
        server_reply_error(s, x, &e, DIALECT_OPENAI);
        return;
    }
    if (*name) {
        put_model(s, &out);
    } else {
        buf_addz(&out, "{\"object\":\"list\",\"data\":[");
        put_model(s, &out);
        buf_addz(&out, "],\"has_more\":false,");
        put_memberz(&out, "first_id", s->opt->model_id);
        buf_addc(&out, ',');
        put_memberz(&out, "last_id", s->opt->model_id);
        buf_addc(&out, '}');
    }
    server_note(s, NULL, http_head(x), 200);
    server_reply_json(s, x, 200, &out);
    buf_free(&out);
}
