/* The public interface on top of the inner layers. */
#include "lily/lily.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "chat/message.h"
#include "chat/request.h"
#include "run/answer.h"

struct lily_model {
    struct bundle bundle;    /* owned */
    pthread_mutex_t compute; /* recursive; held by who uses the model; callbacks come under it */
    bool answering;          /* under the lock: seen by callbacks alone */
    int max_sessions, n_sessions;
    int borders;
};

struct lily_session {
    lily_model *model;       /* borrowed */
    struct session *session; /* owned */
    atomic_bool cancel;
    bool answering, freed; /* under the model's lock; freed: by a callback of its own answer, which ends first */
};

struct lily_prompt {
    struct prompt prompt;        /* owned */
    struct json *body;           /* owned; what request shares; NULL for a raw prompt */
    struct chat_request request; /* owned */
    struct buf raw;              /* owned; the text of a raw prompt */
};

const char *lily_version(void)
{
    return LILY_VERSION;
}

void lily_free(void *p)
{
    free(p);
}

/* ---- models ---- */

void lily_options_init(struct lily_options *o)
{
    *o = (struct lily_options){.sessions = 1, .borders = 4};
}

static lily_status check_options(const struct lily_options *o, struct lily_err *err)
{
    if (o->ctx < 0) LILY_FAIL(err, LILY_ERR_USAGE, "ctx is %d, expected 0 or more", o->ctx);
    if (o->sessions < 1 || o->sessions > 4096) LILY_FAIL(err, LILY_ERR_USAGE, "sessions is %d, expected 1 to 4096", o->sessions);
    if (o->borders < 0 || o->borders > 4096) LILY_FAIL(err, LILY_ERR_USAGE, "borders is %d, expected 0 to 4096", o->borders);
    if (o->threads < 0 || o->threads > 256) LILY_FAIL(err, LILY_ERR_USAGE, "threads is %d, expected 0 to 256", o->threads);
    return LILY_OK;
}

static lily_status model_options_of(const struct lily_options *o, const struct model_config *c, struct model_options *out,
                                    struct lily_err *err)
{
    model_options_init(out);
    out->threads = o->threads;
    if (o->cpu_tier && !cpu_tier_parse(o->cpu_tier, &out->tier))
        LILY_FAIL(err, LILY_ERR_USAGE, "cpu_tier is \"%.40s\", which is no tier", o->cpu_tier);
    out->fast = o->fast != 0;
    out->plan.ctx = o->ctx;
    out->plan.n_seqs = o->sessions;
    out->plan.kv_f32 = o->kv_f32 != 0;
    out->plan.limit = (size_t)o->memory_limit;
    out->plan.max_rows = out->max_rows;
    out->plan.border_bytes = bundle_border_bytes(c, o->sessions * o->borders);
    return LILY_OK;
}

static void copy_plan(const struct memory_plan *p, struct lily_plan *out)
{
    *out = (struct lily_plan){p->weights, p->kv, p->borders, p->scratch, p->total, p->limit, p->ctx};
}

lily_status lily_plan_memory(const char *dir, const struct lily_options *options, struct lily_plan *out,
                             struct lily_err *err)
{
    struct lily_options defaults;
    struct model_config config;
    struct model_options o;
    struct memory_plan plan = {0};
    lily_options_init(&defaults);
    if (!options) options = &defaults;
    memset(out, 0, sizeof *out);
    LILY_TRY(check_options(options, err));
    LILY_TRY(config_load(dir, &config, err));
    lily_status st = model_options_of(options, &config, &o, err);
    if (st == LILY_OK) st = plan_make(&config, &o.plan, &plan, err);
    copy_plan(&plan, out);
    config_free(&config);
    return st;
}

/* A callback may make and free sessions: its thread holds the lock already. */
static bool init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;
    if (pthread_mutexattr_init(&attr) != 0) return false;
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    bool made = pthread_mutex_init(lock, &attr) == 0;
    pthread_mutexattr_destroy(&attr);
    return made;
}

