/* The state of an output parser; only for output*.c. */
#ifndef LILY_CHAT_OUTPUT_IMPL_H
#define LILY_CHAT_OUTPUT_IMPL_H

#include <stdint.h>

#include "base/buf.h"
#include "chat/arguments.h"
#include "chat/output.h"
#include "chat/tags.h"

#define NOWHERE SIZE_MAX

enum state {
    IN_THINKING,
    IN_HELD, /* thinking with something like a call in it: is the thinking closed later? */
    IN_TEXT, /* content, or the rest of thinking that never closed */
    IN_BODY, /* of a function, between parameters */
    IN_VALUE,
    AFTER_CALL /* behind the end of a function: closing tags that may follow */
};

/* Whitespace of one kind of text that waits for what comes next. */
struct run {
    struct buf space; /* owned */
    bool marker;      /* a marker stands in or next to it */
    bool begun;       /* something else than whitespace was passed on before */
};

/* Where the text stands relative to Markdown's code fences. */
struct fence {
    enum { LINE_START, LINE_RUN, LINE_REST } phase; /* indentation, then a run of ` or ~, then the rest of the line */
    char ch;
    size_t run;
    bool rest_blank, rest_tick; /* of the rest: only blanks; holds a backtick */
    char open_ch;
    size_t open_run; /* 0: no fence is open */
};

void fence_feed(struct fence *f, char c);
bool fence_is_open(const struct fence *f);

struct value {
    bool started;  /* the newline behind the opening tag was looked for */
    bool in_line;  /* it was not there, so none is asked for in front of the closing tag */
    bool is_text;  /* passed on while it comes */
    struct argument_types types;
    size_t begin;  /* offset where it began; NOWHERE once that is gone */
    size_t doubt;  /* offset of an end that is not certain: it ends here if no better end comes */
    bool weak;     /* the doubtful end lacks the tag that closes the parameter */
    size_t parameter; /* offset of a parameter that opens without this one having been closed: the same */
    int depth;     /* calls inside the value that are open */
};

struct output_parser {
    struct output_options opt;
    output_sink sink;
    void *user;
    struct buf in;    /* owned; what has come and is still needed */
    size_t pos;       /* offset in `in`: all before it is done with */
    size_t scan;      /* offset: all before it was looked at */
    size_t search;    /* offset: no end of a JSON call begins before it; NOWHERE: not looked for yet */
    char held[4];     /* the start of a character that is not complete */
    size_t n_held;
    bool final;
    enum state state;
    enum output_event_kind kind; /* of plain text: reasoning or content */
    struct run runs[2];          /* by that kind */
    struct fence fence;
    bool quoted; /* the thinking is known to be closed later: calls in it are text */
    int n_calls;
    /* The call that is open. */
    const struct json *properties; /* view; NULL: no schema */
    struct json *used;             /* owned; the keys so far */
    struct buf scratch;            /* owned */
    struct value value;
    struct buf raw;  /* owned; the text of the call that is open, up to raw_at */
    size_t raw_at;   /* offset in `in`; NOWHERE: no call is open */
    size_t raw_end;  /* offset behind its end, once that is known */
    int n_fallbacks; /* values that ended in doubt, over all calls */
};

struct tag_text output_view(const struct output_parser *p);
void output_emit(struct output_parser *p, enum output_event_kind kind, const char *text, size_t n);
/* Puts a whole or a beginning call: the name, and the state that goes with it. */
void output_call_start(struct output_parser *p, const char *name, size_t n);
void output_call_end(struct output_parser *p, bool complete);
/* The text of the call that has ended, if it was not put yet. */
void output_call_text(struct output_parser *p);
/* Steps of the states of a call; false when more text is needed. */
bool output_body_step(struct output_parser *p);
bool output_value_step(struct output_parser *p);

#endif
