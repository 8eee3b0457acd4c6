/* Golden data and traced model runs. */
#include "support/golden.h"

#include "unit/testing.h"

#include <math.h>

void golden_open(struct golden *g, const char *path)
{
    struct lily_err err = {0};
    assert_ok(file_map_open(path, &g->map, &err));
    assert_ok(safetensors_parse_header(g->map.data, g->map.size, path, &g->file, &err));
}

void golden_close(struct golden *g)
{
    safetensors_free(&g->file);
    file_map_close(&g->map);
}

static void *copy_array(const struct golden *g, const char *name, enum dtype dtype, int *n)
{
    const struct tensor_view *t = safetensors_find(&g->file, name);
    *n = 0;
    if (!t) return NULL;
    if (t->dtype != dtype) fail_msg("%s: another dtype than expected", name);
    void *p = malloc(t->bytes);
    assert_non_null(p);
    memcpy(p, t->data, t->bytes);
    *n = (int)(t->bytes / 4);
    return p;
}

int32_t *golden_ints(const struct golden *g, const char *name, int *n)
{
    return copy_array(g, name, DTYPE_I32, n);
}

float *golden_floats(const struct golden *g, const char *name, int *n)
{
    return copy_array(g, name, DTYPE_F32, n);
}

double relative_error(const float *got, const float *want, int n)
{
    double worst = 0, ss = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        if (!(d <= worst)) worst = d; /* NaN counts as worst */
        ss += (double)want[i] * (double)want[i];
    }
    return worst / sqrt(ss / n + 1e-300);
}

struct observer {
    struct trace *trace;
    int first, rows, hidden;
};

static void record(void *ctx, struct backend *be, int layer)
{
    struct observer *o = ctx;
    size_t at = ((size_t)(layer + 1) * (size_t)o->trace->n + (size_t)o->first) * (size_t)o->hidden;
    be->ops->step.read_hidden(be, o->trace->hidden + at);
}

void trace_model(struct model *m, const int32_t *ids, int n, struct traced_run run, struct trace *out)
{
    struct lily_err err = {0};
    struct backend *be = model_backend(m);
    const struct model_shape *s = model_shape(m);
    struct seq *seq;
    out->n = n;
    out->hidden = malloc(sizeof(float) * (size_t)(s->n_layers + 1) * (size_t)n * (size_t)s->hidden);
    out->logits = malloc(sizeof(float) * (size_t)n * (size_t)shape_logits_ld(s));
    int32_t *rows = malloc(sizeof *rows * (size_t)run.piece);
    assert_non_null(out->hidden);
    assert_non_null(out->logits);
    assert_non_null(rows);
    for (int i = 0; i < run.piece; i++) rows[i] = i;
    assert_ok(be->ops->seq_new(be, &seq, &err));
    for (int at = 0; at < n; at += run.piece) {
        int k = n - at < run.piece ? n - at : run.piece;
        assert_ok(be->ops->seq_reserve(be, seq, k, &err));
        struct batch_seq bs = {seq, k};
        struct batch b = {.phase = run.phase, .n_seqs = 1, .seqs = &bs, .n_rows = k, .ids = ids + at, .n_logits = k,
                          .logit_rows = rows, .logits = out->logits + (size_t)at * (size_t)shape_logits_ld(s)};
        struct observer o = {out, at, k, s->hidden};
        struct forward_observer fo = {record, &o, NULL};
        assert_ok(model_forward(m, &b, &fo, &err));
    }
    be->ops->seq_free(be, seq);
    free(rows);
}

void trace_free(struct trace *t)
{
    free(t->hidden);
    free(t->logits);
}

const float *trace_hidden(const struct trace *t, const struct model *m, int layer, int row)
{
    return t->hidden + ((size_t)layer * (size_t)t->n + (size_t)row) * (size_t)model_shape(m)->hidden;
}

const float *trace_logits(const struct trace *t, const struct model *m, int row)
{
    return t->logits + (size_t)row * (size_t)shape_logits_ld(model_shape(m));
}

struct model *open_model(const char *dir, enum cpu_tier tier, int threads, bool kv_f32)
{
    struct lily_err err = {0};
    struct model_options o;
    struct model *m = NULL;
    model_options_init(&o);
    o.tier = tier;
    o.threads = threads;
    const char *device = getenv("LILY_TEST_DEVICE");
    if (device) assert_true(model_device_parse(device, &o.device, &o.card));
    o.plan.kv_f32 = kv_f32;
    o.plan.ctx = 2048;
    o.plan.n_seqs = 8;
    o.plan.border_bytes = 64 << 20;
    assert_ok(model_open(dir, &o, &m, &err));
    return m;
}
