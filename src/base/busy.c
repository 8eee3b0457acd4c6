/* Processor time from /proc/stat and getrusage, energy from powercap. */
#include "base/busy.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

struct busy_mark busy_now(void)
{
    struct busy_mark m = {0, 0, 0};
    struct rusage self;
    unsigned long long v[8] = {0}; /* user nice system idle iowait irq softirq steal */
    FILE *f = fopen("/proc/stat", "re");
    long ticks = sysconf(_SC_CLK_TCK);
    if (getrusage(RUSAGE_SELF, &self) == 0) m.own_s = seconds(self.ru_utime) + seconds(self.ru_stime);
    if (!f) return m;
    if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) >= 4 && ticks > 0) {
        for (int i = 0; i < 8; i++) m.all_s += (double)v[i] / (double)ticks;
        m.busy_s = m.all_s - (double)(v[3] + v[4]) / (double)ticks;
    }
    fclose(f);
    return m;
}

double busy_others(const struct busy_mark *from, const struct busy_mark *to)
{
    double all = to->all_s - from->all_s, others = to->busy_s - from->busy_s - (to->own_s - from->own_s);
    if (all <= 0 || others <= 0) return 0;
    return others < all ? others / all : 1;
}

double energy_joules(void)
{
    double sum = 0;
    int n = 0;
    for (int package = 0; package < 64; package++) {
        char path[80];
        unsigned long long uj;
        snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/energy_uj", package);
        FILE *f = fopen(path, "re");
        if (!f) break;
        if (fscanf(f, "%llu", &uj) == 1) {
            sum += (double)uj / 1e6;
            n++;
        }
        fclose(f);
    }
    return n ? sum : -1;
}
