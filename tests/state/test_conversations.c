/* Twenty random conversations, over three numbers of threads, alone and four at once; tests/soak runs two hundred. */
#include "unit/testing.h"

#include "state/conversations.h"

static void test_alone(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) check_conversations(4 * threads, 4, (struct warm_run){threads, 1});
}

static void test_together(void **state)
{
    (void)state;
    check_conversations(16, 4, (struct warm_run){2, 4});
    check_conversations(20, 4, (struct warm_run){3, 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_together)};
    return RUN_TESTS(tests);
}
