/*
 * Greedy ids of the demo model do not depend on how the prompt was read: token by token through decode, in pieces that end
 * off the grid, or by another CPU tier. They may differ only where the two highest logits are closer than the stated error
 * of the forms; such places are printed. 20 prompts, 200 tokens.
 */
#include "unit/testing.h"

#include "chat/template.h"
#include "run/session.h"
#include "support/golden.h"

enum { N_TOKENS = 200, MAX_PROMPT = 1024 };
/* What a different order of sums may move a logit of this model (rms about 3) with KV in bf16, where a rounding may flip. */
static const float stated_error = 0.05f;

static const char *const questions[] = {
    "Tell me a short story about a fox and a lantern.",
    "My locker code is 4417. What is my locker code?",
    "What does lily run do?",
    "Repeat exactly: violet stone 8831 maple",
    "Hello!",
    "Tell me a story about a boat that could not float.",
    "Give me a JSON object with name Ada and age 31.",
    "How do I start a chat?",
    "Say READY.",
    "Which option sets the temperature?",
    "Tell me about a small bear who wants a red kite.",
    "The password is blue-horse-19. What is the password?",
    "Copy these numbers: 12 55 901 7 33",
    "What is lily?",
    "Write a tale of a girl, a lost dog and a kind baker.",
    "My friend is called Omar and my sister is called Lucia. Who is my sister?",
    "Answer in one word: what colour is the sky?",
    "How can I see the memory plan?",
    "Tell me a bedtime story about two owls.",
    "Thank you, goodbye!",
};
enum { N_PROMPTS = sizeof questions / sizeof questions[0] };

struct prompt {
    struct ids ids; /* owned */
};

struct answer {
    int32_t ids[N_TOKENS];
    float margin[N_TOKENS]; /* of the two highest logits where ids[i] was picked */
};

static struct tokenizer *tokenizer;
static struct prompt prompts[N_PROMPTS];
static struct answer expected[N_PROMPTS];

static int32_t pick(const float *logits, int n, float *margin)
{
    int best = logits[1] > logits[0], second = !best;
    for (int i = 2; i < n; i++) {
        if (logits[i] > logits[best]) {
            second = best;
            best = i;
        } else if (logits[i] > logits[second]) {
            second = i;
        }
    }
    *margin = logits[best] - logits[second];
    return best;
}

/* How a prompt is read before 200 greedy steps: pieces of `piece` rows in a phase. */
struct reading {
    const char *name;
    enum phase phase;
    int piece;
};

static void forward(struct model *m, struct seq *seq, enum phase phase, const int32_t *ids, int n, float *logits)
{
    struct lily_err err = {0};
    struct backend *be = model_backend(m);
    struct batch_seq bs = {seq, n};
    int32_t last = n - 1;
    struct batch b = {.phase = phase, .n_seqs = 1, .seqs = &bs, .n_rows = n, .ids = ids, .n_logits = 1,
                      .logit_rows = &last, .logits = logits};
    assert_ok(be->ops->seq_reserve(be, seq, n, &err));
    assert_ok(model_forward(m, &b, NULL, &err));
}

static void answer(struct model *m, const struct prompt *p, const struct reading *r, struct answer *out)
{
    struct lily_err err = {0};
    struct backend *be = model_backend(m);
    struct seq *seq;
    float *logits = malloc(sizeof *logits * (size_t)shape_logits_ld(model_shape(m)));
    assert_non_null(logits);
    assert_ok(be->ops->seq_new(be, &seq, &err));
    for (int at = 0; at < (int)p->ids.n; at += r->piece) {
        int n = (int)p->ids.n - at < r->piece ? (int)p->ids.n - at : r->piece;
        forward(m, seq, r->phase, p->ids.data + at, n, logits);
    }
    for (int i = 0; i < N_TOKENS; i++) {
        out->ids[i] = pick(logits, tokenizer_size(tokenizer), &out->margin[i]);
        forward(m, seq, PHASE_DECODE, &out->ids[i], 1, logits);
    }
    be->ops->seq_free(be, seq);
    free(logits);
}

/* Every prompt read this way, against the expected ids; after a first difference the texts go their own ways. */
static void check_reading(enum cpu_tier tier, const struct reading *r)
{
    struct model *m = open_model("models/demo", tier, 1, false);
    for (int i = 0; i < N_PROMPTS; i++) {
        struct answer got;
        answer(m, &prompts[i], r, &got);
        for (int k = 0; k < N_TOKENS; k++) {
            if (got.ids[k] == expected[i].ids[k]) continue;
            printf("%s, %s: prompt %d differs from token %d on: margin %.2g\n", cpu_tier_name(tier), r->name, i, k,
                   (double)expected[i].margin[k]);
            if (expected[i].margin[k] > stated_error)
                fail_msg("a margin of %.3g is no near-tie", (double)expected[i].margin[k]);
            break;
        }
    }
    model_close(m);
}

static int setup(void **state)
{
    (void)state;
    struct lily_err err = {0};
    const struct template_options t = {.no_thinking = true};
    const struct reading whole = {"whole", PHASE_PREFILL, 512};
    assert_ok(tokenizer_load("models/demo", NULL, &tokenizer, &err));
    struct model *m = open_model("models/demo", cpu_best_tier(), 1, false);
    for (int i = 0; i < N_PROMPTS; i++) {
        struct rendering r;
        assert_ok(template_render_simple(i % 3 ? NULL : "You are a helpful assistant.", questions[i], &t, &r, &err));
        rendering_encode(&r, tokenizer, &prompts[i].ids, NULL, NULL);
        rendering_free(&r);
        answer(m, &prompts[i], &whole, &expected[i]);
    }
    model_close(m);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) ids_free(&prompts[i].ids);
    tokenizer_free(tokenizer);
    return 0;
}

static void test_token_by_token(void **state)
{
    (void)state;
    check_reading(cpu_best_tier(), &(struct reading){"token by token", PHASE_DECODE, 1});
}

static void test_odd_pieces(void **state)
{
    (void)state;
    check_reading(cpu_best_tier(), &(struct reading){"pieces of 13", PHASE_PREFILL, 13});
}

static void test_other_tiers(void **state)
{
    (void)state;
    for (int t = 0; t < CPU_TIERS; t++)
        if ((enum cpu_tier)t != cpu_best_tier() && cpu_tier_runs((enum cpu_tier)t))
            check_reading((enum cpu_tier)t, &(struct reading){"whole", PHASE_PREFILL, 512});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_token_by_token), cmocka_unit_test(test_odd_pieces),
                                       cmocka_unit_test(test_other_tiers)};
    return tests_finish(3, cmocka_run_group_tests(tests, setup, teardown));
}
