/* lily eval: how well a model predicts a text; recording a reference. */
#include "eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/size.h"
#include "interrupt.h"
#include "run/reference.h"
#include "run/score.h"
#include "sample/sampler.h"

enum { DEFAULT_WINDOW = 2048, DEFAULT_TOP = 20, MAX_EVAL_TOKENS = REFERENCE_MAX_TOKENS };

static void init(void *args)
{
    struct eval_args *a = args;
    model_args_init(&a->model);
    a->top = DEFAULT_TOP;
}

lily_status eval_open(struct eval_args *a, struct bundle *b, struct lily_err *err)
{
    LILY_TRY(model_texts(&a->model, b, err));
    int most = a->model.ctx ? a->model.ctx : b->config.shape.max_positions;
    if (a->window > most) {
        bundle_close(b);
        LILY_FAIL(err, LILY_ERR_USAGE, "eval: --window %d: the context holds %d tokens", a->window, most);
    }
    if (!a->window) a->window = most < DEFAULT_WINDOW ? most : DEFAULT_WINDOW;
    if (!a->model.ctx) a->model.ctx = a->window < GRID ? GRID : a->window;
    lily_status st = model_weights(&a->model, 0, b, err);
    if (st != LILY_OK) bundle_close(b);
    return st;
}

lily_status eval_text(const struct eval_args *a, const struct bundle *b, const char *file, struct ids *out, struct lily_err *err)
{
    struct buf text = {0};
    lily_status st = read_input(file, &text, err);
    if (st == LILY_OK) st = tokenizer_encode(b->tokenizer, buf_str(&text), text.len, out, err);
    buf_free(&text);
    LILY_TRY(st);
    size_t most = a->max_tokens ? (size_t)a->max_tokens : MAX_EVAL_TOKENS;
    if (out->n > most) out->n = most;
    if (out->n < 2) LILY_FAIL(err, LILY_ERR_USAGE, "%s: %s; at least 2 are needed, since the first is not predicted", file, COUNT_TEXT(out->n, "token"));
    return LILY_OK;
}

/* One window of the text: rows from `first` on predict tokens that no window before it has predicted. */
struct window {
    const int32_t *ids;
    int n, vocab;
    double sum;
    int counted;
};

static lily_status add_prediction(void *ctx, int row, const float *logits, struct lily_err *err)
{
    struct window *w = ctx;
    float logprob;
    (void)err;
    if (row + 1 == w->n) return LILY_OK;
    logits_logprobs_of(logits, w->vocab, &w->ids[row + 1], 1, &logprob);
    w->sum += (double)logprob;
    w->counted++;
    return LILY_OK;
}

static lily_status perplexity(const struct eval_args *a, struct bundle *b, const struct ids *ids, struct lily_err *err)
{
    int stride = a->stride ? a->stride : (a->window + 1) / 2, n = (int)ids->n, windows = 0, predicted = 1;
    if (stride >= a->window) /* else the first token of a window would have nothing before it */
        LILY_FAIL(err, LILY_ERR_USAGE, "eval: --stride %d: expected less than the window's %d tokens", stride, a->window);
    struct window w = {.vocab = b->config.shape.vocab};
    struct progress bar;
    lily_status st = LILY_OK;
    progress_begin(&bar, "reading", n, "token");
    for (int at = 0; predicted < n && st == LILY_OK; at += stride, windows++) {
        w.ids = ids->data + at;
        w.n = n - at < a->window ? n - at : a->window;
        struct score_request r = {w.ids, w.n, predicted - 1 - at, interrupt_flag(), add_prediction, &w};
        st = score_sequence(b->model, &r, err);
        predicted = at + w.n;
        progress_at(&bar, predicted);
    }
    progress_end(&bar);
    LILY_TRY(st);
    double mean = -w.sum / w.counted, value = exp(mean);
    if (a->common.json) {
        struct json *v = json_new_object();
        json_put(v, "perplexity", json_new_double(value));
        json_put(v, "nll", json_new_double(mean));
        json_put(v, "tokens", json_new_int(n));
        json_put(v, "predicted", json_new_int(w.counted));
        json_put(v, "windows", json_new_int(windows));
        json_put(v, "window", json_new_int(a->window));
        json_put(v, "stride", json_new_int(stride));
        print_json(v);
    } else {
        printf("perplexity %.4f over %s (%.4f nats each; windows of %d, stride %d)\n", value, COUNT_TEXT(w.counted, "token"), mean, a->window, stride);
    }
    return LILY_OK;
}

