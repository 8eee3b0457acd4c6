/*
 * A chat-completions body from a file or stdin, ready for the template. Owned: body_free. Thread: the main one.
 */
#ifndef LILY_CMD_BODY_H
#define LILY_CMD_BODY_H

#include "chat/request.h"
#include "json/json.h"

struct body {
    struct json *top;            /* owned; the text */
    struct chat_request request; /* owned; shares top */
};

/* Reads FILE, or stdin for "-". A bare array is taken for the messages. Errors name the file, or the field. */
lily_status body_read(const char *path, struct body *out, struct lily_err *err);
/* LILY_ERR_UNSUPPORTED when a message holds an image or a video, which the model would not see. */
lily_status body_text_only(const struct body *b, struct lily_err *err);
/* Whether the last message is the model's own, so that nothing is asked. */
bool body_ends_answered(const struct body *b);
void body_free(struct body *b);

#endif
