/* Saved states: by tokens in a tree, by value when room is needed. */
#include "run/borders.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/disk.h"
#include "run/prefix.h"

/* Bytes of a state that are copied for the disk at once: a request that comes waits for no more. */
enum { SAVE_SLICE = 4 << 20 };
/* Uses after which a state that is not used is worth half, and hits that count. */
enum { HALF_LIFE = 64, MAX_HITS = 15 };
/* Of a state beside its tokens and pages: the tree, the list, the heap's own; and what rounding to the system's pages costs. */
enum { NODE_BYTES = 512 + 4096, LINK_BYTES = sizeof(void *) /* of a page in a state's list */ };

enum on_disk { DISK_NOT, DISK_REFUSED /* worth less than what is there */, DISK_KEPT };

struct saved {
    struct prefix_node *node;
    enum on_disk on_disk;
    struct border *border; /* owned */
    int hits;
    unsigned long used; /* clock of the last use */
    double used_ms;
};

struct borders {
    struct backend *backend; /* borrowed */
    struct prefix_tree *tree; /* owned; values are struct saved */
    struct saved **list;     /* owned; (n) */
    int n, cap;
    size_t budget, fixed_bytes, page_bytes;
    size_t links;            /* pages in the lists of all states: one that is shared counts for each */
    size_t beside;           /* bytes of others that count against the budget */
    unsigned long clock; /* ticks at every use */
    struct disk *disk;     /* owned; NULL: none */
    struct saved *saving;  /* the one that is being written */
    uint8_t *part;         /* borrowed; its part that is being copied, of which there are `given` bytes; NULL: none */
    size_t given;
    struct cache_counters counters;
    pthread_mutex_t lock; /* of the list and the tree while another thread may look */
};

struct borders *borders_new(struct model *m, size_t budget)
{
    struct borders *b = mem_new(sizeof *b);
    b->backend = model_backend(m);
    b->tree = prefix_new();
    b->budget = budget;
    b->fixed_bytes = b->backend->ops->border_bytes(b->backend) + NODE_BYTES;
    b->page_bytes = b->backend->ops->page_bytes(b->backend) + GRID * sizeof(int32_t);
    pthread_mutex_init(&b->lock, NULL);
    atomic_store(&b->counters.budget, budget);
    return b;
}

size_t borders_bytes(const struct borders *b)
{
    size_t states = (size_t)b->n * b->fixed_bytes + b->links * LINK_BYTES + (size_t)(prefix_tokens(b->tree) / GRID) * b->page_bytes;
    return states + b->beside + (b->disk ? disk_memory(b->disk) : 0);
}

static void note_size(struct borders *b)
{
    size_t bytes = borders_bytes(b);
    atomic_store(&b->counters.bytes, bytes);
    atomic_store(&b->counters.states, b->n);
    if (bytes > atomic_load(&b->counters.peak_bytes)) atomic_store(&b->counters.peak_bytes, bytes);
}

static void drop(struct borders *b, int i)
{
    struct saved *s = b->list[i];
    if (s == b->saving) {
        disk_save_abort(b->disk);
        b->saving = NULL;
    }
    pthread_mutex_lock(&b->lock);
    b->list[i] = b->list[--b->n];
    b->links -= (size_t)(prefix_length(s->node) / GRID);
    prefix_remove(b->tree, s->node);
    pthread_mutex_unlock(&b->lock);
    b->backend->ops->border_free(b->backend, s->border);
    free(s);
    note_size(b);
}

void borders_clear(struct borders *b)
{
    while (b->n) drop(b, b->n - 1);
}

void borders_free(struct borders *b)
{
    if (!b) return;
    borders_clear(b);
    disk_close(b->disk);
    prefix_free(b->tree);
    pthread_mutex_destroy(&b->lock);
    free(b->list);
    free(b);
}

int borders_count(const struct borders *b)
{
    return b->n;
}

struct cache_counters *borders_counters(struct borders *b)
{
    return &b->counters;
}

/* ---- value ---- */

static size_t own_bytes(const struct borders *b, const struct saved *s)
{
    size_t links = (size_t)(prefix_length(s->node) / GRID), own = (size_t)(prefix_own(s->node) / GRID);
    return b->fixed_bytes + links * LINK_BYTES + own * b->page_bytes;
}

