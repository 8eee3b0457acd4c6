/* Finding a model folder: what was named, the hub cache, the demo model. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cpu/packed.h"
#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "hub.h"
#include "json/json.h"
#include "load/names.h"
#include "model_args.h"

enum { MAX_INDEX_BYTES = 16 << 20, MAX_NAMED = 3 };

/* A folder of the hub cache, as a candidate for the newest. */
struct newest {
    struct buf dir; /* owned; empty: none yet */
    struct timespec time;
};

static bool later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/* Whether a file can be read: not a link whose file is still to come. */
static bool is_there(const char *dir, const char *name)
{
    struct buf path = {0};
    file_join(&path, dir, name);
    bool there = access(buf_str(&path), R_OK) == 0;
    buf_free(&path);
    return there;
}

/* Whether every file is there into which the index puts a tensor of the text model; a download may be half done. */
static bool has_shards(const char *dir, const char *index)
{
    struct json *root = NULL;
    struct buf path = {0}, name = {0};
    const char *last = "";
    file_join(&path, dir, index);
    bool all = json_parse_file(buf_str(&path), MAX_INDEX_BYTES, &root, NULL) == LILY_OK;
    const struct json *map = all ? json_get(root, "weight_map") : NULL;
    all = map && json_kind(map) == JSON_OBJECT;
    for (size_t i = 0; all && i < json_size(map); i++) {
        const struct json *file;
        if (!name_of_text_model(json_key_at(map, i, &file), &name)) continue;
        all = json_kind(file) == JSON_STRING;
        if (!all || strcmp(json_string(file), last) == 0) continue;
        last = json_string(file);
        all = is_there(dir, last);
    }
    buf_free(&path);
    buf_free(&name);
    json_free(root);
    return all;
}

bool model_is_checkpoint(const char *dir)
{
    static const char index[] = "model.safetensors.index.json";
    struct model_config config;
    bool weights = is_there(dir, index) ? has_shards(dir, index) : is_there(dir, "model.safetensors");
    if (!weights || config_load(dir, &config, NULL) != LILY_OK) return false;
    config_free(&config);
    return true;
}

static void consider(struct newest *n, const char *dir)
{
    struct stat st;
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) return;
    if (n->dir.len && !later(st.st_mtim, n->time)) return;
    if (!model_is_checkpoint(dir)) return;
    n->time = st.st_mtim;
    buf_clear(&n->dir);
    buf_addz(&n->dir, dir);
}

/* Calls consider for every REPO_DIR/snapshots/COMMIT. */
static void search_repo(const char *repo_dir, struct newest *n)
{
    struct buf snapshots = {0}, dir = {0};
    file_join(&snapshots, repo_dir, "snapshots");
    DIR *commits = opendir(buf_str(&snapshots));
    for (const struct dirent *c; commits && (c = readdir(commits));) {
        if (c->d_name[0] == '.') continue;
        file_join(&dir, buf_str(&snapshots), c->d_name);
        consider(n, buf_str(&dir));
    }
    if (commits) closedir(commits);
    buf_free(&snapshots);
    buf_free(&dir);
}

/* The same for every HUB/models--NAME. */
static void search_hub(const char *hub, struct newest *n)
{
    struct buf dir = {0};
    DIR *models = opendir(hub);
    for (const struct dirent *m; models && (m = readdir(models));) {
        if (strncmp(m->d_name, "models--", 8) != 0) continue;
        file_join(&dir, hub, m->d_name);
        search_repo(buf_str(&dir), n);
    }
    if (models) closedir(models);
    buf_free(&dir);
}

/* The demo model beside the source tree or under the prefix that the program was installed to. */
bool model_find_demo(struct buf *dir)
{
    static const char *const places[] = {"models/demo", "../../models/demo", "../share/lily/demo"};
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return false;
    exe[n] = 0;
    char *slash = strrchr(exe, '/');
    if (slash) *slash = 0;
    struct buf config = {0};
    bool found = false;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !found; i++) {
        file_join(dir, exe, places[i]);
        file_join(&config, buf_str(dir), "config.json");
        found = file_exists(buf_str(&config));
    }
    buf_free(&config);
    return found;
}

/* ---- what was named ---- */

static bool is_packed(const char *path)
{
    char head[sizeof PACKED_MAGIC - 1];
    struct stat sb;
    FILE *f = stat(path, &sb) == 0 && S_ISREG(sb.st_mode) ? fopen(path, "re") : NULL;
    bool packed = f && fread(head, sizeof head, 1, f) == 1 && memcmp(head, PACKED_MAGIC, sizeof head) == 0;
    if (f) fclose(f);
    return packed;
}

/* Appends " -m DIR" for model folders below dir; as deep as a repository's folder in the hub cache has its own. */
static void find_inside(const char *dir, int depth, int *n, struct buf *list)
{
    DIR *d = opendir(dir);
    struct buf path = {0};
    for (const struct dirent *e; d && *n < MAX_NAMED && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        file_join(&path, dir, e->d_name);
        if (is_there(buf_str(&path), "config.json")) buf_printf(list, "%s -m %s", (*n)++ ? "," : "", buf_str(&path));
        else if (depth > 1 && file_is_dir(buf_str(&path))) find_inside(buf_str(&path), depth - 1, n, list);
    }
    if (d) closedir(d);
    buf_free(&path);
}

