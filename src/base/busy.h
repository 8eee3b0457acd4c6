/*
 * What else the machine does while something is measured: processor time of the whole system and of this process, and the
 * energy counters of the processor packages. Any thread; plain values.
 */
#ifndef LILY_BASE_BUSY_H
#define LILY_BASE_BUSY_H

struct busy_mark {
    double all_s, busy_s; /* processor seconds of the system: all, and not idle (time stolen by a host included) */
    double own_s;         /* of this process */
};

struct busy_mark busy_now(void);
/* The share of the machine's processors, 0 to 1, that others used between two marks; 0 when the system does not say. */
double busy_others(const struct busy_mark *from, const struct busy_mark *to);

double energy_joules(void); /* of all processor packages (RAPL), since some moment; negative: no counter can be read */

#endif
