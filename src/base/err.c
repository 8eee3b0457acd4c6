/* Error records: formatting, hints, context prefixes. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *lily_status_name(lily_status status)
{
    static const char *const names[] = {"ok",    "usage",     "io",     "format",   "unsupported", "memory",
                                        "limit", "cancelled", "device", "internal"};
    unsigned i = (unsigned)status;
    return i < sizeof names / sizeof names[0] ? names[i] : "unknown";
}

/* Keeps messages on one line whatever bytes a hostile file put into a name. */
static void make_printable(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = '?';
}

lily_status err_set(struct lily_err *err, lily_status status, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        make_printable(err->msg);
        err->status = status;
        err->hint[0] = 0;
    }
    return status;
}

void err_hint(struct lily_err *err, const char *fmt, ...)
{
    if (!err) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, ap);
    va_end(ap);
    make_printable(err->hint);
}

void err_prefix(struct lily_err *err, const char *fmt, ...)
{
    if (!err) return;
    char old[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->msg) snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %s", old);
    make_printable(err->msg);
}

void err_clear(struct lily_err *err)
{
    if (err) memset(err, 0, sizeof *err);
}
