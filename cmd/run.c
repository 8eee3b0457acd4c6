/* lily run: one answer. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "body.h"
#include "chat/message.h"
#include "commands.h"
#include "interrupt.h"
#include "model_args.h"
#include "run/prompt_file.h"
#include "sampling_args.h"
#include "show.h"

struct run_args {
    struct common_args common;
    struct model_args model;
    struct sampling_args sampling;
    const char *system;
    const char *messages; /* file of a body, or "-" */
    const char *prompt_cache; /* file */
    bool raw;
    bool think;
    bool think_given;
};

static void init(void *args)
{
    struct run_args *a = args;
    model_args_init(&a->model);
    sampling_args_init(&a->sampling);
    a->think = true;
}

static lily_status take_think(void *values, const char *text, struct lily_err *err)
{
    struct run_args *a = values;
    (void)text;
    (void)err;
    a->think = a->think_given = true;
    return LILY_OK;
}

static lily_status take_no_think(void *values, const char *text, struct lily_err *err)
{
    struct run_args *a = values;
    (void)text;
    (void)err;
    a->think = false;
    a->think_given = true;
    return LILY_OK;
}

/* What the model is asked. */
struct question {
    struct body body;      /* owned; of --messages */
    struct buf text;       /* owned; the prompt's text */
    struct json *messages; /* owned; of a prompt; NULL: the body's, or raw */
};

static void question_free(struct question *q)
{
    body_free(&q->body);
    buf_free(&q->text);
    json_free(q->messages);
}

/* PROMPT, stdin, or both with a blank line between. */
static lily_status read_text(const char *word, struct buf *out, struct lily_err *err)
{
    bool piped = !isatty(STDIN_FILENO);
    if (word) buf_printf(out, piped ? "%s\n\n" : "%s", word);
    size_t before = out->len;
    if (piped) LILY_TRY(read_stdin(out, err));
    if (word && piped && out->len == before) out->data[out->len -= 2] = 0; /* nothing came: no blank line */
    if (out->len) return LILY_OK;
    err_set(err, LILY_ERR_USAGE, piped ? "run: no prompt: stdin was empty" : "run: no prompt");
    err_hint(err, "give a PROMPT, pipe a text in, or use lily chat");
    return LILY_ERR_USAGE;
}

static lily_status check_usage(const struct run_args *a, int n, struct lily_err *err)
{
    if (a->messages && (n || a->system || a->raw))
        LILY_FAIL(err, LILY_ERR_USAGE, "run: --messages stands for the whole conversation: no PROMPT, --system or --raw beside it");
    if (a->raw && a->system) LILY_FAIL(err, LILY_ERR_USAGE, "run: --raw uses no template, so --system has no place in it");
    if (a->raw && a->think_given)
        LILY_FAIL(err, LILY_ERR_USAGE, "run: --raw uses no template, so --think and --no-think have no place in it");
    return LILY_OK;
}

static lily_status ask(const struct run_args *a, int n, char **words, struct question *q, struct lily_err *err)
{
    LILY_TRY(check_usage(a, n, err));
    LILY_TRY(check_word("PROMPT", n ? words[0] : NULL, err));
    LILY_TRY(check_word("--system", a->system, err));
    if (a->messages) {
        LILY_TRY(body_read(a->messages, &q->body, err));
        if (body_ends_answered(&q->body))
            log_note("the last message is the model's own, so it goes on talking: put a user's message behind it to ask something");
        return body_text_only(&q->body, err);
    }
    LILY_TRY(read_text(n ? words[0] : NULL, &q->text, err));
    if (a->raw) return LILY_OK;
    q->messages = json_new_array();
    if (a->system) json_add(q->messages, chat_message("system", a->system, strlen(a->system)));
    return chat_message_add(q->messages, "user", &q->text, err);
}

