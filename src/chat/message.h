/* Messages of a conversation, made from a role and a text. Any thread. */
#ifndef LILY_CHAT_MESSAGE_H
#define LILY_CHAT_MESSAGE_H

#include "json/json.h"

/* {role, content}; owned. */
struct json *chat_message(const char *role, const char *text, size_t n);
/* The same with a text of any size, added to messages: LILY_ERR_MEMORY when there is no room for it. */
lily_status chat_message_add(struct json *messages, const char *role, const struct buf *text, struct lily_err *err);

#endif
