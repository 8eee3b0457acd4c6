/* lily info: the model, the memory plan, the machine, without loading any weights. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/safe.h"
#include "base/log.h"
#include "base/size.h"
#include "commands.h"
#include "model/packing.h"
#include "model_args.h"

struct info_args {
    struct common_args common;
    struct model_args model;
};

static void init(void *args)
{
    struct info_args *a = args;
    model_args_init(&a->model);
}

/* Weights of the model, and those that one token uses (all but the routed experts that it does not choose, and the embedding). */
struct counts {
    double total, active;
};

static struct counts count_weights(const struct model_shape *s)
{
    double h = s->hidden, conv = shape_conv_dim(s), value = shape_gdn_value_dim(s), q = s->n_q_heads * HEAD_DIM,
           kv = s->n_kv_heads * HEAD_DIM;
    double linear = h * (conv + value + 2 * s->n_gdn_v_heads) + conv * CONV_WIDTH + 2 * s->n_gdn_v_heads + GDN_DIM + value * h;
    double full = h * (2 * q + 2 * kv) + q * h + 2 * HEAD_DIM;
    double expert = 3 * h * s->expert_dim, shared = 3 * h * s->shared_dim + h + h * s->n_experts + 2 * h;
    double dense = s->n_linear * linear + s->n_full * full + s->n_layers * shared + h, table = (double)s->vocab * h;
    return (struct counts){dense + s->n_layers * s->n_experts * expert + 2 * table,
                           dense + s->n_layers * EXPERTS_PER_TOKEN * expert + table};
}

static size_t total_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

static struct json *model_json(const struct bundle *b)
{
    const struct model_config *c = &b->config;
    const struct model_shape *s = &c->shape;
    struct counts n = count_weights(s);
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        {"layers", s->n_layers},           {"full_attention_layers", s->n_full},
        {"hidden", s->hidden},             {"q_heads", s->n_q_heads},
        {"kv_heads", s->n_kv_heads},       {"gdn_k_heads", s->n_gdn_k_heads},
        {"gdn_v_heads", s->n_gdn_v_heads}, {"experts", s->n_experts},
        {"experts_per_token", EXPERTS_PER_TOKEN}, {"vocab", s->vocab},
        {"tokens", b->n_tokens},           {"context", s->max_positions},
        {"weights", (int64_t)n.total},     {"weights_per_token", (int64_t)n.active},
        {"bits", c->quant_default.bits},
    };
    struct json *v = json_new_object(), *eos = json_new_array(), *defaults = json_new_object();
    json_put(v, "dir", json_new_string(b->dir));
    json_put(v, "type", json_new_string(c->model_type));
    json_put(v, "template", json_new_string(b->version == TEMPLATE_QWEN35 ? "qwen3.5" : "qwen3.6"));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) json_put(v, numbers[i].key, json_new_int(numbers[i].value));
    for (int i = 0; i < c->n_eos; i++) json_add(eos, json_new_int(c->eos[i]));
    json_put(v, "eos", eos);
    json_put(defaults, "temperature", json_new_double(c->temperature));
    json_put(defaults, "top_k", json_new_int(c->top_k));
    json_put(defaults, "top_p", json_new_double(c->top_p));
    json_put(v, "defaults", defaults);
    return v;
}

static struct json *plan_json(const struct memory_plan *p, bool fits)
{
    struct json *v = json_new_object();
    json_put(v, "weights", json_new_int((int64_t)p->weights));
    json_put(v, "kv", json_new_int((int64_t)p->kv));
    json_put(v, "borders", json_new_int((int64_t)p->borders));
    json_put(v, "scratch", json_new_int((int64_t)p->scratch));
    json_put(v, "total", json_new_int((int64_t)p->total));
    json_put(v, "limit", json_new_int((int64_t)p->limit));
    json_put(v, "ctx", json_new_int(p->ctx));
    json_put(v, "fits", json_new_bool(fits));
    return v;
}

static struct json *machine_json(void)
{
    char name[128];
    struct json *v = json_new_object(), *tiers = json_new_array();
    cpu_model_name(name, sizeof name);
    json_put(v, "cpu", json_new_string(name));
    json_put(v, "processors", json_new_int(cpu_count()));
    for (int i = 0; i < CPU_TIERS; i++)
        if (cpu_tier_runs((enum cpu_tier)i)) json_add(tiers, json_new_string(cpu_tier_name((enum cpu_tier)i)));
    json_put(v, "tiers", tiers);
    json_put(v, "tier", json_new_string(cpu_tier_name(cpu_best_tier())));
    json_put(v, "memory", json_new_int((int64_t)total_memory()));
    json_put(v, "memory_available", json_new_int((int64_t)plan_available_memory()));
    return v;
}

/* A number of weights: "34.7 B", "24.1 M" */
static const char *weights_text(char out[32], double n)
{
    if (n >= 1e9) snprintf(out, 32, "%.1f B", n / 1e9);
    else snprintf(out, 32, "%.1f M", n / 1e6);
    return out;
}

