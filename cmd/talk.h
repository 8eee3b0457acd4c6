/*
 * A conversation with branches: messages as JSON objects, the last of them being answered, and other branches to go back to.
 * Owned: talk_free. Thread: the main one.
 */
#ifndef LILY_CMD_TALK_H
#define LILY_CMD_TALK_H

#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

struct branch {
    char *name;             /* owned; "" for the first one */
    struct json **messages; /* owned */
    int n, cap;
};

struct talk {
    struct branch *branches; /* owned; at least one */
    int n, current;
};

void talk_init(struct talk *t);
void talk_free(struct talk *t);
struct branch *talk_branch(struct talk *t); /* the current one; a view until branches change */

void talk_add(struct talk *t, struct json *moved);
void talk_add_text(struct talk *t, const char *role, const char *text, size_t n);
/* The system prompt, the first message; an empty text removes it. */
void talk_set_system(struct talk *t, const char *text);
/* Drops what follows the last user message, and with it the message. False when there is none. */
bool talk_drop_answer(struct talk *t);
bool talk_drop_exchange(struct talk *t);
struct json *talk_take_last(struct talk *t); /* moved out of the conversation, which has messages */
int talk_user_turns(struct talk *t);

/* A new array with views of the current messages; released before they change. */
struct json *talk_messages(struct talk *t);

/* Goes to branch NAME or number N (from 1); a new name makes a copy of the current one and goes there. *made says which. */
lily_status talk_go(struct talk *t, const char *name, bool *made, struct lily_err *err);

/* Goes to a new branch that has the system prompt of the current one and nothing else. */
lily_status talk_new(struct talk *t, struct lily_err *err);

/* {messages}, as run --messages reads it. */
lily_status talk_save(struct talk *t, const char *path, struct lily_err *err);
/* Replaces the messages of the current branch. */
lily_status talk_load(struct talk *t, const char *path, struct lily_err *err);

#endif
