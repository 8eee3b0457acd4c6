/* Making one answer. */
#include "run/answer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "chat/output.h"

/* Whom the tokens go to while they are generated. */
struct taker {
    const struct answer_job *job;
    struct answer *out;
    struct output_parser *parser; /* owned; NULL in raw mode */
    struct buf name, arguments;   /* owned; of the call under way */
    bool refused;                 /* the callback wants no more */
};

static void give_text(struct taker *t, enum answer_part part, const char *text, size_t n)
{
    if (n == 0) return;
    buf_add(part == ANSWER_REASONING ? &t->out->reasoning : &t->out->text, text, n);
    if (t->job->on_text && !t->refused) t->refused = !t->job->on_text(t->job->ctx, part, text, n);
}

static void give_call(struct taker *t)
{
    char id[32];
    snprintf(id, sizeof id, "call_%zu", json_size(t->out->calls));
    struct json *function = json_new_object(), *call = json_new_object();
    json_put(function, "name", json_new_text(buf_str(&t->name), t->name.len));
    json_put(function, "arguments", json_new_text(buf_str(&t->arguments), t->arguments.len));
    json_put(call, "id", json_new_string(id));
    json_put(call, "type", json_new_string("function"));
    json_put(call, "function", function);
    json_add(t->out->calls, call);
    if (t->job->on_call && !t->refused) t->job->on_call(t->job->ctx, buf_str(&t->name), buf_str(&t->arguments));
}

static void on_output(void *user, const struct output_event *e)
{
    struct taker *t = user;
    switch (e->kind) {
    case OUTPUT_REASONING: give_text(t, ANSWER_REASONING, e->text, e->n); break;
    case OUTPUT_CONTENT: give_text(t, ANSWER_TEXT, e->text, e->n); break;
    case OUTPUT_CALL_START:
        buf_clear(&t->name);
        buf_clear(&t->arguments);
        buf_add(&t->name, e->text, e->n);
        break;
    case OUTPUT_CALL_ARGUMENTS: buf_add(&t->arguments, e->text, e->n); break;
    case OUTPUT_CALL_END: give_call(t); break;
    case OUTPUT_CALL_TEXT: break;
    }
}

static bool in_thinking(const struct taker *t)
{
    return t->parser && (output_place(t->parser) == OUTPUT_IN_REASONING || output_place(t->parser) == OUTPUT_IN_HELD_CALL);
}

static bool on_token(void *ctx, int32_t id, const char *text, size_t n)
{
    struct taker *t = ctx;
    if (id >= 0 && in_thinking(t)) t->out->reasoning_tokens++;
    if (t->parser) output_push(t->parser, text, n);
    else give_text(t, ANSWER_TEXT, text, n);
    return !t->refused;
}

/* Tokens that the whole answer may have; 0: what the context holds. */
static int most_tokens(const struct answer_job *job)
{
    return job->max_tokens ? job->max_tokens : job->bundle->config.max_new_tokens;
}

/* Reads the prompt. A cancel is told by *cancelled, not as a failure. */
static lily_status read_prompt(const struct answer_job *job, struct answer *out, bool *cancelled, struct lily_err *err)
{
    const struct prompt *p = job->prompt;
    if (p->ids.n > INT_MAX / 2) LILY_FAIL(err, LILY_ERR_LIMIT, "the prompt has %zu tokens", p->ids.n);
    struct sync_request r = {.ids = p->ids.data,
                             .n = (int)p->ids.n,
                             .marks = p->positions,
                             .n_marks = p->rendering.n_marks,
                             .cancel = job->cancel,
                             .progress = job->on_progress,
                             .progress_ctx = job->ctx};
    double start = clock_ms();
    lily_status st = session_sync(job->session, &r, &out->read, err);
    out->prefill_ms = clock_ms() - start;
    out->prompt_tokens = r.n;
    *cancelled = st == LILY_ERR_CANCELLED;
    if (*cancelled) err_clear(err); /* the answer says it */
    return *cancelled ? LILY_OK : st;
}

