/* What the checker counts, between its driver and its cases. */
#ifndef LILY_TESTS_KERNELS_COUNTS_H
#define LILY_TESTS_KERNELS_COUNTS_H

#include "check.h"

struct counts {
    const char *tier; /* borrowed: name of the table that is being checked */
    long passed, failed, skipped, values;
    double worst; /* largest |error| / tolerance seen */
    bool quiet;   /* failures are expected: do not print them */
};
extern struct counts counts;

#endif
