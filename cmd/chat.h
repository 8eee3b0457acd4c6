/* The state of lily chat, shared by its loop (chat.c) and its commands (chat_commands.c). Thread: the main one. */
#ifndef LILY_CMD_CHAT_H
#define LILY_CMD_CHAT_H

#include "model_args.h"
#include "opt.h"
#include "run/answer.h"
#include "sampling_args.h"
#include "screen.h"
#include "talk.h"

struct chat_args {
    struct common_args common;
    struct model_args model;
    struct sampling_args sampling;
    const char *system;
    const char *load;
    bool think;
    bool no_history;
};

struct chat {
    const struct chat_args *args;
    struct bundle bundle;       /* owned */
    struct session *session;    /* owned */
    struct talk talk;           /* owned */
    struct screen screen;
    struct answer last;         /* owned; the latest answer, for /stats */
    bool have_last;
    bool think;
    bool terminal;              /* a person types */
    bool quit;
    struct json *stopped;       /* owned; the message whose reading was stopped, outside the conversation; NULL: none */
    uint64_t answers;           /* so far; each gets its own seed */
    long read, cached, written; /* tokens over the whole chat */
};

/* Adds a user message to the conversation and answers it. When its reading is stopped, or fails, it goes to `stopped`. */
lily_status chat_send(struct chat *c, struct json *moved, struct lily_err *err);
void chat_forget_stopped(struct chat *c);

/* Shows, on a terminal, the last messages of a conversation that was loaded or gone back to: one sees where one is. */
void chat_show_place(struct chat *c);

/* A line that begins with a slash. Failures leave the chat as it was. */
lily_status chat_command(struct chat *c, const char *line, struct lily_err *err);

#endif
