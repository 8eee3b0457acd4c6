/* lily eval choice: multiple-choice questions, answered by the likelihood of each ending. */
#include "eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "interrupt.h"
#include "run/score.h"
#include "sample/sampler.h"

enum { MAX_ENDINGS = 26 };

/* One question as the model reads it: what comes before, and the endings. */
struct question {
    struct buf context;             /* owned */
    struct buf endings[MAX_ENDINGS]; /* owned */
    int n, right;
};

static void question_free(struct question *q)
{
    buf_free(&q->context);
    for (int i = 0; i < MAX_ENDINGS; i++) buf_free(&q->endings[i]);
}

struct totals {
    int n, right, right_by_length;
};

/* A label: an index, its digits, or a letter. -1: none of these. */
static int label_of(const struct json *v)
{
    if (!v) return -1;
    if (json_kind(v) == JSON_INTEGER && json_int(v) >= 0 && json_int(v) < MAX_ENDINGS) return (int)json_int(v);
    if (json_kind(v) != JSON_STRING) return -1;
    const char *s = json_string(v);
    if (s[0] >= '0' && s[0] <= '9' && strspn(s, "0123456789") == strlen(s) && strlen(s) < 3) return (int)strtol(s, NULL, 10);
    if (s[0] >= 'A' && s[0] <= 'Z' && !s[1]) return s[0] - 'A';
    return -1;
}

static const struct json *first_of(const struct json *v, const char *a, const char *b)
{
    const struct json *found = json_get(v, a);
    return found ? found : json_get(v, b);
}

/* The HellaSwag shape goes on with an ending; the MMLU shape lists the choices and goes on with a letter. */
static lily_status read_question(const struct json *v, const char *what, struct question *q, struct lily_err *err)
{
    const struct json *ctx = first_of(v, "ctx", "context"), *question = json_get(v, "question");
    const struct json *list = first_of(v, "endings", "choices"), *label = first_of(v, "label", "answer");
    bool letters = !ctx && question;
    const struct json *text = ctx ? ctx : question;
    q->right = label_of(label);
    if (!text || json_kind(text) != JSON_STRING || !list || json_kind(list) != JSON_ARRAY)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: expected {\"ctx\", \"endings\", \"label\"} or {\"question\", \"choices\", \"answer\"}", what);
    q->n = json_size(list) <= MAX_ENDINGS ? (int)json_size(list) : MAX_ENDINGS + 1;
    if (q->n < 2 || q->n > MAX_ENDINGS) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %zu endings, expected 2 to %d", what, json_size(list), MAX_ENDINGS);
    if (q->right < 0 || q->right >= q->n)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: the label names none of the %d endings", what, q->n);
    buf_add(&q->context, json_string(text), json_string_len(text));
    for (int i = 0; i < q->n; i++) {
        const struct json *e = json_at(list, (size_t)i);
        if (json_kind(e) != JSON_STRING || !json_string_len(e))
            LILY_FAIL(err, LILY_ERR_FORMAT, "%s: ending %d is %s, expected a text", what, i,
                      json_kind(e) == JSON_STRING ? "empty" : json_kind_name(e));
        if (letters) {
            buf_printf(&q->context, "\n%c. %s", 'A' + i, json_string(e));
            buf_printf(&q->endings[i], " %c", 'A' + i);
        } else {
            buf_printf(&q->endings[i], " %s", json_string(e));
        }
    }
    if (letters) buf_addz(&q->context, "\nAnswer:");
    return LILY_OK;
}

/* The rows that predict an ending's tokens. */
struct scoring {
    const struct ids *ids;
    int vocab;
    double sum;
};

static lily_status add_row(void *ctx, int row, const float *logits, struct lily_err *err)
{
    struct scoring *s = ctx;
    float logprob;
    (void)err;
    if ((size_t)row + 1 == s->ids->n) return LILY_OK;
    logits_logprobs_of(logits, s->vocab, &s->ids->data[row + 1], 1, &logprob);
    s->sum += (double)logprob;
    return LILY_OK;
}

