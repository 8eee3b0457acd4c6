/* The lily program: dispatch to one file per command, errors, exit codes. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/safe.h"
#include "base/size.h"
#include "base/utf8.h"
#include "commands.h"
#include "foreign.h"
#include "process.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

const struct command *const commands[] = {
    &cmd_run, &cmd_chat, &cmd_serve, &cmd_pack, &cmd_info, &cmd_tokenize, &cmd_template,
    &cmd_bench,
    &cmd_pull, &cmd_list, &cmd_remove, &cmd_quantize, &cmd_eval, &cmd_loadtest,
    &cmd_synth, &cmd_help, NULL};

const struct command *command_find(const char *name, struct lily_err *err)
{
    const char *names[32];
    int n = 0;
    for (; commands[n]; n++) {
        if (strcmp(commands[n]->name, name) == 0) return commands[n];
        names[n] = commands[n]->name;
    }
    err_set(err, LILY_ERR_USAGE, "unknown command \"%.60s\"", name);
    const struct foreign *foreign = foreign_command(name);
    const char *near = foreign ? foreign->own : nearest_name(name, names, n);
    if (near) err_hint(err, "did you mean lily %s?", near);
    else err_hint(err, "%s", foreign ? foreign->advice : "lily help lists the commands");
    return NULL;
}

static int output_error; /* errno of the first failed write to stdout */

void write_output(const char *text, size_t n)
{
    if (fwrite(text, 1, n, stdout) < n && !output_error) output_error = errno;
}

struct json *json_rounded(double v)
{
    return json_new_double(round(v * 1e3) / 1e3);
}

void print_json(struct json *moved)
{
    struct buf out = {0};
    json_write(moved, 0, &out);
    buf_addc(&out, '\n');
    write_output(buf_str(&out), out.len);
    flush_output();
    process_json(false); /* this was the one value */
    buf_free(&out);
    json_free(moved);
}

void print_text(const char *text, size_t n)
{
    struct buf safe = {0};
    if (isatty(STDOUT_FILENO)) {
        safe_text(&safe, text, n, true);
        text = buf_str(&safe);
        n = safe.len;
    }
    write_output(text, n);
    buf_free(&safe);
}

static lily_status read_stream(FILE *f, const char *name, struct buf *out, struct lily_err *err)
{
    char chunk[65536];
    size_t n;
    while (!feof(f) && (n = fread(chunk, 1, sizeof chunk, f)) > 0) { /* asked again, a terminal would want a second Ctrl-D */
        if (out->len + n > MAX_INPUT_BYTES) LILY_FAIL(err, LILY_ERR_LIMIT, "%s has more than %s", name, SIZE_TEXT(MAX_INPUT_BYTES));
        if (!buf_try_reserve(out, n)) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for %s (%zu bytes so far)", name, out->len + n);
        buf_add(out, chunk, n);
    }
    if (ferror(f)) LILY_FAIL(err, LILY_ERR_IO, "cannot read %s: %s", name, strerror(errno));
    return LILY_OK;
}

/* Who waits for a text that never comes should know what for. */
static void tell_wait(void)
{
    struct pollfd in = {STDIN_FILENO, POLLIN, 0};
    if (isatty(STDIN_FILENO)) log_note("reading what is typed; Ctrl-D at the start of a line ends it");
    else if (poll(&in, 1, 3000) == 0) log_note("waiting for stdin to end (</dev/null gives none)");
}

lily_status read_stdin(struct buf *out, struct lily_err *err)
{
    size_t before = out->len;
    tell_wait();
    LILY_TRY(read_stream(stdin, "stdin", out, err));
    return utf8_check("stdin", buf_str(out) + before, out->len - before, err);
}

static lily_status read_pipe(const char *path, struct buf *out, struct lily_err *err)
{
    FILE *f = fopen(path, "re");
    if (!f) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    lily_status st = read_stream(f, path, out, err);
    fclose(f);
    return st;
}

