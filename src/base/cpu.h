/*
 * What this processor can do, and the kernel tiers that follow from it. Immutable after the first call; any thread.
 */
#ifndef LILY_BASE_CPU_H
#define LILY_BASE_CPU_H

#include <stdbool.h>

/*
 * Tiers in rising order; each one implies that the lower ones of the same architecture run too. A tier needs all that its
 * files are compiled for (mk/config.mk): avx2 also FMA and F16C, avx512 also VNNI, amx also tiles of 8-bit
 * integers and AVX512_BF16, neon also the dot product of ARMv8.2.
 */
enum cpu_tier { CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_AMX, CPU_NEON, CPU_TIERS };

const char *cpu_tier_name(enum cpu_tier tier);                  /* "scalar", "avx2", … */
bool cpu_tier_parse(const char *name, enum cpu_tier *out);      /* false: no such name */
bool cpu_tier_runs(enum cpu_tier tier);                         /* on this processor, in this build */
enum cpu_tier cpu_best_tier(void);

struct cpu_features {
    bool avx2, fma, f16c;
    bool avx512; /* F, BW, VL, DQ */
    bool avx512_vnni, avx512_bf16;
    bool amx; /* tile, int8 and bf16, AVX512_BF16 beside them, and the system lets us use them */
    bool streams; /* the processor itself fetches lines that follow each other as fast as memory gives them, and requests slow it down: AMD */
    bool neon_dotprod, neon_i8mm;
};
const struct cpu_features *cpu_features(void);

int cpu_count(void);                        /* processors this process may use (affinity, container quota), at least 1 */
void cpu_model_name(char *out, unsigned n); /* as the system tells it; "unknown" otherwise */

#endif
