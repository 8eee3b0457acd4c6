/* Finding, opening and making packed files. */
#include "model/packing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "load/inventory.h"

void packing_path(const struct checkpoint *ck, struct buf *out)
{
    struct buf dir = {0};
    char key[65], name[96];
    buf_clear(out);
    env_cache_dir("packed", &dir);
    if (dir.len) {
        checkpoint_key(ck, true, key);
        snprintf(name, sizeof name, "%.32s-v%d.lily", key, PACKED_VERSION);
        file_join(out, buf_str(&dir), name);
    }
    buf_free(&dir);
}

void packing_find(const struct checkpoint *ck, const char *dir, struct buf *out)
{
    packing_path(ck, out);
    if (out->len && file_exists(buf_str(out))) return;
    buf_clear(out);
    if (!dir) return;
    file_join(out, dir, "packed.lily");
    if (!file_exists(buf_str(out))) buf_clear(out);
}

/* Opened, and verified where it is due. */
static lily_status open_checked(const char *path, const char key[65], struct pool *pool, struct packed **out, struct lily_err *err)
{
    LILY_TRY(packed_open(path, key, out, err));
    lily_status st = LILY_OK;
    if (packed_is_stamped(path)) packed_populate(*out, pool);
    else st = packed_verify(*out, pool, err);
    if (st == LILY_OK) return LILY_OK;
    packed_close(*out);
    *out = NULL;
    return st;
}

static void set_aside(const char *path)
{
    struct buf aside = {0};
    buf_printf(&aside, "%s.damaged", path);
    if (rename(path, buf_str(&aside)) == 0) log_warn("it is set aside as %s; lily pack makes it again", buf_str(&aside));
    else log_warn("it cannot be set aside (%s); lily pack makes it again", strerror(errno));
    buf_free(&aside);
}

lily_status packing_open(const struct checkpoint *ck, const char *dir, const char *wish, struct pool *pool, struct packed **out,
                         struct lily_err *err)
{
    struct buf path = {0};
    char key[65];
    lily_status st = LILY_OK;
    *out = NULL;
    if (wish && strcmp(wish, "none") == 0) return LILY_OK;
    checkpoint_key(ck, true, key);
    if (wish) {
        st = open_checked(wish, key, pool, out, err);
        if (st != LILY_OK && st != LILY_ERR_MEMORY) err_hint(err, "lily pack DIR --out FILE makes such a file");
        return st;
    }
    packing_find(ck, dir, &path);
    if (path.len) {
        struct lily_err why = {0};
        st = open_checked(buf_str(&path), key, pool, out, &why);
        if (st == LILY_ERR_USAGE) log_note("%s", why.msg);
        else if (st != LILY_OK) log_warn("%s", why.msg);
        if (st == LILY_ERR_FORMAT) set_aside(buf_str(&path));
    }
    buf_free(&path);
    return LILY_OK;
}

/* ---- making one ---- */

struct packing {
    const struct checkpoint *ck;
    struct packed_writer *w;
    struct pool *pool;
    struct progress bar;
    double done;
    int n_modules;
};

static lily_status count_module(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    (void)err;
    ((struct packing *)arg)->n_modules += item->is_module;
    return LILY_OK;
}

static lily_status pack_module(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct packing *p = arg;
    struct module_want want = {item->path, item->experts, item->rows, item->cols};
    struct module_view m;
    if (!item->is_module) return LILY_OK;
    LILY_TRY(checkpoint_module(p->ck, &want, &m, err));
    LILY_TRY(packed_add(p->w, m.weight.name, &m, p->pool, err));
    checkpoint_drop(p->ck, &m);
    p->done += (double)(m.weight.bytes + m.scales.bytes + m.biases.bytes);
    progress_at(&p->bar, p->done);
    return LILY_OK;
}

/* The folder is made; nothing is begun that cannot end. */
static lily_status prepare_folder(const char *path, size_t bytes, struct lily_err *err)
{
    char *dir = file_folder(path);
    struct statvfs fs;
    lily_status st = file_make_shared_dirs(dir, err);
    if (st == LILY_OK && statvfs(dir, &fs) == 0) {
        double room = (double)fs.f_bavail * (double)fs.f_frsize, need = (double)bytes * 1.01 + 64e6;
        if (room < need) st = err_set(err, LILY_ERR_IO, "%s: %s are free, %s are needed", dir, SIZE_TEXT(room), SIZE_TEXT(need));
    }
    free(dir);
    return st;
}

lily_status packing_may_write(const char *path, struct lily_err *err)
{
    return file_may_replace(path, PACKED_MAGIC, "packed file", err);
}

lily_status packing_write(const struct checkpoint *ck, const struct model_config *config, const char *path, struct pool *pool,
                          struct lily_err *err)
{
    struct packing p = {.ck = ck, .pool = pool};
    char key[65];
    LILY_TRY(prepare_folder(path, checkpoint_text_bytes(ck), err));
    checkpoint_key(ck, true, key);
    inventory_walk(&config->shape, count_module, &p, NULL);
    LILY_TRY(packed_create(path, key, p.n_modules, &p.w, err));
    progress_begin(&p.bar, "packing", (double)checkpoint_text_bytes(ck), "B");
    lily_status st = inventory_walk(&config->shape, pack_module, &p, err);
    progress_end(&p.bar);
    if (st == LILY_OK) return packed_finish(p.w, err);
    packed_abandon(p.w);
    return st;
}