lily_status lily_open(const char *dir, const struct lily_options *options, lily_model **out, struct lily_err *err)
{
    struct lily_options defaults;
    struct model_options o;
    *out = NULL;
    lily_options_init(&defaults);
    if (!options) options = &defaults;
    LILY_TRY(check_options(options, err));
    lily_model *m = mem_new(sizeof *m);
    lily_status st;
    LILY_TRY_GOTO(bundle_open(dir, &m->bundle, err), out);
    LILY_TRY_GOTO(model_options_of(options, &m->bundle.config, &o, err), out);
    LILY_TRY_GOTO(bundle_load(&m->bundle, &o, err), out);
    if (!init_lock(&m->compute)) {
        st = err_set(err, LILY_ERR_MEMORY, "no memory for a lock");
        goto out;
    }
    m->max_sessions = options->sessions;
    m->borders = options->borders;
    *out = m;
    return LILY_OK;
out:
    bundle_close(&m->bundle);
    free(m);
    return st;
}

void lily_close(lily_model *m)
{
    if (!m) return;
    pthread_mutex_destroy(&m->compute);
    bundle_close(&m->bundle);
    free(m);
}

void lily_model_plan(const lily_model *m, struct lily_plan *out)
{
    copy_plan(model_plan(m->bundle.model), out);
}

int lily_model_tokens(const lily_model *m)
{
    return m->bundle.n_tokens;
}

/* ---- text and tokens ---- */

lily_status lily_tokenize(const lily_model *m, const char *text, size_t n, int special, int32_t **ids, size_t *n_ids,
                          struct lily_err *err)
{
    struct ids list = {0};
    lily_status st = special ? tokenizer_encode_special(m->bundle.tokenizer, text, n, &list, err)
                             : tokenizer_encode(m->bundle.tokenizer, text, n, &list, err);
    if (st != LILY_OK) ids_free(&list);
    LILY_TRY(st);
    *n_ids = list.n;
    *ids = list.data ? list.data : mem_try(1, sizeof **ids);
    if (!*ids) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the ids of a text");
    return LILY_OK;
}

lily_status lily_detokenize(const lily_model *m, const int32_t *ids, size_t n_ids, int special, char **text, size_t *n,
                            struct lily_err *err)
{
    struct buf out = {.tries = true};
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= m->bundle.n_tokens)
            LILY_FAIL(err, LILY_ERR_USAGE, "id %zu is %d, expected 0 to %d", i, (int)ids[i], m->bundle.n_tokens - 1);
    tokenizer_decode(m->bundle.tokenizer, ids, n_ids, special != 0, &out);
    lily_status st = buf_check(&out, "the text", err);
    if (st != LILY_OK) buf_free(&out);
    LILY_TRY(st);
    *n = out.len;
    *text = buf_take(&out);
    return LILY_OK;
}

/* ---- prompts ---- */

/* Renders p->body; p is freed on failure. */
static lily_status render(const lily_model *m, lily_prompt *p, lily_prompt **out, struct lily_err *err)
{
    lily_status st;
    LILY_TRY_GOTO(chat_request_parse(p->body, &p->request, err), failed);
    if (p->request.media[0]) {
        st = err_set(err, LILY_ERR_UNSUPPORTED, "%s is an image or a video: lily reads text only", p->request.media);
        goto failed;
    }
    LILY_TRY_GOTO(prompt_render(&m->bundle, p->request.messages, p->request.tools, &p->request.options, &p->prompt, err), failed);
    *out = p;
    return LILY_OK;
failed:
    lily_prompt_free(p);
    return st;
}

lily_status lily_prompt_chat(const lily_model *m, const char *body, size_t n, lily_prompt **out, struct lily_err *err)
{
    struct json *parsed;
    *out = NULL;
    LILY_TRY(json_parse(body, n, "body", &parsed, err));
    lily_prompt *p = mem_new(sizeof *p);
    p->body = parsed;
    return render(m, p, out, err);
}

static lily_status add_message(struct json *messages, const char *role, const char *text, struct lily_err *err)
{
    const struct buf view = {.data = (char *)(uintptr_t)text, .len = strlen(text)};
    return chat_message_add(messages, role, &view, err);
}