/* Generates until something ends it, and adds what came of it to out. */
static lily_status generate_some(const struct answer_job *job, struct sampler *sampler, struct taker *t, struct lily_err *err)
{
    struct answer *out = t->out;
    const int most = most_tokens(job);
    struct generate_request r = {.tokenizer = job->bundle->tokenizer,
                                 .eos = job->bundle->eos,
                                 .n_eos = job->bundle->n_eos,
                                 .max_tokens = most ? most - (int)out->ids.n : INT_MAX,
                                 .stop = job->stop,
                                 .n_stop = job->n_stop,
                                 .thinking_open = in_thinking(t),
                                 .show_special = job->raw,
                                 .cancel = job->cancel,
                                 .on_text = on_token,
                                 .ctx = t};
    struct generate_result result;
    lily_status st = generate(job->session, sampler, &r, &result, err);
    ids_append(&out->ids, result.ids.data, result.ids.n);
    ids_free(&result.ids);
    out->finish = result.finish;
    out->steps += result.steps;
    out->decode_ms += result.decode_ms;
    return st;
}

/*
 * The model ended its turn without ending its thoughts, which would leave no answer: the block is closed for it, in its own
 * form. Without room for that the answer has reached its limit.
 */
static lily_status close_thinking(const struct answer_job *job, struct taker *t, struct lily_err *err)
{
    static const char closing[] = "\n</think>\n\n";
    struct answer *out = t->out;
    struct ids ids = {0};
    const int most = most_tokens(job);
    lily_status st = tokenizer_encode_special(job->bundle->tokenizer, closing, sizeof closing - 1, &ids, err);
    if (st == LILY_OK && most && out->ids.n + ids.n >= (size_t)most) st = LILY_ERR_LIMIT;
    for (size_t i = 0; st == LILY_OK && i < ids.n; i++) st = session_step(job->session, ids.data[i], err);
    if (st == LILY_OK) {
        ids_append(&out->ids, ids.data, ids.n);
        out->reasoning_tokens += (int)ids.n;
        out->closed_thinking = true;
        output_push(t->parser, closing, sizeof closing - 1);
    } else if (st == LILY_ERR_LIMIT) {
        out->finish = FINISH_LENGTH;
        st = LILY_OK;
    }
    ids_free(&ids);
    return st;
}

static lily_status write_answer(const struct answer_job *job, struct sampler *sampler, struct answer *out, struct lily_err *err)
{
    struct taker t = {.job = job, .out = out};
    struct output_options opt = {.tools = job->tools, .thinking = job->prompt->thinking_open};
    if (!job->raw) t.parser = output_new(&opt, on_output, &t);
    lily_status st = generate_some(job, sampler, &t, err);
    if (st == LILY_OK && out->finish == FINISH_STOP && t.parser && output_place(t.parser) == OUTPUT_IN_REASONING) {
        st = close_thinking(job, &t, err);
        if (st == LILY_OK && out->closed_thinking) st = generate_some(job, sampler, &t, err);
    }
    if (t.parser) output_finish(t.parser);
    output_free(t.parser);
    buf_free(&t.name);
    buf_free(&t.arguments);
    return st;
}

lily_status answer_make(const struct answer_job *job, struct answer *out, struct lily_err *err)
{
    struct sampler *sampler = NULL;
    bool cancelled = false;
    memset(out, 0, sizeof *out);
    out->calls = json_new_array();
    out->finish = FINISH_CANCELLED;
    lily_status st = sampler_new(job->sampling, job->bundle->n_tokens, &sampler, err);
    if (st == LILY_OK) st = read_prompt(job, out, &cancelled, err);
    if (st == LILY_OK && !cancelled) {
        sampler_prompt(sampler, job->prompt->ids.data, job->prompt->ids.n);
        st = write_answer(job, sampler, out, err);
    }
    sampler_free(sampler);
    if (st != LILY_OK) answer_free(out);
    return st;
}

void answer_free(struct answer *a)
{
    buf_free(&a->text);
    buf_free(&a->reasoning);
    json_free(a->calls);
    ids_free(&a->ids);
    memset(a, 0, sizeof *a);
}

const char *answer_finish(const struct answer *a)
{
    bool stopped = a->finish == FINISH_STOP || a->finish == FINISH_STOP_STRING;
    return stopped && json_size(a->calls) > 0 ? "tool_calls" : finish_reason_name(a->finish);
}

double answer_prefill_speed(const struct answer *a)
{
    return a->prefill_ms > 0 ? a->read.computed * 1e3 / a->prefill_ms : 0;
}

double answer_decode_speed(const struct answer *a)
{
    return a->decode_ms > 0 ? a->steps * 1e3 / a->decode_ms : 0;
}
