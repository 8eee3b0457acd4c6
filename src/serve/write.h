/* Pieces of JSON text and of server-sent events, appended to a buffer. Any thread. */
#ifndef LILY_SERVE_WRITE_H
#define LILY_SERVE_WRITE_H

#include <stdbool.h>

#include "json/json.h"

void put_string(struct buf *out, const char *s, size_t n); /* "…"; n bytes of valid UTF-8 */
void put_stringz(struct buf *out, const char *s);
/* "key":"value" */
void put_member(struct buf *out, const char *key, const char *s, size_t n);
void put_memberz(struct buf *out, const char *key, const char *s);
void put_number(struct buf *out, double v, int decimals); /* non-finite: null */

/* An event: `event: NAME` when name is not NULL, then `data: ` and what is put before sse_end. */
void sse_begin(struct buf *out, const char *name);
void sse_end(struct buf *out);

/* A random id: the prefix and 24 letters and digits. */
void make_id(char *out, size_t size, const char *prefix);
/* A random number that is exact in JSON, too. */
uint64_t random_number(void);

#endif
