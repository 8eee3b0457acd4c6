/* Percentiles and tables of a load test. */
#include "load_stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

const char *const load_kind_names[LOAD_KINDS] = {"chat", "long", "cancel"};
static const double shares[] = {0.5, 0.9, 0.99, 1};
static const char *const share_names[] = {"p50", "p90", "p99", "max"};
enum { N_SHARES = 4 };

void load_series_add(struct load_series *s, double ms)
{
    if (s->n == s->cap) s->ms = mem_resize(s->ms, (size_t)(s->cap = s->cap * 2 + 256) * sizeof *s->ms);
    s->ms[s->n++] = ms;
}

static void free_group(struct load_group *g)
{
    free(g->first.ms);
    free(g->gap.ms);
    free(g->total.ms);
}

void load_stats_free(struct load_stats *s)
{
    for (int k = 0; k < LOAD_KINDS; k++) free_group(&s->kind[k]);
    memset(s, 0, sizeof *s);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that a share of the series, which is not empty, does not pass (nearest rank); the series is sorted by it. */
static double percentile(struct load_series *s, double share)
{
    qsort(s->ms, (size_t)s->n, sizeof *s->ms, by_value);
    int rank = (int)(share * s->n + 0.999999999);
    return s->ms[rank < 1 ? 0 : rank - 1];
}

static void join_series(struct load_series *to, const struct load_series *from)
{
    for (int i = 0; i < from->n; i++) load_series_add(to, from->ms[i]);
}

/* All kinds together. Owned by the caller: free_group. */
static struct load_group join(const struct load_stats *s)
{
    struct load_group all = {0};
    for (int k = 0; k < LOAD_KINDS; k++) {
        const struct load_group *g = &s->kind[k];
        all.started += g->started;
        all.done += g->done;
        all.cancelled += g->cancelled;
        all.failed += g->failed;
        all.refused += g->refused;
        all.events += g->events;
        join_series(&all.first, &g->first);
        join_series(&all.gap, &g->gap);
        join_series(&all.total, &g->total);
    }
    return all;
}

int load_stats_done(const struct load_stats *s)
{
    int n = 0;
    for (int k = 0; k < LOAD_KINDS; k++) n += s->kind[k].done + s->kind[k].cancelled;
    return n;
}

static void print_series(const char *name, const char *what, struct load_series *s)
{
    printf("%-8s %-22s", name, what);
    for (int i = 0; i < N_SHARES; i++)
        if (s->n) printf(" %9.1f", percentile(s, shares[i]));
        else printf(" %9s", "-");
    printf(" %8d\n", s->n);
}

static void print_group(const char *name, struct load_group *g)
{
    if (!g->started) return;
    print_series(name, "to the first piece", &g->first);
    print_series("", "between pieces", &g->gap);
    print_series("", "to the end", &g->total);
}

void load_stats_print(struct load_stats *s)
{
    struct load_group all = join(s);
    printf("%-8s %-22s %9s %9s %9s %9s %8s\n", "kind", "milliseconds", "p50", "p90", "p99", "max", "count");
    for (int k = 0; k < LOAD_KINDS; k++) print_group(load_kind_names[k], &s->kind[k]);
    print_group("all", &all);
    printf("%s in %.1f s: %d done, %d cancelled, %d refused, %d failed; %.1f pieces/s\n", COUNT_TEXT(all.started, "request"), s->seconds, all.done,
           all.cancelled, all.refused, all.failed, s->seconds > 0 ? (double)all.events / s->seconds : 0.0);
    free_group(&all);
}

static struct json *series_json(struct load_series *s)
{
    struct json *v = json_new_object();
    for (int i = 0; i < N_SHARES; i++) json_put(v, share_names[i], s->n ? json_new_double(percentile(s, shares[i])) : json_new_null());
    json_put(v, "count", json_new_int(s->n));
    return v;
}

static struct json *group_json(struct load_group *g)
{
    struct json *v = json_new_object();
    json_put(v, "started", json_new_int(g->started));
    json_put(v, "done", json_new_int(g->done));
    json_put(v, "cancelled", json_new_int(g->cancelled));
    json_put(v, "refused", json_new_int(g->refused));
    json_put(v, "failed", json_new_int(g->failed));
    json_put(v, "pieces", json_new_int(g->events));
    json_put(v, "first_ms", series_json(&g->first));
    json_put(v, "gap_ms", series_json(&g->gap));
    json_put(v, "total_ms", series_json(&g->total));
    return v;
}

struct json *load_stats_json(struct load_stats *s)
{
    struct load_group all = join(s);
    struct json *v = group_json(&all), *kinds = json_new_object();
    json_put(v, "seconds", json_new_double(s->seconds));
    for (int k = 0; k < LOAD_KINDS; k++) json_put(kinds, load_kind_names[k], group_json(&s->kind[k]));
    json_put(v, "kinds", kinds);
    free_group(&all);
    return v;
}
