/* Error records: formatting, hints, context prefixes. */
#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *lily_status_name(lily_status status)
{
    static const char *const names[] = {"ok",    "usage",     "io",     "format",   "unsupported", "memory",
                                        "limit", "cancelled", "device", "internal"};
    unsigned i = (unsigned)status;
    return i < sizeof names / sizeof names[0] ? names[i] : "unknown";
}

/* Length of the well-formed UTF-8 character at s, which ends with a NUL; 0 if there is none. */
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
               (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : n;
}

/*
 * Keeps messages on one line, valid and harmless to a terminal whatever bytes a hostile file put into a name: control
 * characters (C1 too) and bytes that are no UTF-8, such as a character cut by the record's end, become question marks.
 */
static void make_printable(char *text)
{
    unsigned char *s = (unsigned char *)text;
    while (*s) {
        int n = utf8_length(s);
        bool c1 = n == 2 && s[0] == 0xc2 && s[1] < 0xa0;
        if (c1) s[1] = '?';
        if (n == 0 || c1 || *s < 0x20 || *s == 0x7f) *s = '?', n = 1;
        s += n;
    }
}

/*
 * Puts a text into a record. The middle goes of one that does not fit: that is mostly the middle of a name that was given, and
 * what is wrong with it stands around it.
 */
__attribute__((format(printf, 3, 0))) static void put_list(char *out, size_t size, const char *fmt, va_list ap)
{
    enum { GAP = 3 };
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(out, size, fmt, ap);
    char *all = n >= 0 && (size_t)n >= size ? malloc((size_t)n + 1) : NULL; /* without memory it ends early */
    if (all) {
        size_t tail = size / 2, head = size - 1 - GAP - tail;
        vsnprintf(all, (size_t)n + 1, fmt, again);
        memcpy(out + head, "...", GAP);
        memcpy(out + head + GAP, all + (size_t)n - tail, tail + 1);
        free(all);
    }
    va_end(again);
    make_printable(out);
}

__attribute__((format(printf, 3, 4))) static void put(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_list(out, size, fmt, ap);
    va_end(ap);
}

lily_status err_set(struct lily_err *err, lily_status status, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        put_list(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
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
    put_list(err->hint, sizeof err->hint, fmt, ap);
    va_end(ap);
}

void err_prefix(struct lily_err *err, const char *fmt, ...)
{
    if (!err) return;
    char old[sizeof err->msg], prefix[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    put_list(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    put(err->msg, sizeof err->msg, "%s: %s", prefix, old);
}

void err_clear(struct lily_err *err)
{
    if (err) memset(err, 0, sizeof *err);
}
