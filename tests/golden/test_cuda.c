/*
 * The CUDA backend against what transformers computed in fp32: the tiny checkpoint layer by layer, the demo model over 2,000
 * tokens, with the bounds of its two paths; and that a decode pass has the same bits as a graph, in any batch slot, and as
 * several tokens of one step. Skipped where no card answers.
 */
#include "unit/testing.h"

#include <math.h>

#include "backend/cuda/cuda.h"
#include "base/num.h"
#include "load/synth.h"
#include "model/reference.h"
#include "run/forward.h"
#include "run/lane.h"
#include "sample/sampler.h"
#include "support/golden.h"

static bool have_card(void)
{
    struct lily_err err = {0};
    struct cuda_card card;
    static bool said;
    bool yes = cuda_probe(CUDA_ANY, &card, &err) == LILY_OK;
    if (!said) printf("%s\n", yes ? card.name : err.msg);
    said = true;
    return yes;
}

#define NEED_CARD()                                                                                                    \
    if (!have_card()) TEST_SKIP("no CUDA card answers")

static struct model *open_cuda(const char *dir, bool kv_f32)
{
    struct lily_err err = {0};
    struct model_options o;
    struct model *m = NULL;
    model_options_init(&o);
    o.device = DEVICE_CUDA;
    o.max_rows = 512;
    o.plan.kv_f32 = kv_f32;
    o.plan.ctx = 2048;
    o.plan.n_seqs = 8;
    o.plan.border_bytes = 64 << 20;
    assert_ok(model_open(dir, &o, &m, &err));
    return m;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double rms_error(const float *got, const float *want, int n)
{
    double d = 0, s = 0;
    for (int i = 0; i < n; i++) {
        d += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        s += (double)want[i] * (double)want[i];
    }
    return sqrt(d / (s + 1e-300));
}

/* ---- tiny, layer by layer ---- */

static void check_tiny(const struct golden *g, struct model *m, int length, struct traced_run run, double bound)
{
    const struct model_shape *s = model_shape(m);
    char name[32];
    int n, n_pos, k;
    snprintf(name, sizeof name, "p%d.ids", length);
    int32_t *ids = golden_ints(g, name, &n);
    snprintf(name, sizeof name, "p%d.pos", length);
    int32_t *pos = golden_ints(g, name, &n_pos);
    snprintf(name, sizeof name, "p%d.hidden", length);
    float *hidden = golden_floats(g, name, &k);
    snprintf(name, sizeof name, "p%d.logits", length);
    float *logits = golden_floats(g, name, &k);
    struct trace t;
    trace_model(m, ids, n, run, &t);
    double worst[MAX_LAYERS + 2] = {0};
    for (int i = 0; i < n_pos; i++) {
        for (int l = 0; l <= s->n_layers; l++) {
            double e = rms_error(trace_hidden(&t, m, l, pos[i]), hidden + ((size_t)l * (size_t)n_pos + (size_t)i) * (size_t)s->hidden, s->hidden);
            if (!(e <= worst[l])) worst[l] = e;
        }
        double e = rms_error(trace_logits(&t, m, pos[i]), logits + (size_t)i * (size_t)s->vocab, s->vocab);
        if (!(e <= worst[s->n_layers + 1])) worst[s->n_layers + 1] = e;
    }
    printf("tiny %d, %s in pieces of %d:", length, run.phase == PHASE_DECODE ? "decode" : "prefill", run.piece);
    for (int l = 0; l <= s->n_layers + 1; l++) printf(" %.1e", worst[l]);
    printf("\n");
    if (!(worst[s->n_layers + 1] <= bound)) fail_msg("logits off by %.2e, bound %.2e", worst[s->n_layers + 1], bound);
    trace_free(&t);
    free(ids);
    free(pos);
    free(hidden);
    free(logits);
}

/* What the decode product keeps of a row (gemv.cuh): 21 bits of the largest of 256 numbers, 17 in the upper half of each group of 64. */
static void round_input(double *x, int n)
{
    for (int at = 0; at < n; at += 256) {
        int end = at + 256 < n ? at + 256 : n, e;
        double most = 0;
        for (int i = at; i < end; i++) most = fmax(most, fabs(x[i]));
        if (most == 0) continue;
        frexp(most, &e);
        for (int i = at; i < end; i++) {
            double one = ldexp(i & 32 ? 16 : 1, e - 21);
            x[i] = nearbyint(x[i] / one) * one;
        }
    }
}

static void round_kv(double *x, int n)
{
    for (int i = 0; i < n; i++) x[i] = (double)bf16_to_f32(bf16_from_f32((float)x[i]));
}

/* How far the reference's logits move when it rounds, the worst of positions. */
static double rounding_error(int length, struct reference_rounding rounding)
{
    struct lily_err err = {0};
    struct model_config config;
    struct checkpoint *ck;
    struct golden g;
    char name[32];
    int n;
    golden_open(&g, "tests/data/tiny/golden.safetensors");
    assert_ok(config_load("tests/data/tiny", &config, &err));
    assert_ok(checkpoint_open("tests/data/tiny", &config, &ck, &err));
    snprintf(name, sizeof name, "p%d.ids", length);
    int32_t *ids = golden_ints(&g, name, &n);
    int vocab = config.shape.vocab;
    struct reference_out exact = {.logits = calloc((size_t)n * (size_t)vocab, sizeof(double))};
    struct reference_out rounded = {.logits = calloc((size_t)n * (size_t)vocab, sizeof(double)), .rounding = rounding};
    assert_true(exact.logits && rounded.logits);
    assert_ok(reference_forward(&config, ck, ids, n, &exact, &err));
    assert_ok(reference_forward(&config, ck, ids, n, &rounded, &err));
    double worst = 0;
    for (int t = 0; t < n; t++) {
        double d = 0, s = 0;
        for (size_t i = (size_t)t * (size_t)vocab; i < (size_t)(t + 1) * (size_t)vocab; i++) {
            d += (rounded.logits[i] - exact.logits[i]) * (rounded.logits[i] - exact.logits[i]);
            s += exact.logits[i] * exact.logits[i];
        }
        worst = fmax(worst, sqrt(d / s));
    }
    free(exact.logits);
    free(rounded.logits);
    free(ids);
    checkpoint_close(ck);
    config_free(&config);
    golden_close(&g);
    return worst;
}

/* bound: NULL rounding: this; else twice what the rounding alone does, and a little for sums in fp32. */
static void tiny(bool kv_f32, enum phase phase, const struct reference_rounding *rounding, double bound)
{
    static const int lengths[] = {1, 5, 63, 64, 65, 200, 700};
    struct golden g;
    golden_open(&g, "tests/data/tiny/golden.safetensors");
    struct model *m = open_cuda("tests/data/tiny", kv_f32);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (rounding && lengths[i] <= 200) bound = 2 * rounding_error(lengths[i], *rounding) + 2e-5;
        check_tiny(&g, m, lengths[i], (struct traced_run){phase == PHASE_DECODE ? 1 : 512, phase}, bound);
    }
    model_close(m);
    golden_close(&g);
}

