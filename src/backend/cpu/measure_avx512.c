/* The rate of integer products with AVX-512 VNNI: four byte products into each 32-bit sum. */
#include <immintrin.h>

#include "backend/cpu/measure.h"

enum { CHAINS = 12 };

double measure_products_avx512(long rounds)
{
    __m512i sum[CHAINS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_setzero_si512();
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++) {
            __asm__ volatile("" : "+v"(a)); /* another operand each time, as far as the compiler knows */
            sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
        }
    for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"v"(sum[i]));
    return CHAINS * 64 * 2.0;
}
