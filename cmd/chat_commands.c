/* The slash commands of lily chat. */
#include <stdio.h>
#include <string.h>

#include "base/safe.h"
#include "base/size.h"
#include "chat.h"
#include "commands.h"
#include "foreign.h"

struct slash {
    const char *name; /* without the slash */
    const char *arg;  /* what follows it in the help; "" for nothing */
    const char *help;
    lily_status (*run)(struct chat *c, const char *arg, struct lily_err *err);
};
static const struct slash *slashes(int *n);

/* A remark to a person; scripts see only data. */
static void say(const struct chat *c, const char *text)
{
    if (c->terminal) fprintf(stderr, "%s\n", text);
}

static lily_status set_think(struct chat *c, const char *arg, struct lily_err *err)
{
    (void)arg;
    (void)err;
    c->think = true;
    say(c, "Thinking is on.");
    return LILY_OK;
}

static lily_status set_no_think(struct chat *c, const char *arg, struct lily_err *err)
{
    (void)arg;
    (void)err;
    c->think = false;
    say(c, "Thinking is off.");
    return LILY_OK;
}

static lily_status set_system(struct chat *c, const char *arg, struct lily_err *err)
{
    LILY_TRY(check_word("the system prompt", arg, err));
    talk_set_system(&c->talk, arg);
    say(c, *arg ? "The system prompt is set." : "There is no system prompt now.");
    return LILY_OK;
}

static lily_status need_file(const char *arg, const char *command, struct lily_err *err)
{
    if (*arg) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_USAGE, "/%s needs a file name", command);
}

static lily_status save(struct chat *c, const char *arg, struct lily_err *err)
{
    LILY_TRY(need_file(arg, "save", err));
    LILY_TRY(talk_save(&c->talk, arg, err));
    say(c, "Saved; lily chat --load FILE goes on with it.");
    return LILY_OK;
}

void chat_show_place(struct chat *c)
{
    const struct branch *b = talk_branch(&c->talk);
    for (int i = b->n > 2 ? b->n - 2 : 0; c->terminal && i < b->n; i++) {
        const struct json *role = json_get(b->messages[i], "role"), *content = json_get(b->messages[i], "content");
        if (!content || json_kind(content) != JSON_STRING) continue;
        struct buf line = {0};
        size_t n = json_string_len(content), limit = 300;
        const char *text = json_string(content);
        if (n > limit)
            for (n = limit; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--) continue;
        safe_text(&line, text, n, true);
        fprintf(stderr, "%s%s%s\n", strcmp(json_string(role), "user") == 0 ? "> " : "", buf_str(&line),
                n < json_string_len(content) ? " …" : "");
        buf_free(&line);
    }
}

static lily_status load(struct chat *c, const char *arg, struct lily_err *err)
{
    LILY_TRY(need_file(arg, "load", err));
    LILY_TRY(talk_load(&c->talk, arg, err));
    chat_forget_stopped(c);
    if (talk_branch(&c->talk)->n == 0) say(c, "There are no messages in it.");
    else chat_show_place(c);
    return LILY_OK;
}

static lily_status retry(struct chat *c, const char *arg, struct lily_err *err)
{
    (void)arg;
    struct json *message = c->stopped;
    c->stopped = NULL;
    if (!message && !talk_drop_answer(&c->talk)) LILY_FAIL(err, LILY_ERR_USAGE, "there is nothing to answer again");
    return chat_send(c, message ? message : talk_take_last(&c->talk), err);
}

static lily_status undo(struct chat *c, const char *arg, struct lily_err *err)
{
    (void)arg;
    if (c->stopped) {
        chat_forget_stopped(c);
        say(c, "The message whose reading was stopped is gone.");
        return LILY_OK;
    }
    if (!talk_drop_exchange(&c->talk)) LILY_FAIL(err, LILY_ERR_USAGE, "there is nothing to take back");
    say(c, "The last message and its answer are gone.");
    return LILY_OK;
}

static lily_status new_talk(struct chat *c, const char *arg, struct lily_err *err)
{
    int before = c->talk.current + 1;
    (void)arg;
    LILY_TRY(talk_new(&c->talk, err));
    chat_forget_stopped(c); /* it was said elsewhere */
    if (c->terminal) fprintf(stderr, "A new conversation; /branch %d goes back.\n", before);
    return LILY_OK;
}

