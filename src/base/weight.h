/*
 * The exponential that turns logits into weights, made of IEEE additions and multiplications only.
 *
 * The C library's exp differs in its last bit between systems, and one bit can move a draw to another token. This one gives the same
 * bits wherever doubles are IEEE (and the compiler does not contract: -ffp-contract=off, -fmad=false). A draw adds weights as whole
 * numbers, so that every order of adding, by one thread or by thousands, gives the same sum. Inline, any thread.
 */
#ifndef LILY_BASE_WEIGHT_H
#define LILY_BASE_WEIGHT_H

#include <stdint.h>
#include <string.h>

#include "base/device.h"

/*
 * Below this exponent a weight is zero. A million such tokens together hold less than 2^-53 of the mass, which is the
 * finest step of a draw.
 */
#define WEIGHT_CUT (-64.0)

/* exp(x) for x <= 0, within 2 ulp; 0 for x < WEIGHT_CUT and for NaN. weight_of(0) is exactly 1. */
EVERYWHERE double weight_of(double x)
{
    if (!(x >= WEIGHT_CUT)) return 0;
    /* x = k ln 2 + r with |r| <= ln 2 / 2; adding 1.5 * 2^52 rounds to an integer, which is then in the low bits. */
    const double shift = 0x1.8p52;
    double biased = x * 0x1.71547652b82fep+0 + shift, k = biased - shift;
    double r = (x - k * 0x1.62e42fefa0000p-1) - k * 0x1.cf79abc9e3b3ap-40;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    double scale;
    memcpy(&bits, &biased, sizeof bits);
    bits = (bits + 1023) << 52; /* the low 11 bits of k + 1023 become the exponent; the rest is shifted out */
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* A weight of 1 as a whole number: two million of them have a sum. */
#define MASS_ONE 0x1p42

EVERYWHERE uint64_t mass_of(double x)
{
    return (uint64_t)(weight_of(x) * MASS_ONE);
}

/* The least whole number that is a share (0 … 1) of a sum, but at least 1. */
EVERYWHERE uint64_t mass_share(double share, uint64_t total)
{
    double t = share * (double)total;
    uint64_t whole = (uint64_t)t;
    if ((double)whole < t) whole++;
    if (whole > total) whole = total;
    return whole ? whole : 1;
}

#endif
