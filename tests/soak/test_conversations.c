/* Two hundred random conversations, cold and with three numbers of threads, alone and four at once. */
#include "unit/testing.h"

#include "state/conversations.h"

static void test_two_hundred(void **state)
{
    static const struct warm_run runs[] = {{1, 1}, {2, 1}, {3, 1}, {1, 4}, {2, 4}, {3, 4}};
    (void)state;
    check_conversations(100, 200, runs, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_hundred)};
    return RUN_TESTS(tests);
}
