/* The string operations of Python that the chat template uses, on ranges of UTF-8 text. Any thread. */
#ifndef LILY_CHAT_PYTEXT_H
#define LILY_CHAT_PYTEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A view of a part of some text; valid as long as that text. */
struct range {
    const char *s;
    size_t n;
};

struct range py_strip(struct range r);           /* str.strip(): Unicode whitespace at both ends */
struct range py_lstrip_newlines(struct range r); /* str.lstrip("\n") */
struct range py_rstrip_newlines(struct range r); /* str.rstrip("\n") */
bool py_starts_with(struct range r, const char *prefix);
bool py_ends_with(struct range r, const char *suffix);
/* Offset of the first or last place where word stands in r; false: nowhere. */
bool py_find(struct range r, const char *word, size_t *at);
bool py_find_last(struct range r, const char *word, size_t *at);
bool py_is_space(unsigned code_point); /* str.isspace() of one character */

#endif