static void test_tiny_decode_f32(void **state)
{
    (void)state;
    NEED_CARD();
    tiny(true, PHASE_DECODE, &(struct reference_rounding){round_input, NULL}, 0);
}

static void test_tiny_decode(void **state)
{
    (void)state;
    NEED_CARD();
    tiny(false, PHASE_DECODE, &(struct reference_rounding){round_input, round_kv}, 0);
}

static void test_tiny_prefill_f32(void **state)
{
    (void)state;
    NEED_CARD();
    tiny(true, PHASE_PREFILL, NULL, 5e-2);
}

static void test_tiny_prefill(void **state)
{
    (void)state;
    NEED_CARD();
    tiny(false, PHASE_PREFILL, NULL, 5e-2);
}

/* ---- demo ---- */

struct fidelity {
    double top1, ppl, rms_half, rms_99;
};

/* Against the CPU's own exact path on the same KV type, and the recorded most likely tokens and log-probabilities. */
static struct fidelity demo(struct model *m, const struct trace *exact, struct traced_run run, const int32_t *ids, int n, const struct golden *g)
{
    struct fidelity f = {0};
    const struct model_shape *s = model_shape(m);
    struct trace t;
    int k;
    int32_t *argmax = golden_ints(g, "hf.argmax", &k);
    float *logprob = golden_floats(g, "hf.logprob", &k);
    double *e = malloc(sizeof *e * (size_t)n), ours = 0, theirs = 0;
    assert_non_null(e);
    trace_model(m, ids, n, run, &t);
    for (int i = 0; i < n; i++) {
        struct token_logprob top;
        float lp;
        logits_logprobs(trace_logits(&t, m, i), s->vocab, i + 1 < n ? ids[i + 1] : 0, &lp, &top, 1);
        f.top1 += top.id == argmax[i];
        if (i + 1 < n) ours += (double)lp, theirs += (double)logprob[i];
        e[i] = rms_error(trace_logits(&t, m, i), trace_logits(exact, m, i), s->vocab);
    }
    qsort(e, (size_t)n, sizeof *e, by_value);
    f.top1 /= n;
    f.ppl = fabs(exp((theirs - ours) / (n - 1)) - 1);
    f.rms_half = e[n / 2];
    f.rms_99 = e[n - n / 100];
    printf("demo, %s: same top token %.2f%%, perplexity off %.4f%%, rms error median %.2e, at 99%% %.2e\n", run.phase == PHASE_DECODE ? "decode" : "prefill",
           100 * f.top1, 100 * f.ppl, f.rms_half, f.rms_99);
    trace_free(&t);
    free(argmax);
    free(logprob);
    free(e);
    return f;
}

