/* The prompt cache as others see it. */
#include "serve/cache_report.h"

#include <inttypes.h>
#include <string.h>

#include "serve/server_impl.h"
#include "serve/write.h"

enum { LISTED = 64 };

/* ---- the reason of a miss ---- */

/* The message that a token of the prompt belongs to, as an index of the rendered list; -1: none, as in the list of tools. */
static int message_at(const struct call *c, int token)
{
    const struct json *first = json_at(c->chat.messages, 0);
    int i = 0;
    bool own_block = false; /* the system block has no message: it holds tools alone */
    for (int k = 0; k < c->prompt.rendering.n_marks; k++) {
        const struct mark *m = &c->prompt.marks[k];
        const struct json *role = json_get(first, "role");
        if (m->kind == MARK_SYSTEM_END && role && strcmp(json_string(role), "system") != 0) own_block = true;
        if (m->kind != MARK_LAST_USER_END && (int)m->at <= token) i++;
    }
    return i - own_block;
}

static void put_tokens(const struct call *c, const char *key, const int32_t *ids, int n, struct buf *out)
{
    struct buf text = {0};
    tokenizer_decode(c->server->texts->tokenizer, ids, (size_t)n, true, &text);
    struct json *v = json_new_text(buf_str(&text), text.len);
    buf_printf(out, ",\"%s\":", key);
    json_write(v, 0, out);
    json_free(v);
    buf_free(&text);
}

static void put_reason(const struct call *c, const struct cache_miss *m, struct buf *out)
{
    if (m->kind == MISS_NONE) {
        buf_addz(out, "null");
        return;
    }
    buf_printf(out, "{\"why\":\"%s\"", miss_name(m->kind));
    if (m->kind == MISS_DIFFERS) {
        buf_printf(out, ",\"token\":%d", m->at);
        if (c->prompt.marks && message_at(c, m->at) >= 0) buf_printf(out, ",\"message\":%d", message_at(c, m->at));
        if (m->n_was) put_tokens(c, "was", m->was, m->n_was, out);
        put_tokens(c, "is", m->now, m->n_now, out);
    }
    buf_addc(out, '}');
}

void put_cache(const struct call *c, int choice, struct buf *out)
{
    const struct job_result *r = &c->choices[choice].result;
    buf_printf(out, "\"cache\":{\"reused\":%d,\"computed\":%d,\"reason\":", r->reused, r->computed);
    put_reason(c, &r->miss, out);
    buf_addc(out, '}');
}

/* ---- counters ---- */

struct number {
    const char *name, *help; /* the metric's, after lily_cache_ */
    const char *key;         /* in /state */
    bool is_gauge;
    double v;
};

static int numbers(const struct cache_counters *k, struct number *out)
{
    int n = 0;
#define PUT(name, help, key, gauge, field) out[n++] = (struct number){name, help, key, gauge, (double)atomic_load(&k->field)}
    PUT("hits_total", "Prompts that found a saved state.", "hits", false, hits);
    PUT("misses_total", "Prompts that found none.", "misses", false, misses);
    PUT("states_saved_total", "States saved.", "saved", false, saved);
    PUT("states_dropped_total", "States given up for room.", "dropped", false, dropped);
    PUT("read_ahead_tokens_total", "Tokens read while nothing else was to do.", "read_ahead_tokens", false, idle_tokens);
    PUT("verified_total", "Prompts read again cold, to compare.", "verified", false, verified);
    PUT("differing_total", "Of them, those whose logits differed.", "differing", false, differing);
    PUT("states", "Saved states in memory.", "states", true, states);
    PUT("bytes", "Memory that counts against --cache-ram: the saved states, and what is there for their sake.", "bytes", true, bytes);
    PUT("peak_bytes", "The most that it was.", "peak_bytes", true, peak_bytes);
    PUT("budget_bytes", "What they may take (--cache-ram).", "budget", true, budget);
    PUT("disk_states_written_total", "States written to disk.", "disk_written", false, disk_written);
    PUT("disk_states_read_total", "States read from disk.", "disk_read", false, disk_read);
    PUT("disk_states_dropped_total", "States removed from disk for room.", "disk_dropped", false, disk_dropped);
    PUT("disk_damaged_total", "Damaged files that were set aside.", "disk_damaged", false, disk_damaged);
    PUT("disk_errors_total", "Failures to read or write.", "disk_errors", false, disk_errors);
    PUT("disk_states", "States on disk.", "disk_states", true, disk_states);
    PUT("disk_bytes", "Their bytes.", "disk_bytes", true, disk_bytes);
    PUT("disk_peak_bytes", "The most that it was.", "disk_peak_bytes", true, disk_peak_bytes);
    PUT("disk_quota_bytes", "What they may take (--cache-disk).", "disk_quota", true, disk_quota);
#undef PUT
    return n;
}

void put_cache_metrics(struct server *s, struct buf *out)
{
    const struct cache_counters *k = engine_cache(s->engine);
    struct number list[32];
    for (int i = 0, n = k ? numbers(k, list) : 0; i < n; i++)
        buf_printf(out, "# HELP lily_cache_%s %s\n# TYPE lily_cache_%s %s\nlily_cache_%s %.17g\n", list[i].name, list[i].help,
                   list[i].name, list[i].is_gauge ? "gauge" : "counter", list[i].name, list[i].v);
}

void put_cache_state(struct server *s, struct buf *out)
{
    const struct cache_counters *k = engine_cache(s->engine);
    struct number list[32];
    struct border_info states[LISTED];
    if (!k) return;
    buf_addz(out, ",\"cache\":{");
    for (int i = 0, n = numbers(k, list); i < n; i++) buf_printf(out, "\"%s\":%.17g,", list[i].key, list[i].v);
    int n = engine_states(s->engine, states, LISTED);
    buf_addz(out, "\"list\":[");
    for (int i = 0; i < n && i < LISTED; i++)
        buf_printf(out, "%s{\"tokens\":%d,\"bytes\":%zu,\"hits\":%d,\"age_s\":%.1f,\"on_disk\":%s}", i ? "," : "", states[i].tokens,
                   states[i].bytes, states[i].hits, states[i].age_s, states[i].on_disk ? "true" : "false");
    buf_addz(out, "]}");
}
