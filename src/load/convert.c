/* Converting a checkpoint: planned first, then written tensor by tensor, quantized by all threads. */
#include "load/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/pool.h"
#include "base/size.h"
#include "load/convert_plan.h"
#include "load/convert_texts.h"

enum { PIECE_GROUPS = 1 << 17, BATCH_GROUPS = 64 }; /* 16 MiB of BF16 are read between two writes */

struct conversion {
    const char *dst;
    const struct convert_options *o;
    const struct checkpoint *source;
    const struct convert_plan *plan;
    const char *single;               /* the file's name when it is not the model itself */
    struct pool *pool;                /* borrowed */
    struct safetensors_writer *file;  /* owned; open while tensors of `shard` are written */
    int shard, tensor;                /* what is being written */
    uint8_t *codes, *scales, *biases; /* owned; a piece of codes, a module's scales and biases */
    double done, total;               /* bytes read, of both parts of the model */
};

static void path_of(const struct conversion *c, int shard, struct buf *path)
{
    char name[48];
    convert_shard_name(shard, c->plan->n_shards, name);
    file_join(path, c->dst, c->single ? c->single : name);
}

/* Moves on to a tensor, and to the next file where it is the first of one. */
static lily_status begin_tensor(struct conversion *c, int tensor, struct lily_err *err)
{
    const struct convert_plan *p = c->plan;
    if (c->file && p->shard[tensor] != c->shard) {
        struct safetensors_writer *full = c->file;
        c->file = NULL;
        LILY_TRY(safetensors_finish(full, err));
    }
    if (c->file) return LILY_OK;
    struct buf path = {0};
    int n = 0;
    c->shard = p->shard[tensor];
    while (tensor + n < p->n_tensors && p->shard[tensor + n] == c->shard) n++;
    path_of(c, c->shard, &path);
    lily_status st = safetensors_create(buf_str(&path), p->tensors + tensor, n, &c->file, err);
    buf_free(&path);
    return st;
}

/* What the threads share while one piece is quantized. */
struct piece {
    const uint8_t *weights;
    enum dtype dtype;
    long n; /* groups */
    struct quant_form form;
    uint8_t *codes, *scales, *biases;
    atomic_bool bad;
};

static float widen(enum dtype dtype, const uint8_t *data, size_t i)
{
    if (dtype == DTYPE_BF16) return bf16_to_f32(load_u16(data + 2 * i));
    if (dtype == DTYPE_F16) return f16_to_f32(load_u16(data + 2 * i));
    return f32_from_bits(load_u32(data + 4 * i));
}

static void store_bf16(uint8_t *out, size_t i, float v)
{
    uint16_t half = bf16_from_f32(v);
    out[2 * i] = (uint8_t)(half & 255);
    out[2 * i + 1] = (uint8_t)(half >> 8);
}

/* Groups lo to hi of the piece; weights: BF16, of group lo. */
static bool quantize_range(const struct piece *p, const uint8_t *weights, long lo, long hi)
{
    const size_t code_bytes = (size_t)(QUANT_GROUP * p->form.bits / 8);
    const size_t at = (size_t)lo;
    struct quant_groups g = {weights, (size_t)(hi - lo), p->codes + at * code_bytes, p->scales + at * 2, p->biases + at * 2};
    return quantize_groups(&p->form, &g);
}

/* Weights of other types become BF16 first, as mlx-lm casts them. */
static bool cast_range(const struct piece *p, long lo, long hi)
{
    uint8_t cast[BATCH_GROUPS * QUANT_GROUP * 2];
    for (long at = lo; at < hi; at += BATCH_GROUPS) {
        long n = hi - at < BATCH_GROUPS ? hi - at : BATCH_GROUPS;
        for (long i = 0; i < n * QUANT_GROUP; i++)
            store_bf16(cast, (size_t)i, widen(p->dtype, p->weights, (size_t)(at * QUANT_GROUP + i)));
        if (!quantize_range(p, cast, at, at + n)) return false;
    }
    return true;
}

static void quantize_part(void *arg, int part, int n_parts)
{
    struct piece *p = arg;
    long lo, hi;
    pool_range(p->n, part, n_parts, &lo, &hi);
    bool bf16 = p->dtype == DTYPE_BF16;
    if (!(bf16 ? quantize_range(p, p->weights + lo * QUANT_GROUP * 2, lo, hi) : cast_range(p, lo, hi))) atomic_store(&p->bad, true);
}

static void drop_read(const struct conversion *c, const struct convert_job *j, const uint8_t *data, size_t bytes)
{
    struct module_view m = {.weight = j->source};
    m.weight.data = data;
    m.weight.bytes = bytes;
    checkpoint_drop(c->source, &m);
}