static lily_status run_perplexity(struct eval_args *a, const char *file, struct lily_err *err)
{
    struct bundle b;
    struct ids ids = {0};
    LILY_TRY(eval_open(a, &b, err));
    lily_status st = eval_text(a, &b, file, &ids, err);
    if (st == LILY_OK) st = perplexity(a, &b, &ids, err);
    ids_free(&ids);
    bundle_close(&b);
    return st;
}

/* Where rows of a sequence go. */
struct recording {
    struct reference *r;
    int start, end, vocab; /* of the sequence */
};

static lily_status record_row(void *ctx, int row, const float *logits, struct lily_err *err)
{
    struct recording *k = ctx;
    struct token_logprob top[MAX_TOP_LOGPROBS];
    int i = k->start + row;
    bool last = i + 1 == k->end;
    logits_logprobs(logits, k->vocab, last ? 0 : k->r->ids[i + 1], &k->r->chosen[i], top, k->r->k);
    if (last) k->r->chosen[i] = 0;
    for (int j = 0; j < k->r->k; j++) {
        size_t at = (size_t)i * (size_t)k->r->k + (size_t)j;
        if (top[j].id < 0) LILY_FAIL(err, LILY_ERR_FORMAT, "row %d: fewer than %d tokens have a probability", i, k->r->k);
        k->r->top_ids[at] = top[j].id;
        k->r->top_logprobs[at] = top[j].logprob;
    }
    return LILY_OK;
}

/* Sequences of a window each; a rest of one token has nothing to predict and is left out. */
static lily_status record_all(const struct eval_args *a, struct bundle *b, struct reference *r, struct lily_err *err)
{
    struct progress bar;
    lily_status st = LILY_OK;
    r->n -= r->n % a->window == 1;
    r->n_sequences = (r->n + a->window - 1) / a->window;
    progress_begin(&bar, "reading", r->n, "token");
    for (int s = 0; s < r->n_sequences; s++) r->starts[s] = s * a->window;
    for (int s = 0; s < r->n_sequences && st == LILY_OK; s++) {
        struct recording k = {r, r->starts[s], reference_end(r, s), b->config.shape.vocab};
        struct score_request q = {r->ids + k.start, k.end - k.start, 0, interrupt_flag(), record_row, &k};
        st = score_sequence(b->model, &q, err);
        progress_at(&bar, k.end);
    }
    progress_end(&bar);
    return st;
}

static lily_status record(struct eval_args *a, struct bundle *b, const struct ids *ids, struct lily_err *err)
{
    struct reference r;
    LILY_TRY(reference_new((int)ids->n, a->top, &r, err));
    memcpy(r.ids, ids->data, ids->n * sizeof *r.ids);
    lily_status st = record_all(a, b, &r, err);
    if (st == LILY_OK) st = reference_write(a->out, &r, err);
    if (st == LILY_OK && a->common.json) {
        struct json *v = json_new_object();
        json_put(v, "file", json_new_string(a->out));
        json_put(v, "tokens", json_new_int(r.n));
        json_put(v, "sequences", json_new_int(r.n_sequences));
        json_put(v, "top", json_new_int(r.k));
        print_json(v);
    } else if (st == LILY_OK) {
        log_note("%s: %s in %s, the %d most likely of each", a->out, COUNT_TEXT(r.n, "token"), COUNT_TEXT(r.n_sequences, "sequence"), r.k);
    }
    reference_free(&r);
    return st;
}

/* Told before the work is done; of an earlier record there may be a new one. */
static lily_status check_out(const char *out, int vocab, struct lily_err *err)
{
    struct reference r;
    if (!file_exists(out)) return LILY_OK;
    if (reference_read(out, vocab, &r, err) == LILY_OK) {
        reference_free(&r);
        return LILY_OK;
    }
    err_prefix(err, "eval: the file of --out is there already and is not replaced");
    err_hint(err, "give another name, or remove it");
    return LILY_ERR_USAGE;
}

