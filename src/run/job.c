/* Jobs: making and releasing. */
#include "run/job.h"

#include <stdlib.h>

#include "base/mem.h"

enum { RING_BYTES = 32 << 10 };

struct job *job_new(const struct job_spec *spec, uint64_t seed)
{
    struct job *j = mem_new(sizeof *j);
    j->spec = spec;
    j->seed = seed;
    atomic_init(&j->state, JOB_PREP);
    ring_init(&j->ring, RING_BYTES);
    return j;
}

void job_free(struct job *j)
{
    if (!j) return;
    ring_free(&j->ring);
    free(j);
}

const char *job_detail_name(enum job_detail d)
{
    static const char *const names[] = {NULL, "thinking_closed_at_end_of_turn", "thinking_budget_reached", "thinking_repeated"};
    return names[d];
}
