/* Monotonic time. Any thread. */
#ifndef LILY_BASE_CLOCK_H
#define LILY_BASE_CLOCK_H

double clock_ms(void); /* milliseconds since an arbitrary start; never goes back */

#endif
