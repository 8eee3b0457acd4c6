/*
 * The writing side of a job's ring: records that find no room wait here, in order, and long texts are cut into records that
 * fit. While it is not empty its job is to produce nothing more. Thread: the engine thread. Owned: outbox_free.
 */
#ifndef LILY_RUN_OUTBOX_H
#define LILY_RUN_OUTBOX_H

#include "run/job.h"

struct outbox {
    struct buf waiting; /* owned; records: kind, length, bytes */
    size_t at;          /* of the first that still waits */
    bool whole;         /* the reader wants all at once, so that what is in the ring tells it nothing until that is half full */
    bool wrote;         /* something for the reader came into the ring */
};

void outbox_put(struct outbox *o, struct ring *r, enum job_record kind, const void *data, size_t n);
/* Moves what fits; true when something did. */
bool outbox_flush(struct outbox *o, struct ring *r);
bool outbox_is_empty(const struct outbox *o);
void outbox_clear(struct outbox *o);
bool outbox_take_wrote(struct outbox *o); /* and forgets it */
void outbox_free(struct outbox *o);

#endif
