/* Saved states: a list in which the least recently used gives way. */
#include "run/borders.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct saved_border {
    struct border *border; /* owned */
    int length;            /* the border is the state after ids[0 … length-1] */
    int32_t *ids;          /* owned copy */
    unsigned long used;    /* clock of the last use */
};

struct borders {
    struct backend *backend; /* borrowed */
    struct saved_border *list; /* owned; (max) */
    int n, max;
    unsigned long clock;
};

struct borders *borders_new(struct model *m, int max)
{
    struct borders *b = mem_new(sizeof *b);
    b->backend = model_backend(m);
    b->max = max;
    b->list = mem_new(sizeof *b->list * (size_t)(max + 1));
    return b;
}

static void drop(struct borders *b, int i)
{
    b->backend->ops->border_free(b->backend, b->list[i].border);
    free(b->list[i].ids);
    b->list[i] = b->list[--b->n];
}

void borders_clear(struct borders *b)
{
    while (b->n) drop(b, b->n - 1);
}

void borders_free(struct borders *b)
{
    if (!b) return;
    borders_clear(b);
    free(b->list);
    free(b);
}

int borders_count(const struct borders *b)
{
    return b->n;
}

static bool is_prefix(const struct saved_border *s, const int32_t *ids, int n)
{
    return s->length <= n && memcmp(s->ids, ids, sizeof *ids * (size_t)s->length) == 0;
}

int borders_restore(struct borders *b, struct seq *seq, const int32_t *ids, int n, int floor)
{
    struct saved_border *best = NULL;
    for (int i = 0; i < b->n; i++) {
        struct saved_border *s = &b->list[i];
        if (s->length > (best ? best->length : floor) && s->length < n && is_prefix(s, ids, n)) best = s;
    }
    if (!best) return 0;
    b->backend->ops->border_restore(b->backend, seq, best->border);
    best->used = ++b->clock;
    return best->length;
}

static void drop_oldest(struct borders *b)
{
    int oldest = 0;
    for (int i = 1; i < b->n; i++)
        if (b->list[i].used < b->list[oldest].used) oldest = i;
    drop(b, oldest);
}

lily_status borders_save(struct borders *b, const struct seq *seq, const int32_t *ids, int length, struct lily_err *err)
{
    const struct backend_ops *ops = b->backend->ops;
    struct border *border;
    if (!b->max || !length) return LILY_OK;
    for (int i = 0; i < b->n; i++) {
        if (b->list[i].length != length || !is_prefix(&b->list[i], ids, length)) continue;
        b->list[i].used = ++b->clock;
        return LILY_OK;
    }
    if (b->n == b->max) drop_oldest(b);
    lily_status st;
    while ((st = ops->border_save(b->backend, seq, &border, err)) == LILY_ERR_MEMORY && b->n) drop_oldest(b);
    if (st == LILY_ERR_MEMORY) return LILY_OK; /* a border is only a saving of time */
    LILY_TRY(st);
    struct saved_border *s = &b->list[b->n++];
    *s = (struct saved_border){border, length, mem_new(sizeof *ids * (size_t)length), ++b->clock};
    memcpy(s->ids, ids, sizeof *ids * (size_t)length);
    return LILY_OK;
}

lily_status borders_reserve(struct borders *b, struct seq *seq, int n, struct lily_err *err)
{
    lily_status st;
    while ((st = b->backend->ops->seq_reserve(b->backend, seq, n, err)) == LILY_ERR_MEMORY && b->n) drop_oldest(b);
    return st;
}

/* The greatest grid point strictly below a position, so that 1 to 64 tokens remain after it. */
static int grid_below(int position)
{
    return (position - 1) / GRID * GRID;
}

/* The i-th place worth a border: the last grid point of the prompt (the same prompt may come again), then the marks. */
static int wanted_border(const struct prompt_plan *p, int i)
{
    return grid_below(i == 0 ? p->n : p->marks[i - 1]);
}

int plan_piece_end(const struct prompt_plan *p, int at)
{
    int end = at + p->piece < p->n ? at + p->piece : p->n;
    for (int i = 0; i <= p->n_marks; i++) {
        int border = wanted_border(p, i);
        if (border > at && border < end) end = border;
    }
    return end;
}

bool plan_saves(const struct prompt_plan *p, int at)
{
    for (int i = 0; i <= p->n_marks && at < p->n; i++)
        if (at == wanted_border(p, i)) return true;
    return false;
}
