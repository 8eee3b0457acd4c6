/* lily bench: prefill and decode speed at a list of context lengths. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/resident.h"
#include "base/size.h"
#include "commands.h"
#include "interrupt.h"
#include "load/synth.h"
#include "model/device.h"
#include "model/packing.h"
#include "model/plan.h"
#include "model_args.h"

struct bench_args {
    struct common_args common;
    struct model_args model;
    struct bench_options o;
    enum synth_preset preset;
    bool synthetic;
    bool quick;
    bool on_cpu; /* where the model will run */
    int seed, fill;
    const char *peers, *csv, *markdown, *svg;
};

static const int matrix[] = {256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

static void init(void *args)
{
    struct bench_args *a = args;
    model_args_init(&a->model);
    a->o.prefill = a->o.decode = a->o.warm_up = true;
    a->o.rounds = 2;
    a->o.steps = 64;
    a->seed = 1;
    a->fill = -1;
}

static lily_status take_preset(void *values, const char *text, struct lily_err *err)
{
    struct bench_args *a = values;
    a->synthetic = true;
    if (synth_preset_parse(text, &a->preset)) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no preset; expected 35b, demo or tiny", text);
}

enum { MAX_LENGTH = 1 << 22 };

/* "512,4096,16K" */
static lily_status take_lengths(void *values, const char *text, struct lily_err *err)
{
    struct bench_args *a = values;
    a->o.n_lengths = 0;
    for (const char *p = text; p;) {
        char item[24];
        long long n = 0;
        p += strspn(p, " ");
        size_t len = strcspn(p, ",");
        snprintf(item, sizeof item, "%.*s", len < sizeof item ? (int)len : 0, p);
        if (!count_parse(item, &n) || n < 1)
            LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no list of lengths; expected numbers from 1 to %dM, as in 512,4096,16K", text,
                      MAX_LENGTH >> 20);
        if (n > MAX_LENGTH) LILY_FAIL(err, LILY_ERR_USAGE, "%s tokens are too many; lengths go up to %dM", item, MAX_LENGTH >> 20);
        if (a->o.n_lengths == BENCH_MAX_LENGTHS) LILY_FAIL(err, LILY_ERR_USAGE, "more than %d lengths", BENCH_MAX_LENGTHS);
        a->o.lengths[a->o.n_lengths++] = (int)n;
        p = p[len] ? p + len + 1 : NULL;
    }
    return LILY_OK;
}

static lily_status take_phase(void *values, const char *text, struct lily_err *err)
{
    struct bench_args *a = values;
    a->o.prefill = strcmp(text, "prefill") == 0 || strcmp(text, "both") == 0;
    a->o.decode = strcmp(text, "decode") == 0 || strcmp(text, "both") == 0;
    if (a->o.prefill || a->o.decode) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no phase; expected prefill, decode or both", text);
}

/* ---- the model ---- */

/* What the lengths and the device ask for, where no option says it. */
static void complete(struct bench_args *a)
{
    struct bench_options *o = &a->o;
    if (!o->n_lengths) {
        o->n_lengths = a->on_cpu ? 7 : (int)(sizeof matrix / sizeof matrix[0]);
        memcpy(o->lengths, matrix, sizeof matrix[0] * (size_t)o->n_lengths);
    }
    o->fill_from = a->fill >= 0 ? a->fill : a->on_cpu ? 16384 + 1 : 0;
    o->seed = (uint64_t)a->seed;
    if (a->quick) {
        o->rounds = 1;
        o->warm_up = false;
    }
}

/* The big preset is kept as a packed file, so that only the first run makes it; where it has no room, each run does, in memory. */
static void keep_packed(const struct bench_args *a, const struct model_options *o, const struct synth_plan *plan)
{
    struct checkpoint *ck;
    struct buf path = {0};
    struct pool *pool = NULL;
    struct lily_err err = {0};
    struct memory_plan memory;
    if (a->preset != SYNTH_35B || a->model.packed || !a->on_cpu) return;
    if (plan_make(&plan->config, &o->plan, &memory, NULL) != LILY_OK) return; /* it will be refused: nothing to write for it */
    checkpoint_of_synth(plan, &ck);
    packing_path(ck, &path);
    if (path.len && !file_exists(path.data)) {
        log_note("writing the synthetic model to %s (once, %s; --packed none makes it in memory)", path.data, SIZE_TEXT(plan->bytes));
        lily_status st = pool_create(cpu_count(), &pool, &err);
        if (st == LILY_OK) st = packing_write(ck, &plan->config, path.data, pool, &err);
        if (st != LILY_OK) log_warn("%s; the model is made in memory", err.msg);
        pool_free(pool);
    }
    buf_free(&path);
    checkpoint_close(ck);
}

/* What is measured: a folder, or a synthetic model. */
struct source {
    struct buf name;            /* owned; the folder, or "synthetic 35b, seed 1" */
    struct synth_plan plan;     /* owned; empty for a folder */
    struct model_config config; /* owned; of a folder */
};

