/* Shared request fields. */
#include "serve/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/stops.h"
#include "serve/server_impl.h"
#include "serve/write.h"

enum { MAX_BIAS = 1024, MAX_TOKENS_FIELD = INT32_MAX, BUDGET_MINIMAL = 512, BUDGET_LOW = 2048, BUDGET_MEDIUM = 8192 };

static bool is_kind(const struct json *v, enum json_kind kind)
{
    return v && json_kind(v) == kind;
}

static bool is_absent(const struct json *v)
{
    return !v || json_kind(v) == JSON_NULL;
}

static struct json_field at(const struct json *body, const char *key)
{
    return (struct json_field){body, "request", key};
}

/* ---- sampling ---- */

static lily_status read_bias(struct call *c, const struct json *v, struct lily_err *err)
{
    if (is_absent(v)) return LILY_OK;
    if (json_kind(v) != JSON_OBJECT)
        LILY_FAIL(err, LILY_ERR_FORMAT, "logit_bias is of kind %s, expected an object of token ids and numbers", json_kind_name(v));
    if (json_size(v) > MAX_BIAS) LILY_FAIL(err, LILY_ERR_FORMAT, "logit_bias names %zu tokens, at most %d are possible", json_size(v), MAX_BIAS);
    c->ask.bias = mem_new(sizeof *c->ask.bias * (json_size(v) + 1));
    for (size_t i = 0; i < json_size(v); i++) {
        const struct json *value;
        char *end;
        const char *key = json_key_at(v, i, &value);
        long id = strtol(key, &end, 10);
        if (*end || end == key || id < 0 || id > INT32_MAX)
            LILY_FAIL(err, LILY_ERR_FORMAT, "logit_bias has the key \"%.40s\", expected token ids", key);
        if (json_kind(value) != JSON_INTEGER && json_kind(value) != JSON_REAL)
            LILY_FAIL(err, LILY_ERR_FORMAT, "logit_bias of token %ld is of kind %s, expected a number", id, json_kind_name(value));
        double d = json_double(value);
        if (!(d >= -100 && d <= 100)) LILY_FAIL(err, LILY_ERR_FORMAT, "logit_bias of token %ld is %g, expected -100 to 100", id, d);
        c->ask.bias[c->ask.spec.sampling.n_bias++] = (struct logit_bias){(int32_t)id, (float)d};
    }
    c->ask.spec.sampling.bias = c->ask.bias;
    return LILY_OK;
}

static lily_status read_seed(struct call *c, const struct json *body, struct lily_err *err)
{
    const struct json *v = json_get(body, "seed");
    c->ask.seed = random_number();
    if (is_absent(v)) return LILY_OK;
    if (json_kind(v) != JSON_INTEGER)
        LILY_FAIL(err, LILY_ERR_FORMAT, "seed is of kind %s, expected a whole number of at most 63 bits", json_kind_name(v));
    if (json_int(v) == -1) return LILY_OK; /* the usual word for "any" */
    c->ask.seed = (uint64_t)json_int(v);
    c->ask.seeded = true;
    return LILY_OK;
}

/* {"progress": true} */
static lily_status read_lily(struct call *c, const struct json *body, struct lily_err *err)
{
    const struct json *v = json_get(body, "lily");
    if (is_absent(v)) return LILY_OK;
    if (json_kind(v) != JSON_OBJECT) LILY_FAIL(err, LILY_ERR_FORMAT, "lily is of kind %s, expected an object", json_kind_name(v));
    return json_get_bool((struct json_field){v, "lily", "progress"}, &c->ask.progress, err);
}

void fields_sampling_defaults(const struct model_config *config, struct sampler_params *out)
{
    sampler_params_init(out);
    out->temperature = config->temperature;
    out->top_p = config->top_p;
    out->top_k = config->top_k;
}

