/* Options of a model, and opening it. */
#include "model_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


void model_args_init(struct model_args *a)
{
    memset(a, 0, sizeof *a);
    a->tier = cpu_best_tier();
}

static lily_status take_device(void *values, const char *text, struct lily_err *err)
{
    struct model_args *a = values;
    if (model_device_parse(text, &a->device, &a->card)) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no device; expected auto, cpu, cuda or cuda:N", text);
}

static lily_status take_tier(void *values, const char *text, struct lily_err *err)
{
    struct model_args *a = values;
    if (cpu_tier_parse(text, &a->tier)) return LILY_OK;
    struct buf names = {0};
    for (int i = 0; i < CPU_TIERS; i++) buf_printf(&names, "%s%s", i ? ", " : "", cpu_tier_name((enum cpu_tier)i));
    err_set(err, LILY_ERR_USAGE, "\"%.60s\" is no CPU tier; expected one of %s", text, buf_str(&names));
    buf_free(&names);
    return LILY_ERR_USAGE;
}

static lily_status take_kv(void *values, const char *text, struct lily_err *err)
{
    struct model_args *a = values;
    a->kv_f32 = strcmp(text, "f32") == 0;
    if (a->kv_f32 || strcmp(text, "bf16") == 0) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no cache type; expected bf16 or f32", text);
}

#define AT(field) offsetof(struct model_args, field)
#define DIR_OPTION                                                                                                     \
    {"model", 'm', "DIR",                                                                                              \
     "checkpoint folder, or OWNER/NAME of a pulled model (default: $LILY_MODEL, else the newest pulled one, else the demo model)", OPT_TEXT, AT(dir), 0, 0, NULL}

static const struct opt dir_options[] = {DIR_OPTION};
static const struct opt options[] = {
    DIR_OPTION,
    {"ctx", 0, "N", "tokens of context (default: what the model allows, at most 32768, and what fits in memory)", OPT_INT, AT(ctx),
     64, 1 << 24, NULL},
    {"threads", 0, "N", "compute threads (default: every processor)", OPT_INT, AT(threads), 1, 256, NULL},
    {"device", 0, "NAME", "auto, cpu, cuda or cuda:N (default: auto)", OPT_TAKE, 0, 0, 0, take_device},
    {"cpu-tier", 0, "NAME", "highest instruction set to use: scalar, avx2, avx512, amx, neon (default: the best here)", OPT_TAKE, 0, 0, 0,
     take_tier},
    {"kv", 0, "TYPE", "numbers in the attention cache: bf16, or f32 for twice the memory (default: bf16)", OPT_TAKE, 0, 0, 0, take_kv},
    {"fast", 0, NULL,
     "read prompts faster with small errors: products round to 8 bits in chosen experts and parts of delta rule layers, or to bf16 with AMX; the measured cost is told "
     "at the start",
     OPT_ON, AT(fast), 0, 0, NULL},
    {"packed", 0, "FILE", "the packed file to map; none: pack in memory (default: the one that lily pack made, if it matches)",
     OPT_TEXT, AT(packed), 0, 0, NULL},
    {"memory-limit", 0, "SIZE", "refuse to use more memory than this, as in 24G (default: what is free)", OPT_SIZE, AT(memory_limit),
     1, 0, NULL},
};
const struct opt_group opts_dir = {"Model", dir_options, 1};
const struct opt_group opts_model = {"Model", options, (int)(sizeof options / sizeof options[0])};

void model_plan_want(const struct model_args *a, const struct model_config *c, int borders, struct plan_want *want)
{
    memset(want, 0, sizeof *want);
    want->ctx = a->ctx;
    want->n_seqs = 1;
    want->kv_f32 = a->kv_f32;
    want->limit = a->memory_limit;
    want->border_bytes = bundle_border_bytes(c, borders);
}

lily_status model_texts(const struct model_args *a, struct bundle *out, struct lily_err *err)
{
    struct buf dir = {0};
    memset(out, 0, sizeof *out);
    lily_status st = model_find(a, &dir, err);
    if (st == LILY_OK) st = bundle_open(buf_str(&dir), out, err);
    buf_free(&dir);
    return st;
}

/* What the fast mode costs on this processor, as tests/golden/test_demo measures it. */
void model_tell_fast(const struct model_args *a)
{
    if (!a->fast) return;
    if (a->tier == CPU_AMX && cpu_tier_runs(a->tier))
        fputs("lily: fast mode: prompts are read in bf16, but in the first layer. The demo\n"
              "model over 2,000 tokens: KL at most 0.0011 against exact, the same most likely\n"
              "token on 98.8%, perplexity within 0.4%\n",
              stderr);
    else
        fputs("lily: fast mode: prompts are read in 8 bits where that costs least. The demo\n"
              "model over 2,000 tokens: KL at most 0.0017 against exact, the same most likely\n"
              "token on 98.8%, perplexity within 0.05%; other text, at worst: 0.0019, 97.4%\n",
              stderr);
}

void model_args_options(const struct model_args *a, struct model_options *o)
{
    model_options_init(o);
    o->threads = a->threads;
    o->tier = a->tier;
    o->device = a->device;
    o->card = a->card;
    o->fast = a->fast;
    o->packed = a->packed;
    o->plan.kv_f32 = a->kv_f32;
    o->identify = a->identify;
    o->plan.limit = a->memory_limit;
}

lily_status model_weights(const struct model_args *a, int borders, struct bundle *b, struct lily_err *err)
{
    struct model_options o;
    model_tell_fast(a);
    model_args_options(a, &o);
    model_plan_want(a, &b->config, borders, &o.plan);
    return bundle_load(b, &o, err);
}
