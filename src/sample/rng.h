/*
 * Random numbers by counter: the number of step n depends on (seed, n) alone, never on what was drawn before.
 *
 * The generator is Philox4x32 with ten rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011): integer arithmetic only, the same on every machine. The key is the seed, low word first; the counter is the
 * step, low word first, then two zero words. Any thread.
 */
#ifndef LILY_SAMPLE_RNG_H
#define LILY_SAMPLE_RNG_H

#include <stdint.h>

void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Uniform in (0, 1], a multiple of 2^-53: the top 53 bits of the first two output words (word 0 is the low one), plus one. */
double rng_uniform(uint64_t seed, uint64_t step);

#endif
