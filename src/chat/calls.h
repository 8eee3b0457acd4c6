/*
 * The exact text of the tool calls that the model wrote, by call id. A call that comes back in a conversation is rendered from it
 * and not from its JSON, so that the prompt goes on as the model left it: spaces in JSON values, numbers, line breaks.
 *
 * A text is used only while the call's name and arguments are what they were: a client may edit them. Bounded in bytes, the
 * oldest go first. With a file the texts outlive the program: they are appended to it (mode 0600), each with a sum; what is
 * damaged is left out.
 *
 * Threads: any. Lifetime: texts are copied in and out. Owned: call_memory_free.
 */
#ifndef LILY_CHAT_CALLS_H
#define LILY_CHAT_CALLS_H

#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

struct call_memory;

/* path: a file that is read now and appended to, or NULL. One that cannot be read or written is warned of, and not used. */
struct call_memory *call_memory_new(size_t max_bytes, const char *path);
void call_memory_free(struct call_memory *m); /* NULL is fine */

/*
 * arguments: JSON text. text: from "<tool_call>" to "</tool_call>"; one that lacks the last tag gets it, one that does not
 * begin with the first is not kept. A call that is there under the id is replaced.
 */
void call_memory_put(struct call_memory *m, const char *id, const char *name, const char *arguments, const char *text);
/* Appends the text when there is one for this id, name and arguments (an object, or the JSON text of one). */
bool call_memory_find(struct call_memory *m, const char *id, const char *name, const struct json *arguments, struct buf *out);

#endif
