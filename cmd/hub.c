/* The hub's listing and its cache folder. */
#include "hub.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/file.h"
#include "base/mem.h"
#include "json/json.h"

static const int64_t most_bytes = 1ll << 40; /* of one file */
static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

bool hub_is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

/* A name that can be a part of a path: known letters, no leading dot or dash, no two dots. */
static bool is_plain(const char *s, size_t n, size_t most)
{
    if (!n || n > most || s[0] == '.' || s[0] == '-') return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr(name_letters, s[i]) || !s[i] || (s[i] == '.' && i + 1 < n && s[i + 1] == '.')) return false;
    return true;
}

/* Branches may have slashes: every part is a plain name. */
static bool is_revision(const char *s)
{
    for (;;) {
        size_t n = strcspn(s, "/");
        if (!is_plain(s, n, 100)) return false;
        if (!s[n]) return true;
        s += n + 1;
    }
}

lily_status hub_parse_repo(const char *text, struct hub_repo *out, struct lily_err *err)
{
    const char *at = strchr(text, '@'), *slash = strchr(text, '/');
    size_t n = at ? (size_t)(at - text) : strlen(text);
    const char *revision = at ? at + 1 : "main";
    bool good = slash && slash < text + n && is_plain(text, (size_t)(slash - text), 96) &&
                is_plain(slash + 1, n - (size_t)(slash - text) - 1, 96) && !strstr(text, "--");
    if (!good) {
        err_set(err, LILY_ERR_USAGE, "\"%.100s\" is no repository", text);
        err_hint(err, "expected OWNER/NAME or OWNER/NAME@REVISION, as in mlx-community/Qwen3.6-35B-A3B-4bit");
        return LILY_ERR_USAGE;
    }
    if (strlen(revision) >= sizeof out->revision || !is_revision(revision))
        LILY_FAIL(err, LILY_ERR_USAGE, "\"%.100s\" is no revision", revision);
    snprintf(out->name, sizeof out->name, "%.*s", (int)n, text);
    snprintf(out->revision, sizeof out->revision, "%s", revision);
    return LILY_OK;
}

/* The string of a member, or "" where there is none. */
static const char *text_of(const struct json *object, const char *key)
{
    const struct json *v = json_get(object, key);
    return v && json_kind(v) == JSON_STRING ? json_string(v) : "";
}

static lily_status parse_file(const struct json *v, const char *what, struct hub_listing *out, struct lily_err *err)
{
    const char *name = text_of(v, "rfilename");
    const struct json *lfs = json_get(v, "lfs"), *size = json_get(v, "size");
    bool large = lfs && json_kind(lfs) == JSON_OBJECT;
    if (!is_plain(name, strlen(name), sizeof out->files->name - 1)) return LILY_OK;
    const char *hash = large ? text_of(lfs, "sha256") : text_of(v, "blobId");
    if (large && json_get(lfs, "size")) size = json_get(lfs, "size");
    if (!hub_is_hex(hash, large ? 64 : 40) || !size || json_kind(size) != JSON_INTEGER || json_int(size) < 0 || json_int(size) > most_bytes)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: %s has hash \"%.80s\" and %s, expected %s and its size in bytes", what, name, hash,
                  size && json_kind(size) == JSON_INTEGER ? "a size past all bounds" : "no size", large ? "a SHA-256" : "a git blob id");
    struct hub_file *f = &out->files[out->n_files++];
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->hash, sizeof f->hash, "%s", hash);
    f->size = json_int(size);
    return LILY_OK;
}

static lily_status parse_root(const struct json *root, const char *what, struct hub_listing *out, struct lily_err *err)
{
    const struct json *list = json_get(root, "siblings");
    const char *commit = text_of(root, "sha");
    if (!hub_is_hex(commit, HUB_COMMIT)) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: sha is \"%.80s\", expected a commit", what, commit);
    if (!list || json_kind(list) != JSON_ARRAY) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: siblings is missing, expected the list of files", what);
    if (json_size(list) > HUB_MAX_FILES)
        LILY_FAIL(err, LILY_ERR_LIMIT, "%s: %zu files, at most %d are accepted", what, json_size(list), HUB_MAX_FILES);
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    out->files = mem_new((json_size(list) + 1) * sizeof *out->files);
    for (size_t i = 0; i < json_size(list); i++) LILY_TRY(parse_file(json_at(list, i), what, out, err));
    return LILY_OK;
}

lily_status hub_parse_listing(const char *text, size_t n, const char *what, struct hub_listing *out, struct lily_err *err)
{
    struct json *root = NULL;
    memset(out, 0, sizeof *out);
    LILY_TRY(json_parse(text, n, what, &root, err));
    lily_status st = parse_root(root, what, out, err);
    json_free(root);
    if (st != LILY_OK) hub_listing_free(out);
    return st;
}

void hub_listing_free(struct hub_listing *l)
{
    free(l->files);
    memset(l, 0, sizeof *l);
}

