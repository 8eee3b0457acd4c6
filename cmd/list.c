/* lily list and lily remove: the models of the hub cache. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/safe.h"
#include "base/size.h"
#include "commands.h"
#include "hub.h"
#include "load/checkpoint.h"
#include "model/packing.h"
#include "model_args.h"

struct list_args {
    struct common_args common;
    bool yes; /* of remove */
};

/* One snapshot of a repository. */
struct snapshot {
    char *repo, *commit, *dir, *revision; /* owned; revision "" where no branch stands there */
    int64_t bytes;                        /* of what its links lead to */
    int64_t unfinished;                   /* bytes on the disk of files that are not complete */
    time_t time;
    bool runs;                            /* lily finds a complete model in it */
};

struct snapshots {
    struct snapshot *list; /* owned */
    int n, cap;
};

static void snapshots_free(struct snapshots *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->list[i].repo);
        free(s->list[i].commit);
        free(s->list[i].dir);
        free(s->list[i].revision);
    }
    free(s->list);
}

/* Calls fn with every entry of a folder that begins with no dot; the folder may be missing. */
typedef void (*entry_fn)(void *ctx, const char *dir, const char *name);
static void each_entry(const char *dir, entry_fn fn, void *ctx)
{
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') fn(ctx, dir, e->d_name);
    if (d) closedir(d);
}

static void add_size(void *ctx, const char *dir, const char *name)
{
    struct buf path = {0};
    struct stat st;
    file_join(&path, dir, name);
    if (stat(buf_str(&path), &st) == 0 && S_ISREG(st.st_mode)) *(int64_t *)ctx += st.st_size;
    buf_free(&path);
}

/* Blocks on the disk of the parts of lily pull and of the hub's own tools. */
static void add_unfinished(void *ctx, const char *dir, const char *name)
{
    struct buf path = {0};
    struct stat st;
    const char *dot = strrchr(name, '.');
    file_join(&path, dir, name);
    if (dot && (strcmp(dot, ".lily") == 0 || strcmp(dot, ".incomplete") == 0) && stat(buf_str(&path), &st) == 0)
        *(int64_t *)ctx += (int64_t)st.st_blocks * 512;
    buf_free(&path);
}

struct finding {
    const char *commit;
    struct buf names; /* owned */
};

static void find_ref(void *ctx, const char *dir, const char *name)
{
    struct finding *f = ctx;
    struct buf path = {0}, text = {0};
    file_join(&path, dir, name);
    if (file_is_dir(buf_str(&path))) each_entry(buf_str(&path), find_ref, f);
    else if (file_read(buf_str(&path), 100, &text, NULL) == LILY_OK && strncmp(buf_str(&text), f->commit, HUB_COMMIT) == 0)
        buf_printf(&f->names, "%s%s", f->names.len ? "," : "", name);
    buf_free(&path);
    buf_free(&text);
}

struct reading {
    struct snapshots *out;
    const char *repo_dir, *repo;
};

static void add_snapshot(void *ctx, const char *dir, const char *name)
{
    const struct reading *r = ctx;
    struct snapshots *all = r->out;
    struct stat st;
    struct buf path = {0};
    file_join(&path, dir, name);
    if (stat(buf_str(&path), &st) == 0 && S_ISDIR(st.st_mode)) {
        if (all->n == all->cap) all->list = mem_resize(all->list, (size_t)(all->cap = all->cap * 2 + 8) * sizeof *all->list);
        struct snapshot *s = &all->list[all->n++];
        struct finding refs = {name, {0}};
        struct buf other = {0};
        *s = (struct snapshot){.repo = mem_dupz(r->repo), .commit = mem_dupz(name), .time = st.st_mtime};
        s->dir = mem_dupz(buf_str(&path));
        s->runs = model_is_checkpoint(s->dir);
        each_entry(s->dir, add_size, &s->bytes);
        file_join(&other, r->repo_dir, "refs");
        each_entry(buf_str(&other), find_ref, &refs);
        s->revision = mem_dupz(buf_str(&refs.names));
        file_join(&other, r->repo_dir, "blobs");
        each_entry(buf_str(&other), add_unfinished, &s->unfinished);
        buf_free(&refs.names);
        buf_free(&other);
    }
    buf_free(&path);
}

