/* Repetition: for every period, how long the tail has been equal to itself shifted by it. */
#include "run/repeat.h"

bool repeat_add(struct repeat *r, int32_t id, int times)
{
    bool found = false;
    for (int p = 1; p <= REPEAT_MAX_PERIOD && (uint32_t)p <= r->n; p++) {
        bool equal = r->last[(r->n - (uint32_t)p) % REPEAT_MAX_PERIOD] == id;
        r->same[p] = equal ? r->same[p] + 1 : 0;
        long length = (long)r->same[p] + p;
        if (length >= (long)p * times && length >= REPEAT_MIN_TOKENS) found = true;
    }
    r->last[r->n % REPEAT_MAX_PERIOD] = id;
    r->n++;
    return found;
}
