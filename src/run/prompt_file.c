/* States of one prompt in one file. */
#include "run/prompt_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/borders.h"
#include "run/state_key.h"

enum { MAX_STATES = 8, VERSION = 1, MAX_TOKENS = 1 << 24 };
static const char magic[8] = "lilyprmt";

struct head {
    char magic[8];
    uint32_t version, n_ids, n_states, pad;
    int32_t lengths[MAX_STATES]; /* rising */
    uint64_t fixed_bytes, page_bytes;
    char key[64];
    uint64_t sum[2]; /* of the head with this as zero, the ids and the sums of the parts */
};

/* A file in memory, and where its things lie. */
struct layout {
    size_t ids, sums, parts; /* offsets */
    size_t n_pages, total;
};

static struct layout lay_out(const struct head *h)
{
    struct layout l;
    l.n_pages = h->n_ids / GRID;
    l.ids = sizeof *h;
    l.sums = l.ids + sizeof(int32_t) * (size_t)h->n_ids;
    l.parts = l.sums + sizeof(struct hash128) * (l.n_pages + h->n_states);
    l.total = l.parts + l.n_pages * (size_t)h->page_bytes + (size_t)h->n_states * (size_t)h->fixed_bytes;
    return l;
}

static size_t part_at(const struct head *h, const struct layout *l, size_t i)
{
    size_t pages = i < l->n_pages ? i : l->n_pages;
    return l->parts + pages * (size_t)h->page_bytes + (i - pages) * (size_t)h->fixed_bytes;
}

static struct hash128 sum_of_head(const struct head *h, const uint8_t *file, const struct layout *l)
{
    struct head blank = *h;
    struct buf all = {0};
    blank.sum[0] = blank.sum[1] = 0;
    buf_add(&all, &blank, sizeof blank);
    buf_add(&all, file + l->ids, l->parts - l->ids);
    struct hash128 sum = hash128_of(all.data, all.len);
    buf_free(&all);
    return sum;
}

/* ---- reading ---- */

struct reading {
    const uint8_t *file;
    struct head h;
    struct layout l;
    size_t state; /* number of the state that is being made */
};

static lily_status read_part(void *ctx, int part, size_t at, size_t n, void *out, struct lily_err *err)
{
    const struct reading *r = ctx;
    size_t i = part == BORDER_FIXED ? r->l.n_pages + r->state : (size_t)part;
    size_t size = part == BORDER_FIXED ? (size_t)r->h.fixed_bytes : (size_t)r->h.page_bytes;
    const uint8_t *from = r->file + part_at(&r->h, &r->l, i);
    if (at == 0) { /* for all slices */
        struct hash128 want, sum = hash128_of(from, size);
        memcpy(&want, r->file + r->l.sums + i * sizeof want, sizeof want);
        if (sum.lo != want.lo || sum.hi != want.hi) LILY_FAIL(err, LILY_ERR_FORMAT, "the sum of part %zu is wrong", i);
    }
    memcpy(out, from + at, n);
    return LILY_OK;
}

/* LILY_ERR_UNSUPPORTED: it is whole, but of something else. */
static lily_status check(struct reading *r, size_t size, const char *key, const struct backend *be, struct lily_err *err)
{
    struct head *h = &r->h;
    if (size < sizeof magic || memcmp(r->file, magic, sizeof magic) != 0) LILY_FAIL(err, LILY_ERR_USAGE, "it is no prompt cache");
    if (size < sizeof *h) LILY_FAIL(err, LILY_ERR_FORMAT, "it has %zu bytes, which is no whole head", size);
    memcpy(h, r->file, sizeof *h);
    if (h->version != VERSION || memcmp(h->key, key, sizeof h->key) != 0)
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "it was made by another model, build or device");
    bool good = h->n_ids > 0 && h->n_ids % GRID == 0 && h->n_ids <= MAX_TOKENS && h->n_states > 0 && h->n_states <= MAX_STATES &&
                h->fixed_bytes == be->ops->border_bytes(be) && h->page_bytes == be->ops->page_bytes(be);
    for (uint32_t i = 0; good && i < h->n_states; i++)
        good = h->lengths[i] > (i ? h->lengths[i - 1] : 0) && h->lengths[i] % GRID == 0 && (uint32_t)h->lengths[i] <= h->n_ids;
    if (!good) LILY_FAIL(err, LILY_ERR_FORMAT, "its head makes no sense");
    r->l = lay_out(h);
    if (size != r->l.total) LILY_FAIL(err, LILY_ERR_FORMAT, "it has %zu bytes, expected %zu", size, r->l.total);
    struct hash128 sum = sum_of_head(h, r->file, &r->l);
    if (sum.lo != h->sum[0] || sum.hi != h->sum[1]) LILY_FAIL(err, LILY_ERR_FORMAT, "the sum of its head is wrong");
    return LILY_OK;
}

