/*
 * What the model wrote, split while it arrives: reasoning, content, tool calls (MODEL.md, Chat template, what the model
 * emits).
 *
 * Push the generated text in any pieces; events come as soon as they are certain, and their texts joined do not depend on
 * the cuts. The three texts are the model's text without its markers: the tags of thinking and of calls outside code
 * fences, and the whitespace between a marker and the beginning or end of a text. What counts as a call:
 * - "<tool_call><function=NAME>" with parameters or none; "<function=NAME>" alone at the start of a line, when NAME is a tool or
 *   no tools are given; a JSON object with name and arguments inside "<tool_call>";
 * - not inside a code fence, and not inside thinking that is closed later: there it is text. Inside thinking that never
 *   closes it is a call. So a call in thinking is held back until the end is known.
 * A value ends at "</parameter>" on a line of its own when the next parameter or the end of the function follows; otherwise
 * the tag belongs to the value, and so do complete calls inside the value. Missing or doubled closing tags are recovered.
 *
 * Arguments are lossless: each value is typed by the tool's schema (integer, number, boolean, object, array, null), and what
 * does not convert, or has no type, is a string of just the characters between the tags. Numbers keep their text.
 *
 * Special tokens ("<|im_end|>", ...) are not expected: the detokenizer leaves them out; spelled out by the model they are text.
 *
 * Threads: one at a time. Lifetime: the tools outlive the parser; event texts are views, valid during the callback. Invalid
 * UTF-8 becomes U+FFFD; every event's text is valid UTF-8 by itself.
 */
#ifndef LILY_CHAT_OUTPUT_H
#define LILY_CHAT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "json/json.h"

enum output_event_kind {
    OUTPUT_REASONING,      /* text of the thinking */
    OUTPUT_CONTENT,        /* text of the answer */
    OUTPUT_CALL_START,     /* a call begins: text is the function's name */
    OUTPUT_CALL_ARGUMENTS, /* a fragment of its arguments; joined they are one JSON object, whatever happens */
    OUTPUT_CALL_END,       /* the call is over */
    OUTPUT_CALL_TEXT       /* behind it, once its closing tags are there: all of the call as the model wrote it, tags included */
};

struct output_event {
    enum output_event_kind kind;
    int call;         /* number of the call, from 0; -1 for texts */
    const char *text; /* view; "" for OUTPUT_CALL_END */
    size_t n;
    bool complete; /* OUTPUT_CALL_END: the function was closed; false: the text ended inside it */
};
typedef void (*output_sink)(void *user, const struct output_event *event);

struct output_options {
    const struct json *tools; /* borrowed; the request's array of tools, or NULL */
    bool thinking;            /* the prompt ends inside an open think block */
    bool no_calls;            /* calls are text (tool_choice "none") */
};

/* Where the text stands: what a caller must know when the model ends its turn. */
enum output_place {
    OUTPUT_IN_REASONING, /* the thinking is open */
    OUTPUT_IN_HELD_CALL, /* the thinking is open, and a call in it waits for the end */
    OUTPUT_IN_CONTENT,
    OUTPUT_IN_CALL
};

struct output_parser;

struct output_parser *output_new(const struct output_options *opt, output_sink sink, void *user); /* owned */
void output_push(struct output_parser *p, const char *text, size_t n);
void output_finish(struct output_parser *p); /* the text is over; once */
void output_free(struct output_parser *p);   /* NULL is fine */

enum output_place output_place(const struct output_parser *p);
int output_n_calls(const struct output_parser *p); /* calls begun so far */

#endif
