/* Messages and the progress bar on stderr. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/safe.h"
#include "base/size.h"

enum { BAR_WIDTH = 28, LEAST_WIDTH = 10 };
static const double first_draw_ms = 250, redraw_ms = 100;
static atomic_bool is_quiet, bar_drawn;

void log_quiet(bool quiet)
{
    atomic_store(&is_quiet, quiet);
}

/* ---- lines to stderr ---- */

enum { MAX_KEPT = 1 << 20 };

static struct {
    pthread_mutex_t lock; /* of all below */
    bool never_wait;
    struct buf kept; /* owned; from `at` on what the reader has not had yet */
    size_t at;
    long dropped; /* calls whose lines found no room */
} out = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Writes as much as goes within ms. A pipe that can be written to takes PIPE_BUF bytes at once. */
static size_t write_some(const char *text, size_t n, int ms)
{
    const double until = clock_ms() + ms;
    size_t sent = 0;
    while (sent < n) {
        double left = until - clock_ms();
        struct pollfd p = {STDERR_FILENO, POLLOUT, 0};
        if (poll(&p, 1, left > 0 ? (int)left : 0) != 1) return sent;
        if (!(p.revents & POLLOUT)) return n; /* nobody will ever read it */
        ssize_t got = write(STDERR_FILENO, text + sent, n - sent < PIPE_BUF ? n - sent : PIPE_BUF);
        if (got < 0 && errno != EINTR) return errno == EAGAIN ? sent : n;
        if (got > 0) sent += (size_t)got;
    }
    return sent;
}

/* Under the lock. A line that was begun (sent > 0) is kept to its end. */
static void keep(const char *text, size_t n, size_t sent)
{
    if (out.at > MAX_KEPT) { /* a reader that never catches up: what it has had goes */
        out.kept.len -= out.at;
        memmove(out.kept.data, out.kept.data + out.at, out.kept.len);
        out.at = 0;
    }
    if (sent == 0 && n > MAX_KEPT - (out.kept.len - out.at)) out.dropped++;
    else if (sent < n) buf_add(&out.kept, text + sent, n - sent);
}

/* Under the lock. */
static void send_kept(int ms)
{
    out.at += write_some(buf_str(&out.kept) + out.at, out.kept.len - out.at, ms);
    if (out.at < out.kept.len) return;
    buf_free(&out.kept);
    out.at = 0;
    if (!out.dropped) return;
    buf_printf(&out.kept, "lily: warning: nobody read stderr: lines were dropped, %ld times\n", out.dropped);
    out.dropped = 0;
    out.at = write_some(buf_str(&out.kept), out.kept.len, ms);
}

void log_lines(const char *text, size_t n)
{
    pthread_mutex_lock(&out.lock);
    if (out.never_wait) {
        send_kept(0);
        size_t sent = out.at == out.kept.len ? write_some(text, n, 0) : 0;
        keep(text, n, sent);
    } else {
        fwrite(text, 1, n, stderr); /* one call, so that lines of threads do not mix */
    }
    pthread_mutex_unlock(&out.lock);
}

void log_never_wait(void)
{
    pthread_mutex_lock(&out.lock);
    out.never_wait = true;
    pthread_mutex_unlock(&out.lock);
}

void log_flush(int ms)
{
    pthread_mutex_lock(&out.lock);
    send_kept(ms);
    pthread_mutex_unlock(&out.lock);
}

static void print_line(const char *tag, const char *fmt, va_list ap)
{
    char text[1024];
    struct buf line = {0};
    vsnprintf(text, sizeof text, fmt, ap);
    /* A bar is wiped first and comes back with its next step. */
    buf_printf(&line, "%slily: %s", atomic_load(&bar_drawn) ? "\r\033[K" : "", tag);
    safe_text(&line, text, strlen(text), false);
    buf_addc(&line, '\n');
    log_lines(line.data, line.len);
    buf_free(&line);
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

/* "2.0 of 4.0 GiB, 500 MiB/s, ", "192 of 215 tokens, 25 tok/s, ", "3 of 30 s, "; nothing of what has no unit. */
static void add_amounts(struct buf *line, double done, double total, double seconds, const char *unit)
{
    if (strcmp(unit, "B") == 0) {
        double k = total >= GIB ? GIB : MIB;
        const char *name = total >= GIB ? "GiB" : "MiB";
        int digits = total >= GIB ? 1 : 0;
        buf_printf(line, "%.*f of %.*f %s, %.0f MiB/s, ", digits, done / k, digits, total / k, name, done / MIB / seconds);
    } else if (strcmp(unit, "s") == 0) {
        buf_printf(line, "%.0f of %.0f s, ", done, total);
    } else if (*unit) {
        bool tokens = strcmp(unit, "token") == 0;
        buf_printf(line, "%.0f of %s, %.0f %s%s/s, ", done, COUNT_TEXT(total, unit), done / seconds, tokens ? "tok" : unit, tokens ? "" : "s");
    }
}

/* Columns that a line may take without wrapping, which would leave its first part behind; a terminal may add ^C. */
static size_t line_room(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 4) return 77;
    return size.ws_col - 3u;
}

/* What stands behind the bar. */
static void add_rest(struct buf *line, const struct progress *p, double done, double seconds, bool amounts)
{
    double share = done / p->total > 1 ? 1 : done / p->total;
    buf_printf(line, "] %3.0f%% ", share * 100);
    if (amounts) add_amounts(line, done, p->total, seconds, p->unit);
    buf_printf(line, "%.0f s left", share > 0 ? seconds / share - seconds : 0);
}

/* The whole line: where columns are few the bar is shorter, and then the amounts go, so that nothing is cut in its middle. */
static void add_line(struct buf *line, const struct progress *p, double done, double seconds, size_t room)
{
    struct buf rest = {0};
    size_t head = strlen(p->label) + 2; /* and " [" */
    add_rest(&rest, p, done, seconds, true);
    if (head + LEAST_WIDTH + rest.len > room) {
        buf_clear(&rest);
        add_rest(&rest, p, done, seconds, false);
    }
    size_t width = head + rest.len < room ? room - head - rest.len : 0;
    if (width > BAR_WIDTH) width = BAR_WIDTH;
    double share = done / p->total > 1 ? 1 : done / p->total;
    size_t full = (size_t)(share * (double)width);
    buf_printf(line, "%s [", p->label);
    for (size_t i = 0; i < width; i++) buf_addc(line, i < full ? '=' : ' ');
    buf_add(line, buf_str(&rest), rest.len);
    buf_free(&rest);
}

void progress_at(struct progress *p, double done)
{
    double now = clock_ms();
    if (!p->terminal || now - p->started_ms < first_draw_ms || now - p->drawn_ms < redraw_ms) return;
    struct buf line = {0};
    size_t room = line_room();
    add_line(&line, p, done, (now - p->started_ms) / 1e3, room);
    atomic_store(&bar_drawn, true); /* before it is: a signal may come right behind */
    fprintf(stderr, "\r%.*s\033[K", (int)(line.len < room ? line.len : room), buf_str(&line));
    buf_free(&line);
    p->drawn_ms = now;
    p->drawn = true;
}

void progress_end(struct progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
    atomic_store(&bar_drawn, false);
}

void progress_abandon(void)
{
    static const char wipe[] = "\r\033[K";
    if (atomic_exchange(&bar_drawn, false) && write(STDERR_FILENO, wipe, sizeof wipe - 1) < 0) return; /* nobody sees it then */
}