/* Tokens that it saves for each byte, weighted by how likely it seems that it is used again. */
static double value(const struct borders *b, const struct saved *s)
{
    const struct prefix_node *above = prefix_above(s->node);
    double tokens = prefix_length(s->node) - (above ? prefix_length(above) : 0);
    double age = (double)(b->clock - s->used) / HALF_LIFE;
    int hits = s->hits < MAX_HITS ? s->hits : MAX_HITS;
    return tokens * (1 + hits) / (1 + age) / (double)own_bytes(b, s);
}

static bool drop_least(struct borders *b)
{
    int least = -1;
    double lowest = 0;
    for (int i = 0; i < b->n; i++) {
        double v = value(b, b->list[i]);
        if (b->list[i] == b->saving || (least >= 0 && v >= lowest)) continue;
        least = i;
        lowest = v;
    }
    if (least < 0) return false;
    drop(b, least);
    atomic_fetch_add(&b->counters.dropped, 1);
    return true;
}

/* Other things have grown: states give way. */
static void keep_budget(struct borders *b)
{
    while (borders_bytes(b) > b->budget && drop_least(b)) {}
    note_size(b);
}

void borders_beside(struct borders *b, size_t bytes)
{
    b->beside = bytes;
    keep_budget(b);
}

/* ---- uses ---- */

static void use(struct borders *b, struct saved *s)
{
    s->used = ++b->clock;
    s->used_ms = clock_ms();
    if (s->on_disk == DISK_REFUSED) s->on_disk = DISK_NOT; /* it is worth more now */
}

int borders_depth(const struct borders *b, const int32_t *ids, int n)
{
    const struct prefix_node *node = prefix_deepest(b->tree, ids, n);
    return node ? prefix_length(node) : 0;
}

static struct saved *add(struct borders *b, struct border *border, const int32_t *ids, int length)
{
    struct saved *s = mem_new(sizeof *s);
    s->border = border;
    pthread_mutex_lock(&b->lock);
    if (b->n == b->cap) {
        b->cap = b->cap ? 2 * b->cap : 16;
        b->list = mem_resize(b->list, sizeof(struct saved *) * (size_t)b->cap);
    }
    b->list[b->n++] = s;
    b->links += (size_t)(length / GRID);
    s->node = prefix_put(b->tree, ids, length, s);
    use(b, s);
    pthread_mutex_unlock(&b->lock);
    note_size(b);
    return s;
}

/* Makes room in the budget for a state of these tokens; false when it never fits. */
static bool make_room(struct borders *b, const int32_t *ids, int length)
{
    for (;;) {
        struct prefix_node *through;
        int shared = prefix_common(b->tree, ids, length, &through);
        size_t need = b->fixed_bytes + (size_t)(length / GRID) * LINK_BYTES + (size_t)((length - shared) / GRID) * b->page_bytes;
        if (borders_bytes(b) + need <= b->budget) return true;
        if (!drop_least(b)) return false;
    }
}

lily_status borders_import(struct borders *b, const int32_t *ids, int length, const struct border_source *source, struct lily_err *err)
{
    struct prefix_node *node;
    struct border *border;
    if (prefix_find(b->tree, ids, length) || !make_room(b, ids, length)) return LILY_OK;
    int shared = prefix_common(b->tree, ids, length, &node);
    const struct border *base = shared ? ((struct saved *)prefix_value(node))->border : NULL;
    lily_status st = b->backend->ops->border_import(b->backend, length, base, shared / GRID, source, &border, err);
    if (st == LILY_OK) add(b, border, ids, length);
    return st == LILY_ERR_MEMORY ? LILY_OK : st;
}

/* Brings the deepest state on disk into memory when memory has none as deep. What is damaged is passed over. */
static void fetch(struct borders *b, const int32_t *ids, int n, int floor)
{
    for (;;) {
        int have = borders_depth(b, ids, n), length = disk_depth(b->disk, ids, n);
        if (length <= have || length <= floor) return;
        struct disk_read *read = disk_read_begin(b->disk, ids, length);
        const struct border_source source = {disk_read_part, read};
        struct lily_err err;
        lily_status st = borders_import(b, ids, length, &source, &err);
        disk_read_end(read);
        if (st == LILY_OK) {
            struct prefix_node *node = prefix_find(b->tree, ids, length);
            pthread_mutex_lock(&b->lock);
            if (node) ((struct saved *)prefix_value(node))->on_disk = DISK_KEPT;
            pthread_mutex_unlock(&b->lock);
            if (node) atomic_fetch_add(&b->counters.disk_read, 1);
            return;
        }
        if (disk_depth(b->disk, ids, n) == length) return; /* a device that fails: it would not be better now */
    }
}