lily_status fields_sampling(struct call *c, const struct json *body, struct lily_err *err)
{
    const struct model_config *config = &c->server->texts->config;
    struct sampler_params *p = &c->ask.spec.sampling;
    int64_t top_k = config->top_k, n = 1;
    fields_sampling_defaults(config, p);
    LILY_TRY(json_get_double(at(body, "temperature"), 0, 100, &p->temperature, err));
    LILY_TRY(json_get_double(at(body, "top_p"), 0, 1, &p->top_p, err));
    LILY_TRY(json_get_double(at(body, "min_p"), 0, 1, &p->min_p, err));
    LILY_TRY(json_get_int(at(body, "top_k"), -1, INT32_MAX, &top_k, err));
    LILY_TRY(json_get_double(at(body, "repetition_penalty"), 0.01, 100, &p->repetition_penalty, err));
    LILY_TRY(json_get_double(at(body, "presence_penalty"), -2, 2, &p->presence_penalty, err));
    LILY_TRY(json_get_double(at(body, "frequency_penalty"), -2, 2, &p->frequency_penalty, err));
    LILY_TRY(json_get_int(at(body, "n"), 1, MAX_CHOICES, &n, err));
    LILY_TRY(json_get_bool(at(body, "stream"), &c->ask.stream, err));
    p->top_k = top_k < 0 ? 0 : (int)top_k;
    c->ask.n = (int)n;
    LILY_TRY(read_bias(c, json_get(body, "logit_bias"), err));
    LILY_TRY(read_seed(c, body, err));
    LILY_TRY(read_lily(c, body, err));
    return sampler_params_check(p, c->server->texts->n_tokens, err);
}

lily_status fields_stop(struct call *c, const struct json *body, const char *key, struct lily_err *err)
{
    const struct json *v = json_get(body, key);
    struct stops *checked;
    if (is_absent(v)) return LILY_OK;
    size_t n = json_kind(v) == JSON_ARRAY ? json_size(v) : 1;
    c->ask.stop = mem_new(sizeof *c->ask.stop * (n + 1));
    for (size_t i = 0; i < n; i++) {
        const struct json *one = json_kind(v) == JSON_ARRAY ? json_at(v, i) : v;
        if (json_kind(one) != JSON_STRING)
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s holds a value of kind %s, expected a string or an array of strings", key, json_kind_name(one));
        if (json_string_len(one) == 0) LILY_FAIL(err, LILY_ERR_FORMAT, "%s holds an empty string, which would end every answer", key);
        if (strlen(json_string(one)) != json_string_len(one)) LILY_FAIL(err, LILY_ERR_FORMAT, "%s holds a NUL character", key);
        c->ask.stop[c->ask.spec.n_stop++] = json_string(one);
    }
    c->ask.spec.stop = c->ask.stop;
    lily_status st = stops_new(c->ask.stop, c->ask.spec.n_stop, &checked, err);
    if (st == LILY_OK) stops_free(checked);
    else err_prefix(err, "%s is refused", key);
    return st;
}

lily_status fields_max_tokens(struct call *c, const struct json *body, const char *key, struct lily_err *err)
{
    int64_t n = c->ask.spec.max_tokens;
    LILY_TRY(json_get_int(at(body, key), 1, MAX_TOKENS_FIELD, &n, err));
    c->ask.spec.max_tokens = (int)n;
    return LILY_OK;
}

/* ---- thinking ---- */

lily_status fields_effort(struct call *c, const struct json *v, const char *what, struct lily_err *err)
{
    static const struct {
        const char *word;
        int budget; /* -1: no limit; -2: no thinking */
    } efforts[] = {{"none", -2}, {"minimal", BUDGET_MINIMAL}, {"low", BUDGET_LOW}, {"medium", BUDGET_MEDIUM},
                   {"high", -1}, {"xhigh", -1}, {"max", -1}, {"adaptive", -1}};
    if (is_absent(v)) return LILY_OK;
    for (size_t i = 0; is_kind(v, JSON_STRING) && i < sizeof efforts / sizeof efforts[0]; i++) {
        if (strcmp(json_string(v), efforts[i].word) != 0) continue;
        if (efforts[i].budget == -2) c->chat.options.no_thinking = true;
        else c->ask.spec.thinking_budget = efforts[i].budget;
        return LILY_OK;
    }
    LILY_FAIL(err, LILY_ERR_FORMAT, "%s is %.40s, expected none, minimal, low, medium or high", what,
              is_kind(v, JSON_STRING) ? json_string(v) : json_kind_name(v));
}

