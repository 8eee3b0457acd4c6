/*
 * The lines that a person types into the chat: editing and history (libedit, where the build has it), messages of several
 * lines, Ctrl-C. When stdin is no terminal, lines are read as they are.
 *
 * A message goes on over a line that ends in a backslash, and, on a terminal, over lines that arrive at once (pasted text).
 * Thread: the main one; one input at a time. Owned: input_close. The history is written after each message.
 */
#ifndef LILY_CMD_INPUT_H
#define LILY_CMD_INPUT_H

#include <stdbool.h>

#include "base/buf.h"

struct input;

/* history: a file for the history, "" for none; created with mode 0600. */
struct input *input_open(const char *history);
void input_close(struct input *in);

enum input_event { INPUT_MESSAGE, INPUT_INTERRUPTED, INPUT_END };
/* Reads one message into out (cleared first), without its last line feed. */
enum input_event input_read(struct input *in, struct buf *out);

#endif
