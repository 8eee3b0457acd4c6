/*
 * Commands and their options: one table gives the parser, the help text and the list for machines, so they cannot differ.
 *
 * Nouns: a command has groups of options; a group fills one struct of values, which lies at `at` inside the command's
 * args struct. The args struct begins with struct common_args. Values borrow argv. Thread: the main one.
 */
#ifndef LILY_CMD_OPT_H
#define LILY_CMD_OPT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

enum opt_kind {
    OPT_ON,   /* bool becomes true */
    OPT_OFF,  /* bool becomes false */
    OPT_INT,  /* int in [lo, hi]; K, M and G as suffixes of 1024 */
    OPT_REAL, /* double in [lo, hi] */
    OPT_SIZE, /* size_t of bytes, at least lo (0 or 1), as size_parse reads it */
    OPT_TEXT, /* const char * */
    OPT_TAKE  /* take() is called for each occurrence */
};

struct opt {
    const char *name; /* long name without dashes */
    char letter;      /* or 0 */
    const char *arg;  /* what stands for the value in help; NULL: takes none */
    const char *help; /* one sentence without a full stop */
    enum opt_kind kind;
    size_t at;        /* of the value inside the group's struct */
    double lo, hi;
    /* LILY_ERR_USAGE with what is wrong about the value; the option's name is put in front. */
    lily_status (*take)(void *values, const char *text, struct lily_err *err);
};

struct opt_group {
    const char *title;
    const struct opt *opts;
    int n;
};

struct opt_use {
    const struct opt_group *group;
    size_t at; /* of the group's struct inside the command's args */
};

enum { MAX_GROUPS = 8, MAX_OPTS = 96 };

struct command {
    const char *name;
    const char *usage;   /* positional arguments, "[PROMPT]" */
    const char *summary; /* one line for the list of commands */
    const char *about;   /* paragraphs of the command's help, lines wrapped by hand */
    struct opt_use uses[MAX_GROUPS]; /* group NULL ends the list */
    int max_args;        /* positional arguments at most */
    size_t args_size;
    void (*init)(void *args); /* fills the defaults of zeroed args */
    /* LILY_ERR_CANCELLED with an empty message: interrupted, nothing to say. */
    lily_status (*run)(void *args, int n, char **words, struct lily_err *err);
};

/* Options of every command; the first member of every args struct. */
struct common_args {
    bool json;
    bool verbose;
    bool help;
};
extern const struct opt_group opts_plain; /* --help */
extern const struct opt_group opts_json;  /* --json, --help */
extern const struct opt_group opts_model_common; /* --json, --verbose, --help */

/*
 * Parses argv (argv[0] is the command's name) into args. Positional words end up in *words, *n of them. Errors are LILY_ERR_USAGE
 * that name the option, with the nearest one as a hint.
 */
lily_status opts_parse(const struct command *c, int argc, char **argv, void *args, char ***words, int *n,
                       struct lily_err *err);

/* The text of `lily help COMMAND`, and its form for machines: {name, usage, summary, about, options: […]}. */
void opts_help(const struct command *c, struct buf *out);
struct json *opts_json_of(const struct command *c);

/* Hints at what was meant by an option that the command does not have: a name without dashes, or a letter. */
void opts_hint(const struct command *c, const char *name, struct lily_err *err);
bool command_takes(const struct command *c, const char *name); /* whether --NAME is one of its options */

/* The one of n names that is nearest to word, or NULL if none is near. */
const char *nearest_name(const char *word, const char *const *names, int n);

#endif