lily_status lily_prompt_ask(const lily_model *m, const char *system, const char *question, int think, lily_prompt **out,
                            struct lily_err *err)
{
    struct json *messages = json_new_array();
    lily_prompt *p = mem_new(sizeof *p);
    lily_status st = LILY_OK;
    *out = NULL;
    p->body = json_new_object();
    json_put(p->body, "messages", messages);
    json_put(p->body, "enable_thinking", json_new_bool(think != 0));
    if (system) st = add_message(messages, "system", system, err);
    if (st == LILY_OK) st = add_message(messages, "user", question, err);
    if (st == LILY_OK) return render(m, p, out, err);
    lily_prompt_free(p);
    return st;
}

lily_status lily_prompt_raw(const lily_model *m, const char *text, size_t n, lily_prompt **out, struct lily_err *err)
{
    *out = NULL;
    if (n == 0) LILY_FAIL(err, LILY_ERR_USAGE, "an empty prompt: at least one token is needed");
    lily_prompt *p = mem_new(sizeof *p);
    p->raw.tries = true;
    buf_add(&p->raw, text, n);
    lily_status st = buf_check(&p->raw, "the prompt", err);
    if (st == LILY_OK) st = prompt_raw(&m->bundle, text, n, &p->prompt, err);
    if (st != LILY_OK) {
        lily_prompt_free(p);
        return st;
    }
    *out = p;
    return LILY_OK;
}

void lily_prompt_free(lily_prompt *p)
{
    if (!p) return;
    prompt_free(&p->prompt);
    if (p->request.messages) chat_request_free(&p->request);
    json_free(p->body);
    buf_free(&p->raw);
    free(p);
}

const char *lily_prompt_text(const lily_prompt *p, size_t *n)
{
    const struct buf *text = p->body ? &p->prompt.rendering.text : &p->raw;
    if (n) *n = text->len;
    return buf_str(text);
}

const int32_t *lily_prompt_ids(const lily_prompt *p, size_t *n)
{
    *n = p->prompt.ids.n;
    return p->prompt.ids.data;
}

/* ---- answers ---- */

void lily_request_init(struct lily_request *r, const lily_model *m, const lily_prompt *prompt)
{
    const struct model_config *c = &m->bundle.config;
    memset(r, 0, sizeof *r);
    r->prompt = prompt;
    r->sampling.repetition_penalty = 1;
    r->sampling.temperature = c->temperature;
    r->sampling.top_k = c->top_k;
    r->sampling.top_p = c->top_p;
}

lily_status lily_session_new(lily_model *m, lily_session **out, struct lily_err *err)
{
    struct session_options o = {.ctx = model_plan(m->bundle.model)->ctx, .max_borders = m->borders};
    lily_session *s = mem_new(sizeof *s);
    lily_status st = LILY_OK;
    s->model = m;
    *out = NULL;
    pthread_mutex_lock(&m->compute);
    if (m->n_sessions == m->max_sessions)
        st = err_set(err, LILY_ERR_LIMIT, "the model was opened for %s, and all are in use", COUNT_TEXT(m->max_sessions, "session"));
    if (st == LILY_OK) st = session_new(m->bundle.model, &o, &s->session, err);
    if (st == LILY_OK) m->n_sessions++;
    pthread_mutex_unlock(&m->compute);
    if (st == LILY_OK) *out = s;
    else free(s);
    return st;
}

void lily_session_free(lily_session *s)
{
    if (!s) return;
    lily_model *m = s->model;
    pthread_mutex_lock(&m->compute);
    bool later = s->answering;
    if (later) {
        s->freed = true;
        atomic_store(&s->cancel, true);
    } else {
        session_free(s->session);
        m->n_sessions--;
    }
    pthread_mutex_unlock(&m->compute);
    if (!later) free(s);
}

void lily_cancel(lily_session *s)
{
    atomic_store(&s->cancel, true);
}

static bool on_text(void *ctx, enum answer_part part, const char *text, size_t n)
{
    const struct lily_request *r = ctx;
    return r->on_text(r->ctx, part == ANSWER_REASONING ? LILY_THINKING : LILY_TEXT, text, n) == 0;
}

static void on_call(void *ctx, const char *name, const char *arguments)
{
    const struct lily_request *r = ctx;
    r->on_call(r->ctx, name, arguments);
}

