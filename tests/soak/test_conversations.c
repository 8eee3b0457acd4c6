/* Two hundred random conversations for each of three numbers of threads, alone and four at once. */
#include "unit/testing.h"

#include "state/conversations.h"

enum { N = 200 };

static void test_alone(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) check_conversations(100, N, (struct warm_run){threads, 1});
}

static void test_together(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) check_conversations(100, N, (struct warm_run){threads, 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_together)};
    return RUN_TESTS(tests);
}
