/* lily chat: a conversation in the terminal. */
#include "chat.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/file.h"
#include "base/safe.h"
#include "base/utf8.h"
#include "chat/message.h"
#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "show.h"

/* States kept besides the live one: what earlier turns and branches start from. */
enum { BORDERS = 8 };

static void init(void *args)
{
    struct chat_args *a = args;
    model_args_init(&a->model);
    sampling_args_init(&a->sampling);
    a->think = true;
}

static void say_error(const struct lily_err *err)
{
    struct buf text = {0};
    safe_text(&text, err->msg, strlen(err->msg), false);
    fprintf(stderr, "lily: %s\n", buf_str(&text));
    if (err->hint[0]) {
        buf_clear(&text);
        safe_text(&text, err->hint, strlen(err->hint), false);
        fprintf(stderr, "hint: %s\n", buf_str(&text));
    }
    buf_free(&text);
}

/* The answer as a message of the conversation. */
static struct json *answer_message(const struct answer *a)
{
    struct json *m = chat_message("assistant", buf_str(&a->text), a->text.len);
    if (a->reasoning.len) json_put(m, "reasoning_content", json_new_text(buf_str(&a->reasoning), a->reasoning.len));
    if (json_size(a->calls)) json_put(m, "tool_calls", json_copy(a->calls));
    return m;
}

static void count(struct chat *c)
{
    c->answers++;
    c->read += c->last.prompt_tokens;
    c->cached += c->last.read.reused;
    c->written += (long)c->last.ids.n;
}

/* How a conversation goes on that the context does not hold. */
static const char *more_room(const struct chat *c)
{
    if (model_plan(c->bundle.model)->ctx < c->bundle.config.shape.max_positions)
        return "/save FILE, then lily chat --ctx N --load FILE, goes on with more room";
    return "the model has no larger one; /undo takes the last message back, /new begins anew";
}

static void say_limit(const struct chat *c, const struct answer *a)
{
    bool full = a->prompt_tokens + (int)a->ids.n > model_plan(c->bundle.model)->ctx;
    if (full) fprintf(stderr, "(the context is full: %s)\n", more_room(c));
    else fputs("(the answer reached its limit of tokens: --max-tokens sets it)\n", stderr);
}

/* Stopped before its first token. What was read stays in the session: whoever asks the same again does not wait for it again. */
static void say_unread(const struct chat *c, const struct answer *a)
{
    int read = a->read.reused + a->read.computed;
    if (!c->terminal) return;
    if (read < a->prompt_tokens) fprintf(stderr, "(reading was stopped at %d of %d tokens; /retry goes on from there)\n\n", read, a->prompt_tokens);
    else fputs("(stopped before the answer's first token; all was read, /retry goes on from there)\n\n", stderr);
}

/* Answers the last user message of the conversation and adds the answer to it. *unread: the reading was stopped, nothing was added. */
static lily_status answer_last(struct chat *c, bool *unread, struct lily_err *err)
{
    struct template_options opt = {.no_thinking = !c->think, .system_reminders = true};
    struct json *messages = talk_messages(&c->talk);
    struct prompt prompt;
    struct sampler_params params;
    struct answer answer;
    lily_status st = prompt_render(&c->bundle, messages, NULL, &opt, &prompt, err);
    json_free(messages);
    LILY_TRY(st);
    st = sampling_params(&c->args->sampling, &c->bundle.config, c->bundle.n_tokens, &params, err);
    params.seed += c->answers;
    const struct sampling_args *sampling = &c->args->sampling;
    struct answer_job job = {.bundle = &c->bundle,
                             .session = c->session,
                             .prompt = &prompt,
                             .sampling = &params,
                             .stop = sampling->stop,
                             .n_stop = sampling->n_stop,
                             .max_tokens = sampling->max_tokens};
    bool report = c->args->common.verbose || c->terminal;
    if (st == LILY_OK) st = show_answer(&job, &c->screen, report, &answer, err);
    prompt_free(&prompt);
    if (st == LILY_ERR_LIMIT) err_hint(err, "a shorter message may fit; %s", more_room(c));
    LILY_TRY(st);
    *unread = answer.finish == FINISH_CANCELLED && !answer.ids.n;
    if (*unread) {
        say_unread(c, &answer);
        answer_free(&answer);
        return LILY_OK;
    }
    if (c->have_last) answer_free(&c->last);
    c->last = answer;
    c->have_last = true;
    count(c);
    if (c->args->common.verbose) show_report(&c->last);
    if (c->last.ids.n) talk_add(&c->talk, answer_message(&c->last));
    if (c->terminal && answer.finish == FINISH_CANCELLED) fputs("(stopped)\n", stderr);
    if (c->terminal && answer.finish == FINISH_LENGTH) say_limit(c, &answer);
    if (c->terminal) fputs("\n", stderr); /* a blank line before the next prompt */
    return LILY_OK;
}