static void print_model(const struct bundle *b)
{
    const struct model_config *c = &b->config;
    const struct model_shape *s = &c->shape;
    struct counts n = count_weights(s);
    char total[32], active[32], bits[32] = "not quantized";
    if (c->quant_default.bits) snprintf(bits, sizeof bits, "%d bits", c->quant_default.bits);
    puts("Model");
    printf("  folder      ");
    print_text(b->dir, strlen(b->dir));
    printf("\n  type        %s, template of %s\n", c->model_type, b->version == TEMPLATE_QWEN35 ? "Qwen3.5" : "Qwen3.6");
    printf("  weights     %s, of which a token uses %s; %s\n", weights_text(total, n.total), weights_text(active, n.active), bits);
    printf("  layers      %d of width %d: %d gated delta, %d full attention\n", s->n_layers, s->hidden, s->n_linear, s->n_full);
    printf("  experts     %d, of which a token uses %d and a shared one\n", s->n_experts, EXPERTS_PER_TOKEN);
    printf("  vocabulary  %d rows, %d tokens\n", s->vocab, b->n_tokens);
    printf("  context     %d tokens\n", s->max_positions);
    printf("  sampling    temperature %g, top-k %d, top-p %g\n", c->temperature, c->top_k, c->top_p);
}

/* The packed file that a run would map; empty: none. A plan is printed for weights that are not there yet, too, with a warning. */
static void find_packed(const struct info_args *a, const struct bundle *b, struct buf *out)
{
    struct checkpoint *ck;
    struct lily_err err = {0};
    bool named = a->model.packed != NULL;
    buf_clear(out);
    if (named && strcmp(a->model.packed, "none") != 0) buf_addz(out, a->model.packed);
    if (checkpoint_open(b->dir, &b->config, &ck, &err) != LILY_OK) {
        log_warn("a run of this model would fail: %s", err.msg);
        return;
    }
    if (checkpoint_check(ck, &b->config, &err) != LILY_OK) log_warn("a run of this model would fail: %s", err.msg);
    else if (!named) packing_find(ck, b->dir, out);
    checkpoint_close(ck);
}

static void print_packed(const struct buf *packed)
{
    printf("  packed file  ");
    if (packed->len) print_text(packed->data, packed->len);
    puts(packed->len ? "" : "none: weights are packed while loading (lily pack makes one)");
}

static void print_plan(const struct memory_plan *p, bool fits)
{
    const struct {
        const char *name;
        size_t bytes;
    } rows[] = {{"weights", p->weights}, {"kv", p->kv},       {"saved states", p->borders},
                {"scratch", p->scratch}, {"total", p->total}, {"limit", p->limit}};
    printf("\nMemory plan for %d tokens of context\n", p->ctx);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) printf("  %-12s %10s\n", rows[i].name, SIZE_TEXT(rows[i].bytes));
    if (!fits) puts("  It does not fit: lower --ctx, free memory, or raise --memory-limit.");
}

static void print_machine(void)
{
    char name[128];
    cpu_model_name(name, sizeof name);
    printf("\nMachine\n  processor   %s, %d usable\n  tiers      ", name, cpu_count());
    for (int i = 0; i < CPU_TIERS; i++)
        if (cpu_tier_runs((enum cpu_tier)i)) printf(" %s", cpu_tier_name((enum cpu_tier)i));
    printf("\n  memory      %s, %s available\n", SIZE_TEXT(total_memory()), SIZE_TEXT(plan_available_memory()));
}

static lily_status run_info(void *args, int n, char **words, struct lily_err *err)
{
    const struct info_args *a = args;
    struct bundle b;
    struct plan_want want;
    struct memory_plan plan;
    (void)n;
    (void)words;
    LILY_TRY(model_texts(&a->model, &b, err));
    model_plan_want(&a->model, &b.config, 0, &want);
    lily_status st = plan_make(&b.config, &want, &plan, err);
    struct buf packed = {0};
    find_packed(a, &b, &packed);
    if (st == LILY_OK || st == LILY_ERR_MEMORY) {
        bool fits = st == LILY_OK;
        st = LILY_OK;
        if (a->common.json) {
            struct json *top = json_new_object();
            struct json *model = model_json(&b);
            json_put(model, "packed", packed.len ? json_new_string(packed.data) : json_new_null());
            json_put(top, "model", model);
            json_put(top, "plan", plan_json(&plan, fits));
            json_put(top, "machine", machine_json());
            print_json(top);
        } else {
            print_model(&b);
            print_plan(&plan, fits);
            print_packed(&packed);
            print_machine();
        }
    }
    buf_free(&packed);
    bundle_close(&b);
    return st;
}

const struct command cmd_info = {
    .name = "info",
    .usage = "",
    .summary = "show the model, the memory it needs, and the machine",
    .about = "Shows the model, what it would keep in memory, and what this machine offers,\n"
             "without loading any weights. With --json: {model, plan: {weights, kv, borders,\n"
             "scratch, total, limit, ctx, fits}, machine}; sizes in bytes; the model's packed\n"
             "is the packed file that a run would map, or null.",
    .uses = {{&opts_model, offsetof(struct info_args, model)}, {&opts_json, offsetof(struct info_args, common)}},
    .args_size = sizeof(struct info_args),
    .init = init,
    .run = run_info,
};
