/* A ring of prompts. */
#include "run/recent.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/pieces.h"
#include "spec/family.h"

enum { KEPT = 64 };

struct kept {
    int32_t *ids; /* owned */
    int n;
    int last_mark; /* end of its last message */
    int owner;
};

struct recent {
    struct kept list[KEPT]; /* in the order of their coming, from `first` */
    int first, n;
    size_t bytes, max_bytes;
};

const char *miss_name(enum miss_kind k)
{
    static const char *const names[] = {NULL, "new", "differs", "dropped", "off"};
    return names[k];
}

struct recent *recent_new(size_t max_bytes)
{
    struct recent *r = mem_new(sizeof *r);
    r->max_bytes = max_bytes;
    return r;
}

size_t recent_bytes(const struct recent *r)
{
    return r->bytes;
}

static size_t bytes_of(const struct kept *k)
{
    return sizeof *k->ids * (size_t)k->n;
}

static void forget_first(struct recent *r)
{
    struct kept *k = &r->list[r->first];
    r->bytes -= bytes_of(k);
    free(k->ids);
    r->first = (r->first + 1) % KEPT;
    r->n--;
}

void recent_free(struct recent *r)
{
    if (!r) return;
    while (r->n) forget_first(r);
    free(r);
}

static void remember(struct recent *r, const struct recent_prompt *p)
{
    struct kept k = {NULL, p->n, p->n_marks ? p->marks[p->n_marks - 1] : p->n, p->owner};
    if (bytes_of(&k) > r->max_bytes) return;
    while (r->n == KEPT || (r->n && r->bytes + bytes_of(&k) > r->max_bytes)) forget_first(r);
    k.ids = mem_new(bytes_of(&k));
    memcpy(k.ids, p->ids, bytes_of(&k));
    r->list[(r->first + r->n++) % KEPT] = k;
    r->bytes += bytes_of(&k);
}

static int common(const struct kept *k, const struct recent_prompt *p)
{
    int i = 0, n = k->n < p->n ? k->n : p->n;
    while (i < n && k->ids[i] == p->ids[i]) i++;
    return i;
}

/* The latest of the most similar ones. */
static const struct kept *nearest(const struct recent *r, const struct recent_prompt *p, int *same)
{
    const struct kept *best = NULL;
    *same = 0;
    for (int i = 0; i < r->n; i++) {
        const struct kept *k = &r->list[(r->first + i) % KEPT];
        int c = common(k, p);
        if (best && c < *same) continue;
        best = k;
        *same = c;
    }
    return best;
}

/* The deepest place that should have been kept when a prompt shares its first `same` tokens with an earlier one. */
static int expected(const struct recent_prompt *p, int same)
{
    int best = same >= p->n ? grid_below(p->n) : 0;
    for (int i = 0; i < p->n_marks && p->marks[i] <= same; i++) best = grid_below(p->marks[i]);
    return best;
}

static int copy_ids(int32_t *out, const int32_t *ids, int at, int n)
{
    int k = 0;
    for (; k < MISS_TOKENS && at + k < n; k++) out[k] = ids[at + k];
    return k;
}

static void explain(const struct recent *r, const struct recent_prompt *p, int reused, struct cache_miss *out)
{
    int same;
    const struct kept *k = nearest(r, p, &same);
    if (reused >= grid_below(p->n)) return; /* as much as there can be */
    if (same < GRID) {
        out->kind = reused ? MISS_NONE : MISS_NEW;
    } else if (reused < expected(p, same)) {
        out->kind = MISS_DROPPED;
    } else if (same < k->last_mark && same < p->n) {
        out->kind = MISS_DIFFERS;
        out->at = same;
        out->n_now = copy_ids(out->now, p->ids, same, p->n);
        if (k->owner == p->owner) out->n_was = copy_ids(out->was, k->ids, same, k->n);
    }
}

void recent_add(struct recent *r, const struct recent_prompt *p, int reused, struct cache_miss *out)
{
    memset(out, 0, sizeof *out);
    if (!r->max_bytes) out->kind = MISS_OFF;
    else explain(r, p, reused, out);
    remember(r, p);
}
