/* lily synth: writes a synthetic checkpoint of the published layout. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "base/size.h"
#include "commands.h"
#include "load/synth_write.h"
#include "text/standin.h"

struct synth_args {
    struct common_args common;
    enum synth_preset preset;
    const char *out;       /* folder, or "-" */
    const char *tokenizer; /* tokenizer.json to take; NULL: the stand-in */
    int seed, threads;
};

static void init(void *args)
{
    struct synth_args *a = args;
    a->seed = 1;
}

static lily_status take_preset(void *values, const char *text, struct lily_err *err)
{
    struct synth_args *a = values;
    if (synth_preset_parse(text, &a->preset)) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no preset; expected 35b, demo or tiny", text);
}

/* Nothing is written over, and nothing is begun that cannot end. */
static lily_status check_folder(const struct synth_plan *p, const char *dir, struct lily_err *err)
{
    static const char *const names[] = {"config.json", "model.safetensors", "model.safetensors.index.json"};
    struct buf path = {0};
    struct statvfs fs;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        file_join(&path, dir, names[i]);
        bool there = file_exists(path.data);
        buf_free(&path);
        if (!there) continue;
        err_set(err, LILY_ERR_USAGE, "%s: holds a model already (%s)", dir, names[i]);
        err_hint(err, "give another folder to --out, or empty this one");
        return LILY_ERR_USAGE;
    }
    if (statvfs(dir, &fs) != 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot ask for the free space: %s", dir, strerror(errno));
    double room = (double)fs.f_bavail * (double)fs.f_frsize;
    if (room < (double)p->bytes + 64e6)
        LILY_FAIL(err, LILY_ERR_IO, "%s: %s are free, %s are needed", dir, SIZE_TEXT(room), SIZE_TEXT((double)p->bytes + 64e6));
    return LILY_OK;
}

static lily_status write_text(const char *dir, const char *name, const struct buf *text, struct lily_err *err)
{
    struct buf path = {0};
    file_join(&path, dir, name);
    lily_status st = file_write_shared(path.data, buf_str(text), text->len, err);
    buf_free(&path);
    return st;
}

static lily_status write_texts(const struct synth_plan *p, const struct synth_args *a, struct lily_err *err)
{
    struct buf index = {0}, tokenizer = {0};
    lily_status st;
    synth_index(p, NULL, 0, 0, &index);
    LILY_TRY_GOTO(write_text(a->out, "model.safetensors.index.json", &index, err), out);
    if (a->tokenizer) LILY_TRY_GOTO(file_read(a->tokenizer, MAX_INPUT_BYTES, &tokenizer, err), out);
    else standin_tokenizer(p->config.shape.vocab, p->first_added, &tokenizer);
    LILY_TRY_GOTO(write_text(a->out, "tokenizer.json", &tokenizer, err), out);
    LILY_TRY_GOTO(write_text(a->out, "generation_config.json", &p->generation_text, err), out);
    LILY_TRY_GOTO(write_text(a->out, "config.json", &p->config_text, err), out); /* last: a folder with it is complete */
out:
    buf_free(&index);
    buf_free(&tokenizer);
    return st;
}

static lily_status write_folder(const struct synth_plan *p, const struct synth_args *a, struct pool *pool, struct lily_err *err)
{
    LILY_TRY(file_make_shared_dirs(a->out, err));
    LILY_TRY(check_folder(p, a->out, err));
    LILY_TRY(synth_write_shards(p, a->out, pool, err));
    return write_texts(p, a, err);
}

static void report(const struct synth_plan *p, const struct synth_args *a, double ms)
{
    double rate = (double)p->bytes / (ms / 1e3 + 1e-9);
    bool stream = strcmp(a->out, "-") == 0;
    if (a->common.json && !stream) {
        struct json *top = json_new_object();
        json_put(top, "dir", json_new_string(a->out));
        json_put(top, "preset", json_new_string(synth_preset_name(p->preset)));
        json_put(top, "seed", json_new_int(a->seed));
        json_put(top, "tensors", json_new_int(p->n_tensors));
        json_put(top, "bytes", json_new_int(p->bytes));
        json_put(top, "ms", json_rounded(ms));
        print_json(top);
        return;
    }
    log_note("%s: %d tensors, %s in %.1f s (%s/s)", stream ? "stdout" : a->out, p->n_tensors, SIZE_TEXT(p->bytes), ms / 1e3, SIZE_TEXT(rate));
}