static lily_status find_source(const struct bench_args *a, struct source *s, struct lily_err *err)
{
    if (a->synthetic && a->model.dir)
        LILY_FAIL(err, LILY_ERR_USAGE, "bench: --synthetic makes the model that is measured: no --model beside it");
    if (a->synthetic) {
        buf_printf(&s->name, "synthetic %s, seed %d", synth_preset_name(a->preset), a->seed);
        return synth_plan_make(a->preset, (uint64_t)a->seed, &s->plan, err);
    }
    LILY_TRY(model_find(&a->model, &s->name, err));
    return config_load(buf_str(&s->name), &s->config, err);
}

static void source_free(struct source *s)
{
    synth_plan_free(&s->plan);
    config_free(&s->config);
    buf_free(&s->name);
}

/* Which kind of device it will be, before anything is loaded: lengths, filling and peers follow from it. */
static lily_status find_device(struct bench_args *a, const struct source *s, struct lily_err *err)
{
    struct model_options o;
    struct device_choice device;
    model_args_options(&a->model, &o);
    LILY_TRY(device_choose(&o, a->synthetic ? &s->plan.config.shape : &s->config.shape, &device, err));
    a->on_cpu = !device.cuda;
    return LILY_OK;
}

static lily_status open_model(const struct bench_args *a, const struct source *s, struct model **out, struct lily_err *err)
{
    struct model_options o;
    model_tell_fast(&a->model);
    model_args_options(&a->model, &o);
    o.plan.ctx = (bench_context(&a->o) + GRID - 1) / GRID * GRID;
    if (a->synthetic) keep_packed(a, &o, &s->plan);
    lily_status st = a->synthetic ? model_open_synth(&s->plan, &o, out, err) : model_open(s->name.data, &o, out, err);
    const struct model_config *c = a->synthetic ? &s->plan.config : &s->config;
    /* The context follows from the lengths here, not from --ctx. */
    if (o.plan.ctx > c->shape.max_positions) err_hint(err, "give shorter --lengths");
    else if (st == LILY_ERR_MEMORY) err_hint(err, "give shorter --lengths, free memory, or raise --memory-limit");
    return st;
}

/* ---- running ---- */

static void show_progress(void *ctx, int done, int total)
{
    struct progress *bar = ctx;
    if (bar->total <= 0) progress_begin(bar, "measuring", total, "");
    progress_at(bar, done);
}

static void describe(struct bench_report *r)
{
    time_t now = time(NULL);
    struct tm utc;
    struct file_map self;
    strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    cpu_model_name(r->cpu, sizeof r->cpu);
    if (file_map_open("/proc/self/exe", &self, NULL) != LILY_OK) return;
    sha256_of(self.data, self.size, r->binary);
    file_map_close(&self);
}

static lily_status write_form(const char *path, void (*form)(const struct bench_report *, struct buf *), const struct bench_report *r,
                              struct lily_err *err)
{
    struct buf text = {0};
    if (!path) return LILY_OK;
    form(r, &text);
    lily_status st = file_write_named(path, buf_str(&text), text.len, true, err);
    buf_free(&text);
    return st;
}

static lily_status print_report(const struct bench_args *a, const struct bench_report *r, struct lily_err *err)
{
    struct buf text = {0};
    if (a->common.json) {
        print_json(report_json(r));
    } else {
        report_table(r, &text);
        print_text(buf_str(&text), text.len);
        buf_free(&text);
    }
    LILY_TRY(write_form(a->csv, report_csv, r, err));
    LILY_TRY(write_form(a->markdown, report_markdown, r, err));
    return write_form(a->svg, report_svg, r, err);
}

static lily_status measure(const struct bench_args *a, struct bench_report *r, struct lily_err *err)
{
    struct bench_result *result = calloc(1, sizeof *result);
    struct bench_options o = a->o;
    struct progress bar = {0};
    if (!result) LILY_FAIL(err, LILY_ERR_MEMORY, "no memory for the results");
    o.progress = show_progress;
    o.progress_ctx = &bar;
    o.cancel = interrupt_flag();
    r->result = result;
    r->options = &o;
    describe(r);
    interrupt_mode(INTERRUPT_STOPS_ANSWER);
    lily_status st = bench_run(r->model, &o, result, err);
    interrupt_mode(INTERRUPT_ENDS);
    progress_end(&bar);
    const bool stopped = st == LILY_ERR_CANCELLED, any = result->n_rows > 0;
    if (st == LILY_OK || (stopped && any)) st = print_report(a, r, err);
    if (stopped && st == LILY_OK) st = LILY_ERR_CANCELLED;
    if (st == LILY_ERR_CANCELLED) err_set(err, st, "stopped before all was measured%s", any ? "" : ": there is no report");
    if (st == LILY_ERR_CANCELLED && any && a->common.json) err_clear(err); /* the rows' notes say it; a second value would follow the report */
    free(result);
    return st;
}

