/* lily serve: options, keys, the engine of the server. */
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "commands.h"
#include "model_args.h"
#include "run/fake.h"
#include "serve/server.h"

enum { MAX_KEYS = 256, MAX_CORS = 64, MAX_KEY_FILE = 1 << 20 };

struct serve_args {
    struct common_args common;
    struct model_args model;
    const char *host;
    int port;
    char *keys[MAX_KEYS]; /* owned */
    int n_keys;
    const char *cors[MAX_CORS];
    int n_cors;
    bool insecure;
    int parallel, queue;
    size_t max_body, cache_ram, cache_disk;
    const char *cache_dir;
    double drain, verify;
    int loop_guard;
    bool strict_model, plain, alias, log_json, log_text;
    const char *fake;
};

static void init(void *args)
{
    struct serve_args *a = args;
    model_args_init(&a->model);
    a->host = "127.0.0.1";
    a->port = 8080;
    a->parallel = 4;
    a->queue = 64;
    a->max_body = (size_t)64 << 20;
    a->cache_ram = (size_t)1 << 30;
    a->cache_disk = (size_t)20 << 30;
    a->drain = 30;
}

/* ---- options that are more than a value ---- */

/* Told now, not when the server listens: a port, or a URL around the address. IPv6 addresses have two colons or more. */
static lily_status take_host(void *values, const char *text, struct lily_err *err)
{
    const char *colon = strchr(text, ':');
    ((struct serve_args *)values)->host = text;
    if ((!colon || strchr(colon + 1, ':')) && !strpbrk(text, "[]/")) return LILY_OK;
    err_set(err, LILY_ERR_USAGE, "\"%.80s\" is no address; expected one like 127.0.0.1, ::1 or localhost", text);
    err_hint(err, "--port takes the port");
    return LILY_ERR_USAGE;
}

static lily_status add_key(struct serve_args *a, const char *key, size_t n, struct lily_err *err)
{
    if (n == 0) LILY_FAIL(err, LILY_ERR_USAGE, "an empty key lets nobody in");
    if (a->n_keys == MAX_KEYS) LILY_FAIL(err, LILY_ERR_USAGE, "more than %d keys", MAX_KEYS);
    a->keys[a->n_keys++] = mem_dup(key, n);
    return LILY_OK;
}

static lily_status take_key(void *values, const char *text, struct lily_err *err)
{
    return add_key(values, text, strlen(text), err);
}

/* One key a line; empty lines and those that begin with # are left out. */
static lily_status take_key_file(void *values, const char *text, struct lily_err *err)
{
    struct buf all = {0};
    lily_status st = file_read(text, MAX_KEY_FILE, &all, err);
    for (const char *line = buf_str(&all); st == LILY_OK && *line;) {
        size_t n = strcspn(line, "\r\n");
        while (n > 0 && isspace((unsigned char)*line)) line++, n--;
        size_t used = n;
        while (used > 0 && isspace((unsigned char)line[used - 1])) used--;
        if (used > 0 && *line != '#') st = add_key(values, line, used, err);
        line += n;
        line += strspn(line, "\r\n");
    }
    buf_free(&all);
    if (st == LILY_OK && ((struct serve_args *)values)->n_keys == 0) LILY_FAIL(err, LILY_ERR_USAGE, "%s holds no key", text);
    return st;
}

static lily_status take_cors(void *values, const char *text, struct lily_err *err)
{
    struct serve_args *a = values;
    if (strcmp(text, "*") != 0 && !strstr(text, "://"))
        LILY_FAIL(err, LILY_ERR_USAGE, "\"%.80s\" is no origin; expected one like https://example.org, or *", text);
    if (a->n_cors == MAX_CORS) LILY_FAIL(err, LILY_ERR_USAGE, "more than %d origins", MAX_CORS);
    a->cors[a->n_cors++] = text;
    return LILY_OK;
}

static lily_status take_log_format(void *values, const char *text, struct lily_err *err)
{
    struct serve_args *a = values;
    a->log_json = strcmp(text, "json") == 0;
    if (a->log_json || strcmp(text, "text") == 0) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_USAGE, "\"%.40s\" is no log format; expected text or json", text);
}

/* ---- the run ---- */

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 || strncmp(host, "127.", 4) == 0;
}

static lily_status check_host(const char *host, struct lily_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    int rc = getaddrinfo(host, NULL, &hints, &list);
    if (rc != 0) LILY_FAIL(err, LILY_ERR_USAGE, "serve: --host: \"%.80s\" is no address: %s", host, gai_strerror(rc));
    freeaddrinfo(list);
    return LILY_OK;
}

