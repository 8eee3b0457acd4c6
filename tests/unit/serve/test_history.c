/* The last seconds' tokens: steps, gaps, the ring's end. */
#include "unit/testing.h"

#include "serve/history.h"

static const char *text_of(const struct history *h)
{
    static struct buf out;
    out.len = 0;
    history_put(h, &out);
    return buf_str(&out);
}

static void test_steps(void **state)
{
    (void)state;
    struct history h = {0};
    assert_string_equal(text_of(&h), "{\"step_s\":1,\"generated\":[],\"read\":[]}");
    history_note(&h, 5000, 100, 7); /* what was before is nobody's second */
    history_note(&h, 5250, 110, 8);
    assert_int_equal(h.n, 0);
    history_note(&h, 6000, 130, 9);
    history_note(&h, 6900, 131, 9);
    history_note(&h, 7100, 135, 9);
    assert_string_equal(text_of(&h), "{\"step_s\":1,\"generated\":[30,5],\"read\":[2,0]}");
    history_note(&h, 7900, 136, 9); /* the step ends at 8000, not a second after the last note */
    assert_int_equal(h.n, 2);
    history_note(&h, 8050, 137, 9);
    assert_int_equal(h.n, 3);
}

static void test_gap(void **state)
{
    (void)state;
    struct history h = {0};
    history_note(&h, 1000, 0, 0);
    history_note(&h, 4500, 8, 0);
    assert_string_equal(text_of(&h), "{\"step_s\":1,\"generated\":[0,0,8],\"read\":[0,0,0]}");
    history_note(&h, 1e12, 9, 0);
    assert_int_equal(h.n, HISTORY_STEPS);
    history_note(&h, 1e12 + 500, 10, 0);
    assert_int_equal(h.written_in[(h.next + HISTORY_STEPS - 1) % HISTORY_STEPS], 1);
    history_note(&h, 1e12 + 1100, 12, 0);
    assert_int_equal(h.written_in[(h.next + HISTORY_STEPS - 1) % HISTORY_STEPS], 3);
}

static void test_ring(void **state)
{
    (void)state;
    struct history h = {0};
    for (int i = 0; i <= HISTORY_STEPS + 5; i++) history_note(&h, 1000 + 1000.0 * i, (uint64_t)i * (uint64_t)i, 0);
    const char *s = text_of(&h);
    assert_int_equal(h.n, HISTORY_STEPS);
    assert_memory_equal(s, "{\"step_s\":1,\"generated\":[11,13,", 31); /* squares' differences: the first five are gone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_gap), cmocka_unit_test(test_ring)};
    return RUN_TESTS(tests);
}