static lily_status read_budget(struct call *c, const struct json *body, const char *what, struct lily_err *err)
{
    int64_t budget = -1;
    LILY_TRY(json_get_int((struct json_field){body, what, "thinking_budget"}, -1, INT32_MAX, &budget, err));
    if (budget >= 0) c->ask.spec.thinking_budget = (int)budget;
    return LILY_OK;
}

lily_status fields_thinking(struct call *c, const struct json *body, struct lily_err *err)
{
    const char *format = NULL;
    const struct json *reasoning = json_get(body, "reasoning"), *kwargs = json_get(body, "chat_template_kwargs");
    LILY_TRY(fields_effort(c, json_get(body, "reasoning_effort"), "reasoning_effort", err));
    if (is_kind(reasoning, JSON_OBJECT)) LILY_TRY(fields_effort(c, json_get(reasoning, "effort"), "reasoning.effort", err));
    if (is_kind(kwargs, JSON_OBJECT)) LILY_TRY(read_budget(c, kwargs, "chat_template_kwargs", err));
    LILY_TRY(read_budget(c, body, "request", err));
    LILY_TRY(json_get_string(at(body, "reasoning_format"), &format, err));
    if (format && strcmp(format, "none") == 0) c->ask.tags = true;
    else if (format && strcmp(format, "auto") != 0 && strcmp(format, "deepseek") != 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "reasoning_format is \"%.40s\", expected none or auto", format);
    return LILY_OK;
}

/* ---- tools and formats ---- */

static bool names_tool(const struct json *tools, const char *name)
{
    for (size_t i = 0; tools && i < json_size(tools); i++) {
        const struct json *f = json_get(json_at(tools, i), "function"), *n = json_get(f ? f : json_at(tools, i), "name");
        if (is_kind(n, JSON_STRING) && strcmp(json_string(n), name) == 0) return true;
    }
    return false;
}

/* Functions must have a name, in their own object or, as some clients have it, beside the type. Other kinds are left alone. */
static lily_status check_tools(const struct json *tools, struct lily_err *err)
{
    for (size_t i = 0; tools && i < json_size(tools); i++) {
        const struct json *tool = json_at(tools, i), *type = json_get(tool, "type"), *f = json_get(tool, "function");
        if (is_kind(type, JSON_STRING) && strcmp(json_string(type), "function") != 0) continue;
        if (is_kind(type, JSON_STRING) && is_kind(json_get(tool, "name"), JSON_STRING) && !f) continue;
        if (!is_kind(f, JSON_OBJECT))
            LILY_FAIL(err, LILY_ERR_FORMAT, "tools[%zu].function is %s, expected an object with a name", i, f ? json_kind_name(f) : "missing");
        if (!is_kind(json_get(f, "name"), JSON_STRING))
            LILY_FAIL(err, LILY_ERR_FORMAT, "tools[%zu].function.name is missing, expected a string", i);
    }
    return LILY_OK;
}

lily_status fields_tools(struct call *c, const struct json *body, struct lily_err *err)
{
    const struct json *choice = json_get(body, "tool_choice");
    bool parallel = true;
    LILY_TRY(check_tools(c->chat.tools, err));
    c->ask.spec.tools = c->chat.tools;
    LILY_TRY(json_get_bool(at(body, "parallel_tool_calls"), &parallel, err));
    c->ask.spec.one_call = !parallel;
    if (is_absent(choice)) return LILY_OK;
    const char *word = is_kind(choice, JSON_STRING) ? json_string(choice) : "";
    if (strcmp(word, "auto") == 0) return LILY_OK;
    if (strcmp(word, "none") == 0) {
        c->chat.tools = c->ask.spec.tools = NULL;
        c->ask.spec.no_calls = true;
        return LILY_OK;
    }
    if (strcmp(word, "required") == 0 || strcmp(word, "any") == 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "tool_choice \"%s\" is not supported yet", word);
    const struct json *function = json_get(choice, "function"), *name = json_get(function ? function : choice, "name");
    if (!is_kind(choice, JSON_OBJECT) || !is_kind(name, JSON_STRING))
        LILY_FAIL(err, LILY_ERR_FORMAT, "tool_choice is none of auto, none, required and {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (!names_tool(c->chat.tools, json_string(name)))
        LILY_FAIL(err, LILY_ERR_FORMAT, "tool_choice names \"%.80s\", which is none of the tools", json_string(name));
    LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "tool_choice with a function's name is not supported yet");
}