/* ln p of an ending after the context. The two are tokenized as one text; the ending begins where the context's own tokens end. */
static lily_status score_ending(struct bundle *b, const struct question *q, int i, double *out, struct lily_err *err)
{
    struct ids before = {0}, all = {0};
    struct buf text = {0};
    buf_add(&text, buf_str(&q->context), q->context.len);
    buf_add(&text, buf_str(&q->endings[i]), q->endings[i].len);
    lily_status st = tokenizer_encode(b->tokenizer, buf_str(&q->context), q->context.len, &before, err);
    if (st == LILY_OK) st = tokenizer_encode(b->tokenizer, buf_str(&text), text.len, &all, err);
    int first = before.n < 1 ? 0 : before.n < all.n ? (int)before.n - 1 : (int)all.n - 2;
    struct scoring s = {&all, b->config.shape.vocab, 0};
    struct score_request r = {all.data, (int)all.n, first < 0 ? 0 : first, interrupt_flag(), add_row, &s};
    if (st == LILY_OK) st = score_sequence(b->model, &r, err);
    *out = s.sum;
    ids_free(&before);
    ids_free(&all);
    buf_free(&text);
    return st;
}

static lily_status answer(struct bundle *b, const struct question *q, struct totals *t, struct lily_err *err)
{
    int best = 0, best_by_length = 0;
    double score[MAX_ENDINGS];
    for (int i = 0; i < q->n; i++) {
        LILY_TRY(score_ending(b, q, i, &score[i], err));
        size_t n = q->endings[i].len - 1, m = q->endings[best_by_length].len - 1; /* bytes, without the space */
        if (score[i] > score[best]) best = i;
        if (score[i] / (double)n > score[best_by_length] / (double)m) best_by_length = i;
    }
    t->n++;
    t->right += best == q->right;
    t->right_by_length += best_by_length == q->right;
    return LILY_OK;
}

static lily_status answer_line(struct bundle *b, const char *what, const char *line, size_t n, struct totals *t, struct lily_err *err)
{
    struct json *v = NULL;
    struct question q = {.n = 0};
    LILY_TRY(json_parse(line, n, what, &v, err));
    lily_status st = read_question(v, what, &q, err);
    if (st == LILY_OK) st = answer(b, &q, t, err);
    question_free(&q);
    json_free(v);
    return st;
}

static lily_status answer_all(const struct eval_args *a, struct bundle *b, const char *file, const struct buf *text, struct totals *t,
                              struct lily_err *err)
{
    struct progress bar;
    lily_status st = LILY_OK;
    int number = 0;
    progress_begin(&bar, "answering", (double)text->len, "B");
    for (size_t at = 0; at < text->len && st == LILY_OK && (!a->limit || t->n < a->limit);) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->len - at);
        size_t n = end ? (size_t)(end - line) : text->len - at;
        char what[300];
        snprintf(what, sizeof what, "%.240s, line %d", file, ++number);
        if (strspn(line, " \t\r") < n) st = answer_line(b, what, line, n, t, err);
        at += n + 1;
        progress_at(&bar, (double)at);
    }
    progress_end(&bar);
    if (st == LILY_OK && !t->n) st = err_set(err, LILY_ERR_FORMAT, "%s: no question is in it", file);
    if (st == LILY_ERR_FORMAT) err_hint(err, "a line is {\"ctx\", \"endings\", \"label\"} or {\"question\", \"choices\", \"answer\"}: docs/quality.md");
    return st;
}

static void print_share(const char *name, int right, int n)
{
    double p = (double)right / n;
    printf("%-22s %6.2f%% (%d of %d, standard error %.2f%%)\n", name, 100 * p, right, n, 100 * sqrt(p * (1 - p) / n));
}

static void print_totals(const struct eval_args *a, const struct totals *t)
{
    if (!a->common.json) {
        print_share("right", t->right, t->n);
        print_share("right, by length", t->right_by_length, t->n);
        return;
    }
    struct json *v = json_new_object();
    json_put(v, "questions", json_new_int(t->n));
    json_put(v, "right", json_new_int(t->right));
    json_put(v, "right_by_length", json_new_int(t->right_by_length));
    json_put(v, "accuracy", json_new_double((double)t->right / t->n));
    json_put(v, "accuracy_by_length", json_new_double((double)t->right_by_length / t->n));
    print_json(v);
}

lily_status eval_choice(struct eval_args *a, const char *file, struct lily_err *err)
{
    struct bundle b;
    struct buf text = {0};
    struct totals t = {0};
    lily_status st = read_input(file, &text, err);
    if (st == LILY_OK) {
        st = eval_open(a, &b, err);
        if (st == LILY_OK) {
            st = answer_all(a, &b, file, &text, &t, err);
            bundle_close(&b);
        }
    }
    buf_free(&text);
    if (st == LILY_OK) print_totals(a, &t);
    return st;
}
