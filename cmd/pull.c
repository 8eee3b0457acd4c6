/* lily pull: a model from a hub into the cache that the hub's own tools use. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "commands.h"
#include "fetch.h"
#include "hub.h"
#include "interrupt.h"
#include "load/config.h"
#include "load/names.h"

#define DEFAULT_REPO "mlx-community/Qwen3.6-35B-A3B-4bit"
enum { MAX_LISTING = 32 << 20, MAX_SMALL_FILE = 64 << 20, DEFAULT_CONNECTIONS = 8 };

struct pull_args {
    struct common_args common;
    int connections;
    int silence; /* seconds */
};

struct pull {
    const struct pull_args *a;
    struct hub_repo repo;
    struct hub_listing listing;    /* owned */
    struct buf dir;                /* owned; HUB/models--OWNER--NAME */
    struct web *web;               /* owned */
    bool *wanted;                  /* owned; of each file of the listing */
    struct progress bar;
    int64_t total, before, fetched; /* bytes: of the wanted files; of large files fetched so far; of all fetched in this run */
    int64_t kept;                  /* of the file that is being fetched, from a run before */
};

static bool ends(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* "ENDPOINT/REPO/resolve/COMMIT/FILE", or the listing's address. A revision's slashes are escaped. */
static void make_url(const struct pull *p, const char *file, struct buf *url)
{
    buf_clear(url);
    buf_addz(url, env_hub_endpoint());
    while (url->len && url->data[url->len - 1] == '/') url->data[--url->len] = 0;
    if (file) {
        buf_printf(url, "/%s/resolve/%s/%s", p->repo.name, p->listing.commit, file);
        return;
    }
    buf_printf(url, "/api/models/%s/revision/", p->repo.name);
    for (const char *s = p->repo.revision; *s; s++) {
        if (*s == '/') buf_addz(url, "%2F");
        else buf_addc(url, *s);
    }
    buf_addz(url, "?blobs=true");
}

/* Waits, but not through a Ctrl-C. */
static void pause_ms(double ms)
{
    for (double end = clock_ms() + ms; clock_ms() < end && !interrupted();) usleep(20000);
}

/* A whole answer of at most max bytes, asked for again where that may help. */
static lily_status get_text(struct pull *p, const char *url, const char *what, size_t max, struct buf *out, struct lily_err *err)
{
    for (int attempt = 1;; attempt++) {
        struct web_transfer t = {.url = url, .bearer = env_hub_token()};
        buf_clear(out);
        if (interrupted()) return err_set(err, LILY_ERR_CANCELLED, "%s", "");
        if (web_get(p->web, &t, max, out) && t.status >= 200 && t.status < 300) return LILY_OK;
        if (t.status >= 200 && t.status < 300 && t.total > (int64_t)max)
            LILY_FAIL(err, LILY_ERR_LIMIT, "%s: %" PRId64 " bytes, at most %zu are accepted", what, t.total, max);
        int most = t.status ? FETCH_ATTEMPTS : FETCH_ATTEMPTS_UNHEARD; /* a name that is wrong is told soon */
        if (!fetch_may_retry(&t) || attempt >= most) return fetch_status_error(&t, what, err);
        pause_ms(fetch_delay_ms(&t, attempt));
    }
}

static lily_status get_listing(struct pull *p, struct lily_err *err)
{
    struct buf url = {0}, text = {0}, what = {0};
    make_url(p, NULL, &url);
    buf_printf(&what, "%s@%s", p->repo.name, p->repo.revision);
    lily_status st = get_text(p, buf_str(&url), buf_str(&what), MAX_LISTING, &text, err);
    if (st == LILY_OK) st = hub_parse_listing(buf_str(&text), text.len, buf_str(&what), &p->listing, err);
    buf_free(&url);
    buf_free(&text);
    buf_free(&what);
    return st;
}

/* ---- which files ---- */

static bool is_small_part(const char *name)
{
    return ends(name, ".json") || ends(name, ".jinja") || strcmp(name, "merges.txt") == 0;
}

static lily_status want(struct pull *p, const char *name, const char *why, struct lily_err *err)
{
    const struct hub_file *f = hub_find(&p->listing, name);
    if (!f) LILY_FAIL(err, LILY_ERR_FORMAT, "%s@%s has no %s%s", p->repo.name, p->repo.revision, name, why);
    p->wanted[f - p->listing.files] = true;
    return LILY_OK;
}

/* The shards that hold a tensor of the text model or of multi-token prediction, by the index. */
static lily_status want_shards(struct pull *p, const char *index, struct lily_err *err)
{
    struct json *root = NULL;
    struct buf name = {0};
    LILY_TRY(json_parse_file(index, MAX_SMALL_FILE, &root, err));
    const struct json *map = json_get(root, "weight_map");
    lily_status st = LILY_OK;
    if (!map || json_kind(map) != JSON_OBJECT) st = err_set(err, LILY_ERR_FORMAT, "model.safetensors.index.json: weight_map is missing");
    for (size_t i = 0; st == LILY_OK && i < json_size(map); i++) {
        const struct json *file;
        const char *tensor = json_key_at(map, i, &file);
        if (!name_of_text_model(tensor, &name) && !name_of_mtp(tensor, &name)) continue;
        if (json_kind(file) != JSON_STRING) st = err_set(err, LILY_ERR_FORMAT, "model.safetensors.index.json: a tensor lies in no file");
        else st = want(p, json_string(file), ", which its index names", err);
    }
    buf_free(&name);
    json_free(root);
    return st;
}

/* ---- fetching ---- */

static void show(void *ctx, int64_t done)
{
    struct pull *p = ctx;
    progress_at(&p->bar, (double)(p->before + done - p->kept));
}

static lily_status fetch_small(struct pull *p, const struct hub_file *f, const char *url, const char *blob, struct lily_err *err)
{
    struct buf text = {0};
    char hash[41];
    lily_status st = get_text(p, url, f->name, MAX_SMALL_FILE, &text, err);
    if (st == LILY_OK) {
        git_blob_id(buf_str(&text), text.len, hash);
        if (strcmp(hash, f->hash) != 0) {
            st = err_set(err, LILY_ERR_FORMAT, "%s: %zu bytes with git's id %s, the hub lists %" PRId64 " with %s", f->name, text.len, hash,
                         f->size, f->hash);
            err_hint(err, "it was changed meanwhile, or a proxy answers instead: run the command again");
        }
    }
    if (st == LILY_OK) st = file_write_shared(blob, buf_str(&text), text.len, err);
    buf_free(&text);
    return st;
}

static lily_status fetch_large(struct pull *p, const struct hub_file *f, const char *url, const char *blob, struct lily_err *err)
{
    struct buf part = {0};
    buf_printf(&part, "%s.lily", blob);
    struct fetch_job job = {.name = f->name,
                            .url = url,
                            .bearer = env_hub_token(),
                            .sha256 = f->hash,
                            .part = buf_str(&part),
                            .size = f->size,
                            .connections = p->a->connections,
                            .cancel = interrupt_flag(),
                            .progress = show,
                            .ctx = p};
    p->kept = fetch_kept(buf_str(&part), f->size, f->hash);
    lily_status st = fetch_file(p->web, &job, err);
    if (st == LILY_OK && rename(buf_str(&part), blob) != 0)
        st = err_set(err, LILY_ERR_IO, "%s: cannot rename into place: %s", blob, strerror(errno));
    p->before += f->size - p->kept;
    buf_free(&part);
    return st;
}

/* A file into the blobs, unless it is there. */
static lily_status fetch_one(struct pull *p, const struct hub_file *f, struct lily_err *err)
{
    struct buf url = {0}, blob = {0};
    int lock;
    if (hub_has(buf_str(&p->dir), p->listing.commit, f)) return LILY_OK;
    LILY_TRY(hub_lock(&p->repo, f->hash, &lock, err));
    make_url(p, f->name, &url);
    hub_blob_path(buf_str(&p->dir), f->hash, &blob);
    lily_status st = f->size && strlen(f->hash) == 64 ? fetch_large(p, f, buf_str(&url), buf_str(&blob), err)
                                                      : fetch_small(p, f, buf_str(&url), buf_str(&blob), err);
    if (st == LILY_OK) p->fetched += f->size;
    close(lock);
    buf_free(&url);
    buf_free(&blob);
    return st;
}

/* Where the content of a file lies now. */
static void content_path(const struct pull *p, const struct hub_file *f, struct buf *path)
{
    hub_snapshot_path(buf_str(&p->dir), p->listing.commit, f->name, path);
    if (access(buf_str(path), R_OK) != 0) hub_blob_path(buf_str(&p->dir), f->hash, path);
}

/* Refuses what lily does not run before the weights are fetched. */
static lily_status check_config(struct pull *p, struct lily_err *err)
{
    struct buf path = {0}, text = {0};
    struct model_config config;
    content_path(p, hub_find(&p->listing, "config.json"), &path);
    lily_status st = file_read(buf_str(&path), MAX_CONFIG_BYTES, &text, err);
    if (st == LILY_OK) st = config_parse(buf_str(&text), text.len, "config.json", &config, err);
    if (st == LILY_OK) config_free(&config);
    buf_free(&path);
    buf_free(&text);
    return st;
}

static lily_status fetch_texts(struct pull *p, struct lily_err *err)
{
    for (int i = 0; i < p->listing.n_files; i++) p->wanted[i] = is_small_part(p->listing.files[i].name);
    LILY_TRY(want(p, "config.json", ", so it is no model", err));
    LILY_TRY(fetch_one(p, hub_find(&p->listing, "config.json"), err));
    LILY_TRY(check_config(p, err));
    for (int i = 0; i < p->listing.n_files; i++)
        if (p->wanted[i]) LILY_TRY(fetch_one(p, &p->listing.files[i], err));
    return LILY_OK;
}

static lily_status choose_weights(struct pull *p, struct lily_err *err)
{
    const struct hub_file *index = hub_find(&p->listing, "model.safetensors.index.json");
    if (hub_find(&p->listing, "mtp.safetensors")) LILY_TRY(want(p, "mtp.safetensors", "", err));
    if (!index) return want(p, "model.safetensors", " and no index, so it has no weights that lily reads", err);
    struct buf path = {0};
    content_path(p, index, &path);
    lily_status st = want_shards(p, buf_str(&path), err);
    buf_free(&path);
    return st;
}

/* Bytes that are still to come; the disk must have room for them. */
static lily_status check_room(struct pull *p, int64_t *missing, struct lily_err *err)
{
    struct buf path = {0};
    struct statvfs fs;
    *missing = 0;
    for (int i = 0; i < p->listing.n_files; i++) {
        const struct hub_file *f = &p->listing.files[i];
        if (!p->wanted[i]) continue;
        p->total += f->size;
        if (hub_has(buf_str(&p->dir), p->listing.commit, f)) continue;
        hub_blob_path(buf_str(&p->dir), f->hash, &path);
        buf_addz(&path, ".lily");
        *missing += f->size - fetch_kept(buf_str(&path), f->size, f->hash);
    }
    buf_free(&path);
    if (statvfs(buf_str(&p->dir), &fs) != 0 || (double)fs.f_bavail * (double)fs.f_frsize >= (double)*missing) return LILY_OK;
    err_set(err, LILY_ERR_IO, "%s: %s are to be fetched, the disk has %s free", buf_str(&p->dir), SIZE_TEXT(*missing),
            SIZE_TEXT((double)fs.f_bavail * (double)fs.f_frsize));
    err_hint(err, "free some space (lily list, lily remove), or set HF_HUB_CACHE to a folder on another disk");
    return LILY_ERR_IO;
}

static lily_status fetch_weights(struct pull *p, struct lily_err *err)
{
    int64_t missing;
    LILY_TRY(check_room(p, &missing, err));
    if (missing) log_note("%s@%.8s: %s to fetch", p->repo.name, p->listing.commit, SIZE_TEXT(missing));
    progress_begin(&p->bar, "pulling", (double)missing, "B");
    lily_status st = LILY_OK;
    for (int i = 0; i < p->listing.n_files && st == LILY_OK; i++)
        if (p->wanted[i]) st = fetch_one(p, &p->listing.files[i], err);
    progress_end(&p->bar);
    return st;
}

/* The snapshot's links, config.json last: a folder without it is no model, so nothing takes half of one. */
static lily_status link_all(struct pull *p, struct lily_err *err)
{
    struct buf dir = {0};
    const struct hub_file *config = hub_find(&p->listing, "config.json");
    for (int i = 0; i < p->listing.n_files; i++)
        if (p->wanted[i] && &p->listing.files[i] != config)
            LILY_TRY(hub_link(buf_str(&p->dir), p->listing.commit, &p->listing.files[i], err));
    LILY_TRY(hub_link(buf_str(&p->dir), p->listing.commit, config, err));
    LILY_TRY(hub_write_ref(buf_str(&p->dir), &p->repo, p->listing.commit, err));
    hub_snapshot_path(buf_str(&p->dir), p->listing.commit, NULL, &dir);
    utimensat(AT_FDCWD, buf_str(&dir), NULL, 0); /* the newest pulled model */
    buf_free(&dir);
    return LILY_OK;
}

static lily_status pull_all(struct pull *p, struct lily_err *err)
{
    struct buf blobs = {0};
    LILY_TRY(get_listing(p, err));
    p->wanted = mem_new((size_t)p->listing.n_files + 1);
    buf_printf(&blobs, "%s/blobs", buf_str(&p->dir));
    lily_status st = file_make_shared_dirs(buf_str(&blobs), err);
    buf_free(&blobs);
    LILY_TRY(st);
    LILY_TRY(fetch_texts(p, err));
    LILY_TRY(choose_weights(p, err));
    LILY_TRY(fetch_weights(p, err));
    return link_all(p, err);
}

static void print_result(const struct pull *p, double ms)
{
    struct buf dir = {0};
    hub_snapshot_path(buf_str(&p->dir), p->listing.commit, NULL, &dir);
    if (p->a->common.json) {
        struct json *v = json_new_object();
        json_put(v, "repo", json_new_string(p->repo.name));
        json_put(v, "revision", json_new_string(p->repo.revision));
        json_put(v, "commit", json_new_string(p->listing.commit));
        json_put(v, "dir", json_new_text(buf_str(&dir), dir.len));
        json_put(v, "bytes", json_new_int(p->total));
        json_put(v, "fetched", json_new_int(p->fetched));
        json_put(v, "ms", json_rounded(ms));
        print_json(v);
    } else {
        print_text(buf_str(&dir), dir.len);
        print_text("\n", 1);
        if (p->fetched) log_note("%s in %.1f s, every hash as the hub lists it", SIZE_TEXT(p->fetched), ms / 1e3);
        else log_note("everything was there");
    }
    buf_free(&dir);
}

static lily_status run_pull(void *args, int n, char **words, struct lily_err *err)
{
    struct pull p = {.a = args};
    double started = clock_ms();
    interrupt_init();
    interrupt_mode(INTERRUPT_STOPS_ANSWER);
    LILY_TRY(hub_parse_repo(n ? words[0] : DEFAULT_REPO, &p.repo, err));
    lily_status st = hub_repo_dir(&p.repo, &p.dir, err);
    if (st == LILY_OK) st = web_open(p.a->silence, &p.web, err);
    if (st == LILY_OK) st = pull_all(&p, err);
    if (st == LILY_OK) print_result(&p, clock_ms() - started);
    web_close(p.web);
    hub_listing_free(&p.listing);
    free(p.wanted);
    buf_free(&p.dir);
    return st;
}

static void init(void *args)
{
    struct pull_args *a = args;
    a->connections = DEFAULT_CONNECTIONS;
    a->silence = 30;
}

static const struct opt options[] = {
    {"connections", 0, "N", "ranges that are fetched at once (default: 8)", OPT_INT, offsetof(struct pull_args, connections), 1,
     FETCH_MAX_CONNECTIONS, NULL},
    {"timeout", 0, "SECONDS", "try again when a connection has been silent for so long (default: 30)", OPT_INT,
     offsetof(struct pull_args, silence), 1, 3600, NULL},
};
static const struct opt_group group = {"Download", options, 2};

const struct command cmd_pull = {
    .name = "pull",
    .usage = "[REPO[@REV]]",
    .summary = "download a model",
    .about = "Fetches what lily needs of REPO (default: " DEFAULT_REPO ",\n"
             "about 20 GB) from the hub at $HF_ENDPOINT into the cache of the hub's own tools,\n"
             "checks every hash, and prints the folder. What they have fetched is not fetched\n"
             "again, and a run that was cut or killed is gone on with. $HF_TOKEN gives access\n"
             "to private repositories.\n"
             "With --json: {repo, revision, commit, dir, bytes, fetched, ms}.",
    .uses = {{&group, 0}, {&opts_json, offsetof(struct pull_args, common)}},
    .max_args = 1,
    .args_size = sizeof(struct pull_args),
    .init = init,
    .run = run_pull,
};
