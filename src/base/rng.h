/*
 * Random numbers by counter: the number of step n depends on (seed, n) alone, never on what was drawn before.
 *
 * The generator is Philox4x32 with ten rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011): integer arithmetic only, the same on every machine. The key is the seed, low word first; the counter is the
 * step, low word first, then two zero words. Inline, any thread.
 */
#ifndef LILY_BASE_RNG_H
#define LILY_BASE_RNG_H

#include <stdint.h>

#include "base/device.h"

EVERYWHERE void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in (0, 1], a multiple of 2^-53: the top 53 bits of the first two output words (word 0 is the low one), plus one. */
EVERYWHERE double rng_uniform(uint64_t seed, uint64_t step)
{
    uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    philox4x32_10(counter, key, out);
    uint64_t bits = ((uint64_t)out[1] << 32 | out[0]) >> 11;
    return (double)(bits + 1) * 0x1p-53;
}

#endif