static void add_repo(void *ctx, const char *dir, const char *name)
{
    if (strncmp(name, "models--", 8) != 0) return;
    struct buf repo_dir = {0}, repo = {0}, path = {0};
    const char *rest = name + 8, *split = strstr(rest, "--");
    file_join(&repo_dir, dir, name);
    if (split) buf_printf(&repo, "%.*s/%s", (int)(split - rest), rest, split + 2);
    else buf_addz(&repo, rest);
    struct reading r = {ctx, buf_str(&repo_dir), buf_str(&repo)};
    file_join(&path, buf_str(&repo_dir), "snapshots");
    int before = r.out->n;
    each_entry(buf_str(&path), add_snapshot, &r);
    if (r.out->n == before) { /* begun, and nothing of it complete */
        int64_t unfinished = 0;
        file_join(&path, buf_str(&repo_dir), "blobs");
        each_entry(buf_str(&path), add_unfinished, &unfinished);
        if (unfinished) {
            if (r.out->n == r.out->cap) r.out->list = mem_resize(r.out->list, (size_t)(r.out->cap = r.out->cap * 2 + 8) * sizeof *r.out->list);
            r.out->list[r.out->n++] = (struct snapshot){.repo = mem_dupz(buf_str(&repo)), .commit = mem_dupz(""), .revision = mem_dupz(""),
                                                        .dir = mem_dupz(buf_str(&repo_dir)), .unfinished = unfinished};
        }
    }
    buf_free(&repo_dir);
    buf_free(&repo);
    buf_free(&path);
}

static int newest_first(const void *a, const void *b)
{
    const struct snapshot *x = a, *y = b;
    return (x->time < y->time) - (x->time > y->time);
}

static void print_as_json(const struct snapshots *all)
{
    struct json *list = json_new_array(), *top = json_new_object();
    for (int i = 0; i < all->n; i++) {
        const struct snapshot *s = &all->list[i];
        struct json *v = json_new_object();
        json_put(v, "repo", json_new_string(s->repo));
        json_put(v, "revision", s->revision[0] ? json_new_string(s->revision) : json_new_null());
        json_put(v, "commit", s->commit[0] ? json_new_string(s->commit) : json_new_null());
        json_put(v, "dir", json_new_string(s->dir));
        json_put(v, "bytes", json_new_int(s->bytes));
        json_put(v, "unfinished", json_new_int(s->unfinished));
        json_put(v, "complete", json_new_bool(s->runs));
        json_add(list, v);
    }
    json_put(top, "models", list);
    print_json(top);
}

static void print_snapshot(const struct snapshot *s)
{
    char when[32] = "";
    struct tm tm;
    struct buf line = {0};
    if (s->time && localtime_r(&s->time, &tm)) strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    buf_printf(&line, "%s@%s  %s  %s", s->repo, s->revision[0] ? s->revision : s->commit[0] ? s->commit : "?", SIZE_TEXT(s->bytes), when);
    if (s->unfinished) buf_printf(&line, "  (unfinished: %s so far)", SIZE_TEXT(s->unfinished));
    else if (!s->runs) buf_addz(&line, "  (no complete model that lily runs)");
    buf_printf(&line, "\n    %s\n", s->dir);
    print_text(buf_str(&line), line.len);
    buf_free(&line);
}

static lily_status run_list(void *args, int n, char **words, struct lily_err *err)
{
    const struct list_args *a = args;
    struct snapshots all = {0};
    struct buf hub = {0};
    (void)n;
    (void)words;
    LILY_TRY(hub_dir(&hub, err));
    each_entry(buf_str(&hub), add_repo, &all);
    if (all.n) qsort(all.list, (size_t)all.n, sizeof *all.list, newest_first);
    if (a->common.json) print_as_json(&all);
    for (int i = 0; i < all.n && !a->common.json; i++) print_snapshot(&all.list[i]);
    if (!all.n) log_note("no models in %s: lily pull fetches one (20 GB), and -m DIR takes any model folder, such as models/demo", buf_str(&hub));
    snapshots_free(&all);
    buf_free(&hub);
    return LILY_OK;
}

/* ---- removing ---- */

static int64_t freed;
static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)at;
    if (type == FTW_F) freed += (int64_t)st->st_blocks * 512;
    return type == FTW_DP || type == FTW_DNR ? rmdir(path) : unlink(path);
}

/* A folder and all in it; links are removed, not followed. */
static lily_status remove_tree(const char *path, struct lily_err *err)
{
    if (file_exists(path) && nftw(path, remove_entry, 32, FTW_DEPTH | FTW_PHYS) != 0)
        LILY_FAIL(err, LILY_ERR_IO, "%s: cannot remove: %s", path, strerror(errno));
    return LILY_OK;
}

/* Drops the packed file that `lily pack` made of a snapshot, while its key can still be computed. */
static void remove_packed(void *ctx, const char *dir, const char *name)
{
    struct model_config config;
    struct checkpoint *ck = NULL;
    struct buf snapshot = {0}, path = {0};
    struct stat st;
    (void)ctx;
    file_join(&snapshot, dir, name);
    if (config_load(buf_str(&snapshot), &config, NULL) == LILY_OK) {
        if (checkpoint_open(buf_str(&snapshot), &config, &ck, NULL) == LILY_OK) packing_path(ck, &path);
        if (path.len && stat(buf_str(&path), &st) == 0 && unlink(buf_str(&path)) == 0) {
            freed += (int64_t)st.st_blocks * 512;
            buf_addz(&path, ".stamp"); /* what says that it was checked */
            unlink(buf_str(&path));
        }
        checkpoint_close(ck);
        config_free(&config);
    }
    buf_free(&snapshot);
    buf_free(&path);
}

