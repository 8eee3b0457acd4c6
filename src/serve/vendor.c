/* The vendor object and usage. */
#include "serve/vendor.h"

#include <inttypes.h>

#include "serve/cache_report.h"
#include "serve/server_impl.h"
#include "serve/write.h"

static void put_ms(struct buf *out, const char *key, double v)
{
    buf_printf(out, "\"%s\":", key);
    put_number(out, v, 2);
    buf_addc(out, ',');
}

static double per_second(double n, double ms)
{
    return ms > 0 ? 1e3 * n / ms : 0;
}

void put_vendor(const struct call *c, int choice, struct buf *out)
{
    const struct job_result *r = &c->choices[choice].result;
    const char *detail = job_detail_name(r->detail);
    if (c->server->opt->plain) return;
    buf_addz(out, ",\"lily\":{\"timings\":{");
    put_ms(out, "queue_ms", r->queue_ms);
    put_ms(out, "prefill_ms", r->prefill_ms);
    put_ms(out, "decode_ms", r->decode_ms);
    put_ms(out, "prefill_tok_s", per_second(r->computed, r->prefill_ms));
    buf_addz(out, "\"decode_tok_s\":");
    put_number(out, per_second(r->completion_tokens, r->decode_ms), 2);
    buf_addz(out, "},");
    put_cache(c, choice, out);
    buf_printf(out, ",\"seed\":%" PRIu64, c->ask.seed + (uint64_t)choice);
    if (detail) buf_printf(out, ",\"finish_detail\":\"%s\"", detail);
    else if (r->finish == FINISH_CANCELLED) buf_addz(out, ",\"finish_detail\":\"server_shutting_down\"");
    buf_addc(out, '}');
}

void put_usage(const struct call *c, struct buf *out)
{
    struct call_usage u = call_usage(c);
    buf_printf(out,
               "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%d},\"completion_tokens_details\":{\"reasoning_tokens\":%d}}",
               u.prompt, u.completion, u.prompt + u.completion, u.cached, u.reasoning);
}

void put_progress(const struct call *c, const char *state, struct buf *out)
{
    struct job *j = c->choices[0].job;
    buf_printf(out, "\"lily\":{\"state\":\"%s\",\"position\":%d,\"done\":%d,\"total\":%d}", state, atomic_load(&j->position),
               atomic_load(&j->done), c->ask.spec.n_ids);
}
