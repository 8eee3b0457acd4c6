/* lily eval compare and --quick: a model against a reference. */
#include "eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "interrupt.h"
#include "run/compare.h"
#include "run/score.h"

/* The pass line of --quick; the reference was computed in fp32 by another engine. */
static const double quick_same = 0.99, quick_perplexity = 0.002, quick_kl = 0.001;

struct comparing {
    struct comparison *c;
    const struct reference *r;
    int start, end, vocab;
};

static lily_status compare_row(void *ctx, int row, const float *logits, struct lily_err *err)
{
    struct comparing *k = ctx;
    int i = k->start + row;
    (void)err;
    comparison_add(k->c, k->r, i, row, i + 1 == k->end, logits, k->vocab);
    return LILY_OK;
}

static int longest(const struct reference *r)
{
    int most = 0;
    for (int s = 0; s < r->n_sequences; s++) {
        int n = reference_end(r, s) - r->starts[s];
        if (n > most) most = n;
    }
    return most;
}

static lily_status read_all(struct bundle *b, const struct reference *r, struct comparison *c, struct lily_err *err)
{
    struct progress bar;
    lily_status st = LILY_OK;
    progress_begin(&bar, "reading", r->n, "token");
    for (int s = 0; s < r->n_sequences && st == LILY_OK; s++) {
        struct comparing k = {c, r, r->starts[s], reference_end(r, s), b->config.shape.vocab};
        struct score_request q = {r->ids + k.start, k.end - k.start, 0, interrupt_flag(), compare_row, &k};
        st = score_sequence(b->model, &q, err);
        progress_at(&bar, k.end);
    }
    progress_end(&bar);
    return st;
}

static double change(const struct compare_bucket *b)
{
    return compare_perplexity(b, true) / compare_perplexity(b, false) - 1;
}

static struct json *bucket_json(const struct compare_bucket *b)
{
    struct json *v = json_new_object();
    json_put(v, "from", json_new_int(b->lo));
    json_put(v, "to", json_new_int(b->hi));
    json_put(v, "rows", json_new_int(b->n_top));
    json_put(v, "perplexity", json_new_double(compare_perplexity(b, true)));
    json_put(v, "reference_perplexity", json_new_double(compare_perplexity(b, false)));
    json_put(v, "difference_percent", json_new_double(100 * change(b)));
    json_put(v, "same_top", json_new_double((double)b->same / b->n_top));
    json_put(v, "kl", json_new_double(b->kl / b->n_top));
    return v;
}

static void print_as_json(const struct comparison *c, double kl99, const bool *pass)
{
    struct json *v = bucket_json(&c->all), *list = json_new_array();
    json_put(v, "kl_p99", json_new_double(kl99));
    for (int i = 0; i < COMPARE_BUCKETS; i++)
        if (c->bucket[i].n_top) json_add(list, bucket_json(&c->bucket[i]));
    json_put(v, "by_position", list);
    if (pass) json_put(v, "pass", json_new_bool(*pass));
    print_json(v);
}

static void print_row(const struct compare_bucket *b, const char *name)
{
    printf("%-14s %7d %12.5f %12.5f %+10.5f%% %9.3f%% %11.3g\n", name, b->n_top, compare_perplexity(b, true),
           compare_perplexity(b, false), 100 * change(b), 100.0 * b->same / b->n_top, b->kl / b->n_top);
}

static void print_table(const struct comparison *c, double kl99)
{
    char name[32];
    printf("%-14s %7s %12s %12s %11s %10s %11s\n", "position", "rows", "perplexity", "reference", "difference", "same top", "mean KL");
    for (int i = 0; i < COMPARE_BUCKETS; i++) {
        if (!c->bucket[i].n_top) continue;
        snprintf(name, sizeof name, "%d-%d", c->bucket[i].lo, c->bucket[i].hi - 1);
        print_row(&c->bucket[i], name);
    }
    print_row(&c->all, "all");
    printf("99th percentile of KL: %.3g nats\n", kl99);
}

/* Compares and prints; passed: NULL, or whether the pass line is held is put there. */
static lily_status compare(struct eval_args *a, const char *path, bool *passed, struct lily_err *err)
{
    struct bundle b;
    struct reference r;
    struct comparison c;
    LILY_TRY(model_texts(&a->model, &b, err));
    lily_status st = reference_read(path, b.config.shape.vocab, &r, err);
    if (st == LILY_ERR_FORMAT && !err->hint[0]) err_hint(err, "a reference is what lily eval record FILE --out REF has written");
    if (st == LILY_OK) {
        if (!a->model.ctx) a->model.ctx = longest(&r) < GRID ? GRID : longest(&r);
        st = model_weights(&a->model, 0, &b, err);
        if (st == LILY_OK) st = comparison_new(&r, &c, err);
        if (st == LILY_OK) {
            st = read_all(&b, &r, &c, err);
            if (st == LILY_OK) {
                double kl99 = compare_kl_percentile(&c, 0.99);
                if (passed)
                    *passed = c.all.same >= quick_same * c.all.n_top && fabs(change(&c.all)) <= quick_perplexity &&
                              c.all.kl / c.all.n_top <= quick_kl;
                if (a->common.json) print_as_json(&c, kl99, passed);
                else print_table(&c, kl99);
            }
            comparison_free(&c);
        }
        reference_free(&r);
    }
    bundle_close(&b);
    return st;
}

lily_status eval_compare(struct eval_args *a, const char *reference, struct lily_err *err)
{
    return compare(a, reference, NULL, err);
}

lily_status eval_quick(struct eval_args *a, struct lily_err *err)
{
    struct buf dir = {0}, path = {0};
    bool passed = false;
    lily_status st = LILY_OK;
    if (a->model.dir) {
        buf_addz(&dir, a->model.dir);
    } else if (!model_find_demo(&dir)) {
        st = err_set(err, LILY_ERR_IO, "the demo model is not installed");
        err_hint(err, "name its folder with -m");
    }
    if (st == LILY_OK) {
        a->model.dir = buf_str(&dir);
        file_join(&path, buf_str(&dir), "reference.safetensors");
        st = compare(a, buf_str(&path), &passed, err);
    }
    if (st == LILY_OK && !a->common.json)
        printf("%s: the line is %.1f%% same top token, %.1f%% of perplexity, a mean KL of %g\n", passed ? "PASS" : "FAIL",
               100 * quick_same, 100 * quick_perplexity, quick_kl);
    if (st == LILY_OK && !passed) {
        st = LILY_ERR_FORMAT;
        if (!a->common.json) err_set(err, st, "%s: too far from its reference", buf_str(&dir));
    }
    a->model.dir = NULL;
    buf_free(&dir);
    buf_free(&path);
    return st;
}