int borders_restore(struct borders *b, struct seq *seq, const int32_t *ids, int n, int floor)
{
    if (b->disk) fetch(b, ids, n, floor);
    struct prefix_node *node = prefix_deepest(b->tree, ids, n);
    if (!node || prefix_length(node) <= floor) return 0;
    struct saved *s = prefix_value(node);
    b->backend->ops->border_restore(b->backend, seq, s->border);
    pthread_mutex_lock(&b->lock);
    s->hits++;
    use(b, s);
    pthread_mutex_unlock(&b->lock);
    if (b->disk && s->on_disk == DISK_KEPT) disk_used(b->disk, ids, prefix_length(node));
    return prefix_length(node);
}

bool borders_keep_inside(const struct borders *b)
{
    return b->backend->ops->seq_keep != NULL;
}

lily_status borders_keep(struct borders *b, struct seq *seq, const int32_t *ids, int length, struct lily_err *err)
{
    lily_status st;
    if (prefix_find(b->tree, ids, length) || b->fixed_bytes > b->budget || !make_room(b, ids, length)) return LILY_OK;
    while ((st = b->backend->ops->seq_keep(b->backend, seq, length, err)) == LILY_ERR_MEMORY && drop_least(b)) {}
    return st == LILY_ERR_MEMORY ? LILY_OK : st;
}

static lily_status take(struct borders *b, struct seq *seq, int length, struct border **out, struct lily_err *err)
{
    const struct backend_ops *ops = b->backend->ops;
    if (ops->seq_length(seq) != length) return ops->border_kept(b->backend, seq, length, out, err);
    lily_status st;
    while ((st = ops->border_save(b->backend, seq, out, err)) == LILY_ERR_MEMORY && drop_least(b)) {}
    return st;
}

lily_status borders_save(struct borders *b, struct seq *seq, const int32_t *ids, int length, struct lily_err *err)
{
    const struct backend_ops *ops = b->backend->ops;
    struct border *border = NULL;
    struct prefix_node *node = length ? prefix_find(b->tree, ids, length) : NULL;
    if (node) {
        pthread_mutex_lock(&b->lock);
        use(b, prefix_value(node));
        pthread_mutex_unlock(&b->lock);
        return LILY_OK;
    }
    if (!length || b->fixed_bytes > b->budget || !make_room(b, ids, length)) return LILY_OK;
    int shared = prefix_common(b->tree, ids, length, &node);
    if (shared) ops->seq_share(b->backend, seq, ((struct saved *)prefix_value(node))->border, shared / GRID);
    lily_status st = take(b, seq, length, &border, err);
    if (st == LILY_ERR_MEMORY || (st == LILY_OK && !border)) return LILY_OK; /* a border is only a saving of time */
    LILY_TRY(st);
    add(b, border, ids, length);
    atomic_fetch_add(&b->counters.saved, 1);
    return LILY_OK;
}

lily_status borders_reserve(struct borders *b, struct seq *seq, int n, struct lily_err *err)
{
    lily_status st;
    while ((st = b->backend->ops->seq_reserve(b->backend, seq, n, err)) == LILY_ERR_MEMORY && drop_least(b)) {}
    return st;
}

/* ---- disk ---- */

void borders_use_disk(struct borders *b, struct disk *moved)
{
    b->disk = moved;
    keep_budget(b);
}

static int32_t *copy_ids(const struct saved *s)
{
    int32_t *ids = mem_new(sizeof *ids * (size_t)prefix_length(s->node));
    prefix_ids(s->node, ids);
    return ids;
}

/* The folder is empty again: what was there or was refused is to be written as if new. */
static void forget_disk(struct borders *b)
{
    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < b->n; i++) b->list[i]->on_disk = DISK_NOT;
    pthread_mutex_unlock(&b->lock);
}

