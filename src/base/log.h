/*
 * Messages for people, on stderr: warnings, notes, and one progress bar at a time. Any thread for log_*; the bar belongs
 * to one thread. Nothing here ever goes to stdout, which is for data.
 */
#ifndef LILY_BASE_LOG_H
#define LILY_BASE_LOG_H

#include <stdbool.h>

void log_quiet(bool quiet); /* true: notes and bars are dropped, warnings stay */
void log_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * A progress bar: drawn only when stderr is a terminal, and only once the work has taken a quarter of a second.
 * Usage: struct progress p; progress_begin(&p, "loading", total, "B"); progress_at(&p, done); progress_end(&p);
 */
struct progress {
    const char *label; /* borrowed */
    const char *unit;  /* borrowed; "B" prints sizes, else plain counts */
    double total;
    double started_ms, drawn_ms;
    bool terminal, drawn;
};
void progress_begin(struct progress *p, const char *label, double total, const char *unit);
void progress_at(struct progress *p, double done);
void progress_end(struct progress *p); /* wipes the bar */

#endif