static lily_status check_args(const struct synth_args *a, struct lily_err *err)
{
    if (!a->out || !*a->out) {
        err_set(err, LILY_ERR_USAGE, "synth: --out is missing");
        err_hint(err, "--out DIR writes a model folder, --out - the bytes of the shards to stdout");
        return LILY_ERR_USAGE;
    }
    bool stream = strcmp(a->out, "-") == 0;
    if (stream && a->tokenizer) LILY_FAIL(err, LILY_ERR_USAGE, "synth: --out - writes the shards only: --tokenizer has no place in them");
    if (stream && a->common.json) LILY_FAIL(err, LILY_ERR_USAGE, "synth: --out - writes the shards to stdout: --json has no place there");
    if (stream && isatty(STDOUT_FILENO)) LILY_FAIL(err, LILY_ERR_USAGE, "synth: stdout is a terminal: pipe it, or give --out DIR");
    return LILY_OK;
}

static lily_status run_synth(void *args, int n, char **words, struct lily_err *err)
{
    const struct synth_args *a = args;
    struct synth_plan plan;
    struct pool *pool;
    (void)n;
    (void)words;
    LILY_TRY(check_args(a, err));
    LILY_TRY(pool_create(a->threads ? a->threads : cpu_count(), &pool, err));
    lily_status st = synth_plan_make(a->preset, (uint64_t)a->seed, &plan, err);
    if (st != LILY_OK) {
        pool_free(pool);
        return st;
    }
    double start = clock_ms();
    st = strcmp(a->out, "-") == 0 ? synth_write_stream(&plan, STDOUT_FILENO, "stdout", pool, err) : write_folder(&plan, a, pool, err);
    if (st == LILY_OK) report(&plan, a, clock_ms() - start);
    synth_plan_free(&plan);
    pool_free(pool);
    return st;
}

#define AT(field) offsetof(struct synth_args, field)
static const struct opt options[] = {
    {"preset", 0, "NAME", "35b (the published shapes, 19.5 GB), demo or tiny (default: 35b)", OPT_TAKE, 0, 0, 0, take_preset},
    {"out", 'o', "DIR", "the new model folder, or - for the shards' bytes on stdout, one after another", OPT_TEXT, AT(out), 0, 0, NULL},
    {"tokenizer", 0, "FILE", "a tokenizer.json to put into the folder (default: single bytes, and a word for every other id)",
     OPT_TEXT, AT(tokenizer), 0, 0, NULL},
    {"seed", 0, "N", "another seed gives other weights (default: 1)", OPT_INT, AT(seed), 0, 2147483647, NULL},
    {"threads", 0, "N", "threads (default: every processor)", OPT_INT, AT(threads), 1, 256, NULL},
};
static const struct opt_group group = {"Synthetic model", options, (int)(sizeof options / sizeof options[0])};

const struct command cmd_synth = {
    .name = "synth",
    .usage = "",
    .summary = "write a model of random weights, for measurements",
    .about = "Writes a checkpoint with the tensor names, types, order and shards of the\n"
             "published one, and random weights: the speed and memory of the real model, and\n"
             "no sense in its answers. The same preset and seed give the same bytes on every\n"
             "machine. `lily bench --synthetic 35b` needs no such folder.\n"
             "With --json: {dir, preset, seed, tensors, bytes, ms}.",
    .uses = {{&group, 0}, {&opts_json, offsetof(struct synth_args, common)}},
    .args_size = sizeof(struct synth_args),
    .init = init,
    .run = run_synth,
};
