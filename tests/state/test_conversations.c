/* Twenty random conversations, over three numbers of threads, alone and four at once; tests/soak runs two hundred. */
#include "unit/testing.h"

#include "state/conversations.h"

#ifdef SANITIZED
enum { N_ALONE = 4, N_TOGETHER = 4, N_RUNS = 1 };
#else
enum { N_ALONE = 12, N_TOGETHER = 8, N_RUNS = 3 };
#endif

static void test_alone(void **state)
{
    static const struct warm_run runs[] = {{2, 1}, {1, 1}, {3, 1}};
    (void)state;
    check_conversations(4, N_ALONE, runs, N_RUNS);
}

static void test_together(void **state)
{
    static const struct warm_run runs[] = {{2, 4}, {1, 4}, {3, 4}};
    (void)state;
    check_conversations(16, N_TOGETHER, runs, N_RUNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_together)};
    return RUN_TESTS(tests);
}