static void test_lock(void *ctx, const char *dir, const char *name)
{
    struct buf path = {0};
    file_join(&path, dir, name);
    int fd = open(buf_str(&path), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) *(bool *)ctx = true;
    if (fd >= 0) close(fd);
    buf_free(&path);
}

/* Whether somebody writes into the repository's folder now. */
static lily_status refuse_busy(const char *hub, const char *repo_dir, struct lily_err *err)
{
    struct buf locks = {0};
    bool busy = false;
    buf_printf(&locks, "%s/.locks/%s", hub, strrchr(repo_dir, '/') + 1);
    each_entry(buf_str(&locks), test_lock, &busy);
    buf_free(&locks);
    if (busy) LILY_FAIL(err, LILY_ERR_LIMIT, "%s: a program is fetching into it now", repo_dir);
    return LILY_OK;
}

struct keeping {
    const char *snapshots; /* the folder */
    const char *hash;
    bool used;
};

static void test_link(void *ctx, const char *dir, const char *name)
{
    struct keeping *k = ctx;
    char target[512];
    struct buf path = {0};
    file_join(&path, dir, name);
    ssize_t n = readlink(buf_str(&path), target, sizeof target - 1);
    if (n > 0) {
        target[n] = 0;
        const char *slash = strrchr(target, '/');
        k->used |= slash && strcmp(slash + 1, k->hash) == 0;
    } else if (file_is_dir(buf_str(&path))) {
        each_entry(buf_str(&path), test_link, k);
    }
    buf_free(&path);
}

static void drop_unused(void *ctx, const char *dir, const char *name)
{
    struct keeping k = {ctx, name, false};
    struct buf path = {0};
    struct stat st;
    each_entry(k.snapshots, test_link, &k);
    file_join(&path, dir, name);
    if (!k.used && lstat(buf_str(&path), &st) == 0 && S_ISREG(st.st_mode) && unlink(buf_str(&path)) == 0)
        freed += (int64_t)st.st_blocks * 512;
    buf_free(&path);
}

static void drop_ref(void *ctx, const char *dir, const char *name)
{
    struct buf path = {0}, text = {0};
    file_join(&path, dir, name);
    if (file_is_dir(buf_str(&path))) each_entry(buf_str(&path), drop_ref, ctx);
    else if (file_read(buf_str(&path), 100, &text, NULL) == LILY_OK && strncmp(buf_str(&text), ctx, HUB_COMMIT) == 0) unlink(buf_str(&path));
    buf_free(&path);
    buf_free(&text);
}

static void count_entry(void *ctx, const char *dir, const char *name)
{
    (void)dir;
    (void)name;
    ++*(int *)ctx;
}

/* The commit of a revision: itself, or what the branch's file says. */
static lily_status find_commit(const char *repo_dir, const struct hub_repo *repo, char commit[HUB_COMMIT + 1], struct lily_err *err)
{
    struct buf path = {0}, text = {0};
    snprintf(commit, HUB_COMMIT + 1, "%.*s", HUB_COMMIT, repo->revision);
    buf_printf(&path, "%s/refs/%s", repo_dir, repo->revision);
    if (!hub_is_hex(repo->revision, HUB_COMMIT) && file_read(buf_str(&path), 100, &text, NULL) == LILY_OK)
        snprintf(commit, HUB_COMMIT + 1, "%.*s", HUB_COMMIT, buf_str(&text));
    hub_snapshot_path(repo_dir, commit, NULL, &path);
    bool there = hub_is_hex(commit, HUB_COMMIT) && file_is_dir(buf_str(&path));
    buf_free(&path);
    buf_free(&text);
    if (there) return LILY_OK;
    err_set(err, LILY_ERR_USAGE, "%s@%s is not there", repo->name, repo->revision);
    err_hint(err, "lily list shows what is");
    return LILY_ERR_USAGE;
}

/* One snapshot, the names that stand at it, and the blobs that no other one uses. */
static lily_status remove_snapshot(const char *repo_dir, const struct hub_repo *repo, struct lily_err *err)
{
    char commit[HUB_COMMIT + 1];
    struct buf path = {0}, snapshots = {0};
    int left = 0;
    LILY_TRY(find_commit(repo_dir, repo, commit, err));
    buf_printf(&snapshots, "%s/snapshots", repo_dir);
    remove_packed(NULL, buf_str(&snapshots), commit);
    hub_snapshot_path(repo_dir, commit, NULL, &path);
    lily_status st = remove_tree(buf_str(&path), err);
    each_entry(buf_str(&snapshots), count_entry, &left);
    if (st == LILY_OK && !left) {
        st = remove_tree(repo_dir, err);
    } else if (st == LILY_OK) {
        file_join(&path, repo_dir, "refs");
        each_entry(buf_str(&path), drop_ref, commit);
        file_join(&path, repo_dir, "blobs");
        each_entry(buf_str(&path), drop_unused, snapshots.data);
    }
    buf_free(&path);
    buf_free(&snapshots);
    return st;
}

