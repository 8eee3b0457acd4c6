/* The inside of the disk cache, for disk.c and disk_scan.c. */
#ifndef LILY_RUN_DISK_IMPL_H
#define LILY_RUN_DISK_IMPL_H

#include "run/disk.h"
#include "run/disk_writer.h"
#include "run/prefix.h"
#include "run/state_file.h"
#include "spec/family.h"

struct stored {
    struct prefix_node *node;
    int hits;
    unsigned long used; /* clock */
    bool writing;       /* it is not there yet */
};

struct saving {
    bool on, all_given;
    int32_t *ids; /* owned; (length) */
    int length;
    int at;       /* tokens whose pages are there or given; after them comes the state itself */
    char chain[CHAIN_HEX]; /* up to `at` */
    uint8_t *buffer;       /* owned (mem_big); (buffer_bytes) the file that is being filled */
    size_t buffer_bytes;
    struct stored *state;
};

struct disk {
    struct disk_options opt;
    char key[CHAIN_HEX];
    char *dir, *folder; /* owned */
    int lock_fd;
    bool read_only;
    bool lost;             /* the folder is gone and could not be made again (told): that is tried again after the pause */
    bool warned;           /* a failure to write was told */
    double paused_until_ms;
    struct disk_writer *writer; /* owned */
    struct prefix_tree *tree;   /* owned; values are struct stored */
    struct stored **list;       /* owned; (n) */
    int n, cap;
    unsigned long clock;
    size_t bytes;   /* of all files */
    size_t foreign, set_aside; /* of them, those of other keys, and what was found damaged in this run */
    struct saving saving;
    struct buf path; /* owned; scratch */
};

/* Makes and locks the folder. Where another process holds it, that is LILY_OK, too, and it is only read. */
lily_status disk_take(struct disk *d, struct lily_err *err);
/* Finds the states in it. */
lily_status disk_scan(struct disk *d, struct lily_err *err);
/* Somebody has removed the folder or moved it away, as one clears a cache: the locked file does not lie there any more. */
bool disk_is_removed(const struct disk *d);
/* Removes the folder of another key that was not used for the longest time. False: there is none that can go. */
bool disk_drop_foreign(struct disk *d);

struct stored *disk_add(struct disk *d, const int32_t *ids, int length);
void disk_note_size(struct disk *d);
void disk_keep_quota(struct disk *d);
void disk_path(const struct disk *d, char kind, const char *chain, struct buf *out);
void disk_set_aside(struct disk *d, const char *path, const char *why);

#endif
