/* lily quantize --check: which tensors of two checkpoints differ. */
#include "quantize_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/safe.h"
#include "commands.h"
#include "load/checkpoint.h"
#include "load/safetensors.h"

enum { MAX_SHOWN = 20 };

struct side {
    const char *dir;
    struct model_config config;                           /* owned */
    struct checkpoint *text;                              /* owned */
    struct file_map mtp_map;                              /* owned; closed where there is no side file */
    struct safetensors mtp;                               /* owned */
    struct buf mtp_path;                                  /* owned */
};

struct comparing {
    bool quiet;
    int n, differ;
    char first[320];
};

static lily_status open_side(const char *dir, struct side *s, struct lily_err *err)
{
    s->dir = dir;
    LILY_TRY(config_load(dir, &s->config, err));
    LILY_TRY(checkpoint_open(dir, &s->config, &s->text, err));
    file_join(&s->mtp_path, dir, "mtp.safetensors");
    if (!file_exists(buf_str(&s->mtp_path))) return LILY_OK;
    LILY_TRY(file_map_open(buf_str(&s->mtp_path), &s->mtp_map, err));
    return safetensors_parse_header(s->mtp_map.data, s->mtp_map.size, buf_str(&s->mtp_path), &s->mtp, err);
}

static void close_side(struct side *s)
{
    safetensors_free(&s->mtp);
    file_map_close(&s->mtp_map);
    buf_free(&s->mtp_path);
    checkpoint_close(s->text);
    config_free(&s->config);
}

static void differs(struct comparing *c, const char *name, const char *what)
{
    struct buf line = {0}, safe = {0};
    buf_printf(&line, "%s: %s", name, what);
    safe_text(&safe, buf_str(&line), line.len, false);
    if (!c->differ++) snprintf(c->first, sizeof c->first, "%s", buf_str(&safe));
    if (!c->quiet && c->differ <= MAX_SHOWN) printf("%s\n", buf_str(&safe));
    buf_free(&line);
    buf_free(&safe);
}

static void compare_tensor(struct comparing *c, const char *name, const struct tensor_view *a, const struct tensor_view *b)
{
    char what[2 * SHAPE_TEXT + 64], left[SHAPE_TEXT], right[SHAPE_TEXT];
    c->n++;
    if (a->dtype != b->dtype) {
        snprintf(what, sizeof what, "%s, and %s", dtype_name(a->dtype), dtype_name(b->dtype));
        differs(c, name, what);
    } else if (a->n_dims != b->n_dims || memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->n_dims) != 0) {
        snprintf(what, sizeof what, "shape %s, and %s", shape_text(a, left), shape_text(b, right));
        differs(c, name, what);
    } else if (memcmp(a->data, b->data, a->bytes) != 0) {
        size_t n = 0;
        for (size_t i = 0; i < a->bytes; i++) n += a->data[i] != b->data[i];
        snprintf(what, sizeof what, "%zu of %zu bytes differ", n, a->bytes);
        differs(c, name, what);
    }
}

/* Walks two lists that are sorted by name. */
typedef struct tensor_view (*tensor_at)(const void *list, int i, const char **name);

static struct tensor_view text_at(const void *list, int i, const char **name)
{
    return checkpoint_tensor_at(list, i, name);
}

static struct tensor_view file_at(const void *list, int i, const char **name)
{
    const struct safetensors *st = list;
    *name = st->tensors[i].name;
    return st->tensors[i];
}

struct list {
    const void *list;
    int n;
    const char *dir;
};

static void compare_lists(struct comparing *c, struct list a, struct list b, tensor_at at)
{
    char what[256];
    for (int i = 0, k = 0; i < a.n || k < b.n;) {
        const char *left = NULL, *right = NULL;
        struct tensor_view x = {0}, y = {0};
        if (i < a.n) x = at(a.list, i, &left);
        if (k < b.n) y = at(b.list, k, &right);
        int order = !left ? 1 : !right ? -1 : strcmp(left, right);
        if (order == 0) {
            compare_tensor(c, left, &x, &y);
        } else {
            snprintf(what, sizeof what, "only in %.200s", order < 0 ? a.dir : b.dir);
            differs(c, order < 0 ? left : right, what);
            c->n++;
        }
        i += order <= 0;
        k += order >= 0;
    }
}

/* The bits that each config.json gives to the modules. */
static void compare_rules(struct comparing *c, const struct side *a, const struct side *b)
{
    char path[MAX_TENSOR_NAME + 1], what[64];
    for (int i = 0; i < checkpoint_n_tensors(a->text); i++) {
        const char *name;
        checkpoint_tensor_at(a->text, i, &name);
        size_t n = strlen(name);
        if (n < 8 || n > MAX_TENSOR_NAME || strcmp(name + n - 7, ".scales") != 0) continue;
        snprintf(path, sizeof path, "%.*s", (int)(n - 7), name);
        int left = config_quant_rule(&a->config, path).bits, right = config_quant_rule(&b->config, path).bits;
        if (left == right) continue;
        c->n++;
        snprintf(what, sizeof what, "%d bits, and %d, by config.json", left, right);
        differs(c, path, what);
    }
}

static lily_status compare(const struct side *a, const struct side *b, bool json, struct lily_err *err)
{
    struct comparing c = {.quiet = json};
    compare_lists(&c, (struct list){a->text, checkpoint_n_tensors(a->text), a->dir},
                  (struct list){b->text, checkpoint_n_tensors(b->text), b->dir}, text_at);
    compare_lists(&c, (struct list){&a->mtp, a->mtp.n_tensors, a->dir}, (struct list){&b->mtp, b->mtp.n_tensors, b->dir}, file_at);
    compare_rules(&c, a, b);
    if (c.differ) LILY_FAIL(err, LILY_ERR_FORMAT, "%d of %d tensors differ, the first is %s", c.differ, c.n, c.first);
    if (json) {
        struct json *v = json_new_object();
        json_put(v, "equal", json_new_bool(true));
        json_put(v, "tensors", json_new_int(c.n));
        print_json(v);
    } else {
        printf("the same: %d tensors\n", c.n);
    }
    return LILY_OK;
}

lily_status quantize_check(const char *a, const char *b, bool json, struct lily_err *err)
{
    struct side left = {0}, right = {0};
    lily_status st = open_side(a, &left, err);
    if (st == LILY_OK) st = open_side(b, &right, err);
    if (st == LILY_OK) st = compare(&left, &right, json, err);
    close_side(&left);
    close_side(&right);
    return st;
}