static lily_status make_prompt(const struct run_args *a, const struct bundle *b, const struct question *q, struct prompt *out,
                               struct lily_err *err)
{
    if (a->raw) return prompt_raw(b, buf_str(&q->text), q->text.len, out, err);
    struct template_options opt = q->body.request.options;
    if (a->think_given) opt.no_thinking = !a->think;
    return prompt_render(b, q->messages ? q->messages : q->body.request.messages, q->body.request.tools, &opt, out, err);
}

static struct json *ids_json(const struct ids *ids)
{
    struct json *v = json_new_array();
    for (size_t i = 0; i < ids->n; i++) json_add(v, json_new_int(ids->data[i]));
    return v;
}

static void print_answer(const struct answer *r, const struct bundle *b)
{
    struct json *top = json_new_object();
    json_put(top, "text", json_new_text(buf_str(&r->text), r->text.len));
    json_put(top, "reasoning", json_new_text(buf_str(&r->reasoning), r->reasoning.len));
    json_put(top, "tool_calls", json_copy(r->calls));
    json_put(top, "ids", ids_json(&r->ids));
    json_put(top, "finish", json_new_string(answer_finish(r)));
    json_put(top, "usage", show_usage(r));
    json_put(top, "timings", show_timings(r, b->load_ms));
    print_json(top);
}

/* An answer of nothing would look like a failure, and to a person one that was cut like a whole one. */
static void say_if_cut(const struct answer *r)
{
    if (r->finish != FINISH_LENGTH) return;
    if (!r->text.len && r->reasoning.len)
        log_note("the answer ended in its thinking, after %s: raise --max-tokens, or use --no-think", COUNT_TEXT(r->ids.n, "token"));
    else
        log_note("the answer was cut after %s: raise --max-tokens or --ctx", COUNT_TEXT(r->ids.n, "token"));
}

enum { CACHED_STATES = 8 }; /* of a prompt, in memory and in --prompt-cache's file */

/* Stopped: an answer that has begun shows that by itself. */
static lily_status stopped(const struct answer *r, struct lily_err *err)
{
    const int read = r->read.reused + r->read.computed;
    if (read < r->prompt_tokens) err_set(err, LILY_ERR_CANCELLED, "reading was stopped at %d of %d tokens", read, r->prompt_tokens);
    return LILY_ERR_CANCELLED;
}

/* The session, with the states of --prompt-cache. */
static lily_status open_session(const struct run_args *a, struct bundle *b, struct session **out, struct lily_err *err)
{
    int states = a->prompt_cache ? CACHED_STATES : 0;
    LILY_TRY(model_weights(&a->model, states, b, err));
    struct session_options so = {.ctx = model_plan(b->model)->ctx, .max_borders = states, .takes_up = true}; /* so that a stop counts what was read */
    LILY_TRY(session_new(b->model, &so, out, err));
    lily_status st = a->prompt_cache ? prompt_file_load(a->prompt_cache, b->model, *out, err) : LILY_OK;
    if (st != LILY_OK) session_free(*out);
    return st;
}

/* The answer is there whatever comes of this. */
static void save_states(const struct run_args *a, struct bundle *b, struct session *s, const struct answer *answer)
{
    struct lily_err err;
    if (!a->prompt_cache || answer->read.computed + answer->read.reused < answer->prompt_tokens) return;
    if (prompt_file_save(a->prompt_cache, b->model, s, &err) != LILY_OK) log_warn("the prompt's state is not kept: %s", err.msg);
}

