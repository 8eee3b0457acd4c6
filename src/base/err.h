/*
 * Making and forwarding errors: LILY_FAIL fills the record and returns, LILY_TRY forwards a failure unchanged.
 *
 * Every fallible function returns lily_status and takes `struct lily_err *err` (borrowed, may be NULL) as a parameter
 * named err. Any thread.
 */
#ifndef LILY_BASE_ERR_H
#define LILY_BASE_ERR_H

#include "lily/status.h"

/* Fills err (when not NULL) with the formatted message and an empty hint; returns status. Texts too long for it lose their middle. */
lily_status err_set(struct lily_err *err, lily_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets the hint of an already filled record. */
void err_hint(struct lily_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts "context: " in front of the message, e.g. the file that a parser did not know. */
void err_prefix(struct lily_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Clears the record to LILY_OK. */
void err_clear(struct lily_err *err);

#define LILY_FAIL(err, status, ...) return err_set((err), (status), __VA_ARGS__)
#define LILY_TRY(expr)                                                                                                 \
    do {                                                                                                               \
        lily_status try_status_ = (expr);                                                                              \
        if (try_status_ != LILY_OK) return try_status_;                                                                \
    } while (0)
/* The same inside a function with one cleanup label: needs `lily_status st` in scope. */
#define LILY_TRY_GOTO(expr, label)                                                                                     \
    do {                                                                                                               \
        st = (expr);                                                                                                   \
        if (st != LILY_OK) goto label;                                                                                 \
    } while (0)

#endif
