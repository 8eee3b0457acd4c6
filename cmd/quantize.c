/* lily quantize: a BF16 checkpoint in the MLX 4-bit layout; or two checkpoints compared. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/size.h"
#include "commands.h"
#include "interrupt.h"
#include "load/convert.h"
#include "quantize_check.h"

struct quantize_args {
    struct common_args common;
    enum quant_rounding rounding;
    int threads;
    bool check;
};

static lily_status take_rounding(void *values, const char *text, struct lily_err *err)
{
    struct quantize_args *a = values;
    a->rounding = strcmp(text, "cpu") == 0 ? ROUNDING_CPU : ROUNDING_GPU;
    if (a->rounding == ROUNDING_CPU || strcmp(text, "gpu") == 0) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no rounding; expected gpu or cpu", text);
}

static void draw(void *ctx, double done, double total)
{
    struct progress *bar = ctx;
    bar->total = total;
    progress_at(bar, done);
}

static lily_status convert(const struct quantize_args *a, char **words, struct lily_err *err)
{
    struct progress bar;
    struct convert_result r;
    struct convert_options o = {a->rounding, a->threads ? a->threads : cpu_count(), interrupt_flag(), draw, &bar};
    double started = clock_ms();
    interrupt_mode(INTERRUPT_STOPS_ANSWER);
    progress_begin(&bar, "quantizing", 1, "B");
    lily_status st = convert_checkpoint(words[0], words[1], &o, &r, err);
    progress_end(&bar);
    interrupt_mode(INTERRUPT_ENDS);
    LILY_TRY(st);
    double ms = clock_ms() - started;
    if (a->common.json) {
        struct json *v = json_new_object();
        json_put(v, "dir", json_new_string(words[1]));
        json_put(v, "tensors", json_new_int(r.n_tensors));
        json_put(v, "mtp_tensors", json_new_int(r.n_mtp));
        json_put(v, "files", json_new_int(r.n_files));
        json_put(v, "bytes_in", json_new_int(r.bytes_in));
        json_put(v, "bytes_out", json_new_int(r.bytes_out));
        json_put(v, "ms", json_rounded(ms));
        print_json(v);
    } else {
        log_note("%s and %d of multi-token prediction in %s: %s from %s in %.1f s (%s/s)", COUNT_TEXT(r.n_tensors, "tensor"), r.n_mtp, COUNT_TEXT(r.n_files, "file"),
                 SIZE_TEXT(r.bytes_out), SIZE_TEXT(r.bytes_in), ms / 1e3, SIZE_TEXT((double)r.bytes_in / ms * 1e3));
    }
    return LILY_OK;
}

static lily_status run_quantize(void *args, int n, char **words, struct lily_err *err)
{
    const struct quantize_args *a = args;
    if (n != 2) {
        err_set(err, LILY_ERR_USAGE, "quantize: two folders are needed, found %d", n);
        err_hint(err, "usage: lily quantize %s", a->check ? "--check A B" : "SRC DST");
        return LILY_ERR_USAGE;
    }
    interrupt_init();
    return a->check ? quantize_check(words[0], words[1], a->common.json, err) : convert(a, words, err);
}

static const struct opt options[] = {
    {"rounding", 0, "NAME", "round as MLX does on a gpu, as the published checkpoints were made, or as it does on a cpu (default: gpu)", OPT_TAKE,
     0, 0, 0, take_rounding},
    {"threads", 0, "N", "threads (default: every processor)", OPT_INT, offsetof(struct quantize_args, threads), 1, 256, NULL},
    {"check", 0, NULL, "compare the checkpoints of two folders, tensor by tensor, and write nothing", OPT_ON,
     offsetof(struct quantize_args, check), 0, 0, NULL},
};
static const struct opt_group group = {"Conversion", options, 3};

const struct command cmd_quantize = {
    .name = "quantize",
    .usage = "SRC DST",
    .summary = "convert a BF16 checkpoint to 4 bits",
    .about = "Reads the Hugging Face checkpoint in the folder SRC (BF16, F16 or F32) and\n"
             "writes it to the folder DST in the MLX 4-bit layout, bit for bit as MLX does,\n"
             "routers with 8 bits. Multi-token prediction goes to mtp.safetensors; the vision\n"
             "tower is left out. DST must not hold a model yet.\n"
             "lily quantize --check A B says whether two checkpoints are the same.\n"
             "With --json: {dir, tensors, mtp_tensors, files, bytes_in, bytes_out, ms}, and\n"
             "for --check {equal, tensors}.",
    .uses = {{&group, 0}, {&opts_json, offsetof(struct quantize_args, common)}},
    .max_args = 2,
    .args_size = sizeof(struct quantize_args),
    .run = run_quantize,
};