static lily_status run_source(struct bench_args *a, const struct source *s, const struct peers *peers, struct lily_err *err)
{
    struct bench_report report = {.peers = peers, .model_name = s->name.data, .steps = a->common.verbose};
    double start = clock_ms();
    lily_status st = open_model(a, s, &report.model, err);
    if (st == LILY_OK) {
        report.load_ms = clock_ms() - start;
        report.resident = resident_bytes();
        st = measure(a, &report, err);
    }
    model_close(report.model);
    return st;
}

static lily_status run_bench(void *args, int n, char **words, struct lily_err *err)
{
    struct bench_args *a = args;
    struct peers peers = {0};
    struct source source = {0};
    (void)n;
    (void)words;
    interrupt_init();
    lily_status st = find_source(a, &source, err);
    if (st == LILY_OK) st = find_device(a, &source, err);
    if (st == LILY_OK && a->peers) st = peers_read(a->peers, a->on_cpu ? "cpu" : "cuda", &peers, err);
    if (st == LILY_OK) {
        complete(a);
        st = run_source(a, &source, &peers, err);
    }
    peers_free(&peers);
    source_free(&source);
    return st;
}

#define AT(field) offsetof(struct bench_args, field)
static const struct opt options[] = {
    {"synthetic", 0, "NAME", "a model of random weights: 35b (the published shapes; on a CPU kept as a packed file of 19.5 GB), demo or tiny", OPT_TAKE, 0, 0, 0,
     take_preset},
    {"lengths", 0, "LIST", "tokens of context, as in 512,4096,16K (default: 256 to 128K in doublings; on a CPU to 16K)", OPT_TAKE, 0, 0, 0,
     take_lengths},
    {"phase", 0, "NAME", "prefill, decode or both (default: both)", OPT_TAKE, 0, 0, 0, take_phase},
    {"rounds", 0, "N", "measurements of each length, every second round in reverse order (default: 2)", OPT_INT, AT(o.rounds), 1,
     BENCH_MAX_ROUNDS, NULL},
    {"steps", 0, "N", "decode steps of a measurement (default: 64)", OPT_INT, AT(o.steps), 1, 65536, NULL},
    {"quick", 0, NULL, "one round, no warm-up: nothing is final", OPT_ON, AT(quick), 0, 0, NULL},
    {"fill", 0, "N", "contexts of at least N tokens: decode only, over a cache filled from a seed; 0: none (default: 16385 on a CPU)",
     OPT_INT, AT(fill), 0, 1 << 24, NULL},
    {"seed", 0, "N", "of synthetic weights and filled caches (default: 1)", OPT_INT, AT(seed), 0, 2147483647, NULL},
    {"peers", 0, "FILE", "results of other engines to show beside, as bench/peers.json has them", OPT_TEXT, AT(peers), 0, 0, NULL},
    {"csv", 0, "FILE", "also write a CSV file", OPT_TEXT, AT(csv), 0, 0, NULL},
    {"markdown", 0, "FILE", "also write a Markdown table", OPT_TEXT, AT(markdown), 0, 0, NULL},
    {"verbose", 'v', NULL, "below the table, where the time of each row went: milliseconds a token of each step (JSON always has them)",
     OPT_ON, AT(common.verbose), 0, 0, NULL},
    {"svg", 0, "FILE", "also write a plot: lily, the floor, the peers", OPT_TEXT, AT(svg), 0, 0, NULL},
};
static const struct opt_group group = {"Benchmark", options, (int)(sizeof options / sizeof options[0])};

const struct command cmd_bench = {
    .name = "bench",
    .usage = "",
    .summary = "measure the speed of prefill and decode",
    .about = "One sequence, greedy. Prefill is timed until the first token is out, decode over\n"
             "64 further tokens; loading is outside the clock. Each length is warmed up at its\n"
             "exact shape, then measured in two rounds, the second in reverse order. The floor\n"
             "is what the speeds of memory and of products allow that the same run measures,\n"
             "before the first round and after each: the highest count, since neighbours slow\n"
             "a measurement and nothing quickens it. A product counts for each digit of its\n"
             "activation that the mode multiplies.\n"
             "A number with a question mark is not final: rounds differ by more than 3%,\n"
             "others use the machine, or the machine is slow by itself; the note says which.\n"
             "With --json: {manifest, machine, model, rows: [{phase, context, tokens, tok_s,\n"
             "spread, gb_s, floor_tok_s, share, final, note, ...}]}.",
    .uses = {{&group, 0}, {&opts_model, offsetof(struct bench_args, model)}, {&opts_json, offsetof(struct bench_args, common)}},
    .args_size = sizeof(struct bench_args),
    .init = init,
    .run = run_bench,
};
