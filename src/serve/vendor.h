/*
 * The vendor object `lily` of final messages and chunks: timings, what the cache did, the seed, how the thinking ended.
 * Thread: L.
 */
#ifndef LILY_SERVE_VENDOR_H
#define LILY_SERVE_VENDOR_H

#include "serve/call.h"

/* Appends ,"lily":{…} for an ended choice, or nothing with --plain. */
void put_vendor(const struct call *c, int choice, struct buf *out);
/* Appends "usage":{…} in OpenAI's form. */
void put_usage(const struct call *c, struct buf *out);
/* Appends "lily":{"state": …} of a call that waits. */
void put_progress(const struct call *c, const char *state, struct buf *out);

#endif
