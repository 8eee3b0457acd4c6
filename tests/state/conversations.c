/* Random conversations, warm against cold. */
#include "unit/testing.h"

#include "state/conversations.h"

#include "run/prompt.h"
#include "run/runner.h"

enum { TOGETHER = 4, TURNS = 4, ANSWER = 5, MAX_KEPT = 4, N_SYSTEMS = 5 };
static const size_t cache_bytes = 64 << 20;

static const char *const words[] = {"blue", "stone", "river", "lamp", "seven", "quiet", "maple", "door", "wind", "paper", "<|im_end|>", "4417",
                                    "{\"a\": 1}", "story", "lantern", "fox"};
enum { N_WORDS = sizeof words / sizeof words[0] };

struct dice {
    uint32_t seed;
};

static int draw(struct dice *d, int n)
{
    d->seed = d->seed * 1664525u + 1013904223u;
    return (int)((d->seed >> 8) % (uint32_t)n);
}

static struct json *text(struct dice *d, int n)
{
    struct buf b = {0};
    for (int i = 0; i < n; i++) buf_printf(&b, "%s%s", i ? " " : "", words[draw(d, N_WORDS)]);
    struct json *v = json_new_text(buf_str(&b), b.len);
    buf_free(&b);
    return v;
}

static struct json *message(const char *role, struct json *content)
{
    struct json *m = json_new_object();
    json_put(m, "role", json_new_string(role));
    json_put(m, "content", content);
    return m;
}

/* ---- a conversation ---- */

struct conversation {
    struct dice dice;
    struct json *messages; /* owned */
    struct json *kept[MAX_KEPT]; /* owned; earlier states to branch from */
    int n_kept;
    bool no_thinking, preserve;
    struct prompt prompt;  /* owned; of the present turn */
    struct job_spec spec;
    struct job *job;       /* owned */
    int32_t cold_ids[ANSWER];
    float *cold_logits;    /* owned; (vocab) */
};

/* The system prompts are the same for all conversations, so that they share their beginnings. */
static void begin(struct conversation *c, int number)
{
    struct dice d = {.seed = (uint32_t)(number % N_SYSTEMS) * 77777u + 3};
    memset(c, 0, sizeof *c);
    c->dice.seed = (uint32_t)number * 2654435761u + 17;
    c->messages = json_new_array();
    if (number % N_SYSTEMS) json_add(c->messages, message("system", text(&d, 20 + 15 * (number % N_SYSTEMS))));
    json_add(c->messages, message("user", text(&c->dice, 5 + draw(&c->dice, 60))));
    c->no_thinking = draw(&c->dice, 2);
    c->preserve = draw(&c->dice, 2);
}

static bool is_role(const struct json *m, const char *role)
{
    return strcmp(json_string(json_get(m, "role")), role) == 0;
}

/* The first n messages, the last of them perhaps with another text. */
static void cut(struct conversation *c, size_t n, struct json *edited)
{
    struct json *out = json_new_array();
    for (size_t i = 0; i < n; i++) {
        if (edited && i + 1 == n) json_add(out, message("user", edited));
        else json_add(out, json_copy(json_at(c->messages, i)));
    }
    json_free(c->messages);
    c->messages = out;
}

/* The index of a user message: the last one, or any. */
static size_t user_message(struct conversation *c, bool any)
{
    size_t found = 0;
    for (size_t i = 0, seen = 0; i < json_size(c->messages); i++)
        if (is_role(json_at(c->messages, i), "user") && (!any || draw(&c->dice, (int)++seen) == 0)) found = i;
    return found;
}

static void add_answer(struct conversation *c, const struct tokenizer *t, const int32_t *ids, int n)
{
    struct buf b = {0};
    tokenizer_decode(t, ids, (size_t)n, false, &b);
    buf_addz(&b, " ");
    struct json *a = message("assistant", json_new_text(buf_str(&b), b.len));
    buf_free(&b);
    if (draw(&c->dice, 2)) json_put(a, "reasoning_content", text(&c->dice, 10 + draw(&c->dice, 60)));
    if (draw(&c->dice, 3) == 0) {
        struct json *calls = json_new_array(), *call = json_new_object(), *arguments = json_new_object();
        json_put(arguments, "path", text(&c->dice, 2));
        json_put(arguments, "n", json_new_int(draw(&c->dice, 100)));
        json_put(call, "id", json_new_string("call_1"));
        json_put(call, "name", json_new_string("read"));
        json_put(call, "arguments", arguments);
        json_add(calls, call);
        json_put(a, "tool_calls", calls);
        json_add(c->messages, a);
        json_add(c->messages, message("tool", text(&c->dice, 1 + draw(&c->dice, 50))));
        return;
    }
    json_add(c->messages, a);
    json_add(c->messages, message("user", text(&c->dice, 1 + draw(&c->dice, 60))));
}

