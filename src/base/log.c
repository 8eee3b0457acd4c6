/* Messages and the progress bar on stderr. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/safe.h"

enum { BAR_WIDTH = 28 };
static const double first_draw_ms = 250, redraw_ms = 100;
static atomic_bool is_quiet, bar_drawn;

void log_quiet(bool quiet)
{
    atomic_store(&is_quiet, quiet);
}

static void print_line(const char *tag, const char *fmt, va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof text, fmt, ap);
    /* One call, so that lines of threads do not mix; a bar is wiped first and comes back with its next step. */
    fprintf(stderr, "%slily: %s%s\n", atomic_load(&bar_drawn) ? "\r\033[K" : "", tag, text);
}

void log_note(const char *fmt, ...)
{
    if (atomic_load(&is_quiet)) return;
    va_list ap;
    va_start(ap, fmt);
    print_line("", fmt, ap);
    va_end(ap);
}

void log_warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line("warning: ", fmt, ap);
    va_end(ap);
}

void progress_begin(struct progress *p, const char *label, double total, const char *unit)
{
    memset(p, 0, sizeof *p);
    p->label = label;
    p->unit = unit;
    p->total = total > 0 ? total : 1;
    p->started_ms = clock_ms();
    p->terminal = isatty(STDERR_FILENO) && !atomic_load(&is_quiet);
}

static void add_amount(struct buf *line, double v, const char *unit)
{
    if (strcmp(unit, "B") == 0) buf_printf(line, v >= 1e9 ? "%.1f GB" : "%.0f MB", v >= 1e9 ? v / 1e9 : v / 1e6);
    else buf_printf(line, "%.0f %s", v, unit);
}

/* Columns that a line may take without wrapping, which would leave its first part behind. */
static size_t line_room(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 79;
    return size.ws_col - 1u;
}

void progress_at(struct progress *p, double done)
{
    double now = clock_ms();
    if (!p->terminal || now - p->started_ms < first_draw_ms || now - p->drawn_ms < redraw_ms) return;
    double share = done / p->total > 1 ? 1 : done / p->total, seconds = (now - p->started_ms) / 1e3;
    int full = (int)(share * BAR_WIDTH);
    struct buf line = {0};
    buf_printf(&line, "%s [", p->label);
    for (int i = 0; i < BAR_WIDTH; i++) buf_addc(&line, i < full ? '=' : ' ');
    buf_printf(&line, "] %3.0f%% ", share * 100);
    add_amount(&line, done, p->unit);
    buf_addz(&line, " of ");
    add_amount(&line, p->total, p->unit);
    buf_addz(&line, ", ");
    add_amount(&line, done / seconds, p->unit);
    buf_printf(&line, "/s, %.0f s left", share > 0 ? seconds / share - seconds : 0);
    size_t room = line_room();
    fprintf(stderr, "\r%.*s\033[K", (int)(line.len < room ? line.len : room), buf_str(&line));
    buf_free(&line);
    p->drawn_ms = now;
    p->drawn = true;
    atomic_store(&bar_drawn, true);
}

void progress_end(struct progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
    atomic_store(&bar_drawn, false);
}