static lily_status take_states(struct reading *r, struct session *s, struct lily_err *err)
{
    int32_t *ids = mem_new(sizeof *ids * (size_t)r->h.n_ids);
    const struct border_source source = {read_part, r};
    lily_status st = LILY_OK;
    memcpy(ids, r->file + r->l.ids, sizeof *ids * (size_t)r->h.n_ids);
    for (uint32_t i = 0; i < r->h.n_states && st == LILY_OK; i++) {
        r->state = i;
        st = borders_import(session_borders(s), ids, r->h.lengths[i], &source, err);
    }
    free(ids);
    return st;
}

static lily_status set_aside(const char *path, struct lily_err *why)
{
    struct buf to = {0};
    buf_printf(&to, "%s.damaged", path);
    log_warn("%s: %s; it is set aside as %s and not used", path, why->msg, buf_str(&to));
    (void)rename(path, buf_str(&to));
    buf_free(&to);
    err_clear(why);
    return LILY_OK;
}

lily_status prompt_file_load(const char *path, struct model *m, struct session *s, struct lily_err *err)
{
    struct file_map map;
    struct reading r = {0};
    char key[65];
    LILY_TRY(state_key(m, key, err));
    if (!file_exists(path)) return LILY_OK;
    LILY_TRY(file_map_open(path, &map, err));
    r.file = map.data;
    lily_status st = map.size ? LILY_OK : LILY_ERR_UNSUPPORTED;
    if (st == LILY_OK) st = check(&r, map.size, key, model_backend(m), err);
    if (st == LILY_OK) st = take_states(&r, s, err);
    size_t size = map.size; /* an empty file is as good as none */
    file_map_close(&map);
    if (st == LILY_ERR_FORMAT) {
        session_clear(s);
        return set_aside(path, err);
    }
    if (st == LILY_ERR_UNSUPPORTED) {
        if (size) log_note("%s: %s; the prompt is read, and the file written anew", path, err->msg);
        err_clear(err);
        return LILY_OK;
    }
    if (st == LILY_ERR_USAGE) { /* some other file: it is not ours to replace */
        err_prefix(err, "%s", path);
        err_hint(err, "--prompt-cache writes this file: give another name");
    }
    return st;
}

/* ---- writing ---- */

static lily_status fill(struct model *m, const struct border *const *states, const struct head *h, uint8_t *file, struct lily_err *err)
{
    struct backend *be = model_backend(m);
    struct layout l = lay_out(h);
    const struct border *deepest = states[h->n_states - 1];
    for (size_t i = 0; i < l.n_pages + h->n_states; i++) {
        bool page = i < l.n_pages;
        uint8_t *at = file + part_at(h, &l, i);
        size_t n = page ? (size_t)h->page_bytes : (size_t)h->fixed_bytes;
        LILY_TRY(be->ops->border_export(be, page ? deepest : states[i - l.n_pages], page ? (int)i : BORDER_FIXED, 0, n, at, err));
        struct hash128 sum = hash128_of(at, n);
        memcpy(file + l.sums + i * sizeof sum, &sum, sizeof sum);
    }
    return LILY_OK;
}

lily_status prompt_file_save(const char *path, struct model *m, struct session *s, struct lily_err *err)
{
    const struct border *states[MAX_STATES];
    struct backend *be = model_backend(m);
    struct head h = {.version = VERSION, .fixed_bytes = be->ops->border_bytes(be), .page_bytes = be->ops->page_bytes(be)};
    char key[65];
    int lengths[MAX_STATES], n = borders_along(session_borders(s), session_ids(s), session_length(s), states, lengths, MAX_STATES);
    if (!n) LILY_FAIL(err, LILY_ERR_LIMIT, "%s: nothing to keep, states lie at multiples of 64 tokens and there are %d", path, session_length(s));
    LILY_TRY(state_key(m, key, err));
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.key, key, sizeof h.key);
    h.n_states = (uint32_t)n;
    h.n_ids = (uint32_t)lengths[n - 1];
    for (int i = 0; i < n; i++) h.lengths[i] = lengths[i];
    struct layout l = lay_out(&h);
    uint8_t *file = mem_try(1, l.total);
    if (!file) LILY_FAIL(err, LILY_ERR_MEMORY, "%s: no memory for %zu bytes of state", path, l.total);
    memcpy(file + l.ids, session_ids(s), sizeof(int32_t) * (size_t)h.n_ids);
    lily_status st = fill(m, states, &h, file, err);
    struct hash128 sum = sum_of_head(&h, file, &l);
    h.sum[0] = sum.lo;
    h.sum[1] = sum.hi;
    memcpy(file, &h, sizeof h);
    if (st == LILY_OK) st = file_write_atomic(path, file, l.total, err);
    free(file);
    return st;
}
