/*
 * Repositories of a hub and the cache folder in which its tools keep them, so that lily and they share what is there.
 *
 *   HUB/models--OWNER--NAME/blobs/HASH             contents: SHA-256 of a large file, git's blob id of a small one
 *                          /snapshots/COMMIT/FILE  links to blobs
 *                          /refs/REVISION          text: the commit a branch or tag stood at
 *   HUB/.locks/models--OWNER--NAME/HASH.lock       taken (flock) while a blob is written
 *
 * Names come from a server: all are checked before they become paths. Thread: the main one.
 */
#ifndef LILY_CMD_HUB_H
#define LILY_CMD_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { HUB_COMMIT = 40, HUB_MAX_FILES = 2000 };

struct hub_repo {
    char name[200];     /* "owner/name" */
    char revision[200]; /* as asked for; "main" by default */
};
/* "OWNER/NAME" or "OWNER/NAME@REVISION". LILY_ERR_USAGE says what is wrong. */
lily_status hub_parse_repo(const char *text, struct hub_repo *out, struct lily_err *err);

struct hub_file {
    char name[128];  /* a plain name, in the top folder */
    char hash[65];   /* of the blob: 64 digits of SHA-256, or 40 of git */
    int64_t size;
};

struct hub_listing {
    char commit[HUB_COMMIT + 1];
    struct hub_file *files; /* owned; in the order of the listing */
    int n_files;
};
/* The answer of /api/models/REPO/revision/REV?blobs=true. Files in folders and files with strange names are left out. */
lily_status hub_parse_listing(const char *text, size_t n, const char *what, struct hub_listing *out, struct lily_err *err);
void hub_listing_free(struct hub_listing *l);
const struct hub_file *hub_find(const struct hub_listing *l, const char *name);

/* The cache folder; LILY_ERR_IO where no variable says where home is. */
lily_status hub_dir(struct buf *out, struct lily_err *err);
/* HUB/models--OWNER--NAME into out. */
lily_status hub_repo_dir(const struct hub_repo *repo, struct buf *out, struct lily_err *err);
void hub_blob_path(const char *repo_dir, const char *hash, struct buf *out);
void hub_snapshot_path(const char *repo_dir, const char *commit, const char *file, struct buf *out); /* file NULL: the folder */

/* Whether a blob of that size is there, or the snapshot has the file with that size. */
bool hub_has(const char *repo_dir, const char *commit, const struct hub_file *f);
/* Links the snapshot's file to its blob, unless it is there. */
lily_status hub_link(const char *repo_dir, const char *commit, const struct hub_file *f, struct lily_err *err);
/* Notes where a branch stands; nothing for a revision that is a commit itself. */
lily_status hub_write_ref(const char *repo_dir, const struct hub_repo *repo, const char *commit, struct lily_err *err);
/* Where it stood when it was pulled: the commit into out; the revision itself where nothing is noted. */
void hub_read_ref(const char *repo_dir, const struct hub_repo *repo, struct buf *out);
/* Takes the lock of a blob without waiting: a descriptor to close, or -1. LILY_ERR_LIMIT: somebody else has it. */
lily_status hub_lock(const struct hub_repo *repo, const char *hash, int *fd, struct lily_err *err);

bool hub_is_hex(const char *s, size_t n); /* exactly n lower-case digits */

#endif