lily_status read_input(const char *path, struct buf *out, struct lily_err *err)
{
    struct stat sb = {0};
    size_t before = out->len;
    if (strcmp(path, "-") == 0) return read_stdin(out, err);
    bool pipe = stat(path, &sb) == 0 && S_ISFIFO(sb.st_mode);
    lily_status st = pipe ? read_pipe(path, out, err) : file_read(path, MAX_INPUT_BYTES, out, err);
    if (st != LILY_OK && S_ISCHR(sb.st_mode)) err_hint(err, "the name - stands for stdin");
    return st == LILY_OK ? utf8_check(path, buf_str(out) + before, out->len - before, err) : st;
}

lily_status check_word(const char *what, const char *word, struct lily_err *err)
{
    return word ? utf8_check(what, word, strlen(word), err) : LILY_OK;
}

static int exit_code(lily_status st)
{
    return st == LILY_OK ? EXIT_DONE : st == LILY_ERR_USAGE ? EXIT_USAGE : st == LILY_ERR_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED;
}

/* One line each on stderr, and the error object on stdout for who asked for JSON. */
static void report(const struct lily_err *err, bool json)
{
    struct buf text = {0};
    buf_addz(&text, "lily: ");
    safe_text(&text, err->msg, strlen(err->msg), false);
    if (err->hint[0]) buf_addz(&text, "\nhint: ");
    safe_text(&text, err->hint, strlen(err->hint), false);
    buf_addc(&text, '\n');
    log_lines(buf_str(&text), text.len);
    buf_free(&text);
    if (!json) return;
    struct json *error = json_new_object(), *top = json_new_object();
    json_put(error, "message", json_new_string(err->msg));
    json_put(error, "hint", err->hint[0] ? json_new_string(err->hint) : json_new_null());
    json_put(top, "error", error);
    print_json(top);
}

bool flush_output(void)
{
    if (fflush(stdout) != 0 && !output_error) output_error = errno;
    return !ferror(stdout);
}

/* A write that failed inside printf has left no errno behind: the pipe itself says whether its reader is there. */
static bool reader_gone(void)
{
    struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
    return output_error == EPIPE || (!output_error && poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)));
}

/* Flushes stdout. A reader that has gone away has what it wanted; another failure is one. */
static int finish(int code)
{
    if (flush_output() || reader_gone()) return code;
    fprintf(stderr, "lily: cannot write to stdout: %s\n", strerror(output_error ? output_error : EIO));
    return code == EXIT_DONE ? EXIT_FAILED : code;
}

static lily_status run_command(const struct command *c, int argc, char **argv, bool *json, struct lily_err *err)
{
    char **words;
    int n;
    struct common_args *args = calloc(1, c->args_size); /* freed by the end of the process */
    if (!args) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the options of %s", c->name);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) /* known before the options are, for errors in them */
        *json = *json || strcmp(argv[i], "--json") == 0;
    process_json(*json);
    if (c->init) c->init(args);
    lily_status st = opts_parse(c, argc, argv, args, &words, &n, err);
    if (st == LILY_OK && args->help) {
        struct buf text = {0};
        opts_help(c, &text);
        write_output(buf_str(&text), text.len);
        buf_free(&text);
    } else if (st == LILY_OK) {
        st = c->run(args, n, words, err);
    }
    free(args);
    return st;
}

/* argv[0] is the program, argv[1] the command. */
static lily_status dispatch(int argc, char **argv, bool *json, struct lily_err *err)
{
    bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    if (argv[1][0] == '-' && !help) {
        err_set(err, LILY_ERR_USAGE, "a command comes first, not the option %.60s", argv[1]);
        err_hint(err, "lily help lists the commands");
        return LILY_ERR_USAGE;
    }
    const struct command *c = help ? &cmd_help : command_find(argv[1], err);
    if (!c) return LILY_ERR_USAGE;
    return run_command(c, argc - 1, argv + 1, json, err);
}

int main(int argc, char **argv)
{
    struct lily_err err = {0};
    bool json = false;
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, ""); /* typed characters and their widths */
    process_init();
    if (argc < 2) {
        struct buf text = {0};
        commands_help(&text);
        fputs(buf_str(&text), stderr);
        buf_free(&text);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("lily %s\n", LILY_VERSION);
        return finish(EXIT_DONE);
    }
    lily_status st = dispatch(argc, argv, &json, &err);
    if (st != LILY_OK && err.msg[0]) report(&err, json);
    return finish(exit_code(st));
}
