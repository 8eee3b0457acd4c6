/* Reading lines of the chat. */
#include "input.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/mem.h"
#include "interrupt.h"
#include "terminal.h"

#if __has_include(<histedit.h>)
#define HAVE_LIBEDIT 1
#include <histedit.h>
#include <wchar.h>
#endif

enum { PASTE_MS = 20, HISTORY_LINES = 1000, MAX_MESSAGE = 64 << 20 };

struct input {
    bool terminal;
    bool more;       /* a message goes on: the other prompt */
    bool ahead;      /* the line was typed before its prompt came: what follows it at once is no paste */
    char *line;      /* owned by getline */
    size_t cap;
    char *history_path; /* owned; "" for none */
#ifdef HAVE_LIBEDIT
    EditLine *edit;  /* owned; NULL when stdin is no terminal */
    History *history; /* owned */
    char queue[8];   /* bytes that were read ahead to recognise an escape sequence */
    int queue_at, queue_n;
    bool pasting;    /* between the terminal's marks of a paste */
    bool marks;      /* the terminal is asked for them */
#endif
};

static bool poll_input(int ms)
{
    struct pollfd p = {STDIN_FILENO, POLLIN, 0};
    return poll(&p, 1, ms) > 0 && (p.revents & POLLIN);
}

/* Whether more input comes at once: nobody types that fast. */
static bool input_waiting(void)
{
    return poll_input(PASTE_MS);
}

static const char *prompt_text(const struct input *in)
{
    return in->more ? ". " : "> ";
}

#ifdef HAVE_LIBEDIT
static char *prompt(EditLine *edit)
{
    static char text[4];
    struct input *in;
    el_get(edit, EL_CLIENTDATA, &in);
    snprintf(text, sizeof text, "%s", prompt_text(in));
    return text;
}

/* One byte; 0 or less at the end of the input and after Ctrl-C, which libedit by itself would read over. At the prompt
 * Ctrl-C is a byte (take_terminal): so it keeps its place among the keys before and after it. */
static int read_byte(struct input *in, char *c)
{
    if (in->queue_at < in->queue_n) {
        *c = in->queue[in->queue_at++];
        return 1;
    }
    int n = interrupt_wait(STDIN_FILENO) ? (int)read(STDIN_FILENO, c, 1) : -1;
    if (n != 1 || (unsigned char)*c != terminal_interrupt_key()) return n;
    interrupt_note();
    return -1;
}

/* After ESC: takes a mark of the beginning or end of a paste, or puts what is there in the queue. True for a mark. */
static bool take_paste_mark(struct input *in)
{
    static const char begin[] = "[200~", end[] = "[201~";
    in->queue_at = in->queue_n = 0;
    while (in->queue_n < (int)sizeof begin - 1 && input_waiting()) {
        if (read(STDIN_FILENO, &in->queue[in->queue_n], 1) != 1) break;
        in->queue_n++;
        size_t n = (size_t)in->queue_n;
        if (memcmp(in->queue, begin, n) != 0 && memcmp(in->queue, end, n) != 0) return false;
    }
    if (in->queue_n < (int)sizeof begin - 1) return false;
    in->pasting = in->queue[3] == '0';
    in->queue_n = 0;
    return true;
}

/* One character for libedit. Control characters of a paste, line feeds above all, are quoted, so that they are text. */
static int read_character(EditLine *edit, wchar_t *out)
{
    enum { QUOTE = 'V' & 0x1f, ESC = 0x1b };
    struct input *in;
    mbstate_t state = {0};
    char c;
    el_get(edit, EL_CLIENTDATA, &in);
    for (;;) {
        bool queued = in->queue_at < in->queue_n;
        int n = read_byte(in, &c);
        if (n <= 0) return n;
        if (c == ESC && !queued && take_paste_mark(in)) continue;
        if (in->pasting && !queued && (unsigned char)c < ' ' && c != ESC) {
            in->queue[0] = c == '\r' ? '\n' : c;
            in->queue_at = 0;
            in->queue_n = 1;
            c = QUOTE;
        }
        size_t r = mbrtowc(out, &c, 1, &state);
        if (r == (size_t)-2) continue;
        if (r == (size_t)-1) *out = L'?';
        return 1;
    }
}

/*
 * Keys that are typed while nobody reads stay as they are until the next prompt. With the modes that libedit leaves between
 * two lines the terminal itself would work on them: Ctrl-D would become a zero byte, an erasing key would erase what is no
 * line yet, and Ctrl-C would throw away all that waits to be read, the last prompt on its way to the screen included.
 */
static void take_terminal(EditLine *edit)
{
    if (terminal_interrupt_key() >= 0) el_set(edit, EL_SETTY, "-d", "intr=", NULL);
    el_set(edit, EL_SETTY, "-x", "-icanon", "-echo", "+noflsh", NULL);
}

