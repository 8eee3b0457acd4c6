/*
 * Status codes and the error record of every lily function that can fail.
 *
 * A function returns LILY_OK, or another status after filling the caller's struct lily_err (which may be NULL when the
 * text is not wanted). Threads: a struct lily_err belongs to one caller at a time. Lifetime: plain value, nothing owned.
 */
#ifndef LILY_STATUS_H
#define LILY_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lily_status {
    LILY_OK = 0,
    LILY_ERR_USAGE,       /* the caller asked for something that makes no sense */
    LILY_ERR_IO,          /* a file or socket could not be read or written */
    LILY_ERR_FORMAT,      /* data (checkpoint, JSON, text) is malformed */
    LILY_ERR_UNSUPPORTED, /* well formed, but outside what lily runs */
    LILY_ERR_MEMORY,      /* not enough memory, or over the given limit */
    LILY_ERR_LIMIT,       /* context, queue or size limit reached */
    LILY_ERR_CANCELLED,   /* stopped on request */
    LILY_ERR_DEVICE,      /* the compute device failed */
    LILY_ERR_INTERNAL     /* a broken invariant of lily itself */
} lily_status;

struct lily_err {
    lily_status status;
    char msg[640];  /* what was found, where, and what was expected; one line, UTF-8 */
    char hint[320]; /* what to do next; may be empty */
};

/* A short lower-case name of a status, for logs ("format", "io", ...). Never NULL. */
const char *lily_status_name(lily_status status);

#ifdef __cplusplus
}
#endif
#endif
