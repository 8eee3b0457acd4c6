/* CPU features from CPUID or the auxiliary vector, and the tiers they allow. */
#include "base/cpu.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static struct cpu_features features;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(CPU_EMULATED) /* tests/emulated plays what this processor lacks */
static void detect(void)
{
    features = (struct cpu_features){.avx2 = true, .fma = true, .f16c = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true, .amx = true};
}
#elif defined(__x86_64__)
static unsigned long long xgetbv0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return ((unsigned long long)hi << 32) | lo;
}

/* Asks Linux for the tile registers, once for the whole process: without it their first use is an illegal instruction. */
static bool allow_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* Measured on Zen 4 (SPEED.md). */
static bool made_by_amd(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
}

static bool rounds_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVX512BF16);
}

static void detect(void)
{
    unsigned a, b, c, d;
    features.streams = made_by_amd();
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return;
    bool fma = c & bit_FMA, f16c = c & bit_F16C;
    unsigned long long xcr0 = xgetbv0();
    bool ymm = (xcr0 & 6) == 6, zmm = (xcr0 & 0xe6) == 0xe6, tile = (xcr0 & 0x60000) == 0x60000;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    features.avx2 = ymm && (b & bit_AVX2);
    features.fma = ymm && fma;
    features.f16c = ymm && f16c;
    const unsigned need = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    features.avx512 = zmm && (b & need) == need;
    features.avx512_vnni = features.avx512 && (c & bit_AVX512VNNI);
    features.avx512_bf16 = features.avx512 && rounds_bf16();
    const unsigned amx = 1u << 22 | 1u << 24 | 1u << 25; /* AMX-BF16, AMX-TILE, AMX-INT8 */
    features.amx = features.avx512_vnni && features.avx512_bf16 && tile && (d & amx) == amx && allow_tiles();
}
#elif defined(__aarch64__) && defined(__linux__)
static void detect(void)
{
    features.neon_dotprod = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#ifdef HWCAP2_I8MM
    features.neon_i8mm = getauxval(AT_HWCAP2) & HWCAP2_I8MM;
#endif
}
#else
static void detect(void)
{
}
#endif

const struct cpu_features *cpu_features(void)
{
    pthread_once(&once, detect);
    return &features;
}

static const char *const tier_names[CPU_TIERS] = {"scalar", "avx2", "avx512", "amx", "neon"};

const char *cpu_tier_name(enum cpu_tier tier)
{
    return (unsigned)tier < CPU_TIERS ? tier_names[tier] : "unknown";
}

bool cpu_tier_parse(const char *name, enum cpu_tier *out)
{
    for (int i = 0; i < CPU_TIERS; i++)
        if (strcmp(name, tier_names[i]) == 0) {
            *out = (enum cpu_tier)i;
            return true;
        }
    return false;
}

bool cpu_tier_runs(enum cpu_tier tier)
{
    const struct cpu_features *f = cpu_features();
    switch (tier) {
    case CPU_SCALAR: return true;
    case CPU_AVX2: return f->avx2 && f->fma && f->f16c;
    case CPU_AVX512: return f->avx512_vnni && f->avx2 && f->fma && f->f16c;
    case CPU_AMX: return f->amx && f->avx2 && f->fma && f->f16c;
    case CPU_NEON: return f->neon_dotprod;
    default: return false;
    }
}

enum cpu_tier cpu_best_tier(void)
{
    for (int i = CPU_TIERS - 1; i > 0; i--)
        if (cpu_tier_runs((enum cpu_tier)i)) return (enum cpu_tier)i;
    return CPU_SCALAR;
}

/* Processors that the control group's quota pays for, rounded up; INT_MAX without a quota. */
static int quota_count(void)
{
    double quota, period;
    int n = INT_MAX;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f) return n;
    if (fscanf(f, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0 && quota / period < INT_MAX - 1)
        n = (int)((quota + period - 1) / period);
    fclose(f);
    return n;
}

int cpu_count(void)
{
    cpu_set_t set;
    /* The call fails on machines with more processors than the set holds. */
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    int quota = quota_count();
    if (n > quota) n = quota;
    return n > 0 ? (int)n : 1;
}

void cpu_model_name(char *out, unsigned n)
{
    snprintf(out, n, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out, n, "%s", colon + (colon[1] == ' ' ? 2 : 1));
        break;
    }
    fclose(f);
}