/* Begins to write the most valuable state that is not on disk; false when there is none. */
static bool begin_save(struct borders *b)
{
    struct saved *best = NULL;
    double highest = 0;
    for (int i = 0; i < b->n; i++) {
        struct saved *s = b->list[i];
        double v = s->on_disk == DISK_NOT ? value(b, s) : 0;
        if (s->on_disk != DISK_NOT || (best && v <= highest)) continue;
        best = s;
        highest = v;
    }
    if (!best) return false;
    if (disk_renew(b->disk)) {
        forget_disk(b);
        return true; /* another one may be the best now */
    }
    int32_t *ids = copy_ids(best);
    bool begun = disk_save_begin(b->disk, ids, prefix_length(best->node), best->hits);
    free(ids);
    pthread_mutex_lock(&b->lock);
    best->on_disk = begun ? DISK_KEPT : DISK_REFUSED;
    pthread_mutex_unlock(&b->lock);
    if (begun) b->saving = best;
    b->part = NULL;
    return true;
}

/* Copies the next slice of a part; a whole one goes to the writer. */
static lily_status give_slice(struct borders *b, int part, struct lily_err *err)
{
    const struct backend_ops *ops = b->backend->ops;
    size_t size = part == BORDER_FIXED ? ops->border_bytes(b->backend) : ops->page_bytes(b->backend);
    if (!b->part) {
        b->part = disk_save_buffer(b->disk);
        b->given = 0;
    }
    if (!b->part) { /* no memory: the save is over */
        b->saving = NULL;
        return LILY_OK;
    }
    size_t n = size - b->given < SAVE_SLICE ? size - b->given : SAVE_SLICE;
    lily_status st = ops->border_export(b->backend, b->saving->border, part, b->given, n, b->part + b->given, err);
    if (st == LILY_OK) {
        b->given += n;
        if (b->given < size) return LILY_OK;
        b->part = NULL;
        disk_save_put(b->disk);
        return LILY_OK;
    }
    disk_save_abort(b->disk);
    b->saving = NULL;
    return st == LILY_ERR_DEVICE ? st : LILY_OK;
}

lily_status borders_tend(struct borders *b, bool *more, struct lily_err *err)
{
    *more = false;
    if (!b->disk) return LILY_OK;
    int outcome = disk_poll(b->disk);
    if (outcome < 0 && b->saving) {
        pthread_mutex_lock(&b->lock);
        b->saving->on_disk = DISK_NOT;
        pthread_mutex_unlock(&b->lock);
    }
    if (outcome) b->saving = NULL;
    if (!b->saving) {
        *more = disk_can_save(b->disk) && begin_save(b);
        return LILY_OK;
    }
    int part = disk_save_next(b->disk);
    if (part < BORDER_FIXED) return LILY_OK; /* the writer is busy, and says when it is not */
    *more = true;
    return give_slice(b, part, err);
}

void borders_flush(struct borders *b, double ms)
{
    struct lily_err err;
    bool more = true;
    for (double end = clock_ms() + ms; b->disk && clock_ms() < end;) {
        if (borders_tend(b, &more, &err) != LILY_OK) return;
        if (more) continue;
        if (!disk_is_saving(b->disk)) return;
        disk_wait(b->disk, 100);
    }
}

int borders_along(const struct borders *b, const int32_t *ids, int n, const struct border **out, int *lengths, int max)
{
    int found = 0;
    for (const struct prefix_node *node = prefix_deepest(b->tree, ids, n + 1); node && found < max; node = prefix_above(node)) {
        memmove(out + 1, out, sizeof(struct border *) * (size_t)found);
        memmove(lengths + 1, lengths, sizeof *lengths * (size_t)found++);
        out[0] = ((const struct saved *)prefix_value(node))->border;
        lengths[0] = prefix_length(node);
    }
    return found;
}

/* ---- for others to see ---- */

int borders_list(struct borders *b, struct border_info *out, int max)
{
    double now = clock_ms();
    pthread_mutex_lock(&b->lock);
    int n = b->n;
    double *values = mem_new(sizeof *values * (size_t)(max + 1));
    for (int i = 0, kept = 0; i < n; i++) {
        const struct saved *s = b->list[i];
        double v = value(b, s);
        int at = kept < max ? kept++ : max;
        while (at > 0 && values[at - 1] < v) { /* insertion: the list is short */
            if (at < max) {
                values[at] = values[at - 1];
                out[at] = out[at - 1];
            }
            at--;
        }
        if (at == max) continue;
        values[at] = v;
        out[at] = (struct border_info){prefix_length(s->node), own_bytes(b, s), s->hits, (now - s->used_ms) / 1e3, s->on_disk == DISK_KEPT};
    }
    pthread_mutex_unlock(&b->lock);
    free(values);
    return n;
}