lily_status fields_format(const struct json *format, const char *what, struct lily_err *err)
{
    if (is_absent(format)) return LILY_OK;
    const struct json *type = json_get(format, "type");
    if (!is_kind(format, JSON_OBJECT) || !is_kind(type, JSON_STRING))
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s is no object with a \"type\"", what);
    if (strcmp(json_string(type), "text") == 0) return LILY_OK;
    if (strcmp(json_string(type), "json_object") == 0 || strcmp(json_string(type), "json_schema") == 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "%s of type %s is not supported yet", what, json_string(type));
    LILY_FAIL(err, LILY_ERR_FORMAT, "%s has the type \"%.40s\", expected text, json_object or json_schema", what, json_string(type));
}

bool fields_model(struct call *c, const struct json *body)
{
    const struct json *v = json_get(body, "model");
    struct lily_err err;
    if (!is_absent(v) && json_kind(v) != JSON_STRING) {
        err_set(&err, LILY_ERR_FORMAT, "model is of kind %s, expected a string", json_kind_name(v));
        call_fail(c, &err);
        return false;
    }
    if (!c->server->opt->strict_model || is_absent(v) || strcmp(json_string(v), c->server->opt->model_id) == 0) return true;
    api_error_set(&c->error, 404, "model_not_found", "model", "the model \"%.100s\" is not here; this is %s", json_string(v),
                  c->server->opt->model_id);
    return false;
}

/* ---- steps of a call ---- */

void call_fail(struct call *c, const struct lily_err *err)
{
    api_error_from(&c->error, err, c->json);
}

bool call_parse(struct call *c)
{
    struct lily_err err;
    const int most = c->server->texts->config.max_new_tokens;
    c->ask.spec.max_tokens = most ? most : INT32_MAX;
    c->ask.spec.thinking_budget = -1;
    c->ask.spec.n_logprobs = -1;
    c->ask.spec.loop_guard = c->server->opt->loop_guard;
    c->ask.alias = c->server->opt->reasoning_alias;
    lily_status st = json_parse(buf_str(&c->body), c->body.len, "request body", &c->json, &err);
    if (st == LILY_OK && json_kind(c->json) != JSON_OBJECT)
        st = err_set(&err, LILY_ERR_FORMAT, "the request body is of kind %s, expected an object", json_kind_name(c->json));
    buf_free(&c->body);
    if (st != LILY_OK) call_fail(c, &err);
    return st == LILY_OK && fields_model(c, c->json);
}

/* Clients that send `reasoning` in history read it, too. */
static bool history_has_alias(const struct json *messages)
{
    for (size_t i = 0; i < json_size(messages); i++)
        if (is_kind(json_get(json_at(messages, i), "reasoning"), JSON_STRING)) return true;
    return false;
}

static bool has_role(const struct json *message, const char *role)
{
    return strcmp(json_string(json_get(message, "role")), role) == 0;
}

/*
 * There must be a user, and each says something: only an assistant, whose calls may be all it says, and a tool may say nothing,
 * where the template would take that from a user, too. what: the list's name in the dialect.
 */
static lily_status check_users(const struct json *messages, const char *what, struct lily_err *err)
{
    bool any = false;
    for (size_t i = 0; i < json_size(messages); i++) {
        const struct json *m = json_at(messages, i), *content = json_get(m, "content");
        if (!has_role(m, "user")) continue;
        any = true;
        if (is_absent(content))
            LILY_FAIL(err, LILY_ERR_FORMAT, "messages[%zu].content is %s, expected a string or an array of parts", i, content ? "null" : "missing");
    }
    if (any) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_FORMAT, "%s %s, expected at least one message of the role user", what,
              json_size(messages) ? "has no message of a user" : "is empty");
}