/* One piece of a run: n groups from element `at` of the source on; `done` groups of the module lie before it. */
static lily_status convert_piece(struct conversion *c, const struct convert_job *j, int64_t at, int64_t n, int64_t done,
                                 struct lily_err *err)
{
    size_t elem = j->source.dtype == DTYPE_F32 ? 4 : 2;
    struct piece p = {.weights = j->source.data + (size_t)at * elem,
                      .dtype = j->source.dtype,
                      .n = (long)n,
                      .form = {DTYPE_BF16, j->bits, c->o->rounding},
                      .codes = c->codes,
                      .scales = c->scales + 2 * done,
                      .biases = c->biases + 2 * done};
    if (c->o->cancel && atomic_load(c->o->cancel)) return LILY_ERR_CANCELLED;
    pool_run(c->pool, quantize_part, &p);
    if (atomic_load(&p.bad)) {
        err_set(err, LILY_ERR_FORMAT, "%s: tensor %s has a weight that is infinite or no number", j->source.file, j->source.name);
        err_hint(err, "the source is damaged: fetch it again");
        return LILY_ERR_FORMAT;
    }
    size_t bytes = (size_t)n * QUANT_GROUP * elem;
    drop_read(c, j, p.weights, bytes);
    c->done += (double)bytes;
    if (c->o->progress) c->o->progress(c->o->ctx, c->done, c->total);
    return safetensors_put(c->file, c->codes, (size_t)(n * QUANT_GROUP * j->bits / 8), err);
}

static lily_status convert_module(struct conversion *c, const struct convert_job *j, struct lily_err *err)
{
    int64_t done = 0;
    LILY_TRY(begin_tensor(c, j->tensor, err));
    for (int64_t run = 0; run < j->n_runs; run++) {
        int64_t groups = j->run / QUANT_GROUP, n;
        for (int64_t k = 0; k < groups; k += n, done += n) {
            n = groups - k < PIECE_GROUPS ? groups - k : PIECE_GROUPS;
            LILY_TRY(convert_piece(c, j, j->first + run * j->stride + k * QUANT_GROUP, n, done, err));
        }
    }
    LILY_TRY(begin_tensor(c, j->tensor + 1, err));
    LILY_TRY(safetensors_put(c->file, c->scales, (size_t)(2 * j->groups), err));
    LILY_TRY(begin_tensor(c, j->tensor + 2, err));
    return safetensors_put(c->file, c->biases, (size_t)(2 * j->groups), err);
}

static lily_status convert_vector(struct conversion *c, const struct convert_job *j, struct lily_err *err)
{
    const struct tensor_view *t = &j->source;
    LILY_TRY(begin_tensor(c, j->tensor, err));
    c->done += (double)t->bytes;
    if (c->plan->tensors[j->tensor].dtype == t->dtype && !j->add_one) return safetensors_put(c->file, t->data, t->bytes, err);
    uint8_t *out = mem_try((size_t)j->run, 2);
    if (!out) LILY_FAIL(err, LILY_ERR_MEMORY, "%s: not enough memory for tensor %s", t->file, t->name);
    /* The sum is made of the value in BF16, which a source of another type has to become first. */
    for (int64_t i = 0; i < j->run; i++) {
        float v = bf16_to_f32(bf16_from_f32(widen(t->dtype, t->data, (size_t)i)));
        store_bf16(out, (size_t)i, j->add_one ? v + 1.0f : v);
    }
    lily_status st = safetensors_put(c->file, out, (size_t)j->run * 2, err);
    free(out);
    return st;
}

static lily_status make_buffers(struct conversion *c, struct lily_err *err)
{
    int64_t groups = 0;
    for (int i = 0; i < c->plan->n_jobs; i++)
        if (c->plan->jobs[i].bits && c->plan->jobs[i].groups > groups) groups = c->plan->jobs[i].groups;
    c->codes = mem_try(PIECE_GROUPS, QUANT_GROUP);
    c->scales = mem_try((size_t)groups, 2);
    c->biases = mem_try((size_t)groups, 2);
    if (!c->codes || !c->scales || !c->biases) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for the scales of %" PRId64 " groups", groups);
    return LILY_OK;
}

static lily_status write_tensors(struct conversion *c, struct lily_err *err)
{
    LILY_TRY(make_buffers(c, err));
    for (int i = 0; i < c->plan->n_jobs; i++) {
        const struct convert_job *j = &c->plan->jobs[i];
        LILY_TRY(j->bits ? convert_module(c, j, err) : convert_vector(c, j, err));
    }
    struct safetensors_writer *last = c->file;
    c->file = NULL;
    return last ? safetensors_finish(last, err) : LILY_OK;
}

static void remove_files(const struct conversion *c)
{
    struct buf path = {0};
    for (int i = 0; i < c->plan->n_shards; i++) {
        path_of(c, i, &path);
        unlink(buf_str(&path));
    }
    buf_free(&path);
}

/* Writes one plan; on failure nothing of it is left. */
static lily_status write_plan(struct conversion *c, const struct convert_plan *plan, const struct checkpoint *source,
                              const char *single, struct lily_err *err)
{
    c->plan = plan;
    c->source = source;
    c->single = single;
    lily_status st = write_tensors(c, err);
    safetensors_abandon(c->file);
    c->file = NULL;
    free(c->codes);
    free(c->scales);
    free(c->biases);
    c->codes = c->scales = c->biases = NULL;
    if (st != LILY_OK) remove_files(c);
    return st;
}

