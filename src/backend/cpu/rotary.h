/*
 * Rotary position embedding (MODEL.md, Full attention 3): angles of a position, and the half-split rotation of a head's
 * first 64 dimensions. Angles are computed in double, since positions reach 262,144. Pure functions, any thread.
 */
#ifndef LILY_BACKEND_CPU_ROTARY_H
#define LILY_BACKEND_CPU_ROTARY_H

#include <math.h>

#include "spec/family.h"

enum { ROTARY_PAIRS = ROTARY_DIM / 2 };

/* Radians per position of each pair: theta^(-2j/64). */
static inline void rotary_frequencies(double theta, double frequency[ROTARY_PAIRS])
{
    for (int j = 0; j < ROTARY_PAIRS; j++) frequency[j] = pow(theta, -2.0 * j / ROTARY_DIM);
}

/* 32 cosines, then 32 sines. */
static inline void rotary_angles(const double frequency[ROTARY_PAIRS], int pos, float angles[ROTARY_DIM])
{
    for (int j = 0; j < ROTARY_PAIRS; j++) {
        angles[j] = (float)cos(pos * frequency[j]);
        angles[ROTARY_PAIRS + j] = (float)sin(pos * frequency[j]);
    }
}

/* Turns (x_j, x_{j+32}) in place. */
static inline void rotary_apply(float *x, const float angles[ROTARY_DIM])
{
    for (int j = 0; j < ROTARY_PAIRS; j++) {
        float c = angles[j], s = angles[ROTARY_PAIRS + j], a = x[j], b = x[ROTARY_PAIRS + j];
        x[j] = a * c - b * s;
        x[ROTARY_PAIRS + j] = a * s + b * c;
    }
}

#endif
