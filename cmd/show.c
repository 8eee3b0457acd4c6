/* Showing an answer while it is made, and its counts. */
#include "show.h"

#include <stdio.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/size.h"
#include "commands.h"
#include "interrupt.h"

struct shown {
    struct screen *screen;
    struct progress bar;
    bool begun;
};

static bool on_text(void *ctx, enum answer_part part, const char *text, size_t n)
{
    struct shown *s = ctx;
    if (part == ANSWER_REASONING) screen_thinking(s->screen, text, n);
    else screen_answer(s->screen, text, n);
    return screen_alive();
}

static void on_call(void *ctx, const char *name, const char *arguments)
{
    struct shown *s = ctx;
    screen_call(s->screen, name, arguments);
}

static void on_progress(void *ctx, int done, int total)
{
    struct shown *s = ctx;
    if (!s->begun) progress_begin(&s->bar, "reading", total, "token");
    s->begun = true;
    progress_at(&s->bar, done);
    if (done == total) progress_end(&s->bar);
}

lily_status show_answer(struct answer_job *job, struct screen *screen, bool progress, struct answer *out, struct lily_err *err)
{
    struct shown shown = {.screen = screen};
    job->ctx = &shown;
    job->cancel = interrupt_flag();
    job->on_text = screen ? on_text : NULL;
    job->on_call = screen ? on_call : NULL;
    job->on_progress = progress ? on_progress : NULL;
    enum interrupt_mode before = interrupt_guard();
    lily_status st = answer_make(job, out, err);
    if (shown.begun) progress_end(&shown.bar);
    if (screen) screen_end(screen);
    interrupt_mode(before);
    return st;
}

static struct json *detail(const char *key, int value)
{
    struct json *v = json_new_object();
    json_put(v, key, json_new_int(value));
    return v;
}

struct json *show_usage(const struct answer *a)
{
    struct json *v = json_new_object();
    json_put(v, "prompt_tokens", json_new_int(a->prompt_tokens));
    json_put(v, "completion_tokens", json_new_int((int64_t)a->ids.n));
    json_put(v, "total_tokens", json_new_int(a->prompt_tokens + (int64_t)a->ids.n));
    json_put(v, "prompt_tokens_details", detail("cached_tokens", a->read.reused));
    json_put(v, "completion_tokens_details", detail("reasoning_tokens", a->reasoning_tokens));
    return v;
}

struct json *show_timings(const struct answer *a, double load_ms)
{
    struct json *v = json_new_object();
    json_put(v, "load_ms", json_rounded(load_ms));
    json_put(v, "prefill_ms", json_rounded(a->prefill_ms));
    json_put(v, "decode_ms", json_rounded(a->decode_ms));
    json_put(v, "prefill_tok_s", json_rounded(answer_prefill_speed(a)));
    json_put(v, "decode_tok_s", json_rounded(answer_decode_speed(a)));
    return v;
}

void show_report(const struct answer *a)
{
    bool dim = isatty(STDERR_FILENO) && env_color();
    const int read = a->read.reused + a->read.computed;
    fputs(dim ? "\033[2m" : "", stderr);
    if (read < a->prompt_tokens) fprintf(stderr, "%d of ", read);
    fprintf(stderr, "%s read", COUNT_TEXT(a->prompt_tokens, "token"));
    if (a->read.reused) fprintf(stderr, " (%d cached)", a->read.reused);
    if (a->read.computed) fprintf(stderr, ", %.1f tok/s", answer_prefill_speed(a));
    fprintf(stderr, "; %zu written", a->ids.n);
    if (a->steps) fprintf(stderr, ", %.1f tok/s", answer_decode_speed(a));
    fputs(dim ? "\033[0m\n" : "\n", stderr);
}