/* Refuses what is no model folder but leads to one: a packed file, and a folder that holds model folders. */
static lily_status check_dir(const char *dir, struct lily_err *err)
{
    struct buf list = {0};
    int n = 0;
    lily_status st = LILY_OK;
    if (is_packed(dir)) {
        st = err_set(err, LILY_ERR_IO, "%s: is a packed file, expected a model folder", dir);
        err_hint(err, "name the folder that it was made from, too: -m DIR --packed %s", dir);
    } else if (file_is_dir(dir) && !is_there(dir, "config.json")) {
        find_inside(dir, 2, &n, &list);
        if (n) st = err_set(err, LILY_ERR_IO, "%s: holds no config.json, so it is no model folder", dir);
        if (n) err_hint(err, "models are inside:%s", buf_str(&list));
    }
    buf_free(&list);
    return st;
}

/* "OWNER/NAME" or "OWNER/NAME@REVISION" in the hub cache: the revision's snapshot, without one the newest. */
static bool find_pulled(const char *name, struct buf *dir)
{
    struct hub_repo repo;
    struct newest found = {0};
    struct buf repo_dir = {0}, commit = {0}, snapshot = {0};
    if (hub_parse_repo(name, &repo, NULL) == LILY_OK && hub_repo_dir(&repo, &repo_dir, NULL) == LILY_OK) {
        hub_read_ref(buf_str(&repo_dir), &repo, &commit);
        hub_snapshot_path(buf_str(&repo_dir), buf_str(&commit), NULL, &snapshot);
        consider(&found, buf_str(&snapshot));
        if (!found.dir.len && !strchr(name, '@')) search_repo(buf_str(&repo_dir), &found);
    }
    bool there = found.dir.len > 0;
    if (there) buf_clear(dir), buf_addz(dir, buf_str(&found.dir));
    buf_free(&found.dir);
    buf_free(&repo_dir);
    buf_free(&commit);
    buf_free(&snapshot);
    return there;
}

/* Of what may be the name of a model on the hub, the command that fetches it. */
static lily_status not_pulled(const char *name, struct lily_err *err)
{
    struct hub_repo repo;
    struct buf dir = {0};
    if (hub_parse_repo(name, &repo, NULL) != LILY_OK) return LILY_OK;
    bool part = hub_repo_dir(&repo, &dir, NULL) == LILY_OK && file_is_dir(buf_str(&dir));
    buf_free(&dir);
    err_set(err, LILY_ERR_IO, "%s: there is no such folder, and %s", name,
            part ? "what was pulled of that name is no whole model that lily runs" : "no such model was pulled");
    char *folder = file_folder(name);
    const bool path = !part && file_is_dir(folder); /* then OWNER is a folder, and NAME more probably mistyped than on the hub */
    free(folder);
    if (path) err_hint(err, "lily list shows the models that are here; were it one of the hub, lily pull %s would fetch it", name);
    else err_hint(err, part ? "lily pull %s fetches what is missing, or says why it does not" : "lily pull %s fetches it", name);
    return LILY_ERR_IO;
}

/* A folder, or the name of a pulled model where no such folder is. */
static lily_status find_named(const char *name, struct buf *dir, struct lily_err *err)
{
    buf_addz(dir, name);
    if (file_exists(name)) return check_dir(name, err);
    if (!find_pulled(name, dir)) return not_pulled(name, err);
    log_note("model: %s (pulled)", buf_str(dir));
    return LILY_OK;
}

lily_status model_find(const struct model_args *a, struct buf *dir, struct lily_err *err)
{
    struct newest pulled = {0};
    struct buf hub = {0};
    buf_clear(dir);
    if (a->dir && !*a->dir) {
        err_set(err, LILY_ERR_USAGE, "--model: \"\" names no folder");
        return LILY_ERR_USAGE;
    }
    if (a->dir) return find_named(a->dir, dir, err);
    if (env_model()) {
        log_note("model: %s (from LILY_MODEL)", env_model());
        return find_named(env_model(), dir, err);
    }
    env_hub_dir(&hub);
    if (hub.len) search_hub(buf_str(&hub), &pulled);
    buf_free(&hub);
    if (pulled.dir.len) {
        buf_addz(dir, buf_str(&pulled.dir));
        buf_free(&pulled.dir);
        log_note("model: %s (the newest pulled one)", buf_str(dir));
        return LILY_OK;
    }
    if (model_find_demo(dir)) {
        log_note("model: the demo model, %s", buf_str(dir));
        return LILY_OK;
    }
    err_set(err, LILY_ERR_USAGE, "no model: none was given, pulled, or installed");
    err_hint(err, "lily pull fetches one; -m DIR or LILY_MODEL names one");
    return LILY_ERR_USAGE;
}
