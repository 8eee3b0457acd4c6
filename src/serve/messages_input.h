/* Anthropic's messages as chat-completions messages, tools and tool_choice. Any thread. */
#ifndef LILY_SERVE_MESSAGES_INPUT_H
#define LILY_SERVE_MESSAGES_INPUT_H

#include "json/json.h"

/*
 * *out is an owned chat body that shares the text of `body`, which must outlive it; also on failure (free it then, too).
 * Errors name the field.
 */
lily_status messages_to_chat(const struct json *body, struct json **out, struct lily_err *err);

#endif