static void test_demo(void **state)
{
    (void)state;
    NEED_CARD();
    struct golden g;
    int n;
    golden_open(&g, "tests/data/demo/golden.safetensors");
    int32_t *ids = golden_ints(&g, "ids", &n);
    struct trace exact;
    struct model *cpu = open_model("models/demo", cpu_best_tier(), 4, false), *m = open_cuda("models/demo", false);
    trace_model(cpu, ids, n, (struct traced_run){512, PHASE_PREFILL}, &exact);
    struct fidelity f = demo(m, &exact, (struct traced_run){1, PHASE_DECODE}, ids, n, &g);
    assert_true(f.top1 >= 0.995 && f.ppl <= 0.0004 && f.rms_half <= 5e-3 && f.rms_99 <= 2e-2);
    f = demo(m, &exact, (struct traced_run){512, PHASE_PREFILL}, ids, n, &g);
    assert_true(f.top1 >= 0.985 && f.ppl <= 0.001 && f.rms_half <= 3e-2);
    trace_free(&exact);
    model_close(m);
    model_close(cpu);
    free(ids);
    golden_close(&g);
}

/* ---- bits ---- */

enum { MAX_ROWS = 8 };

static void look_away(void *ctx, struct backend *be, int layer)
{
    (void)ctx;
    (void)be;
    (void)layer;
}

/* Feeds ids to sequences that were all read alike; rows_each tokens of each sequence a step. Logits of every row, in order. */
static void feed(struct model *m, const int32_t *prompt, int n_prompt, int n_seqs, int rows_each, int steps, bool watched, float *out)
{
    struct lily_err err = {0};
    struct backend *be = model_backend(m);
    size_t ld = (size_t)shape_logits_ld(model_shape(m));
    struct batch_seq bs[MAX_ROWS];
    int32_t ids[MAX_ROWS], rows[MAX_ROWS];
    for (int i = 0; i < n_seqs; i++) {
        struct batch_seq one;
        assert_ok(be->ops->seq_new(be, &bs[i].seq, &err));
        assert_ok(be->ops->seq_reserve(be, bs[i].seq, n_prompt, &err));
        one = (struct batch_seq){bs[i].seq, n_prompt};
        struct batch b = {.phase = PHASE_PREFILL, .n_seqs = 1, .seqs = &one, .n_rows = n_prompt, .ids = prompt};
        assert_ok(model_forward(m, &b, NULL, &err));
    }
    for (int step = 0; step < steps; step++) {
        int n = 0;
        for (int i = 0; i < n_seqs; i++) {
            assert_ok(be->ops->seq_reserve(be, bs[i].seq, rows_each, &err));
            bs[i].n = rows_each;
            for (int t = 0; t < rows_each; t++, n++) {
                ids[n] = (i * 37 + (step * rows_each + t) * 11 + 5) % 300;
                rows[n] = n;
            }
        }
        struct batch b = {.phase = PHASE_DECODE, .n_seqs = n_seqs, .seqs = bs, .n_rows = n, .ids = ids, .n_logits = n, .logit_rows = rows,
                          .logits = out + (size_t)step * (size_t)n * ld};
        struct forward_observer observer = {.after = look_away}; /* a pass that is watched is no graph */
        assert_ok(model_forward(m, &b, watched ? &observer : NULL, &err));
    }
    for (int i = 0; i < n_seqs; i++) be->ops->seq_free(be, bs[i].seq);
}