static lily_status run_record(struct eval_args *a, const char *file, struct lily_err *err)
{
    struct bundle b;
    struct ids ids = {0};
    if (!a->out) {
        err_set(err, LILY_ERR_USAGE, "eval: record needs a place for the reference");
        err_hint(err, "usage: lily eval record FILE --out REF");
        return LILY_ERR_USAGE;
    }
    LILY_TRY(eval_open(a, &b, err));
    lily_status st = check_out(a->out, b.n_tokens, err);
    if (st == LILY_OK) st = eval_text(a, &b, file, &ids, err);
    if (st == LILY_OK) st = record(a, &b, &ids, err);
    ids_free(&ids);
    bundle_close(&b);
    return st;
}

static lily_status run_eval(void *args, int n, char **words, struct lily_err *err)
{
    static const struct {
        const char *name;
        lily_status (*run)(struct eval_args *a, const char *file, struct lily_err *err);
    } kinds[] = {{"record", run_record}, {"compare", eval_compare}, {"choice", eval_choice}};
    struct eval_args *a = args;
    interrupt_init();
    interrupt_mode(INTERRUPT_STOPS_ANSWER);
    if (a->quick) {
        if (n) LILY_FAIL(err, LILY_ERR_USAGE, "eval: --quick takes no file, found \"%.60s\"", words[0]);
        return eval_quick(a, err);
    }
    for (size_t i = 0; n && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(words[0], kinds[i].name) != 0) continue;
        if (n != 2) LILY_FAIL(err, LILY_ERR_USAGE, "eval: %s takes one file, found %d", kinds[i].name, n - 1);
        return kinds[i].run(a, words[1], err);
    }
    if (n == 1) return run_perplexity(a, words[0], err);
    if (n) LILY_FAIL(err, LILY_ERR_USAGE, "eval: \"%.60s\" is neither record, compare nor choice", words[0]);
    err_set(err, LILY_ERR_USAGE, "eval: nothing to measure: a text file is needed");
    err_hint(err, "lily eval FILE measures one; lily eval --quick brings its own");
    return LILY_ERR_USAGE;
}

#define AT(field) offsetof(struct eval_args, field)
static const struct opt options[] = {
    {"window", 0, "N", "tokens that are read as one sequence (default: 2048)", OPT_INT, AT(window), 2, 1 << 24, NULL},
    {"stride", 0, "N", "tokens from one window of a perplexity to the next (default: half a window)", OPT_INT, AT(stride), 1, 1 << 24,
     NULL},
    {"max-tokens", 0, "N", "read no more of the text than this (default: all of it)", OPT_INT, AT(max_tokens), 2, MAX_EVAL_TOKENS, NULL},
    {"out", 'o', "FILE", "where record writes the reference", OPT_TEXT, AT(out), 0, 0, NULL},
    {"top", 0, "N", "most likely tokens that record keeps of each row (default: 20)", OPT_INT, AT(top), 1, REFERENCE_MAX_TOP, NULL},
    {"limit", 0, "N", "answer no more questions of choice than this (default: all)", OPT_INT, AT(limit), 1, 1 << 24, NULL},
    {"quick", 0, NULL, "compare the demo model with the reference that comes with it, and pass or fail", OPT_ON, AT(quick), 0, 0, NULL},
};
static const struct opt_group group = {"Evaluation", options, (int)(sizeof options / sizeof options[0])};

const struct command cmd_eval = {
    .name = "eval",
    .usage = "[record|compare|choice] [FILE]",
    .summary = "measure how good a model is, or how far from a reference",
    .about = "lily eval FILE prints the perplexity of a text, by sliding windows.\n"
             "lily eval record FILE --out REF keeps what this model thinks of each next\n"
             "token.\n"
             "lily eval compare REF holds the model against it: both perplexities, how often\n"
             "the most likely token is the same, Kullback-Leibler divergence, by context\n"
             "position.\n"
             "lily eval choice FILE answers multiple-choice questions, one JSON object a line:\n"
             "{ctx, endings, label} as in HellaSwag, {question, choices, answer} as in MMLU.\n"
             "lily eval --quick compares the demo model with its shipped reference.\n"
             "docs/quality.md says how each number is made. FILE may be - for stdin.",
    .uses = {{&opts_model, offsetof(struct eval_args, model)}, {&group, 0}, {&opts_json, offsetof(struct eval_args, common)}},
    .max_args = 2,
    .args_size = sizeof(struct eval_args),
    .init = init,
    .run = run_eval,
};
