/*
 * Notices that a sequence of tokens goes round in circles: its last tokens are one passage, repeated. Plain value; constant
 * time per token. Thread: one at a time.
 */
#ifndef LILY_RUN_REPEAT_H
#define LILY_RUN_REPEAT_H

#include <stdbool.h>
#include <stdint.h>

enum { REPEAT_MAX_PERIOD = 256, REPEAT_MIN_TOKENS = 64 };

struct repeat {
    int32_t last[REPEAT_MAX_PERIOD]; /* the latest tokens; token i lies at i % REPEAT_MAX_PERIOD */
    int same[REPEAT_MAX_PERIOD + 1]; /* by period: latest tokens in a row that equal the one a period before */
    uint32_t n;                      /* tokens so far */
};

/*
 * Adds a token. True when the latest tokens are a passage of at most REPEAT_MAX_PERIOD tokens that stands there `times` times
 * (>= 2) in a row, over REPEAT_MIN_TOKENS tokens or more.
 */
bool repeat_add(struct repeat *r, int32_t id, int times);

#endif
