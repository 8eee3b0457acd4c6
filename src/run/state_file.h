/*
 * The file form of saved state: one part of a border in one file, checked when it is read.
 *
 * A file is a head of 192 bytes, the token ids of a state (a page has none), and the payload: the bytes of the part as the
 * backend gives them. The head names version, kind and the key (whose states these are: model, build, device, types), and
 * carries two XXH3-128 sums: of the head with the ids, and of the sums of the payload's blocks of 4 MB. They find damage; they are no protection from
 * somebody who writes into the folder, which is the user's own (0700, 0600). Numbers are little-endian, as is every machine
 * that lily runs on.
 *
 * Threads: any. Lifetime: plain values; a state_reader belongs to one owner.
 */
#ifndef LILY_RUN_STATE_FILE_H
#define LILY_RUN_STATE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct hash128;

enum { STATE_HEAD = 192, STATE_VERSION = 2, CHAIN_HEX = 65 };
enum state_file_kind { STATE_FILE_PAGE = 1, STATE_FILE_STATE = 2 };

struct state_file_id {
    enum state_file_kind kind;
    char key[CHAIN_HEX];   /* hex digits */
    char chain[CHAIN_HEX]; /* of the tokens up to the part's end: what the content is a function of */
    int length;            /* tokens up to there */
};

/* The hash of a chain of blocks of 64 tokens: begin with "", one call for each block. chain is read and written. */
void state_chain(char chain[CHAIN_HEX], const int32_t *block);

/* Bytes of a whole file, and where the payload begins in it. */
size_t state_file_payload_at(const struct state_file_id *id);
size_t state_file_bytes(const struct state_file_id *id, size_t payload);
/* Puts the ids of a state (length of them) in their place in `file`. */
void state_file_put_ids(const struct state_file_id *id, const int32_t *ids, uint8_t *file);
/* Fills the head in front of ids and payload that lie in their places. */
void state_file_seal(const struct state_file_id *id, size_t payload, uint8_t *file);

struct state_reader {
    int fd; /* -1: closed */
    struct state_file_id id;
    size_t from, payload; /* where the payload begins; bytes */
    uint64_t sum[2];      /* of the payload */
    struct hash128 *sums; /* owned while open; of its blocks that were read */
};
/*
 * Opens a file and checks its head. ids (appended, in host form) may be NULL. LILY_ERR_IO: it cannot be opened, errno says
 * why; LILY_ERR_FORMAT: it is damaged, or of another kind or version than it should be.
 */
lily_status state_reader_open(const char *path, const char *key, struct state_reader *out, struct buf *ids, struct lily_err *err);
/* Reads bytes [at, at + n) of the payload, a block of BORDER_SLICE or what is left; any thread, several at once. */
lily_status state_reader_block(struct state_reader *r, size_t at, size_t n, void *out, struct lily_err *err);
/* Whether the payload is what was written, after all of its blocks were read. */
lily_status state_reader_check(const struct state_reader *r, struct lily_err *err);
void state_reader_close(struct state_reader *r);

#endif
