/*
 * What of an answer a person sees: thinking, answer, tool calls, as they arrive.
 *
 * On a terminal thinking is dimmed (or, without styles, marked by a line), control characters are made visible, lines break
 * between words, and a blank line parts thinking from answer. Into a pipe goes the text of the answer exactly as it is, and nothing of the thinking; a tool
 * call is one line of JSON in both. Thread: the main one. Owned: screen_free.
 */
#ifndef LILY_CMD_SCREEN_H
#define LILY_CMD_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

#include "wrap.h"

enum screen_part { PART_NONE, PART_THINKING, PART_ANSWER };

struct screen {
    bool terminal, styles;
    enum screen_part part;  /* what is being shown */
    bool at_line_start;     /* the cursor is there */
    int newlines;           /* line feeds held back, until text follows */
    struct wrap wrap;       /* owned; used with styles */
};

void screen_init(struct screen *s);
void screen_free(struct screen *s);
void screen_thinking(struct screen *s, const char *text, size_t n);
void screen_answer(struct screen *s, const char *text, size_t n);
void screen_call(struct screen *s, const char *name, const char *arguments); /* arguments: JSON text */
/* Ends the answer: styles off, the cursor at the start of a line. */
void screen_end(struct screen *s);
/* Whether stdout still takes text. */
bool screen_alive(void);

#endif