void chat_forget_stopped(struct chat *c)
{
    json_free(c->stopped);
    c->stopped = NULL;
}

lily_status chat_send(struct chat *c, struct json *moved, struct lily_err *err)
{
    bool unread = false;
    chat_forget_stopped(c);
    talk_add(&c->talk, moved);
    lily_status st = answer_last(c, &unread, err);
    if (st != LILY_OK || unread) c->stopped = talk_take_last(&c->talk); /* without an answer it would block, or blur, all that follow */
    return st;
}

static lily_status take_message(struct chat *c, const struct buf *text, struct lily_err *err)
{
    const char *line = buf_str(text);
    if (line[strspn(line, " \t\n")] == 0) return LILY_OK;
    if (line[0] == '/' && line[1] != '/') return chat_command(c, line, err);
    LILY_TRY(utf8_check("the message", line, text->len, err));
    size_t skip = line[0] == '/';
    lily_status st = chat_send(c, chat_message("user", line + skip, text->len - skip), err);
    if (st != LILY_OK) chat_forget_stopped(c); /* what fails would fail again */
    return st;
}

/* Status of the whole: a script fails with its last failure, a person has seen each one. */
static lily_status loop(struct chat *c, struct input *in, struct lily_err *err)
{
    struct buf text = {0};
    lily_status st = LILY_OK;
    int interrupts = 0;
    while (!c->quit && screen_alive()) {
        enum input_event event = input_read(in, &text);
        if (event == INPUT_END) break;
        interrupts = event == INPUT_INTERRUPTED ? interrupts + 1 : 0;
        if (event == INPUT_INTERRUPTED) {
            fputs(interrupts > 1 ? "\nCtrl-D or /quit ends the chat.\n" : "\n", stderr);
            continue;
        }
        lily_status one = take_message(c, &text, err);
        flush_output();
        if (one == LILY_OK) continue;
        say_error(err);
        err_clear(err);
        if (!c->terminal) st = one;
    }
    buf_free(&text);
    if (c->terminal && !c->quit) fputs("\n", stderr);
    return st;
}

/* The history's file, in a folder that exists, or nothing. */
static void history_path(const struct chat_args *a, struct buf *out)
{
    struct buf dir = {0};
    env_state_dir(&dir);
    if (!a->no_history && dir.len && file_make_dirs(buf_str(&dir), NULL) == LILY_OK)
        file_join(out, buf_str(&dir), "chat_history");
    buf_free(&dir);
}

static void greet(const struct chat *c)
{
    struct buf name = {0};
    const char *dir = c->bundle.dir, *slash = strrchr(dir, '/');
    safe_text(&name, slash && slash[1] ? slash + 1 : dir, strlen(slash && slash[1] ? slash + 1 : dir), false);
    fprintf(stderr, "lily %s, %s, %d tokens of context. /help: commands, Ctrl-D: end.\n", LILY_VERSION, buf_str(&name),
            model_plan(c->bundle.model)->ctx);
    buf_free(&name);
}

