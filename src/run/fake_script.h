/* The script of a fake engine: reading it, and choosing a reply. Only for fake.c and fake_script.c. Thread: one at a time. */
#ifndef LILY_RUN_FAKE_SCRIPT_H
#define LILY_RUN_FAKE_SCRIPT_H

#include "json/json.h"
#include "text/tokenizer.h"

struct fake_token {
    int32_t id;     /* of an added token; -1: a text of its own */
    int same;       /* the number of an earlier token near by with the same text, or its own */
    struct buf text; /* owned; any bytes */
    double delay_ms; /* after the token before it */
    char *error;    /* owned; this token fails with it; NULL: it does not */
    bool crash;     /* the engine breaks here */
};

struct fake_reply {
    char **match; /* owned; texts that must all stand in the prompt */
    int n_match;
    int times;    /* uses left; -1: any number */
    double prefill_rate; /* prompt tokens per second; 0: at once */
    char *prefill_error; /* owned; or NULL */
    bool prefill_crash;
    struct fake_token *tokens; /* owned */
    int n_tokens;
};

struct fake_script {
    double load_ms;
    char *load_error; /* owned; or NULL */
    double prefill_rate;
    int piece;        /* prompt tokens of a piece */
    int slices;       /* calls that a piece takes */
    int crash_at_step; /* decode steps until the engine breaks; 0: never */
    bool prompt_scripts; /* a prompt may carry its own reply behind "#script " */
    struct fake_reply *replies; /* owned */
    int n_replies;
};

lily_status fake_script_read(const char *path, const struct tokenizer *t, struct fake_script *out, struct lily_err *err);
void fake_script_free(struct fake_script *s);

/* One reply from JSON; what: for messages. On failure *out is empty. */
lily_status fake_reply_read(const struct json *v, const char *what, const struct tokenizer *t, struct fake_reply *out,
                            struct lily_err *err);
void fake_reply_free(struct fake_reply *r);

/* The first reply that fits the prompt and is not used up, or NULL. */
struct fake_reply *fake_script_choose(struct fake_script *s, const char *prompt, size_t n);

#endif