const struct hub_file *hub_find(const struct hub_listing *l, const char *name)
{
    for (int i = 0; i < l->n_files; i++)
        if (strcmp(l->files[i].name, name) == 0) return &l->files[i];
    return NULL;
}

lily_status hub_dir(struct buf *out, struct lily_err *err)
{
    env_hub_dir(out);
    if (out->len) return LILY_OK;
    err_set(err, LILY_ERR_IO, "no home folder, so there is no place for models");
    err_hint(err, "set HF_HUB_CACHE to a folder");
    return LILY_ERR_IO;
}

/* "models--OWNER--NAME" */
static void add_folder(const struct hub_repo *repo, struct buf *out)
{
    const char *slash = strchr(repo->name, '/');
    buf_printf(out, "models--%.*s--%s", (int)(slash - repo->name), repo->name, slash + 1);
}

lily_status hub_repo_dir(const struct hub_repo *repo, struct buf *out, struct lily_err *err)
{
    LILY_TRY(hub_dir(out, err));
    buf_addc(out, '/');
    add_folder(repo, out);
    return LILY_OK;
}

void hub_blob_path(const char *repo_dir, const char *hash, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "%s/blobs/%s", repo_dir, hash);
}

void hub_snapshot_path(const char *repo_dir, const char *commit, const char *file, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "%s/snapshots/%s%s%s", repo_dir, commit, file ? "/" : "", file ? file : "");
}

static bool has_size(const char *path, int64_t size)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == size;
}

bool hub_has(const char *repo_dir, const char *commit, const struct hub_file *f)
{
    struct buf path = {0};
    hub_snapshot_path(repo_dir, commit, f->name, &path);
    bool there = has_size(buf_str(&path), f->size);
    hub_blob_path(repo_dir, f->hash, &path);
    there = there || has_size(buf_str(&path), f->size);
    buf_free(&path);
    return there;
}

lily_status hub_link(const char *repo_dir, const char *commit, const struct hub_file *f, struct lily_err *err)
{
    struct buf path = {0}, target = {0};
    hub_snapshot_path(repo_dir, commit, NULL, &path);
    lily_status st = file_make_shared_dirs(buf_str(&path), err);
    hub_snapshot_path(repo_dir, commit, f->name, &path);
    buf_printf(&target, "../../blobs/%s", f->hash);
    if (st == LILY_OK && !has_size(buf_str(&path), f->size)) {
        unlink(buf_str(&path)); /* a link whose blob is gone, or another file's */
        if (symlink(buf_str(&target), buf_str(&path)) != 0)
            st = err_set(err, LILY_ERR_IO, "%s: cannot link: %s", buf_str(&path), strerror(errno));
    }
    buf_free(&path);
    buf_free(&target);
    return st;
}

lily_status hub_write_ref(const char *repo_dir, const struct hub_repo *repo, const char *commit, struct lily_err *err)
{
    struct buf path = {0};
    if (hub_is_hex(repo->revision, HUB_COMMIT)) return LILY_OK;
    buf_printf(&path, "%s/refs/%s", repo_dir, repo->revision);
    char *slash = strrchr(path.data, '/');
    *slash = 0;
    lily_status st = file_make_shared_dirs(path.data, err);
    *slash = '/';
    if (st == LILY_OK) st = file_write_shared(buf_str(&path), commit, strlen(commit), err);
    buf_free(&path);
    return st;
}

void hub_read_ref(const char *repo_dir, const struct hub_repo *repo, struct buf *out)
{
    struct buf path = {0}, text = {0};
    buf_printf(&path, "%s/refs/%s", repo_dir, repo->revision);
    bool noted = file_read(buf_str(&path), 100, &text, NULL) == LILY_OK && text.len >= HUB_COMMIT && hub_is_hex(buf_str(&text), HUB_COMMIT);
    if (noted) buf_add(out, buf_str(&text), HUB_COMMIT);
    else buf_addz(out, repo->revision);
    buf_free(&path);
    buf_free(&text);
}

lily_status hub_lock(const struct hub_repo *repo, const char *hash, int *fd, struct lily_err *err)
{
    struct buf path = {0};
    *fd = -1;
    LILY_TRY(hub_dir(&path, err));
    buf_addz(&path, "/.locks/");
    add_folder(repo, &path);
    lily_status st = file_make_shared_dirs(buf_str(&path), err);
    buf_printf(&path, "/%s.lock", hash);
    if (st == LILY_OK) {
        *fd = open(buf_str(&path), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (*fd < 0) {
            st = err_set(err, LILY_ERR_IO, "%s: cannot create: %s", buf_str(&path), strerror(errno));
        } else if (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
            close(*fd);
            *fd = -1;
            st = err_set(err, LILY_ERR_LIMIT, "%s: taken: another program fetches this file", buf_str(&path));
            err_hint(err, "wait for it, or stop it");
        }
    }
    buf_free(&path);
    return st;
}