static lily_status branch(struct chat *c, const char *arg, struct lily_err *err)
{
    bool made = false;
    if (*arg) {
        LILY_TRY(talk_go(&c->talk, arg, &made, err));
        if (!made) chat_forget_stopped(c); /* it was said elsewhere */
        if (made) say(c, "A new branch, from here; /branch lists them, /branch main goes back.");
        else if (talk_branch(&c->talk)->n == 0) say(c, "There are no messages here yet.");
        else chat_show_place(c);
        return LILY_OK;
    }
    for (int i = 0; i < c->talk.n; i++) {
        struct buf name = {0};
        const struct branch *b = &c->talk.branches[i];
        safe_text(&name, b->name, strlen(b->name), false);
        printf("%c %d %s, %s\n", i == c->talk.current ? '*' : ' ', i + 1, buf_str(&name), COUNT_TEXT(b->n, "message"));
        buf_free(&name);
    }
    return LILY_OK;
}

static lily_status stats(struct chat *c, const char *arg, struct lily_err *err)
{
    (void)arg;
    (void)err;
    int ctx = model_plan(c->bundle.model)->ctx;
    if (c->have_last) {
        const struct answer *a = &c->last;
        int used = a->prompt_tokens + (int)a->ids.n; /* with a last token that a full context no longer takes up */
        printf("last answer  %s read: %d cached, %d computed; %zu written, %d thinking\n", COUNT_TEXT(a->prompt_tokens, "token"),
               a->read.reused, a->read.computed, a->ids.n, a->reasoning_tokens);
        if (!a->read.reused && c->answers > 1) printf("             (what was read is kept in steps of %d tokens)\n", GRID);
        printf("speed        %.1f tok/s read, %.1f written\n", answer_prefill_speed(a), answer_decode_speed(a));
        printf("context      %d of %d tokens, after that answer\n", used < ctx ? used : ctx, ctx);
    } else {
        printf("context      0 of %d tokens\n", ctx);
    }
    printf("whole chat   %s: %s read, %ld cached; %ld written\n", COUNT_TEXT(c->answers, "answer"), COUNT_TEXT(c->read, "token"), c->cached,
           c->written);
    return LILY_OK;
}

static lily_status quit(struct chat *c, const char *arg, struct lily_err *err)
{
    (void)arg;
    (void)err;
    c->quit = true;
    return LILY_OK;
}

static lily_status help(struct chat *c, const char *arg, struct lily_err *err)
{
    int n;
    const struct slash *table = slashes(&n);
    (void)c;
    (void)arg;
    (void)err;
    for (int i = 0; i < n; i++) printf("  /%s %-*s %s\n", table[i].name, 16 - (int)strlen(table[i].name), table[i].arg, table[i].help);
    puts("A backslash at the end of a line goes on in the next; pasted lines stay one\n"
         "message. A message that begins with a slash is written with two. Ctrl-C stops an\n"
         "answer, or the reading before it: /retry, or the same message, goes on from\n"
         "there. It never ends the chat; Ctrl-D does.");
    return LILY_OK;
}

static const struct slash *slashes(int *n)
{
    static const struct slash table[] = {
        {"think", "", "think before answering", set_think},
        {"nothink", "", "answer at once", set_no_think},
        {"system", "TEXT", "set the system prompt; without TEXT there is none", set_system},
        {"retry", "", "answer the last message again, or go on with a stopped one", retry},
        {"undo", "", "take back the last message and its answer", undo},
        {"new", "", "begin a new conversation; /branch finds this one", new_talk},
        {"branch", "[NAME|N]", "go on in a copy; go to branch NAME or N; list them", branch},
        {"save", "FILE", "write the conversation as JSON", save},
        {"load", "FILE", "go on with a saved conversation", load},
        {"stats", "", "tokens cached, computed, written; speeds", stats},
        {"help", "", "show this", help},
        {"quit", "", "end the chat", quit},
    };
    *n = (int)(sizeof table / sizeof table[0]);
    return table;
}

lily_status chat_command(struct chat *c, const char *line, struct lily_err *err)
{
    int n;
    const struct slash *table = slashes(&n);
    const char *names[32];
    char name[32];
    size_t len = strcspn(++line, " \t\n");
    const char *arg = line + len + strspn(line + len, " \t\n");
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), line);
    for (int i = 0; i < n; i++) {
        names[i] = table[i].name;
        if (strcmp(name, table[i].name) != 0) continue;
        if (*arg && !*table[i].arg) LILY_FAIL(err, LILY_ERR_USAGE, "/%s takes nothing after it", name);
        return table[i].run(c, arg, err);
    }
    const char *own = foreign_slash(name), *near = own ? own : nearest_name(name, names, n);
    err_set(err, LILY_ERR_USAGE, "unknown command /%s", name);
    if (command_takes(&cmd_chat, name)) err_hint(err, "--%s is an option: it is given when the chat is started (lily help chat)", name);
    else if (near) err_hint(err, "did you mean /%s?", near);
    else err_hint(err, "/help lists the commands; a message that begins with a slash is written with two");
    return LILY_ERR_USAGE;
}