static void next_turn(struct conversation *c, const struct tokenizer *t, const int32_t *ids, int n)
{
    if (c->n_kept < MAX_KEPT && draw(&c->dice, 3) == 0) c->kept[c->n_kept++] = json_copy(c->messages);
    switch (draw(&c->dice, 8)) {
    case 0: /* the same again */
        return;
    case 1:
        cut(c, user_message(c, false) + 1, text(&c->dice, 10 + draw(&c->dice, 40)));
        return;
    case 2:
        cut(c, user_message(c, true) + 1, text(&c->dice, 10 + draw(&c->dice, 40)));
        return;
    case 3: /* another branch */
        if (!c->n_kept) break;
        json_free(c->messages);
        c->messages = json_copy(c->kept[draw(&c->dice, c->n_kept)]);
        break;
    case 4:
        c->no_thinking = !c->no_thinking;
        break;
    default:
        break;
    }
    add_answer(c, t, ids, n);
}

static void render(struct conversation *c, const struct bundle *b)
{
    struct lily_err err = {0};
    struct template_options o = {.no_thinking = c->no_thinking, .preserve_thinking = c->preserve};
    assert_ok(prompt_render(b, c->messages, NULL, &o, &c->prompt, &err));
    c->spec = (struct job_spec){.ids = c->prompt.ids.data, .n_ids = (int)c->prompt.ids.n, .marks = c->prompt.positions,
                                .n_marks = c->prompt.rendering.n_marks, .n_logprobs = -1, .max_tokens = ANSWER, .text = ""};
    sampler_params_init(&c->spec.sampling);
    c->job = job_new(&c->spec, 1);
}

static void end_turn(struct conversation *c)
{
    job_free(c->job);
    prompt_free(&c->prompt);
}

static void end(struct conversation *c)
{
    json_free(c->messages);
    for (int i = 0; i < c->n_kept; i++) json_free(c->kept[i]);
    free(c->cold_logits);
}

/* ---- running ---- */

enum { MAX_RUNS = 6 };

/* Tokens of all prompts of a warm side, and those of them that came from saved state. */
struct tally {
    long reused, prompt;
};

struct side {
    struct bundle bundle;
    struct runner *runner; /* owned */
    size_t vocab;
};

static void open_side(struct side *s, int threads, int slots, size_t bytes)
{
    struct lily_err err = {0};
    assert_ok(bundle_open("models/demo", &s->bundle, &err));
    struct runner_model_options o = {.n_slots = slots, .cache_bytes = bytes};
    model_options_init(&o.model);
    o.model.threads = threads;
    o.model.plan.ctx = 4096;
    o.model.plan.n_seqs = slots;
    o.model.plan.border_bytes = bytes;
    s->runner = runner_model_new(&s->bundle, &o);
    assert_ok(s->runner->ops->load(s->runner, &err));
    s->vocab = (size_t)model_shape(s->bundle.model)->vocab;
}

static void close_side(struct side *s)
{
    s->runner->ops->free(s->runner);
    bundle_close(&s->bundle);
}

/* Prompts are read piece by piece in turns, then the answers are decoded in one batch. */
static void run_slots(struct side *s, struct conversation *const *c, int n, struct job_result *results, int32_t (*ids)[ANSWER],
                      void (*read)(struct side *s, int slot, struct conversation *c))
{
    struct lily_err err = {0};
    const struct runner_ops *ops = s->runner->ops;
    int left = n, at[TOGETHER] = {0};
    for (int i = 0; i < n; i++) assert_ok(ops->begin(s->runner, i, c[i]->job, &results[i], &err));
    while (left)
        for (int i = 0; i < n; i++) {
            if (at[i] == c[i]->spec.n_ids) continue;
            bool goes_on;
            assert_ok(ops->prefill(s->runner, i, &at[i], &goes_on, &err));
            if (at[i] != c[i]->spec.n_ids) continue;
            left--;
            read(s, i, c[i]);
        }
    for (int k = 0; k < ANSWER; k++) {
        struct feed feeds[TOGETHER];
        for (int i = 0; i < n; i++) {
            struct picked p = {0};
            assert_ok(ops->pick(s->runner, i, &p, &err));
            ids[i][k] = p.id;
            feeds[i] = (struct feed){i, p.id, false};
        }
        assert_ok(ops->decode(s->runner, feeds, n, &err));
    }
    for (int i = 0; i < n; i++) ops->end(s->runner, i);
}

