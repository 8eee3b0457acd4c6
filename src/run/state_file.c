/* Heads, sums and reading of state files. */
#include "run/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/size.h"
#include "spec/family.h"

enum { MAX_LENGTH = 1 << 24 }; /* tokens; more is no state but damage */

static const char magic[8] = "lilystat";

struct head {
    char magic[8];
    uint32_t version, kind;
    uint32_t length, n_ids;
    uint64_t payload;
    char key[64], chain[64]; /* hex digits without a NUL */
    uint64_t payload_sum[2];
    uint64_t head_sum[2]; /* of all of the above with these two as zero, and the ids */
};
_Static_assert(sizeof(struct head) == STATE_HEAD, "no padding in the head");

void state_chain(char chain[CHAIN_HEX], const int32_t *block)
{
    struct sha256 *h = sha256_begin();
    sha256_add(h, chain, strlen(chain));
    sha256_add(h, block, sizeof *block * GRID);
    sha256_end(h, chain);
}

static size_t ids_bytes(const struct state_file_id *id)
{
    return id->kind == STATE_FILE_STATE ? sizeof(int32_t) * (size_t)id->length : 0;
}

size_t state_file_payload_at(const struct state_file_id *id)
{
    return sizeof(struct head) + ids_bytes(id);
}

size_t state_file_bytes(const struct state_file_id *id, size_t payload)
{
    return state_file_payload_at(id) + payload;
}

/* The head and the ids lie one behind the other. */
static struct hash128 sum_head(const uint8_t *file, size_t n)
{
    struct head h;
    struct buf all = {0};
    memcpy(&h, file, sizeof h);
    h.head_sum[0] = h.head_sum[1] = 0;
    buf_add(&all, &h, sizeof h);
    buf_add(&all, file + sizeof h, n - sizeof h);
    struct hash128 sum = hash128_of(all.data, all.len);
    buf_free(&all);
    return sum;
}

static size_t blocks_of(size_t payload)
{
    return (payload + BORDER_SLICE - 1) / BORDER_SLICE;
}

static struct hash128 sum_payload(const uint8_t *data, size_t n)
{
    struct buf sums = {0};
    for (size_t at = 0; at < n; at += BORDER_SLICE) {
        struct hash128 sum = hash128_of(data + at, n - at < BORDER_SLICE ? n - at : BORDER_SLICE);
        buf_add(&sums, &sum, sizeof sum);
    }
    struct hash128 all = hash128_of(sums.data, sums.len);
    buf_free(&sums);
    return all;
}

void state_file_put_ids(const struct state_file_id *id, const int32_t *ids, uint8_t *file)
{
    memcpy(file + sizeof(struct head), ids, ids_bytes(id));
}

void state_file_seal(const struct state_file_id *id, size_t payload, uint8_t *file)
{
    size_t at = state_file_payload_at(id);
    struct head h = {.version = STATE_VERSION, .kind = (uint32_t)id->kind, .length = (uint32_t)id->length, .payload = payload};
    struct hash128 sum = sum_payload(file + at, payload);
    h.n_ids = (uint32_t)(ids_bytes(id) / sizeof(int32_t));
    h.payload_sum[0] = sum.lo;
    h.payload_sum[1] = sum.hi;
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.key, id->key, sizeof h.key);
    memcpy(h.chain, id->chain, sizeof h.chain);
    memcpy(file, &h, sizeof h);
    sum = sum_head(file, at);
    h.head_sum[0] = sum.lo;
    h.head_sum[1] = sum.hi;
    memcpy(file, &h, sizeof h);
}

/* ---- reading ---- */

static lily_status read_exactly(const struct state_reader *r, size_t at, void *out, size_t n, struct lily_err *err)
{
    uint8_t *p = out;
    while (n) {
        ssize_t got = pread(r->fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) LILY_FAIL(err, LILY_ERR_FORMAT, "it cannot be read: %s", strerror(errno));
        if (got == 0) LILY_FAIL(err, LILY_ERR_FORMAT, "it ends %s too early", COUNT_TEXT(n, "byte"));
        p += got;
        at += (size_t)got;
        n -= (size_t)got;
    }
    return LILY_OK;
}

