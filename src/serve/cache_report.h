/* What replies, log, /state and /metrics say of the prompt cache. Thread: L. */
#ifndef LILY_SERVE_CACHE_REPORT_H
#define LILY_SERVE_CACHE_REPORT_H

#include "serve/call.h"

/* Appends "cache":{"reused","computed","reason"} of an ended choice; reason: null, or {"why", …} (docs/cache.md). */
void put_cache(const struct call *c, int choice, struct buf *out);
/* Appends ,"cache":{…} with the counters and the most valuable states; nothing when there is no cache. */
void put_cache_state(struct server *s, struct buf *out);
void put_cache_metrics(struct server *s, struct buf *out);

#endif
