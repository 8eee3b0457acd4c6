/* The radix tree of token ids against a plain list. */
#include "unit/testing.h"

#include "run/pieces.h"
#include "run/prefix.h"
#include "spec/family.h"

enum { MAX_KEPT = 40, MAX_BLOCKS = 12, MAX = MAX_BLOCKS * GRID };

struct kept {
    int32_t ids[MAX];
    int length;
    struct prefix_node *node;
};

static uint32_t seed = 1;
static int draw(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

/* Blocks that begin alike and differ late, so that an edge is compared to its end. */
static void draw_ids(int32_t *ids)
{
    for (int b = 0; b < MAX_BLOCKS; b++) {
        for (int i = 0; i < GRID; i++) ids[b * GRID + i] = i;
        ids[b * GRID + GRID - 1] = draw(3) ? 0 : draw(3);
    }
}

static bool begins(const int32_t *a, int n, const int32_t *b)
{
    return memcmp(a, b, sizeof *a * (size_t)n) == 0;
}

static int common(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    int n = 0;
    while (n + GRID <= n_a && n + GRID <= n_b && begins(a + n, GRID, b + n)) n += GRID;
    return n;
}

/* Tokens of kept[i] that no other one holds; with only: of the distinct tokens of all. */
static int own(const struct kept *kept, int n, int i)
{
    int shared = 0;
    for (int k = 0; k < n; k++) {
        int c = k == i ? 0 : common(kept[i].ids, kept[i].length, kept[k].ids, kept[k].length);
        if (c > shared) shared = c;
    }
    return kept[i].length - shared;
}

static void check_query(const struct prefix_tree *t, const struct kept *kept, int n, const int32_t *ids, int n_ids)
{
    const struct kept *deepest = NULL, *exact = NULL;
    int most = 0;
    for (int i = 0; i < n; i++) {
        const struct kept *k = &kept[i];
        if (k->length < n_ids && begins(k->ids, k->length, ids) && (!deepest || k->length > deepest->length)) deepest = k;
        if (k->length == n_ids && begins(k->ids, k->length, ids)) exact = k;
        int c = common(k->ids, k->length, ids, n_ids);
        if (c > most) most = c;
    }
    struct prefix_node *found = prefix_deepest(t, ids, n_ids), *through;
    assert_ptr_equal(found, deepest ? deepest->node : NULL);
    if (n_ids % GRID == 0) assert_ptr_equal(prefix_find(t, ids, n_ids), exact ? exact->node : NULL);
    assert_int_equal(prefix_common(t, ids, n_ids, &through), most);
    assert_true(most ? through != NULL : through == NULL);
    if (!most) return;
    int32_t back[MAX];
    prefix_ids(through, back);
    assert_true(prefix_length(through) >= most && begins(back, most, ids) && prefix_value(through));
}

static void check_all(const struct prefix_tree *t, const struct kept *kept, int n)
{
    int total = 0;
    for (int i = 0; i < n; i++) {
        int32_t back[MAX];
        int shared = 0;
        const struct prefix_node *above = NULL;
        assert_int_equal(prefix_length(kept[i].node), kept[i].length);
        prefix_ids(kept[i].node, back);
        assert_true(begins(back, kept[i].length, kept[i].ids));
        assert_int_equal(prefix_own(kept[i].node), own(kept, n, i));
        for (int k = 0; k < i; k++) {
            int c = common(kept[i].ids, kept[i].length, kept[k].ids, kept[k].length);
            if (c > shared) shared = c;
        }
        total += kept[i].length - shared;
        for (int k = 0; k < n; k++)
            if (kept[k].length < kept[i].length && begins(kept[k].ids, kept[k].length, kept[i].ids) &&
                (!above || prefix_length(above) < kept[k].length))
                above = kept[k].node;
        assert_ptr_equal(prefix_above(kept[i].node), above);
    }
    assert_int_equal(prefix_tokens(t), total);
}

static void test_against_list(void **state)
{
    (void)state;
    static struct kept kept[MAX_KEPT];
    struct prefix_tree *t = prefix_new();
    int n = 0, value;
    for (int step = 0; step < 3000; step++) {
        int32_t ids[MAX];
        draw_ids(ids);
        int length = (1 + draw(MAX_BLOCKS)) * GRID, i = 0;
        while (i < n && !(kept[i].length == length && begins(kept[i].ids, length, ids))) i++;
        if (n == MAX_KEPT || (n > 0 && draw(3) == 0)) {
            int gone = draw(n);
            prefix_remove(t, kept[gone].node);
            kept[gone] = kept[--n];
        } else {
            struct prefix_node *node = prefix_put(t, ids, length, &value);
            if (i < n) assert_ptr_equal(node, kept[i].node);
            else n++;
            memcpy(kept[i].ids, ids, sizeof ids);
            kept[i].length = length;
            kept[i].node = node;
        }
        if (step % 7 == 0) check_all(t, kept, n);
        draw_ids(ids);
        check_query(t, kept, n, ids, 1 + draw(MAX));
        if (n) check_query(t, kept, n, kept[draw(n)].ids, 1 + draw(MAX));
    }
    while (n) prefix_remove(t, kept[--n].node);
    assert_int_equal(prefix_tokens(t), 0);
    prefix_free(t);
}

static void test_free_with_nodes(void **state)
{
    (void)state;
    struct prefix_tree *t = prefix_new();
    int value;
    for (int i = 0; i < 50; i++) {
        int32_t ids[MAX];
        draw_ids(ids);
        prefix_put(t, ids, (1 + draw(MAX_BLOCKS)) * GRID, &value);
    }
    prefix_free(t);
}

/* Pieces end on the grid or at the end, get to every place worth a border, and never stand still. */
static void test_pieces(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        int marks[60], n_marks = draw(60), n = 1 + draw(20000), saved = 0;
        for (int i = 0; i < n_marks; i++) marks[i] = (i ? marks[i - 1] : 0) + draw(n / 30 + 2);
        while (n_marks && marks[n_marks - 1] > n) n_marks--;
        struct prompt_plan p = {n, marks, n_marks, GRID * (1 + draw(8)), draw(2)};
        for (int at = 0, end; at < n; at = end) {
            const int keep = plan_keeps(&p, at), last = grid_below(n);
            end = plan_piece_end(&p, at);
            assert_true(end > at && end <= n && end - at <= p.piece && (end == n || end % GRID == 0));
            if (keep) assert_true(p.inside && keep > at && keep < end && plan_saves(&p, keep));
            saved += plan_saves(&p, end) + (keep > 0);
            if (end == last && end) assert_true(plan_saves(&p, end));
            if (at < last) assert_true(end <= last || keep == last); /* it is a place where a piece ends, or that is kept */
            if (n_marks && at < grid_below(marks[0])) assert_true(end <= grid_below(marks[0]) || keep == grid_below(marks[0]));
        }
        assert_true(saved <= 2 * (n / 1024 + 1) + 16);
    }
    /* An identical prompt, and one that parts behind a mark, read at most 64 tokens again. */
    const int marks[] = {100, 200, 200, 1000};
    const struct prompt_plan p = {1000, marks, 4, 512, false};
    const int borders[] = {64, 192, 960};
    for (int at = 0, i = 0; at < 1000; at = plan_piece_end(&p, at)) {
        if (!plan_saves(&p, at)) continue;
        assert_int_equal(at, borders[i]);
        i++;
        assert_true(at != 960 || i == 3);
    }
    /* With one state kept on the way, every second border is no end of a piece. */
    const struct prompt_plan q = {1000, marks, 4, 1024, true};
    assert_int_equal(plan_keeps(&q, 0), 64);
    assert_int_equal(plan_piece_end(&q, 0), 192);
    assert_int_equal(plan_keeps(&q, 192), 960);
    assert_int_equal(plan_piece_end(&q, 192), 1000);
    assert_int_equal(plan_keeps(&q, 960), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_list), cmocka_unit_test(test_free_with_nodes),
                                       cmocka_unit_test(test_pieces)};
    return RUN_TESTS(tests);
}
