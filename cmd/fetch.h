/*
 * One large file, fetched by ranges on several connections, hashed while it comes, resumable after anything.
 *
 * The file grows at PART; beside it PART.state (mapped) has a byte for every MiB that is complete, so what a killed run had is
 * kept but for the MiB that each connection was at. A second thread hashes the complete beginning as it grows.
 * Thread: the main one.
 */
#ifndef LILY_CMD_FETCH_H
#define LILY_CMD_FETCH_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "web.h"

enum { FETCH_MAX_CONNECTIONS = 32, FETCH_BLOCK = 1 << 20 };

struct fetch_job {
    const char *name;   /* for messages */
    const char *url;
    const char *bearer; /* or NULL */
    const char *sha256; /* 64 digits that the content must have */
    const char *part;   /* path */
    int64_t size;
    int connections;
    const atomic_bool *cancel;
    void (*progress)(void *ctx, int64_t done); /* bytes of this file that are complete */
    void *ctx;
};

/*
 * On success PART is complete, has the hash and is on the disk; the state file is gone. On failure both stay for the next run, but
 * for a wrong hash, where they are removed. LILY_ERR_CANCELLED when *cancel became true.
 */
lily_status fetch_file(struct web *w, const struct fetch_job *job, struct lily_err *err);

/* Bytes that a run before has completed. */
int64_t fetch_kept(const char *part, int64_t size, const char *sha256);

/* What an unsuccessful answer means, as an error with a hint. */
lily_status fetch_status_error(const struct web_transfer *t, const char *what, struct lily_err *err);
/* Whether it is worth asking again. */
bool fetch_may_retry(const struct web_transfer *t);
/* How long to wait before attempt n (from 1), in milliseconds. */
double fetch_delay_ms(const struct web_transfer *t, int n);
enum { FETCH_ATTEMPTS = 7, FETCH_ATTEMPTS_UNHEARD = 4 };

#endif
