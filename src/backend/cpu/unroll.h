/*
 * Loops that are written out by the preprocessor, for kernels whose sums must stay in registers: an array indexed only by
 * constants needs no memory, with every compiler. UNROLL4(i, n, body) runs body for i = 0 … n-1 with n <= 4 and i a
 * constant; n should be a constant after inlining, and arrays as long as the macro's number, for the bodies that never run.
 */
#ifndef LILY_BACKEND_CPU_UNROLL_H
#define LILY_BACKEND_CPU_UNROLL_H

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

#define UNROLL_STEP(i, value, n, ...)                                                                                  \
    {                                                                                                                  \
        enum { i = value };                                                                                            \
        if ((int)i < (int)(n)) {                                                                                                 \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define UNROLL2_STEPS(i, n, ...) UNROLL_STEP(i, 0, n, __VA_ARGS__) UNROLL_STEP(i, 1, n, __VA_ARGS__)
#define UNROLL4_STEPS(i, n, ...)                                                                                       \
    UNROLL2_STEPS(i, n, __VA_ARGS__) UNROLL_STEP(i, 2, n, __VA_ARGS__) UNROLL_STEP(i, 3, n, __VA_ARGS__)
#define UNROLL8_STEPS(i, n, ...)                                                                                       \
    UNROLL4_STEPS(i, n, __VA_ARGS__)                                                                                   \
    UNROLL_STEP(i, 4, n, __VA_ARGS__)                                                                                  \
    UNROLL_STEP(i, 5, n, __VA_ARGS__) UNROLL_STEP(i, 6, n, __VA_ARGS__) UNROLL_STEP(i, 7, n, __VA_ARGS__)
#define UNROLL12_STEPS(i, n, ...)                                                                                      \
    UNROLL8_STEPS(i, n, __VA_ARGS__)                                                                                   \
    UNROLL_STEP(i, 8, n, __VA_ARGS__)                                                                                  \
    UNROLL_STEP(i, 9, n, __VA_ARGS__) UNROLL_STEP(i, 10, n, __VA_ARGS__) UNROLL_STEP(i, 11, n, __VA_ARGS__)
#define UNROLL2(i, n, ...) { UNROLL2_STEPS(i, n, __VA_ARGS__) }
#define UNROLL4(i, n, ...) { UNROLL4_STEPS(i, n, __VA_ARGS__) }
#define UNROLL8(i, n, ...) { UNROLL8_STEPS(i, n, __VA_ARGS__) }
#define UNROLL12(i, n, ...) { UNROLL12_STEPS(i, n, __VA_ARGS__) }

#endif