static void keep_cold(struct side *s, int slot, struct conversation *c)
{
    if (!c->cold_logits) c->cold_logits = malloc(s->vocab * sizeof *c->cold_logits);
    assert_non_null(c->cold_logits);
    memcpy(c->cold_logits, runner_model_logits(s->runner, slot), s->vocab * sizeof *c->cold_logits);
}

static void compare(struct side *s, int slot, struct conversation *c)
{
    const float *warm = runner_model_logits(s->runner, slot);
    for (size_t i = 0; i < s->vocab; i++)
        if (memcmp(&warm[i], &c->cold_logits[i], sizeof *warm) != 0)
            fail_msg("a prompt of %d tokens: logit %zu is %.9g from saved state and %.9g cold", c->spec.n_ids, i, (double)warm[i],
                     (double)c->cold_logits[i]);
}

/* What will probably come next is read ahead, as the server does it. */
static void read_ahead(struct side *s, struct conversation *c)
{
    struct lily_err err = {0};
    struct read_ahead *a = calloc(1, sizeof *a);
    bool more = true;
    assert_non_null(a);
    for (int i = 0; i < c->spec.n_ids / GRID * GRID; i++) ids_add(&a->ids, c->spec.ids[i]);
    s->runner->ops->read_ahead(s->runner, a);
    for (int i = 0; more && i < 1000; i++) assert_ok(s->runner->ops->tend(s->runner, true, &more, &err));
    assert_false(more);
}

/* One turn of a round's conversations on a warm side: one after another, or all at once. */
static void run_warm(struct side *s, int together, bool ahead, struct conversation *const *c, int m, struct tally *tally)
{
    for (int at = 0; at < m; at += together) {
        struct job_result results[TOGETHER] = {0};
        int32_t ids[TOGETHER][ANSWER];
        int n = m - at < together ? m - at : together;
        if (ahead && together == 1) read_ahead(s, c[at]);
        run_slots(s, &c[at], n, results, ids, compare);
        for (int i = 0; i < n; i++) {
            assert_memory_equal(ids[i], c[at + i]->cold_ids, sizeof ids[i]);
            tally->reused += results[i].reused;
            tally->prompt += c[at + i]->spec.n_ids;
            job_free(c[at + i]->job); /* a job is for one run */
            c[at + i]->job = job_new(&c[at + i]->spec, 1);
        }
    }
}

/* A round: up to four conversations from their first turn to their last. */
static void run_round(struct side *cold, struct side *warm, const struct warm_run *runs, int n_runs, int first, int m, struct tally *tallies)
{
    struct conversation c[TOGETHER], *list[TOGETHER];
    for (int i = 0; i < m; i++) begin(list[i] = &c[i], first + i);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < m; i++) {
            struct job_result cold_result = {0};
            render(&c[i], &cold->bundle);
            run_slots(cold, &list[i], 1, &cold_result, &c[i].cold_ids, keep_cold);
            assert_int_equal(cold_result.reused, 0);
            job_free(c[i].job);
            c[i].job = job_new(&c[i].spec, 1);
        }
        for (int k = 0; k < n_runs; k++) run_warm(&warm[k], runs[k].together, turn % 2, list, m, &tallies[k]);
        for (int i = 0; i < m; i++) {
            next_turn(&c[i], cold->bundle.tokenizer, c[i].cold_ids, ANSWER);
            end_turn(&c[i]);
        }
    }
    for (int i = 0; i < m; i++) end(&c[i]);
}

void check_conversations(int first, int n, const struct warm_run *runs, int n_runs)
{
    struct side cold, warm[MAX_RUNS];
    struct tally tallies[MAX_RUNS] = {0};
    assert_true(n_runs <= MAX_RUNS);
    open_side(&cold, 1, 1, 0);
    for (int k = 0; k < n_runs; k++) open_side(&warm[k], runs[k].threads, runs[k].together, cache_bytes);
    for (int at = 0; at < n; at += TOGETHER)
        run_round(&cold, warm, runs, n_runs, first + at, n - at < TOGETHER ? n - at : TOGETHER, tallies);
    for (int k = 0; k < n_runs; k++) {
        const struct cache_counters *counters = warm[k].runner->cache;
        printf("%d threads, %d at once: %ld of %ld prompt tokens from saved state, %llu states saved, %llu dropped\n", runs[k].threads,
               runs[k].together, tallies[k].reused, tallies[k].prompt, (unsigned long long)counters->saved,
               (unsigned long long)counters->dropped);
        assert_true(tallies[k].reused * 2 > tallies[k].prompt);
        assert_true(counters->peak_bytes <= cache_bytes);
        close_side(&warm[k]);
    }
    close_side(&cold);
}
