/* Processor features and tiers. */
#include "../testing.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu.h"

static void tier_names_parse_back(void **state)
{
    (void)state;
    for (int i = 0; i < CPU_TIERS; i++) {
        enum cpu_tier t = CPU_TIERS;
        assert_true(cpu_tier_parse(cpu_tier_name((enum cpu_tier)i), &t));
        assert_int_equal(t, i);
    }
    enum cpu_tier t = CPU_AVX2;
    static const char *const wrong[] = {"", "AVX2", "avx", "avx2 ", "unknown", "sse"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) assert_false(cpu_tier_parse(wrong[i], &t));
    assert_int_equal(t, CPU_AVX2);
    assert_string_equal(cpu_tier_name(CPU_TIERS), "unknown");
    assert_string_equal(cpu_tier_name((enum cpu_tier)-1), "unknown");
}

static void the_best_tier_runs_and_so_do_those_below(void **state)
{
    (void)state;
    enum cpu_tier best = cpu_best_tier();
    assert_true(cpu_tier_runs(CPU_SCALAR));
    assert_true(cpu_tier_runs(best));
    for (int i = best + 1; i < CPU_TIERS; i++) assert_false(cpu_tier_runs((enum cpu_tier)i));
    if (best == CPU_AVX512) assert_true(cpu_tier_runs(CPU_AVX2));
    assert_false(cpu_tier_runs(CPU_TIERS));
    assert_false(cpu_tier_runs(CPU_NEON) && cpu_tier_runs(CPU_AVX2));
}

/* The flags line of /proc/cpuinfo is the kernel's own reading of the same registers. */
static bool kernel_lists(const char *flag)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[8192], want[64];
    bool found = false;
    snprintf(want, sizeof want, " %s ", flag);
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5) != 0) continue;
        line[strcspn(line, "\n")] = ' ';
        found = strstr(line, want) != NULL;
        break;
    }
    if (f) fclose(f);
    return found;
}

static void features_agree_with_the_kernel(void **state)
{
    (void)state;
#if defined(__x86_64__)
    const struct cpu_features *f = cpu_features();
    assert_int_equal(f->avx2, kernel_lists("avx2"));
    assert_int_equal(f->fma, kernel_lists("fma"));
    assert_int_equal(f->f16c, kernel_lists("f16c"));
    bool avx512 = kernel_lists("avx512f") && kernel_lists("avx512bw") && kernel_lists("avx512vl") && kernel_lists("avx512dq");
    assert_int_equal(f->avx512, avx512);
    assert_int_equal(f->avx512_vnni, avx512 && kernel_lists("avx512_vnni"));
    assert_int_equal(f->avx512_bf16, avx512 && kernel_lists("avx512_bf16"));
    assert_ptr_equal(f, cpu_features());
#else
    (void)kernel_lists;
    TEST_SKIP("only x86 lists these flags");
#endif
}

static void the_count_follows_the_affinity(void **state)
{
    (void)state;
    assert_true(cpu_count() >= 1);
    pid_t child = fork();
    if (child == 0) {
        cpu_set_t all, one;
        CPU_ZERO(&one);
        if (sched_getaffinity(0, sizeof all, &all) != 0) _exit(3);
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &all)) {
                CPU_SET(i, &one);
                break;
            }
        if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(3);
        _exit(cpu_count() == 1 ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_model_name_fits_any_buffer(void **state)
{
    (void)state;
    char name[64], tiny[4];
    memset(name, 1, sizeof name);
    cpu_model_name(name, sizeof name);
    assert_true(strlen(name) > 0 && strlen(name) < sizeof name);
    assert_null(strchr(name, '\n'));
    memset(tiny, 1, sizeof tiny);
    cpu_model_name(tiny, sizeof tiny);
    assert_true(strlen(tiny) < sizeof tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tier_names_parse_back),
        cmocka_unit_test(the_best_tier_runs_and_so_do_those_below),
        cmocka_unit_test(features_agree_with_the_kernel),
        cmocka_unit_test(the_count_follows_the_affinity),
        cmocka_unit_test(the_model_name_fits_any_buffer),
    };
    return RUN_TESTS(tests);
}
