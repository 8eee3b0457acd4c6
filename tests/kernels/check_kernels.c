/*
 * The kernel checker: every kernel of every tier that runs here, over a sweep of shapes and inputs, against a reference in
 * double with tolerances computed from the inputs, between pages that fault. --bench times them instead.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "counts.h"

#ifdef TEST_QUICK /* tests/neon.sh */
struct options options = {.seed = 1, .repeat = 1, .tier = CPU_NEON, .quick = true};
#else
struct options options = {.seed = 1, .repeat = 1, .tier = -1};
#endif

static const struct suite *const suites[] = {matmul_suites, digit_suites, bf16_suites, mix_suites, chunk_suites, attention_suites, elem_suites};
enum { SUITES = sizeof suites / sizeof *suites };

static const char usage[] =
    "usage: check_kernels [options]\n"
    "  --func NAME     only kernels whose name contains NAME\n"
    "  --tier NAME     only this tier: scalar, avx2, avx512, amx, neon, cuda\n"
    "  --seed N        seed of the random inputs (1)\n"
    "  --repeat N      run everything N times, each with its own seed\n"
    "  --quick         leave out large shapes, and the self-test: for emulators\n"
    "  --self-test     only plant faults in the kernels and see that each is noticed; a plain run does it last\n"
    "  --bench         time the kernels instead of checking them\n"
    "  --threads N     threads for --bench (all)\n"
    "  --json          results as one JSON object a line\n"
    "  --verbose       name every case\n";

static bool parse(int argc, char **argv)
{
    static const struct option longs[] = {{"func", 1, 0, 'f'},  {"tier", 1, 0, 't'},      {"seed", 1, 0, 's'},
                                          {"repeat", 1, 0, 'r'}, {"self-test", 0, 0, 'S'}, {"bench", 0, 0, 'b'},
                                          {"threads", 1, 0, 'n'}, {"json", 0, 0, 'j'},     {"verbose", 0, 0, 'v'},
                                          {"help", 0, 0, 'h'},   {"quick", 0, 0, 'q'},   {0, 0, 0, 0}};
    enum cpu_tier tier;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) switch (c) {
        case 'f': options.func = optarg; break;
        case 't':
            if (strcmp(optarg, "cuda") == 0) options.tier = TIER_CUDA;
            else if (cpu_tier_parse(optarg, &tier)) options.tier = (int)tier;
            else return false;
            break;
        case 's': options.seed = strtoull(optarg, NULL, 0); break;
        case 'r': options.repeat = atoi(optarg); break;
        case 'q': options.quick = true; break;
        case 'S': options.self_test = true; break;
        case 'b': options.bench = true; break;
        case 'n': options.threads = atoi(optarg); break;
        case 'j': options.json = true; break;
        case 'v': options.verbose = true; break;
        default: return false;
        }
    return optind == argc && options.repeat > 0;
}

static void run_suites(const struct cpu_kernels *k, const char *only)
{
    for (int i = 0; i < SUITES; i++)
        for (const struct suite *s = suites[i]; s->func; s++) {
            if (only ? strcmp(only, s->func) != 0 : !selected(s->func)) continue;
            struct random r = {options.seed};
            long passed = counts.passed, failed = counts.failed, values = counts.values;
            counts.worst = 0;
            for (int n = 0; n < options.repeat; n++) s->run(k, &r);
            if (options.json && !counts.quiet)
                printf("{\"tier\":\"%s\",\"kernel\":\"%s\",\"passed\":%ld,\"failed\":%ld,\"values\":%ld,\"worst\":%.3g}\n",
                       counts.tier, s->func, counts.passed - passed, counts.failed - failed, counts.values - values, counts.worst);
            else if (options.verbose && !counts.quiet)
                printf("%s %s: %ld values, largest error %.3g of the tolerance\n", counts.tier, s->func, counts.values - values,
                       counts.worst);
        }
}

/* Every planted fault must fail at least one case of its kernel. */
static void self_test(enum cpu_tier tier)
{
    struct cpu_kernels k;
    long missed = 0, found = 0, passed = counts.passed, failed = counts.failed;
    cpu_kernels_init(&k, tier);
    counts.quiet = true;
    for (int f = 0; f < FAULTS; f++) {
        struct cpu_kernels bad = k;
        fault_kernels(&bad, (enum fault)f);
        for (int i = 0; i < SUITES; i++)
            for (const struct suite *s = suites[i]; s->func; s++) {
                if (!selected(s->func) || !fault_applies(s->func, (enum fault)f)) continue;
                long before = counts.failed;
                run_suites(&bad, s->func);
                if (counts.failed > before) {
                    found++;
                    continue;
                }
                printf("FAIL self-test %s: %s went unnoticed\n", s->func, fault_names[f]);
                missed++;
            }
    }
    counts.quiet = false;
    counts.passed = passed + found;
    counts.failed = failed + missed;
}

/* Tiers that tests/neon.sh and tests/avx512.sh run emulated, in the same check, are no skips; the latter's AMX comes close only. */
static bool is_elsewhere(enum cpu_tier tier)
{
#if defined(__aarch64__)
    return tier == CPU_AVX2 || tier == CPU_AVX512 || tier == CPU_AMX;
#else
    return tier == CPU_NEON || (tier == CPU_AVX512 && !cpu_tier_runs(tier));
#endif
}

static void check_tier(enum cpu_tier tier)
{
    if (options.tier < 0 && is_elsewhere(tier)) return;
    const char *tier_name = cpu_tier_name(tier);
    struct cpu_kernels k;
    if (!cpu_tier_runs(tier)) {
        printf("SKIP kernels of tier %s: this processor or build does not have it (see tests/avx512.sh)\n", tier_name);
        counts.skipped++;
        return;
    }
    memset(&k, 0, sizeof k);
    cpu_kernels_init(&k, tier);
    if (k.tier != tier) {
        printf("SKIP kernels of tier %s: the table stays at %s\n", tier_name, cpu_tier_name(k.tier));
        counts.skipped++;
        return;
    }
    counts.tier = tier_name;
    run_suites(&k, NULL);
}

int main(int argc, char **argv)
{
    if (!parse(argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (options.bench) return bench();
    for (int tier = 0; tier < CPU_TIERS && !options.self_test; tier++)
        if (options.tier < 0 || options.tier == tier) check_tier((enum cpu_tier)tier);
    if (!options.self_test && !options.quick && (options.tier < 0 || options.tier == TIER_CUDA)) check_cuda();
    if (!options.quick && options.tier != TIER_CUDA) self_test(options.tier >= 0 ? (enum cpu_tier)options.tier : cpu_best_tier());
    printf("%ld passed, %ld failed, %ld skipped\n", counts.passed, counts.failed, counts.skipped);
    return counts.failed != 0;
}
