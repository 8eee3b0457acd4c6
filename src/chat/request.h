/*
 * The conversation of a chat-completions body, checked and made ready for the template: messages, tools, template options.
 * Sampling fields are not read here; unknown fields are ignored.
 *
 * What is changed on the way (everything else reaches the template as the client sent it):
 * - leading messages of role system and developer become one system message, their texts joined by an empty line;
 * - a later one stays in its place and becomes a <system-reminder> user turn (template_options.system_reminders);
 * - a line "x-anthropic-billing-header: ..." at the start of a system text or part goes: it differs in every request;
 * - an assistant's `reasoning` is its reasoning_content where that is absent.
 *
 * Threads: any. Lifetime: the body must outlive the request, which shares its text.
 */
#ifndef LILY_CHAT_REQUEST_H
#define LILY_CHAT_REQUEST_H

#include "chat/template.h"

struct chat_request {
    struct json *messages;           /* owned; array, shares the body's text */
    const struct json *tools;        /* view into the body: an array, or NULL */
    struct template_options options; /* all but the version, which is the model's */
    char media[80]; /* the place of the first image or video ("messages[2].content[0]"), "" when there is none: the template
                       renders them, a text model must refuse them */
};

/*
 * Reads a body. A known field of the wrong type is LILY_ERR_FORMAT that names it; a content part that is neither text nor
 * image nor video is LILY_ERR_UNSUPPORTED that names it. On failure *out is empty.
 */
lily_status chat_request_parse(const struct json *body, struct chat_request *out, struct lily_err *err);
/* Refuses a content part that is no text, as chat_request_parse does; images and videos, too. place: what the error calls it. */
lily_status chat_text_part(const struct json *part, const char *place, struct lily_err *err);
/* The refusal of an image or a video: LILY_ERR_UNSUPPORTED. */
lily_status chat_refuse_media(const char *place, struct lily_err *err);
void chat_request_free(struct chat_request *r);

#endif