static lily_status check(const struct serve_args *a, struct lily_err *err)
{
    LILY_TRY(check_host(a->host, err));
    if (a->cache_dir) LILY_TRY(file_make_dirs(a->cache_dir, err));
    if (a->cache_dir && access(a->cache_dir, W_OK | X_OK) != 0)
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot write into the folder: %s", a->cache_dir, strerror(errno));
    if (is_loopback(a->host) || a->n_keys || a->insecure) return LILY_OK;
    err_set(err, LILY_ERR_USAGE, "serve: --host %s lets other machines in, and there is no key", a->host);
    err_hint(err, "set --api-key or --api-key-file, or say --insecure");
    return LILY_ERR_USAGE;
}

/* The last part of the folder's real path, in characters that need no escape anywhere. */
static void model_name(const char *dir, char *out, size_t size)
{
    char *real = realpath(dir, NULL);
    const char *path = real ? real : dir, *slash = strrchr(path, '/');
    snprintf(out, size, "%s", slash ? slash + 1 : path);
    free(real);
    for (char *p = out; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p)) *p = '-';
    if (!*out) snprintf(out, size, "lily");
}

static int fake_context(const struct serve_args *a, const struct bundle *b)
{
    return a->model.ctx ? a->model.ctx : b->config.shape.max_positions;
}

static void model_runner_options(const struct serve_args *a, const struct bundle *b, struct runner_model_options *o)
{
    memset(o, 0, sizeof *o);
    model_tell_fast(&a->model);
    model_args_options(&a->model, &o->model);
    model_plan_want(&a->model, &b->config, 0, &o->model.plan);
    o->model.plan.n_seqs = a->parallel + (a->verify > 0); /* one more reads prompts again */
    o->model.plan.border_bytes = a->cache_ram;
    o->n_slots = a->parallel;
    o->cache_bytes = a->cache_ram;
    o->verify = a->verify;
    o->cache_dir = a->cache_dir;
    o->cache_disk = a->cache_disk;
}

/* The plan is printed, and refused when it does not fit, before anything is loaded. */
static lily_status show_plan(const struct runner_model_options *o, const struct bundle *b, struct lily_err *err)
{
    struct memory_plan p;
    struct plan_want want = o->model.plan;
    want.max_rows = o->model.max_rows;
    LILY_TRY(plan_make(&b->config, &want, &p, err));
    log_note("memory: weights %s, kv of %d x %d tokens %s, saved states up to %s, scratch %s; in all %s of %s",
             SIZE_TEXT(p.weights), o->n_slots, p.ctx, SIZE_TEXT(p.kv), SIZE_TEXT(p.borders), SIZE_TEXT(p.scratch), SIZE_TEXT(p.total),
             SIZE_TEXT(p.limit));
    return LILY_OK;
}

static lily_status make_runner(const struct serve_args *a, struct bundle *b, struct runner **out, struct lily_err *err)
{
    struct runner_model_options o;
    if (a->fake) {
        b->config.max_new_tokens = 0; /* a script says itself how long an answer is */
        return fake_open(a->fake, b, a->parallel, fake_context(a, b), out, err);
    }
    model_runner_options(a, b, &o);
    LILY_TRY(show_plan(&o, b, err));
    *out = runner_model_new(b, &o);
    return LILY_OK;
}

static void leave(void)
{
    _exit(130);
}

static lily_status serve(const struct serve_args *a, struct bundle *b, struct lily_err *err)
{
    struct runner *runner;
    struct server_options o = {.host = a->host,
                               .port = a->port,
                               .keys = (const char *const *)a->keys,
                               .n_keys = a->n_keys,
                               .cors = a->cors,
                               .n_cors = a->n_cors,
                               .max_body = a->max_body,
                               .queue = a->queue,
                               .drain_s = a->drain,
                               .loop_guard = a->loop_guard,
                               .strict_model = a->strict_model,
                               .plain = a->plain,
                               .reasoning_alias = a->alias,
                               .log_json = a->log_json,
                               .log_text = a->log_text,
                               .leave = leave};
    struct buf calls = {0};
    model_name(b->dir, o.model_id, sizeof o.model_id);
    LILY_TRY(make_runner(a, b, &runner, err));
    if (a->cache_dir) {
        file_join(&calls, a->cache_dir, "calls");
        o.calls_file = buf_str(&calls);
    }
    lily_status st = server_run(&o, b, runner, err);
    buf_free(&calls);
    return st;
}

static lily_status run_serve(void *args, int n, char **words, struct lily_err *err)
{
    struct serve_args *a = args;
    struct bundle b = {0};
    (void)n;
    (void)words;
    lily_status st = check(a, err);
    if (st == LILY_OK) st = model_texts(&a->model, &b, err);
    if (st == LILY_OK) st = serve(a, &b, err);
    bundle_close(&b);
    for (int i = 0; i < a->n_keys; i++) free(a->keys[i]);
    return st;
}

