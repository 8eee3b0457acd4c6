/* Resident memory, from /proc. */
#include "base/resident.h"

#include <stdio.h>
#include <unistd.h>

size_t resident_bytes(void)
{
    unsigned long long total, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &total, &resident) != 2) resident = 0;
    fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}
