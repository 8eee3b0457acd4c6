/* Streaming writer of safetensors files. */
#include "load/safetensors_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "json/json.h"
#include "load/safetensors.h"

struct safetensors_writer {
    char *path; /* owned; the final name */
    char *tmp;  /* owned; what is being written */
    FILE *file; /* owned */
    int64_t left; /* declared bytes not given yet */
};

int64_t tensor_decl_bytes(const struct tensor_decl *d)
{
    int64_t n = (int64_t)dtype_bytes(d->dtype);
    for (int i = 0; i < d->n_dims; i++) n *= d->dim[i];
    return n;
}

static struct json *entry_json(const struct tensor_decl *d, int64_t begin)
{
    struct json *entry = json_new_object(), *shape = json_new_array(), *offsets = json_new_array();
    for (int i = 0; i < d->n_dims; i++) json_add(shape, json_new_int(d->dim[i]));
    json_add(offsets, json_new_int(begin));
    json_add(offsets, json_new_int(begin + tensor_decl_bytes(d)));
    json_put(entry, "dtype", json_new_string(dtype_name(d->dtype)));
    json_put(entry, "shape", shape);
    json_put(entry, "data_offsets", offsets);
    return entry;
}

void safetensors_header(const struct tensor_decl *decls, int n, struct buf *out)
{
    struct json *root = json_new_object(), *meta = json_new_object();
    struct buf text = {0};
    int64_t at = 0;
    json_put(meta, "format", json_new_string("mlx"));
    json_put(root, "__metadata__", meta);
    for (int i = 0; i < n; i++) {
        json_put(root, decls[i].name, entry_json(&decls[i], at));
        at += tensor_decl_bytes(&decls[i]);
    }
    json_write(root, 0, &text);
    json_free(root);
    while (text.len % 8) buf_addc(&text, ' ');
    for (int i = 0; i < 8; i++) buf_addc(out, (char)(text.len >> 8 * i & 255));
    buf_add(out, text.data, text.len);
    buf_free(&text);
}

/* A new file beside w->path. */
static lily_status open_tmp(struct safetensors_writer *w, struct lily_err *err)
{
    struct buf tmp = {0};
    int fd = file_make_tmp(w->path, &tmp);
    if (fd < 0) {
        err_set(err, LILY_ERR_IO, "%s: cannot create: %s", w->path, strerror(errno));
        buf_free(&tmp);
        return LILY_ERR_IO;
    }
    w->tmp = buf_take(&tmp);
    file_share(fd);
    w->file = fdopen(fd, "wb");
    if (!w->file) {
        close(fd);
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot open: %s", w->tmp, strerror(errno));
    }
    return LILY_OK;
}

static lily_status put(struct safetensors_writer *w, const void *data, size_t n, struct lily_err *err)
{
    if (n && fwrite(data, 1, n, w->file) != n)
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write: %s", w->tmp, strerror(errno));
    return LILY_OK;
}

lily_status safetensors_create(const char *path, const struct tensor_decl *decls, int n, struct safetensors_writer **out,
                               struct lily_err *err)
{
    struct safetensors_writer *w = mem_new(sizeof *w);
    struct buf header = {0};
    *out = NULL;
    w->path = mem_dupz(path);
    for (int i = 0; i < n; i++) w->left += tensor_decl_bytes(&decls[i]);
    safetensors_header(decls, n, &header);
    lily_status st = open_tmp(w, err);
    if (st == LILY_OK) st = put(w, header.data, header.len, err);
    buf_free(&header);
    if (st != LILY_OK)
        safetensors_abandon(w);
    else
        *out = w;
    return st;
}

lily_status safetensors_put(struct safetensors_writer *w, const void *data, size_t n_bytes, struct lily_err *err)
{
    if (n_bytes > (uint64_t)w->left)
        LILY_FAIL(err, LILY_ERR_INTERNAL, "%s: %zu bytes of data, but only %" PRId64 " are left of what was declared", w->path,
                  n_bytes, w->left);
    w->left -= (int64_t)n_bytes;
    return put(w, data, n_bytes, err);
}

static lily_status flush(struct safetensors_writer *w, struct lily_err *err)
{
    if (w->left)
        LILY_FAIL(err, LILY_ERR_INTERNAL, "%s: %" PRId64 " declared bytes were not given", w->path, w->left);
    if (fflush(w->file) != 0 || fsync(fileno(w->file)) != 0)
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write: %s", w->tmp, strerror(errno));
    FILE *file = w->file;
    w->file = NULL;
    if (fclose(file) != 0 || rename(w->tmp, w->path) != 0)
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write: %s", w->path, strerror(errno));
    free(w->tmp);
    w->tmp = NULL;
    return LILY_OK;
}

lily_status safetensors_finish(struct safetensors_writer *w, struct lily_err *err)
{
    lily_status st = flush(w, err);
    safetensors_abandon(w);
    return st;
}

void safetensors_abandon(struct safetensors_writer *w)
{
    if (!w) return;
    if (w->file) fclose(w->file);
    if (w->tmp) unlink(w->tmp);
    free(w->tmp);
    free(w->path);
    free(w);
}
