/* The last seconds' tokens: rings of counts. */
#include "serve/history.h"

static void add(struct history *h, uint64_t written, uint64_t read)
{
    h->written_in[h->next] = written < UINT32_MAX ? (uint32_t)written : UINT32_MAX;
    h->read_in[h->next] = read < UINT32_MAX ? (uint32_t)read : UINT32_MAX;
    h->next = (h->next + 1) % HISTORY_STEPS;
    if (h->n < HISTORY_STEPS) h->n++;
}

void history_note(struct history *h, double now_ms, uint64_t generated, uint64_t read)
{
    if (h->until_ms == 0) {
        h->until_ms = now_ms + HISTORY_STEP_MS;
        h->generated = generated;
        h->read = read;
    }
    if (now_ms < h->until_ms) return;
    /* After a long sleep of the machine there is no more to fill than the ring. */
    double missed = (now_ms - h->until_ms) / HISTORY_STEP_MS;
    for (int i = missed < HISTORY_STEPS ? (int)missed : HISTORY_STEPS; i > 0; i--) add(h, 0, 0);
    add(h, generated - h->generated, read - h->read);
    h->generated = generated;
    h->read = read;
    while (h->until_ms <= now_ms && missed < HISTORY_STEPS) h->until_ms += HISTORY_STEP_MS;
    if (h->until_ms <= now_ms) h->until_ms = now_ms + HISTORY_STEP_MS;
}

static void put(const struct history *h, const char *name, const uint32_t *ring, struct buf *out)
{
    buf_printf(out, ",\"%s\":[", name);
    for (int i = 0; i < h->n; i++)
        buf_printf(out, "%s%u", i ? "," : "", ring[(h->next - h->n + i + HISTORY_STEPS) % HISTORY_STEPS]);
    buf_addc(out, ']');
}

void history_put(const struct history *h, struct buf *out)
{
    buf_printf(out, "{\"step_s\":%g", HISTORY_STEP_MS / 1e3);
    put(h, "generated", h->written_in, out);
    put(h, "read", h->read_in, out);
    buf_addc(out, '}');
}
