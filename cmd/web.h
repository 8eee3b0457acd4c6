/*
 * HTTP requests, several at a time: the one place that knows libcurl.
 *
 * Redirects are followed (from https only to https), the bearer token goes to the first host alone, proxies come from the usual variables.
 * Threads: a struct web and its transfers belong to one thread. Lifetime: a transfer, and what it borrows, stays until it was
 * returned by web_poll or given to web_cancel.
 */
#ifndef LILY_CMD_WEB_H
#define LILY_CMD_WEB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct web;

struct web_transfer {
    /* Asked; zeroed first. Texts are borrowed. */
    const char *url;
    const char *bearer;      /* token; NULL: none */
    const char *json;        /* body of a POST; NULL: a GET */
    int64_t from, to;        /* bytes wanted, both included; to 0: everything */
    /* Called with the pieces of a successful answer's body; false ends the transfer. */
    bool (*data)(struct web_transfer *t, const char *bytes, size_t n);
    void *ctx;

    /* Answered. */
    long status;             /* of the last answer; 0: there was none */
    bool complete;           /* the whole body came */
    int64_t total;           /* of Content-Range, else Content-Length; -1: unknown */
    int64_t first;           /* of Content-Range; -1: none */
    double retry_after;      /* seconds; 0: not said */
    char error[256];         /* what libcurl says when not complete */
    char message[512];       /* the beginning of an unsuccessful answer's body */

    void *handle;            /* internal */
};

/* silence_s: a transfer that brings less than 1 KB/s for so long has failed. LILY_ERR_UNSUPPORTED in a build without libcurl. */
lily_status web_open(double silence_s, struct web **out, struct lily_err *err);
void web_close(struct web *w); /* after its transfers; NULL is fine */
lily_status web_start(struct web *w, struct web_transfer *t, struct lily_err *err);
/* A finished transfer, or NULL after at most ms milliseconds. */
struct web_transfer *web_poll(struct web *w, int ms);
void web_cancel(struct web *w, struct web_transfer *t);

/* One GET of at most max bytes into out (appended), waited for; *t tells the rest. False when the whole body did not come. */
bool web_get(struct web *w, struct web_transfer *t, size_t max, struct buf *out);

#endif