static void open_editor(struct input *in)
{
    HistEvent ev;
    terminal_remember();
    in->edit = el_init("lily", stdin, stdout, stderr);
    if (!in->edit) return;
    take_terminal(in->edit);
    in->marks = env_color();
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_PROMPT, prompt);
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_SIGNAL, 0);
    el_set(in->edit, EL_GETCFN, read_character);
    in->history = history_init();
    if (!in->history) return;
    history(in->history, &ev, H_SETSIZE, HISTORY_LINES);
    history(in->history, &ev, H_SETUNIQUE, 1);
    el_set(in->edit, EL_HIST, history, in->history);
    if (*in->history_path) history(in->history, &ev, H_LOAD, in->history_path);
}

static void close_editor(struct input *in)
{
    if (!in->edit) return;
    if (in->history) history_end(in->history);
    el_set(in->edit, EL_EDITMODE, 0); /* so that el_end leaves the terminal alone: it would throw away what is typed ahead */
    el_end(in->edit);
    terminal_restore();
}

static const char *edit_line(struct input *in, size_t *n)
{
    int count = 0;
    if (in->marks) fputs("\033[?2004h", stdout);
    fflush(stdout);
    el_set(in->edit, EL_PREP_TERM, 1); /* el_gets by itself does it when the prompt is seen already, and the first keys may be here */
    const char *line = el_gets(in->edit, &count);
    if (in->marks) fputs("\033[?2004l", stdout);
    fflush(stdout);
    in->pasting = false;
    *n = line && count > 0 ? (size_t)count : 0;
    return *n ? line : NULL;
}
#endif

struct input *input_open(const char *history)
{
    struct input *in = mem_new(sizeof *in);
    in->terminal = isatty(STDIN_FILENO);
    in->history_path = mem_dupz(history);
#ifdef HAVE_LIBEDIT
    if (in->terminal && isatty(STDOUT_FILENO)) open_editor(in);
#endif
    return in;
}

void input_close(struct input *in)
{
    if (!in) return;
#ifdef HAVE_LIBEDIT
    close_editor(in);
#endif
    free(in->history_path);
    free(in->line);
    free(in);
}

/* One line with its line feed, or NULL at the end or after Ctrl-C. A view until the next call. */
static const char *read_line(struct input *in, size_t *n)
{
#ifdef HAVE_LIBEDIT
    if (in->edit) return edit_line(in, n);
#endif
    if (in->terminal) {
        fputs(prompt_text(in), stdout);
        fflush(stdout);
    }
    *n = 0;
    if (in->terminal && !interrupt_wait(STDIN_FILENO)) return NULL;
    ssize_t got = getline(&in->line, &in->cap, stdin);
    *n = got > 0 ? (size_t)got : 0;
    return got > 0 ? in->line : NULL;
}

/* Writes the history, too: whatever ends the chat, it is there. */
static void remember(struct input *in, const struct buf *message)
{
#ifdef HAVE_LIBEDIT
    HistEvent ev;
    if (!in->history || !message->len || message->len >= 1 << 16) return;
    history(in->history, &ev, H_ENTER, buf_str(message));
    if (!*in->history_path) return;
    int fd = open(in->history_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* before libedit makes it with another mode */
    if (fd >= 0 && fchmod(fd, 0600) == 0) history(in->history, &ev, H_SAVE, in->history_path);
    if (fd >= 0) close(fd);
#else
    (void)in;
    (void)message;
#endif
}

enum input_event input_read(struct input *in, struct buf *out)
{
    buf_clear(out);
    in->more = false;
    in->ahead = in->terminal && poll_input(0);
    if (in->terminal) interrupt_mode(INTERRUPT_IS_NOTED); /* a script has no prompt to go back to */
    enum input_event event = INPUT_MESSAGE;
    for (;;) {
        size_t n;
        const char *line = read_line(in, &n);
        if (interrupted()) {
            event = INPUT_INTERRUPTED;
            break;
        }
        if (!line && !out->len) event = INPUT_END;
        if (!line) break;
        bool ended = line[n - 1] == '\n';
        if (ended) n--;
        if (n > 0 && line[n - 1] == '\r') n--;
        bool backslash = n > 0 && line[n - 1] == '\\';
        buf_add(out, line, backslash ? n - 1 : n);
        in->more = true;
        bool paste = ended && in->terminal && !in->ahead && out->len && out->data[0] != '/' && input_waiting();
        if (out->len > MAX_MESSAGE || !(backslash || paste)) break;
        buf_addc(out, '\n');
    }
    if (in->terminal) interrupt_mode(INTERRUPT_ONLY_STOPS); /* from here on, so that no Ctrl-C falls between */
    if (event == INPUT_MESSAGE) remember(in, out);
    return event;
}