static lily_status check_head(const struct head *h, const char *key, size_t size, struct lily_err *err)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0) LILY_FAIL(err, LILY_ERR_FORMAT, "it does not begin as a state file does");
    if (h->version != STATE_VERSION) LILY_FAIL(err, LILY_ERR_FORMAT, "it is of version %u, expected %d", h->version, STATE_VERSION);
    if (h->kind != STATE_FILE_PAGE && h->kind != STATE_FILE_STATE) LILY_FAIL(err, LILY_ERR_FORMAT, "it is of kind %u", h->kind);
    if (memcmp(h->key, key, sizeof h->key) != 0) LILY_FAIL(err, LILY_ERR_FORMAT, "it was made by another model, build or device");
    if (h->length == 0 || h->length % GRID || h->length > MAX_LENGTH || h->n_ids != (h->kind == STATE_FILE_STATE ? h->length : 0))
        LILY_FAIL(err, LILY_ERR_FORMAT, "it says that it holds %u tokens, %u of them written down", h->length, h->n_ids);
    size_t at = sizeof *h + sizeof(int32_t) * (size_t)h->n_ids;
    if (size < at || size - at != h->payload) LILY_FAIL(err, LILY_ERR_FORMAT, "it has %zu bytes, expected %zu", size, at + (size_t)h->payload);
    return LILY_OK;
}

static lily_status read_head(struct state_reader *r, const char *key, struct buf *ids, struct lily_err *err)
{
    struct head h;
    struct stat sb;
    struct buf all = {0};
    if (fstat(r->fd, &sb) != 0 || !S_ISREG(sb.st_mode)) LILY_FAIL(err, LILY_ERR_FORMAT, "it is no regular file");
    LILY_TRY(read_exactly(r, 0, &h, sizeof h, err));
    LILY_TRY(check_head(&h, key, (size_t)sb.st_size, err));
    size_t n_ids = sizeof(int32_t) * (size_t)h.n_ids;
    buf_reserve(&all, sizeof h + n_ids);
    memcpy(all.data, &h, sizeof h);
    lily_status st = read_exactly(r, sizeof h, all.data + sizeof h, n_ids, err);
    struct hash128 sum = {0};
    if (st == LILY_OK) sum = sum_head((const uint8_t *)all.data, sizeof h + n_ids);
    if (st == LILY_OK && (sum.lo != h.head_sum[0] || sum.hi != h.head_sum[1]))
        st = err_set(err, LILY_ERR_FORMAT, "the sum of its head is wrong");
    if (st == LILY_OK && ids) buf_add(ids, all.data + sizeof h, n_ids);
    buf_free(&all);
    r->id = (struct state_file_id){.kind = (enum state_file_kind)h.kind, .length = (int)h.length};
    memcpy(r->id.key, h.key, sizeof h.key);
    memcpy(r->id.chain, h.chain, sizeof h.chain);
    r->payload = (size_t)h.payload;
    r->from = sizeof h + n_ids;
    r->sums = mem_new(sizeof *r->sums * (blocks_of(r->payload) + 1));
    memcpy(r->sum, h.payload_sum, sizeof r->sum);
    return st;
}

lily_status state_reader_open(const char *path, const char *key, struct state_reader *r, struct buf *ids, struct lily_err *err)
{
    memset(r, 0, sizeof *r);
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (r->fd < 0) {
        int saved = errno;
        err_set(err, LILY_ERR_IO, "%s", strerror(saved));
        errno = saved;
        return LILY_ERR_IO;
    }
    lily_status st = read_head(r, key, ids, err);
    if (st != LILY_OK) state_reader_close(r);
    return st;
}

lily_status state_reader_block(struct state_reader *r, size_t at, size_t n, void *out, struct lily_err *err)
{
    LILY_TRY(read_exactly(r, r->from + at, out, n, err));
    r->sums[at / BORDER_SLICE] = hash128_of(out, n);
    return LILY_OK;
}

lily_status state_reader_check(const struct state_reader *r, struct lily_err *err)
{
    struct hash128 sum = hash128_of(r->sums, sizeof *r->sums * blocks_of(r->payload));
    if (sum.lo != r->sum[0] || sum.hi != r->sum[1]) LILY_FAIL(err, LILY_ERR_FORMAT, "the sum of its content is wrong");
    return LILY_OK;
}

void state_reader_close(struct state_reader *r)
{
    if (r->fd >= 0) close(r->fd);
    free(r->sums);
    r->fd = -1;
    r->sums = NULL;
}
