/* A Responses body as a chat-completions body. Any thread. */
#ifndef LILY_SERVE_RESPONSES_INPUT_H
#define LILY_SERVE_RESPONSES_INPUT_H

#include "json/json.h"

/*
 * *out is an owned chat body that shares the text of `body`, which must outlive it; also on failure (free it then, too).
 * Function tools stay, those inside a namespace are taken out of it, custom tools become functions with one string "input";
 * tools that a provider would run itself are left out. Errors name the field.
 */
lily_status responses_to_chat(const struct json *body, struct json **out, struct lily_err *err);

/* The kind of a tool that was offered under that name. */
bool responses_tool_is_custom(const struct json *body, const char *name);
/* The namespace that it was offered in, or NULL. View. */
const char *responses_tool_namespace(const struct json *body, const char *name);

#endif