/* All of a repository. */
static lily_status remove_repo(const char *repo_dir, struct lily_err *err)
{
    struct buf snapshots = {0};
    buf_printf(&snapshots, "%s/snapshots", repo_dir);
    each_entry(buf_str(&snapshots), remove_packed, NULL);
    buf_free(&snapshots);
    return remove_tree(repo_dir, err);
}

/* Deleting is for good, and the cache belongs to other tools, too: a person is asked, a script says --yes. */
static lily_status ask_person(const char *what, const char *dir, struct lily_err *err)
{
    char answer[8] = "";
    struct buf question = {0}, safe = {0};
    if (!isatty(STDIN_FILENO)) {
        err_set(err, LILY_ERR_USAGE, "remove asks before it deletes, and stdin is no terminal");
        err_hint(err, "--yes deletes without asking");
        return LILY_ERR_USAGE;
    }
    buf_printf(&question, "delete %s from %s? [y/N] ", what, dir);
    safe_text(&safe, buf_str(&question), question.len, false);
    fputs(buf_str(&safe), stderr);
    bool yes = fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
    buf_free(&question);
    buf_free(&safe);
    if (yes) return LILY_OK;
    LILY_FAIL(err, LILY_ERR_CANCELLED, "%s is kept", what);
}

static lily_status run_remove(void *args, int n, char **words, struct lily_err *err)
{
    const struct list_args *a = args;
    struct hub_repo repo;
    struct buf dir = {0}, hub = {0};
    if (n != 1) {
        err_set(err, LILY_ERR_USAGE, "remove: a repository is needed");
        err_hint(err, "usage: lily remove OWNER/NAME, as lily list shows it");
        return LILY_ERR_USAGE;
    }
    LILY_TRY(hub_parse_repo(words[0], &repo, err));
    LILY_TRY(hub_dir(&hub, err));
    lily_status st = hub_repo_dir(&repo, &dir, err);
    if (st == LILY_OK && !file_is_dir(buf_str(&dir))) {
        st = err_set(err, LILY_ERR_USAGE, "%s is not there", repo.name);
        err_hint(err, "lily list shows what is");
    }
    if (st == LILY_OK) st = refuse_busy(buf_str(&hub), buf_str(&dir), err);
    if (st == LILY_OK && !a->yes) st = ask_person(words[0], buf_str(&dir), err);
    if (st == LILY_OK) st = strchr(words[0], '@') ? remove_snapshot(buf_str(&dir), &repo, err) : remove_repo(buf_str(&dir), err);
    if (st == LILY_OK && a->common.json) {
        struct json *v = json_new_object();
        json_put(v, "removed", json_new_string(words[0]));
        json_put(v, "freed", json_new_int(freed));
        print_json(v);
    } else if (st == LILY_OK) {
        log_note("removed %s: %s freed", words[0], SIZE_TEXT(freed));
    }
    buf_free(&dir);
    buf_free(&hub);
    return st;
}

const struct command cmd_list = {
    .name = "list",
    .usage = "",
    .summary = "show the downloaded models",
    .about = "Shows the models of the hub cache, the newest first, also those that other tools\n"
             "have fetched. With --json: {models: [{repo, revision, commit, dir, bytes,\n"
             "unfinished, complete}]}.",
    .uses = {{&opts_json, offsetof(struct list_args, common)}},
    .args_size = sizeof(struct list_args),
    .run = run_list,
};

static const struct opt remove_options[] = {
    {"yes", 'y', NULL, "do not ask", OPT_ON, offsetof(struct list_args, yes), 0, 0, NULL},
};
static const struct opt_group remove_group = {"Removing", remove_options, 1};

const struct command cmd_remove = {
    .name = "remove",
    .usage = "REPO[@REV]",
    .summary = "delete a downloaded model",
    .about = "Deletes a repository from the hub cache, or one revision of it and what no other\n"
             "revision uses. Other tools lose it, too: the cache is theirs as well. It asks\n"
             "first; where there is no terminal to ask on, --yes is needed.\n"
             "With --json: {removed, freed}.",
    .uses = {{&remove_group, 0}, {&opts_json, offsetof(struct list_args, common)}},
    .max_args = 1,
    .args_size = sizeof(struct list_args),
    .run = run_remove,
};