#define AT(field) offsetof(struct serve_args, field)
static const struct opt options[] = {
    {"host", 0, "ADDRESS", "address to listen on (default: 127.0.0.1, which only this machine reaches)", OPT_TAKE, 0, 0, 0, take_host},
    {"port", 'p', "N", "port; 0 takes any free one, and says which (default: 8080)", OPT_INT, AT(port), 0, 65535, NULL},
    {"api-key", 0, "KEY", "clients must send this key; may be repeated", OPT_TAKE, 0, 0, 0, take_key},
    {"api-key-file", 0, "FILE", "the keys are the lines of FILE; so they do not show in the list of processes", OPT_TAKE, 0, 0, 0,
     take_key_file},
    {"insecure", 0, NULL, "let other machines in without a key", OPT_ON, AT(insecure), 0, 0, NULL},
    {"cors", 0, "ORIGIN", "pages of ORIGIN may call the server from a browser; may be repeated; * for all", OPT_TAKE, 0, 0, 0, take_cors},
    {"max-body", 0, "SIZE", "longest request (default: 64M)", OPT_SIZE, AT(max_body), 1, 0, NULL},
};
static const struct opt engine_options[] = {
    {"parallel", 0, "N", "answers made at once; each has a context of its own (default: 4)", OPT_INT, AT(parallel), 1, 256, NULL},
    {"queue", 0, "N", "answers that may wait for a place; more are refused (default: 64)", OPT_INT, AT(queue), 0, 65536, NULL},
    {"cache-ram", 0, "SIZE", "memory for the states of prompts that may come again; 0 keeps none (default: 1G)", OPT_SIZE, AT(cache_ram), 0, 0, NULL},
    {"cache-dir", 0, "DIR", "keep such states in DIR, too, so that they outlive the program (docs/cache.md)", OPT_TEXT, AT(cache_dir), 0, 0,
     NULL},
    {"cache-disk", 0, "SIZE", "what DIR may take (default: 20G)", OPT_SIZE, AT(cache_disk), 0, 0, NULL},
    {"verify-cache", 0, "SHARE", "read this share of the prompts that had saved state again without it, and count differences (default: 0)",
     OPT_REAL, AT(verify), 0, 1, NULL},
    {"loop-guard", 0, "N", "end a thought whose last passage stands there N times in a row; 0 is off (default: 0)", OPT_INT,
     AT(loop_guard), 0, 1000, NULL},
    {"drain", 0, "SECONDS", "time that open answers get after SIGTERM (default: 30)", OPT_REAL, AT(drain), 0, 86400, NULL},
    {"fake-engine", 0, "FILE", "play the script in FILE instead of running the model (docs/fake-engine.md)", OPT_TEXT, AT(fake), 0, 0,
     NULL},
};
static const struct opt reply_options[] = {
    {"strict-model", 0, NULL, "requests that name another model are refused", OPT_ON, AT(strict_model), 0, 0, NULL},
    {"plain", 0, NULL, "replies without the object \"lily\" (timings, cache, seed)", OPT_ON, AT(plain), 0, 0, NULL},
    {"reasoning-alias", 0, NULL, "send the thinking also under the name \"reasoning\"", OPT_ON, AT(alias), 0, 0, NULL},
    {"log-format", 0, "FORMAT", "one line for each request on stderr, as text or json (default: text)", OPT_TAKE, 0, 0, 0,
     take_log_format},
    {"log-text", 0, NULL, "put prompts and answers into the log, too", OPT_ON, AT(log_text), 0, 0, NULL},
};
static const struct opt_group network = {"Network", options, (int)(sizeof options / sizeof options[0])};
static const struct opt_group engine = {"Engine", engine_options, (int)(sizeof engine_options / sizeof engine_options[0])};
static const struct opt_group replies = {"Replies", reply_options, (int)(sizeof reply_options / sizeof reply_options[0])};

const struct command cmd_serve = {
    .name = "serve",
    .usage = "",
    .summary = "serve the model over HTTP, as OpenAI and Anthropic do",
    .about = "Serves the model on http://ADDRESS:PORT: /v1/chat/completions, /v1/completions,\n"
             "/v1/responses, /v1/models, /v1/messages, /health, /metrics and more\n"
             "(docs/api.md); the address itself, opened in a browser, is a page to chat\n"
             "(docs/page.md). Several answers are made at once. SIGTERM and SIGINT let open\n"
             "answers end, a second one ends the program. Exit status 1 when the engine fails.",
    .uses = {{&network, 0},
             {&engine, 0},
             {&replies, 0},
             {&opts_model, offsetof(struct serve_args, model)},
             {&opts_plain, offsetof(struct serve_args, common)}},
    .max_args = 0,
    .args_size = sizeof(struct serve_args),
    .init = init,
    .run = run_serve,
};
