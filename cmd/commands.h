/* The commands, each in its own file, and what they share in printing. Thread: the main one. */
#ifndef LILY_CMD_COMMANDS_H
#define LILY_CMD_COMMANDS_H

#include "opt.h"

extern const struct command cmd_pack;
extern const struct command cmd_run, cmd_chat, cmd_serve, cmd_info, cmd_tokenize, cmd_template, cmd_bench, cmd_synth, cmd_help;
extern const struct command cmd_quantize, cmd_eval, cmd_pull, cmd_list, cmd_remove, cmd_loadtest;

/* All of them, in the order of the help; ends with NULL. */
extern const struct command *const commands[];
const struct command *command_find(const char *name, struct lily_err *err); /* NULL: err names the nearest */

void commands_help(struct buf *out); /* the list of commands */

/* A measured number with three digits behind the point. */
struct json *json_rounded(double v);
/* Prints one JSON value and a line feed to stdout, and frees it. */
void print_json(struct json *moved);
/* Prints n bytes to stdout: made safe when it is a terminal, as they are otherwise. */
void print_text(const char *text, size_t n);

/* Prints n bytes to stdout as they are, remembering why it failed. */
void write_output(const char *text, size_t n);
/* Flushes stdout, remembering the same; false once it takes no more. */
bool flush_output(void);

enum { MAX_INPUT_BYTES = 256 << 20 }; /* bytes of a file or of stdin that a command reads */
/* Reads all of stdin, appended. What is no UTF-8 text is refused, as everywhere where text comes in. */
lily_status read_stdin(struct buf *out, struct lily_err *err);
/* The same of FILE, which may be a pipe as in <(command), or of stdin for "-". */
lily_status read_input(const char *path, struct buf *out, struct lily_err *err);

/* Refuses a word of the command line that is no UTF-8 text; NULL is fine. */
lily_status check_word(const char *what, const char *word, struct lily_err *err);

#endif