/* Loads the weights and answers. */
static lily_status answer_prompt(const struct run_args *a, struct bundle *b, const struct prompt *prompt,
                                 const struct json *tools, struct lily_err *err)
{
    struct sampler_params params;
    struct session *session = NULL;
    struct screen screen;
    struct answer answer;
    bool report = a->common.verbose || isatty(STDERR_FILENO);
    LILY_TRY(sampling_params(&a->sampling, &b->config, b->n_tokens, &params, err));
    LILY_TRY(open_session(a, b, &session, err));
    screen_init(&screen);
    struct answer_job job = {.bundle = b,
                             .session = session,
                             .prompt = prompt,
                             .tools = tools,
                             .sampling = &params,
                             .stop = a->sampling.stop,
                             .n_stop = a->sampling.n_stop,
                             .max_tokens = a->sampling.max_tokens,
                             .raw = a->raw};
    lily_status st = show_answer(&job, a->common.json ? NULL : &screen, report, &answer, err);
    if (st == LILY_OK) {
        if (a->common.json) print_answer(&answer, b);
        if (a->common.verbose) fprintf(stderr, "seed %llu\n", (unsigned long long)params.seed);
        if (report) show_report(&answer);
        if (!a->common.json) say_if_cut(&answer);
        save_states(a, b, session, &answer);
        if (answer.finish == FINISH_CANCELLED && screen_alive()) st = stopped(&answer, err);
        if (a->common.json) err_clear(err); /* the answer says it; a second value would follow it */
        answer_free(&answer);
    }
    screen_free(&screen);
    session_free(session);
    return st;
}

static lily_status run_run(void *args, int n, char **words, struct lily_err *err)
{
    struct run_args *a = args;
    struct question q = {0};
    struct bundle b = {0};
    struct prompt prompt = {0};
    interrupt_init();
    a->model.identify = a->prompt_cache != NULL;
    lily_status st = ask(a, n, words, &q, err);
    if (st == LILY_OK) st = model_texts(&a->model, &b, err);
    if (st == LILY_OK) st = make_prompt(a, &b, &q, &prompt, err);
    if (st == LILY_OK) st = answer_prompt(a, &b, &prompt, q.body.request.tools, err);
    prompt_free(&prompt);
    bundle_close(&b);
    question_free(&q);
    sampling_args_free(&a->sampling);
    return st;
}

static const struct opt options[] = {
    {"system", 's', "TEXT", "system prompt", OPT_TEXT, offsetof(struct run_args, system), 0, 0, NULL},
    {"messages", 0, "FILE",
     "the conversation: a chat-completions body (messages, tools, chat_template_kwargs; the rest is ignored), - is stdin", OPT_TEXT,
     offsetof(struct run_args, messages), 0, 0, NULL},
    {"think", 0, NULL, "think before answering (the default)", OPT_TAKE, 0, 0, 0, take_think},
    {"no-think", 0, NULL, "answer at once", OPT_TAKE, 0, 0, 0, take_no_think},
    {"prompt-cache", 0, "FILE", "keep the state of the prompt in FILE, so that the next run with the same beginning does not read it again",
     OPT_TEXT, offsetof(struct run_args, prompt_cache), 0, 0, NULL},
    {"raw", 0, NULL, "no template: the model goes on with the text as it is; special tokens may be spelled", OPT_ON,
     offsetof(struct run_args, raw), 0, 0, NULL},
};
static const struct opt_group group = {"Prompt", options, (int)(sizeof options / sizeof options[0])};

const struct command cmd_run = {
    .name = "run",
    .usage = "[PROMPT]",
    .summary = "answer one prompt",
    .about = "Answers PROMPT, or the text on stdin, or both: PROMPT, a blank line, the text.\n"
             "The answer goes to stdout as it is generated. On a terminal the thinking is\n"
             "shown dimmed before it and control characters are made visible; into a pipe go\n"
             "the answer's text alone and each tool call as a line \"NAME JSON\". Speeds go to\n"
             "stderr when that is a terminal. Ctrl-C stops the answer (status 130); a second\n"
             "one, lily. A prompt that begins with a dash comes after \"--\".\n"
             "With --json: {text, reasoning, tool_calls, ids, finish, usage, timings}.",
    .uses = {{&group, 0},
             {&opts_sampling, offsetof(struct run_args, sampling)},
             {&opts_model, offsetof(struct run_args, model)},
             {&opts_model_common, offsetof(struct run_args, common)}},
    .max_args = 1,
    .args_size = sizeof(struct run_args),
    .init = init,
    .run = run_run,
};
