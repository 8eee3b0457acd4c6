/* lily pack: writes the packed file of a model, or checks one. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/size.h"
#include "commands.h"
#include "model/packing.h"
#include "model_args.h"

struct pack_args {
    struct common_args common;
    struct model_args model;
    const char *out; /* NULL: the cache folder */
    bool check, again;
    int threads;
};

struct packing_job {
    struct model_config config; /* owned */
    struct checkpoint *ck;      /* owned */
    struct pool *pool;          /* owned */
    struct buf dir, path;       /* owned */
};

static void report(const struct pack_args *a, const struct packing_job *j, size_t bytes, double ms, const char *done)
{
    if (a->common.json) {
        struct json *top = json_new_object();
        json_put(top, "file", json_new_string(j->path.data));
        json_put(top, "did", json_new_string(done));
        json_put(top, "bytes", json_new_int((int64_t)bytes));
        json_put(top, "ms", json_rounded(ms));
        print_json(top);
        return;
    }
    printf("%s: %s %s in %.1f s", j->path.data, SIZE_TEXT(bytes), done, ms / 1e3);
    if (ms > 0) printf(" (%s/s)", SIZE_TEXT((double)bytes / ms * 1e3));
    puts("");
}

static lily_status open_all(const struct pack_args *a, const char *dir, struct packing_job *j, struct lily_err *err)
{
    struct model_args model = a->model;
    if (dir) model.dir = dir;
    LILY_TRY(model_find(&model, &j->dir, err));
    LILY_TRY(config_load(buf_str(&j->dir), &j->config, err));
    LILY_TRY(checkpoint_open(buf_str(&j->dir), &j->config, &j->ck, err));
    LILY_TRY(checkpoint_check(j->ck, &j->config, err));
    if (a->out) buf_addz(&j->path, a->out);
    else packing_path(j->ck, &j->path);
    if (!j->path.len) {
        err_set(err, LILY_ERR_USAGE, "there is no home folder to keep packed files in");
        err_hint(err, "give --out FILE");
        return LILY_ERR_USAGE;
    }
    return pool_create(a->threads ? a->threads : cpu_count(), &j->pool, err);
}

/* Holds the file against the checkpoint's key and its own hashes. */
static lily_status check_file(const struct pack_args *a, struct packing_job *j, struct lily_err *err)
{
    struct packed *p;
    char key[65];
    double start = clock_ms();
    checkpoint_key(j->ck, true, key);
    lily_status st = packed_open(j->path.data, key, &p, err);
    if (st == LILY_OK) {
        st = packed_verify(p, j->pool, err);
        if (st == LILY_OK) report(a, j, packed_bytes(p), clock_ms() - start, "checked");
        packed_close(p);
    }
    if (st == LILY_ERR_FORMAT || st == LILY_ERR_USAGE) err_hint(err, "lily pack --again makes it anew");
    return st == LILY_ERR_USAGE ? LILY_ERR_FORMAT : st;
}

static lily_status write_file(const struct pack_args *a, struct packing_job *j, struct lily_err *err)
{
    struct packed *p;
    char key[65];
    checkpoint_key(j->ck, true, key);
    if (!a->again && file_exists(j->path.data) && packed_is_stamped(j->path.data) && packed_open(j->path.data, key, &p, NULL) == LILY_OK) {
        report(a, j, packed_bytes(p), 0, "there already");
        packed_close(p);
        return LILY_OK;
    }
    double start = clock_ms();
    if (a->out) LILY_TRY(packing_may_write(a->out, err));
    LILY_TRY(packing_write(j->ck, &j->config, j->path.data, j->pool, err));
    LILY_TRY(packed_open(j->path.data, key, &p, err));
    report(a, j, packed_bytes(p), clock_ms() - start, "written");
    packed_close(p);
    return LILY_OK;
}

static lily_status run_pack(void *args, int n, char **words, struct lily_err *err)
{
    const struct pack_args *a = args;
    struct packing_job j = {0};
    lily_status st = open_all(a, n ? words[0] : NULL, &j, err);
    if (st == LILY_OK) st = a->check ? check_file(a, &j, err) : write_file(a, &j, err);
    if (j.pool) pool_free(j.pool);
    checkpoint_close(j.ck);
    config_free(&j.config);
    buf_free(&j.dir);
    buf_free(&j.path);
    return st;
}

#define AT(field) offsetof(struct pack_args, field)
static const struct opt options[] = {
    {"out", 'o', "FILE", "where to write it; missing folders are made (default: by the checkpoint's key in the cache folder, where runs look)", OPT_TEXT, AT(out), 0,
     0, NULL},
    {"check", 0, NULL, "write nothing; hold the file against its hashes", OPT_ON, AT(check), 0, 0, NULL},
    {"again", 0, NULL, "write it also when a good one is there", OPT_ON, AT(again), 0, 0, NULL},
    {"threads", 0, "N", "threads (default: every processor)", OPT_INT, AT(threads), 1, 256, NULL},
};
static const struct opt_group group = {"Packed file", options, (int)(sizeof options / sizeof options[0])};

const struct command cmd_pack = {
    .name = "pack",
    .usage = "[DIR]",
    .summary = "write the packed file that makes loading immediate",
    .about = "Writes the weights once more in the order in which the processor reads them, and\n"
             "later runs map that file instead of packing the weights each time. It takes as\n"
             "much room as the weights. A run takes the file only if the checkpoint is the one\n"
             "it was made from; a damaged file is named, set aside and not used. DIR or -m is\n"
             "the model. With --json: {file, did, bytes, ms}.",
    .uses = {{&group, 0}, {&opts_dir, offsetof(struct pack_args, model)}, {&opts_json, offsetof(struct pack_args, common)}},
    .max_args = 1,
    .args_size = sizeof(struct pack_args),
    .run = run_pack,
};
