/*
 * Messages for people, on stderr: warnings, notes, and one progress bar at a time. Any thread for log_*; the bar belongs
 * to one thread. Nothing here ever goes to stdout, which is for data.
 */
#ifndef LILY_BASE_LOG_H
#define LILY_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

void log_quiet(bool quiet); /* true: notes and bars are dropped, warnings stay */
/* One line each; control characters in what is printed become visible (base/safe.h). */
void log_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* n bytes as they are; whole lines. */
void log_lines(const char *text, size_t n);

/*
 * From here on nobody waits for a reader of stderr that has stopped reading (a full pipe, a terminal behind Ctrl-S): up to
 * 1 MiB is kept for it, what comes beyond is dropped, and a line tells how often. log_flush goes on with what is kept, and waits at
 * most so many milliseconds for the reader.
 */
void log_never_wait(void);
void log_flush(int ms);

/*
 * A progress bar: drawn only when stderr is a terminal, and only once the work has taken a quarter of a second.
 * Usage: struct progress p; progress_begin(&p, "loading", total, "B"); progress_at(&p, done); progress_end(&p);
 */
struct progress {
    const char *label; /* borrowed */
    const char *unit;  /* borrowed; "B" prints sizes, "s" no rate, "" the share alone, else counts: of "token" and the like */
    double total;
    double started_ms, drawn_ms;
    bool terminal, drawn;
};
void progress_begin(struct progress *p, const char *label, double total, const char *unit);
void progress_at(struct progress *p, double done);
void progress_end(struct progress *p); /* wipes the bar */
void progress_abandon(void);           /* the same for whatever bar is drawn, from a signal handler */

#endif
