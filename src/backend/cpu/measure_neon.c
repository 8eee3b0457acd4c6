/* The rate of integer products with the dot product of ARMv8.2. */
#include <arm_neon.h>

#include "backend/cpu/measure.h"

enum { CHAINS = 12 };

double measure_products_neon(long rounds)
{
    int32x4_t sum[CHAINS];
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    for (int i = 0; i < CHAINS; i++) sum[i] = vdupq_n_s32(0);
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++) {
            __asm__ volatile("" : "+w"(a)); /* another operand each time, as far as the compiler knows */
            sum[i] = vdotq_s32(sum[i], a, b);
        }
    for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"w"(sum[i]));
    return CHAINS * 16 * 2.0;
}