lily_status fields_last_message(const struct call *c, struct lily_err *err)
{
    const struct json *messages = c->chat.messages;
    if (!has_role(json_at(messages, json_size(messages) - 1), "assistant")) return LILY_OK;
    err_set(err, LILY_ERR_UNSUPPORTED, "messages ends with the assistant's, and the beginning of an answer cannot be given yet");
    err_hint(err, "the last message must be the user's or a tool's result");
    return LILY_ERR_UNSUPPORTED;
}

lily_status call_render(struct call *c, const struct json *body, struct lily_err *err)
{
    struct chat_request chat;
    bool no_thinking = c->chat.options.no_thinking; /* by a field of the dialect */
    LILY_TRY(chat_request_parse(body, &chat, err));
    chat.options.no_thinking |= no_thinking;
    chat.options.calls = c->server->tool_calls;
    c->chat = chat;
    if (chat.media[0]) return chat_refuse_media(chat.media, err);
    LILY_TRY(check_users(json_get(body, "messages"), c->endpoint->ops == &responses_ops ? "input" : "messages", err));
    c->ask.alias |= history_has_alias(json_get(body, "messages"));
    LILY_TRY(fields_tools(c, body, err));
    LILY_TRY(fields_thinking(c, c->json, err));
    LILY_TRY(prompt_render(c->server->texts, c->chat.messages, c->chat.tools, &c->chat.options, &c->prompt, err));
    struct job_spec *s = &c->ask.spec;
    s->ids = c->prompt.ids.data;
    s->n_ids = (int)c->prompt.ids.n;
    s->marks = c->prompt.positions;
    s->n_marks = c->prompt.rendering.n_marks;
    s->text = buf_str(&c->prompt.rendering.text);
    s->n_text = c->prompt.rendering.text.len;
    s->thinking_open = c->prompt.thinking_open;
    return LILY_OK;
}

/* The prompt and one token must fit; what is asked beyond the context is lowered. */
static bool fit_context(struct call *c, struct job_spec *s)
{
    int ctx = engine_ctx(c->server->engine), most = c->server->texts->config.shape.max_positions;
    if (s->n_ids < 1) {
        api_error_set(&c->error, 400, NULL, "prompt", "the prompt is empty: at least one token is needed");
        return false;
    }
    if (s->n_ids >= ctx) {
        api_error_set(&c->error, 400, "context_length_exceeded", "messages",
                      "the prompt has %d tokens, and the context holds %d, answer included: prompt is too long", s->n_ids, ctx);
        if (ctx < most) err_hint(&c->error.err, "the server can be started with a larger --ctx: the model takes up to %d", most);
        return false;
    }
    if (s->max_tokens > ctx - s->n_ids) s->max_tokens = ctx - s->n_ids;
    return true;
}

void call_submit(struct call *c)
{
    struct lily_err err;
    struct job *jobs[MAX_CHOICES];
    int n_prompts = c->n_prompts ? c->n_prompts : 1;
    if (!c->n_prompts) c->prompts[0] = &c->ask.spec;
    for (int i = 0; i < n_prompts; i++) {
        c->prompts[i]->whole = !c->ask.stream;
        if (!fit_context(c, c->prompts[i])) return;
    }
    for (int i = 0; i < c->ask.n; i++) {
        jobs[i] = job_new(c->prompts[i / (c->ask.n / n_prompts)], c->ask.seed + (uint64_t)i);
        jobs[i]->user = c;
        /* A client that left meanwhile: the job ends as soon as the engine sees it. */
        if (atomic_load(&c->gone)) atomic_store(&jobs[i]->cancel, true);
    }
    lily_status st = engine_submit(c->server->engine, jobs, c->ask.n, &err);
    if (st == LILY_OK) {
        for (int i = 0; i < c->ask.n; i++) c->choices[i].job = jobs[i];
        c->n_choices = c->ask.n;
        return;
    }
    for (int i = 0; i < c->ask.n; i++) job_free(jobs[i]);
    call_fail(c, &err);
    if (st == LILY_ERR_DEVICE) c->error.http = 503;
}
