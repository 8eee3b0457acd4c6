/* What a load test measures: latencies by kind of request, as percentiles. Thread: the main one. Owned: load_stats_free. */
#ifndef LILY_CMD_LOAD_STATS_H
#define LILY_CMD_LOAD_STATS_H

#include "json/json.h"

enum load_kind { LOAD_CHAT, LOAD_LONG, LOAD_CANCEL, LOAD_KINDS };
extern const char *const load_kind_names[LOAD_KINDS];

struct load_series {
    double *ms; /* owned */
    int n, cap;
};

struct load_group {
    int started, done, cancelled, failed, refused; /* refused: 429 or 503, the server is full */
    int64_t events;                                /* pieces of text */
    struct load_series first, gap, total;          /* to the first piece, between pieces, to the end */
};

struct load_stats {
    struct load_group kind[LOAD_KINDS];
    double seconds;
};

void load_series_add(struct load_series *s, double ms);
void load_stats_free(struct load_stats *s);
void load_stats_print(struct load_stats *s);        /* a table on stdout */
struct json *load_stats_json(struct load_stats *s); /* owned by the caller */
int load_stats_done(const struct load_stats *s);    /* requests that ended as they should */

#endif
