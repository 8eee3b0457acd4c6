/* The memory of this process. Any thread. */
#ifndef LILY_BASE_RESIDENT_H
#define LILY_BASE_RESIDENT_H

#include <stddef.h>

size_t resident_bytes(void); /* 0 when the system does not say */

#endif
