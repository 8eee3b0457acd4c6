/* Showing an answer. */
#include "screen.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/env.h"
#include "base/safe.h"
#include "commands.h"

void screen_init(struct screen *s)
{
    memset(s, 0, sizeof *s);
    s->terminal = isatty(STDOUT_FILENO);
    s->styles = s->terminal && env_color();
    s->at_line_start = true;
    wrap_init(&s->wrap);
}

void screen_free(struct screen *s)
{
    wrap_free(&s->wrap);
}

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static void put(struct screen *s, const char *text, size_t n)
{
    struct buf safe = {0}, wrapped = {0};
    if (n == 0) return;
    s->at_line_start = text[n - 1] == '\n';
    if (s->terminal) {
        safe_text(&safe, text, n, true);
        text = buf_str(&safe);
        n = safe.len;
    }
    if (s->styles) {
        wrap_width(&s->wrap, terminal_columns());
        wrap_text(&s->wrap, text, n, &wrapped);
        text = buf_str(&wrapped);
        n = wrapped.len;
    }
    write_output(text, n);
    flush_output();
    buf_free(&safe);
    buf_free(&wrapped);
}

/* Line feeds at the end of the thinking are not shown before it is known that thinking goes on. */
static void put_held(struct screen *s, const char *text, size_t n)
{
    while (n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t part = end ? (size_t)(end - text) : n;
        if (part) {
            for (; s->newlines; s->newlines--) put(s, "\n", 1);
            put(s, text, part);
        }
        if (!end) return;
        s->newlines++;
        text += part + 1;
        n -= part + 1;
    }
}

static void enter(struct screen *s, enum screen_part part)
{
    if (s->part == part) return;
    if (s->part == PART_THINKING) {
        s->newlines = 0;
        if (s->styles) fputs("\033[0m", stdout);
        if (!s->at_line_start) put(s, "\n", 1);
        fputs(s->styles ? "\n" : "[answer]\n", stdout);
        s->at_line_start = true;
    }
    if (part == PART_THINKING) fputs(s->styles ? "\033[2m" : "[thinking]\n", stdout);
    s->part = part;
}

void screen_thinking(struct screen *s, const char *text, size_t n)
{
    if (!s->terminal || n == 0) return;
    enter(s, PART_THINKING);
    put_held(s, text, n);
}

void screen_answer(struct screen *s, const char *text, size_t n)
{
    if (n == 0) return;
    enter(s, PART_ANSWER);
    put(s, text, n);
}

void screen_call(struct screen *s, const char *name, const char *arguments)
{
    enter(s, PART_ANSWER);
    if (!s->at_line_start) put(s, "\n", 1);
    struct buf line = {0};
    buf_printf(&line, "%s %s\n", name, arguments);
    put(s, buf_str(&line), line.len);
    buf_free(&line);
}

void screen_end(struct screen *s)
{
    if (s->part == PART_THINKING && s->styles) fputs("\033[0m", stdout);
    s->newlines = 0;
    if (!s->at_line_start) put(s, "\n", 1);
    flush_output();
    s->part = PART_NONE;
    s->wrap.code = false;
}

bool screen_alive(void)
{
    return !ferror(stdout);
}