static void same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0) fail_msg("%s: first difference at float %zu: %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}

static void check_bits(const char *dir)
{
    enum { PROMPT = 100, STEPS = 8 };
    struct model *m = open_cuda(dir, false);
    size_t ld = (size_t)shape_logits_ld(model_shape(m)), vocab = (size_t)model_shape(m)->vocab;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = (i * 7919 + 3) % 300;
    float *alone = calloc(STEPS * ld, sizeof(float)), *again = calloc(STEPS * ld, sizeof(float)), *batch = calloc(STEPS * ld * MAX_ROWS, sizeof(float));
    assert_true(alone && again && batch);
    feed(m, prompt, PROMPT, 1, 1, STEPS, false, alone);
    feed(m, prompt, PROMPT, 1, 1, STEPS, false, again);
    for (int i = 0; i < STEPS; i++) same_bits(alone + (size_t)i * ld, again + (size_t)i * ld, vocab, "a repeat");
    feed(m, prompt, PROMPT, 1, 1, STEPS, true, again);
    for (int i = 0; i < STEPS; i++) same_bits(alone + (size_t)i * ld, again + (size_t)i * ld, vocab, "kernel by kernel");
    for (int each = 2; each <= 8; each *= 2) {
        feed(m, prompt, PROMPT, 1, each, STEPS / each, false, again);
        for (int i = 0; i < STEPS; i++) same_bits(alone + (size_t)i * ld, again + (size_t)i * ld, vocab, "several tokens a step");
    }
    for (int seqs = 2; seqs <= MAX_ROWS; seqs += 3) {
        feed(m, prompt, PROMPT, seqs, 1, STEPS, false, batch);
        for (int i = 0; i < STEPS; i++) same_bits(alone + (size_t)i * ld, batch + (size_t)i * (size_t)seqs * ld, vocab, "a batch slot");
    }
    free(alone);
    free(again);
    free(batch);
    model_close(m);
}

static void test_bits_tiny(void **state)
{
    (void)state;
    NEED_CARD();
    check_bits("tests/data/tiny");
}

static void test_bits_demo(void **state)
{
    (void)state;
    NEED_CARD();
    check_bits("models/demo");
}

/* ---- tokens chosen on the card ---- */

enum { PICK_PROMPT = 70, PICKS = 24, MAX_LANES = 3 };

struct answer {
    struct seq *seq;
    struct sampler *sampler;
    float *logits;
    int32_t ids[PICKS + 1];
    struct lane lane;
};

static void answer_open(struct model *m, struct answer *a, const struct sampler_params *p, const int32_t *eos, bool by_host)
{
    struct lily_err err = {0};
    struct backend *be = model_backend(m);
    const struct model_shape *s = model_shape(m);
    int32_t prompt[PICK_PROMPT];
    for (int i = 0; i < PICK_PROMPT; i++) prompt[i] = (i * 7919 + 3) % 300;
    *a = (struct answer){.logits = calloc((size_t)shape_logits_ld(s), sizeof(float))};
    assert_non_null(a->logits);
    assert_ok(be->ops->seq_new(be, &a->seq, &err));
    assert_ok(be->ops->seq_reserve(be, a->seq, PICK_PROMPT, &err));
    struct rows rows = {PHASE_PREFILL, a->seq, prompt, PICK_PROMPT, a->logits, NULL};
    assert_ok(forward_rows(m, &rows, &err));
    assert_ok(sampler_new(p, s->vocab, &a->sampler, &err));
    sampler_prompt(a->sampler, prompt, PICK_PROMPT);
    a->lane = (struct lane){.seq = a->seq, .sampler = a->sampler, .logits = a->logits, .eos = eos, .n_eos = eos != NULL, .wants_logits = by_host, .length = PICK_PROMPT};
    lane_begin(&a->lane);
}

static void answer_close(struct model *m, struct answer *a)
{
    model_backend(m)->ops->seq_free(model_backend(m), a->seq);
    sampler_free(a->sampler);
    free(a->logits);
}

/* PICKS tokens of each; behind a stop another token is fed, as when a thought is closed. */
static void answer_run(struct model *m, struct answer *a, int n, float *scratch)
{
    struct lily_err err = {0};
    const struct lanes all = {m, NULL, scratch};
    for (int t = 0; t <= PICKS; t++) {
        struct lane_feed feeds[MAX_LANES];
        for (int i = 0; i < n; i++) {
            assert_ok(lane_pick(&all, &a[i].lane, &a[i].ids[t], &err));
            bool stopped = a[i].lane.n_eos && a[i].ids[t] == a[i].lane.eos[0];
            feeds[i] = (struct lane_feed){&a[i].lane, stopped ? 7 : a[i].ids[t], t + 1 < PICKS};
        }
        if (t < PICKS) assert_ok(lanes_feed(&all, feeds, n, &err));
    }
}

static void same_ids(const struct answer *a, const struct answer *b, const char *what)
{
    for (int t = 0; t <= PICKS; t++)
        if (a->ids[t] != b->ids[t]) fail_msg("%s: token %d is %d on the host and %d on the card", what, t, (int)a->ids[t], (int)b->ids[t]);
}

static void check_picks(struct model *m)
{
    static const struct logit_bias bias[] = {{9, 3}, {4, -2.5f}, {9, 0.3f}, {11, 100}, {4, 0.7f}};
    static const struct logit_bias one[] = {{5, 100}};
    static const struct sampler_params settings[] = {
        {.top_p = 1, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 5},
        {.temperature = 0.6, .top_k = 20, .top_p = 0.95, .repetition_penalty = 1, .seed = 6},
        {.temperature = 1.3, .top_k = 250, .top_p = 0.5, .min_p = 0.01, .repetition_penalty = 1, .seed = 7},
        {.temperature = 2, .top_p = 0.9, .repetition_penalty = 1.3, .presence_penalty = 0.5, .frequency_penalty = 0.25, .seed = 8},
        {.top_p = 1, .repetition_penalty = 1.2, .bias = bias, .n_bias = 5},
        {.temperature = 100, .top_k = 3000, .top_p = 0.99, .repetition_penalty = 1, .seed = 9},
        {.temperature = 100, .top_p = 0.7, .repetition_penalty = 1, .bias = one, .n_bias = 1, .seed = 10}, /* one far above: the others share few bins */
        {.temperature = 1e-3, .top_p = 0, .repetition_penalty = 1, .seed = 11},
    };
    enum { N = sizeof settings / sizeof settings[0] };
    struct answer host[N], card[MAX_LANES];
    float *scratch = calloc(MAX_LANES * (size_t)shape_logits_ld(model_shape(m)), sizeof *scratch);
    char what[64];
    assert_non_null(scratch);
    for (int i = 0; i < N; i++) {
        snprintf(what, sizeof what, "setting %d", i);
        answer_open(m, &host[i], &settings[i], NULL, true);
        answer_open(m, &card[0], &settings[i], NULL, false);
        answer_run(m, &host[i], 1, scratch);
        answer_run(m, &card[0], 1, scratch);
        same_ids(&host[i], &card[0], what);
        answer_close(m, &card[0]);
    }
    for (int i = 0; i < MAX_LANES; i++) answer_open(m, &card[i], &settings[i + 1], NULL, false);
    answer_run(m, card, MAX_LANES, scratch);
    for (int i = 0; i < MAX_LANES; i++) {
        same_ids(&host[i + 1], &card[i], "a batch slot");
        answer_close(m, &card[i]);
    }
    const int32_t stop = host[2].ids[4];
    struct answer stopped;
    answer_open(m, &stopped, &settings[2], &stop, true);
    answer_open(m, &card[0], &settings[2], &stop, false);
    answer_run(m, &stopped, 1, scratch);
    answer_run(m, &card[0], 1, scratch);
    same_ids(&stopped, &card[0], "behind a stop");
    answer_close(m, &stopped);
    answer_close(m, &card[0]);
    for (int i = 0; i < N; i++) answer_close(m, &host[i]);
    free(scratch);
}

static void test_picks(void **state)
{
    (void)state;
    NEED_CARD();
    struct model *m = open_cuda("models/demo", false);
    check_picks(m);
    model_close(m);
}

/* A vocabulary of 248,320, which fills the sampler's shared memory. */
static void test_picks_35b(void **state)
{
    (void)state;
    NEED_CARD();
    struct lily_err err = {0};
    struct synth_plan plan;
    struct model_options o;
    struct model *m = NULL;
    model_options_init(&o);
    o.device = DEVICE_CUDA;
    o.max_rows = 512;
    o.plan.ctx = 1024;
    o.plan.n_seqs = 16;
    assert_ok(synth_plan_make(SYNTH_35B, 1, &plan, &err));
    assert_ok(model_open_synth(&plan, &o, &m, &err));
    check_picks(m);
    model_close(m);
    synth_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiny_decode_f32), cmocka_unit_test(test_tiny_decode), cmocka_unit_test(test_tiny_prefill_f32),
                                       cmocka_unit_test(test_tiny_prefill),    cmocka_unit_test(test_demo),        cmocka_unit_test(test_bits_tiny),
                                       cmocka_unit_test(test_bits_demo),       cmocka_unit_test(test_picks),       cmocka_unit_test(test_picks_35b)};
    return RUN_TESTS(tests);
}
