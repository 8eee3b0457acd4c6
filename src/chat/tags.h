/*
 * The tags that a model's text is made of: recognising one, and looking ahead over whitespace to the next. Every look-ahead
 * is bounded, so a text that is pushed byte by byte still takes linear time. Any thread; only for the files of this folder.
 */
#ifndef LILY_CHAT_TAGS_H
#define LILY_CHAT_TAGS_H

#include <stdbool.h>
#include <stddef.h>

enum tag {
    TAG_NONE,    /* other text */
    TAG_PARTIAL, /* the text ends inside what may become a tag; in tag_after with more to come: not decided */
    TAG_END,     /* tag_after only: the text is over, perhaps inside a tag */
    TAG_THINK,
    TAG_THINK_CLOSE,
    TAG_CALL,
    TAG_CALL_CLOSE,
    TAG_CALL_ALIAS, /* another spelling of TAG_CALL that counts only in front of a function */
    TAG_CALL_ALIAS_CLOSE,
    TAG_RESPONSE,
    TAG_RESPONSE_CLOSE,
    TAG_FUNCTION, /* <function=NAME> */
    TAG_FUNCTION_CLOSE,
    TAG_PARAMETER, /* <parameter=KEY> */
    TAG_PARAMETER_CLOSE
};

/* Text from a tag's place to what has arrived so far. */
struct tag_text {
    const char *s;
    size_t n;
    bool final; /* nothing more will come */
};

struct tag_found {
    enum tag tag;
    size_t at, len;     /* where in the text it stands */
    const char *name;   /* TAG_FUNCTION, TAG_PARAMETER: view into the text, without quotes and spaces around it */
    size_t n_name;
};

enum { TAG_MAX_SPACE = 64, TAG_MAX_NAME = 256 };

bool tag_is_space(char c); /* space, tab, carriage return, newline */
/* The tag that begins exactly at text.s + at. */
struct tag_found tag_at(struct tag_text text, size_t at);
/* The tag that follows text.s + at after at most TAG_MAX_SPACE whitespace. */
struct tag_found tag_after(struct tag_text text, size_t at);

#endif