static lily_status check_destination(const char *dst, int64_t bytes, struct lily_err *err)
{
    static const char *const taken[] = {"model.safetensors", "model.safetensors.index.json", "config.json"};
    struct buf path = {0};
    lily_status st = file_make_shared_dirs(dst, err);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0] && st == LILY_OK; i++) {
        file_join(&path, dst, taken[i]);
        if (!file_exists(buf_str(&path))) continue;
        st = err_set(err, LILY_ERR_USAGE, "%s: there already; a model is not written over", buf_str(&path));
        err_hint(err, "name another folder, or remove that one first");
    }
    buf_free(&path);
    LILY_TRY(st);
    struct statvfs fs;
    if (statvfs(dst, &fs) == 0 && (double)fs.f_bavail * (double)fs.f_frsize < (double)bytes) {
        err_set(err, LILY_ERR_IO, "%s: the model needs %s, the disk has %s free", dst, SIZE_TEXT(bytes),
                SIZE_TEXT((double)fs.f_bavail * (double)fs.f_frsize));
        err_hint(err, "free some space, or name a folder on another disk");
        return LILY_ERR_IO;
    }
    return LILY_OK;
}

struct parts {
    struct model_config config;       /* owned */
    struct checkpoint *text, *mtp;    /* owned */
    struct convert_plan text_plan, mtp_plan; /* owned */
};

static lily_status open_parts(const char *src, struct parts *p, struct lily_err *err)
{
    LILY_TRY(checkpoint_open(src, &p->config, &p->text, err));
    if (p->config.quant_default.bits) {
        err_set(err, LILY_ERR_USAGE, "%s: quantized already, to %d bits", src, p->config.quant_default.bits);
        err_hint(err, "lily quantize takes the BF16 checkpoint, such as Qwen/Qwen3.6-35B-A3B");
        return LILY_ERR_USAGE;
    }
    LILY_TRY(checkpoint_open_mtp(src, &p->config, &p->mtp, err));
    struct convert_want text = {p->text, &p->config, false, "language_model."}, mtp = {p->mtp, &p->config, true, ""};
    LILY_TRY(convert_plan_make(&text, &p->text_plan, err));
    if (checkpoint_n_tensors(p->mtp)) LILY_TRY(convert_plan_make(&mtp, &p->mtp_plan, err));
    for (int i = 0; i < p->mtp_plan.n_tensors; i++) p->mtp_plan.shard[i] = 0; /* a side file is one file */
    if (p->mtp_plan.n_tensors) p->mtp_plan.n_shards = 1;
    return LILY_OK;
}

static lily_status write_parts(const char *src, const struct parts *p, struct conversion *c, struct lily_err *err)
{
    LILY_TRY(write_plan(c, &p->text_plan, p->text, NULL, err));
    lily_status st = LILY_OK;
    if (p->mtp_plan.n_tensors) st = write_plan(c, &p->mtp_plan, p->mtp, "mtp.safetensors", err);
    if (st == LILY_OK) st = convert_write_index(c->dst, &p->text_plan, err);
    if (st == LILY_OK) st = convert_copy_texts(src, c->dst, err);
    if (st == LILY_OK) st = convert_write_config(src, c->dst, &p->config, err);
    if (st != LILY_OK) {
        c->plan = &p->text_plan;
        c->single = NULL;
        remove_files(c);
    }
    return st;
}

static void close_parts(struct parts *p)
{
    convert_plan_free(&p->text_plan);
    convert_plan_free(&p->mtp_plan);
    checkpoint_close(p->text);
    checkpoint_close(p->mtp);
    config_free(&p->config);
}

lily_status convert_checkpoint(const char *src, const char *dst, const struct convert_options *o, struct convert_result *out,
                               struct lily_err *err)
{
    struct parts p = {.text = NULL};
    struct conversion c = {.dst = dst, .o = o};
    memset(out, 0, sizeof *out);
    LILY_TRY(config_load(src, &p.config, err));
    lily_status st = open_parts(src, &p, err);
    if (st == LILY_OK) st = check_destination(dst, p.text_plan.bytes_out + p.mtp_plan.bytes_out, err);
    if (st == LILY_OK) st = pool_create(o->threads, &c.pool, err);
    c.total = (double)(p.text_plan.bytes_in + p.mtp_plan.bytes_in);
    if (st == LILY_OK) st = write_parts(src, &p, &c, err);
    if (st == LILY_OK)
        *out = (struct convert_result){p.text_plan.n_tensors, p.mtp_plan.n_tensors,
                                       p.text_plan.n_shards + p.mtp_plan.n_shards, p.text_plan.bytes_in + p.mtp_plan.bytes_in,
                                       p.text_plan.bytes_out + p.mtp_plan.bytes_out};
    pool_free(c.pool);
    close_parts(&p);
    return st;
}