static lily_status start(struct chat *c, struct lily_err *err)
{
    const struct chat_args *a = c->args;
    struct sampler_params params;
    LILY_TRY(check_word("--system", a->system, err));
    LILY_TRY(model_texts(&a->model, &c->bundle, err));
    LILY_TRY(sampling_params(&a->sampling, &c->bundle.config, c->bundle.n_tokens, &params, err)); /* now, not at the first answer */
    if (a->load) LILY_TRY(talk_load(&c->talk, a->load, err));
    if (a->system) talk_set_system(&c->talk, a->system);
    LILY_TRY(model_weights(&a->model, BORDERS, &c->bundle, err));
    struct session_options so = {.ctx = model_plan(c->bundle.model)->ctx, .max_borders = BORDERS, .takes_up = true};
    return session_new(c->bundle.model, &so, &c->session, err);
}

static lily_status run_chat(void *args, int n, char **words, struct lily_err *err)
{
    struct chat_args *a = args;
    struct chat c = {.args = a, .think = a->think, .terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    (void)n;
    (void)words;
    interrupt_init();
    screen_init(&c.screen);
    talk_init(&c.talk);
    struct buf history = {0};
    if (c.terminal) history_path(a, &history);
    struct input *in = input_open(buf_str(&history)); /* before the weights are read, which is long enough to type ahead */
    buf_free(&history);
    lily_status st = start(&c, err);
    if (st == LILY_OK) {
        if (c.terminal) greet(&c);
        if (a->load) chat_show_place(&c);
        st = loop(&c, in, err);
    }
    input_close(in);
    screen_free(&c.screen);
    if (c.have_last) answer_free(&c.last);
    session_free(c.session);
    talk_free(&c.talk);
    chat_forget_stopped(&c);
    bundle_close(&c.bundle);
    sampling_args_free(&a->sampling);
    return st;
}

static const struct opt options[] = {
    {"system", 's', "TEXT", "system prompt", OPT_TEXT, offsetof(struct chat_args, system), 0, 0, NULL},
    {"load", 0, "FILE", "go on with a conversation that /save wrote", OPT_TEXT, offsetof(struct chat_args, load), 0, 0, NULL},
    {"think", 0, NULL, "think before answering (the default; /think)", OPT_ON, offsetof(struct chat_args, think), 0, 0, NULL},
    {"no-think", 0, NULL, "answer at once (/nothink)", OPT_OFF, offsetof(struct chat_args, think), 0, 0, NULL},
    {"no-history", 0, NULL, "neither read nor write the history of typed lines", OPT_ON, offsetof(struct chat_args, no_history), 0, 0,
     NULL},
};
static const struct opt_group group = {"Chat", options, (int)(sizeof options / sizeof options[0])};

static const struct opt output_options[] = {
    {"verbose", 'v', NULL, "report speeds and counts on stderr after each answer", OPT_ON, offsetof(struct common_args, verbose), 0, 0,
     NULL},
    {"help", 'h', NULL, "show this help", OPT_ON, offsetof(struct common_args, help), 0, 0, NULL},
};
static const struct opt_group output_group = {"Output", output_options, 2};

const struct command cmd_chat = {
    .name = "chat",
    .usage = "",
    .summary = "talk in the terminal",
    .about = "Talks with the model: a line is a message, a line that begins with a slash is a\n"
             "command; /help lists them. Ctrl-C stops an answer, or the reading before it:\n"
             "/retry, or the same message, goes on with that. On a terminal no Ctrl-C ends\n"
             "the chat, Ctrl-D does. Earlier turns are not read again; /stats shows how much\n"
             "was. Without a terminal on stdin each line of it is a message, and stdout gets\n"
             "the answers.",
    .uses = {{&group, 0},
             {&opts_sampling, offsetof(struct chat_args, sampling)},
             {&opts_model, offsetof(struct chat_args, model)},
             {&output_group, offsetof(struct chat_args, common)}},
    .args_size = sizeof(struct chat_args),
    .init = init,
    .run = run_chat,
};