static void on_progress(void *ctx, int done, int total)
{
    const struct lily_request *r = ctx;
    r->on_progress(r->ctx, done, total);
}

static lily_status sampling_of(const struct lily_sampling *s, struct sampler_params *out, struct lily_err *err)
{
    _Static_assert(sizeof(struct lily_logit_bias) == sizeof(struct logit_bias), "the public form is the inner one");
    if (s->n_bias < 0) LILY_FAIL(err, LILY_ERR_USAGE, "n_bias is %d, expected 0 or more", s->n_bias);
    *out = (struct sampler_params){.temperature = s->temperature,
                                   .top_k = s->top_k,
                                   .top_p = s->top_p,
                                   .min_p = s->min_p,
                                   .repetition_penalty = s->repetition_penalty,
                                   .presence_penalty = s->presence_penalty,
                                   .frequency_penalty = s->frequency_penalty,
                                   .bias = (const struct logit_bias *)s->bias,
                                   .n_bias = s->n_bias,
                                   .seed = s->seed};
    return LILY_OK;
}

static void copy_result(const struct answer *a, struct lily_result *out)
{
    static const enum lily_finish finish[] = {[FINISH_STOP] = LILY_FINISH_STOP,
                                              [FINISH_STOP_STRING] = LILY_FINISH_STOP,
                                              [FINISH_LENGTH] = LILY_FINISH_LENGTH,
                                              [FINISH_CANCELLED] = LILY_FINISH_CANCELLED};
    *out = (struct lily_result){.finish = finish[a->finish],
                                .prompt_tokens = a->prompt_tokens,
                                .cached_tokens = a->read.reused,
                                .completion_tokens = (int)a->ids.n,
                                .thinking_tokens = a->reasoning_tokens,
                                .prefill_ms = a->prefill_ms,
                                .decode_ms = a->decode_ms};
    if (out->finish == LILY_FINISH_STOP && json_size(a->calls) > 0) out->finish = LILY_FINISH_CALLS;
}

static lily_status make_answer(lily_session *s, const struct answer_job *job, struct answer *out, struct lily_err *err)
{
    lily_model *m = s->model;
    lily_status st;
    pthread_mutex_lock(&m->compute);
    if (m->answering) {
        st = err_set(err, LILY_ERR_USAGE, "lily_generate was called by a callback of lily_generate, which has the model");
    } else {
        m->answering = s->answering = true;
        st = answer_make(job, out, err);
        m->answering = s->answering = false;
        atomic_store(&s->cancel, false);
    }
    bool freed = s->freed && !s->answering;
    pthread_mutex_unlock(&m->compute);
    if (freed) lily_session_free(s);
    return st;
}

lily_status lily_generate(lily_session *s, const struct lily_request *r, struct lily_result *result,
                          struct lily_err *err)
{
    struct sampler_params sampling;
    struct answer answer;
    if (!r->prompt) LILY_FAIL(err, LILY_ERR_USAGE, "the request has no prompt");
    LILY_TRY(sampling_of(&r->sampling, &sampling, err));
    if (r->n_stop < 0) LILY_FAIL(err, LILY_ERR_USAGE, "n_stop is %d, expected 0 or more", r->n_stop);
    if (r->max_tokens < 0) LILY_FAIL(err, LILY_ERR_USAGE, "max_tokens is %d, expected 0 or more", r->max_tokens);
    struct answer_job job = {.bundle = &s->model->bundle,
                             .session = s->session,
                             .prompt = &r->prompt->prompt,
                             .tools = r->prompt->request.tools,
                             .sampling = &sampling,
                             .stop = r->stop,
                             .n_stop = r->n_stop,
                             .max_tokens = r->max_tokens,
                             .raw = !r->prompt->body,
                             .cancel = &s->cancel,
                             .on_text = r->on_text ? on_text : NULL,
                             .on_call = r->on_call ? on_call : NULL,
                             .on_progress = r->on_progress ? on_progress : NULL,
                             .ctx = (void *)(uintptr_t)r};
    LILY_TRY(make_answer(s, &job, &answer, err));
    if (result) copy_result(&answer, result);
    answer_free(&answer);
    return LILY_OK;
}
