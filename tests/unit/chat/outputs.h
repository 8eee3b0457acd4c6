/*
 * Running the output parser in tests: the events of a text as one line, at every cut.
 * The line: R:reasoning, C:content, then each call as NAME(arguments), with "..." behind a call that was not closed.
 */
#ifndef LILY_TESTS_CHAT_OUTPUTS_H
#define LILY_TESTS_CHAT_OUTPUTS_H

#include "chat/output.h"

struct collected {
    struct buf reasoning, content, calls, arguments; /* owned */
    int n_open, n_calls, n_texts;
    const char *broken; /* a rule of the events that did not hold, or NULL */
};
void collect(void *user, const struct output_event *e);
void collected_clear(struct collected *c);
void collected_free(struct collected *c);
/* Writes the line into out (cleared). */
void collected_line(struct collected *c, struct buf *out);
/* Fails the test unless the text gives the line: whole, cut in two at every byte, and byte by byte. */
void check_output(const struct output_options *opt, const char *text, size_t n, const char *want);

#endif
