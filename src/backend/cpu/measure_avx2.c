/* The rate of integer products with AVX2: unsigned by signed bytes into 16 bits, pairs into 32, sums. */
#include <immintrin.h>

#include "backend/cpu/measure.h"

enum { CHAINS = 8 };

double measure_products_avx2(long rounds)
{
    __m256i sum[CHAINS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm256_setzero_si256();
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++) {
            __asm__ volatile("" : "+x"(a)); /* another operand each time, as far as the compiler knows */
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
        }
    for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"x"(sum[i]));
    return CHAINS * 32 * 2.0;
}
