/* Texts of tool calls: a list in the order of their coming, a hash by id, and a file that is appended to. */
#include "chat/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

enum { N_BUCKETS = 1024, MAX_FIELD = 8 << 20, N_FIELDS = 4, MAX_RECORD = 3 * MAX_FIELD };

struct kept {
    struct kept *next_in_bucket, *newer; /* newer: in the order of coming */
    char *field[N_FIELDS];               /* owned; id, name, arguments in their written form, text */
    size_t bytes;
};
enum { ID, NAME, ARGUMENTS, TEXT };

struct call_memory {
    pthread_mutex_t lock;
    struct kept *buckets[N_BUCKETS];
    struct kept *oldest, *newest;
    size_t bytes, max_bytes;
    char *path; /* owned; of the file */
    int fd;     /* -1: no file */
};

/* ---- the list ---- */

static struct kept **bucket(struct call_memory *m, const char *id)
{
    return &m->buckets[hash128_of(id, strlen(id)).lo % N_BUCKETS];
}

static struct kept *find(struct call_memory *m, const char *id)
{
    struct kept *k = *bucket(m, id);
    while (k && strcmp(k->field[ID], id) != 0) k = k->next_in_bucket;
    return k;
}

static void free_kept(struct kept *k)
{
    for (int i = 0; i < N_FIELDS; i++) free(k->field[i]);
    free(k);
}

static void forget_oldest(struct call_memory *m)
{
    struct kept *k = m->oldest, **at = bucket(m, k->field[ID]);
    while (*at != k) at = &(*at)->next_in_bucket;
    *at = k->next_in_bucket;
    m->oldest = k->newer;
    if (!m->oldest) m->newest = NULL;
    m->bytes -= k->bytes;
    free_kept(k);
}

/* The fields are copied. A second one with an id stands in front of the first, which leaves in its turn. */
static void remember(struct call_memory *m, const char *const field[N_FIELDS])
{
    struct kept *k = mem_new(sizeof *k), **at = bucket(m, field[ID]);
    k->bytes = sizeof *k;
    for (int i = 0; i < N_FIELDS; i++) {
        k->field[i] = mem_dupz(field[i]);
        k->bytes += strlen(field[i]) + 1;
    }
    k->next_in_bucket = *at;
    *at = k;
    if (m->newest) m->newest->newer = k;
    else m->oldest = k;
    m->newest = k;
    m->bytes += k->bytes;
    while (m->bytes > m->max_bytes && m->oldest != k) forget_oldest(m);
}

/* ---- the file ---- */

struct record_head {
    char magic[8];
    uint64_t n;      /* bytes of the fields, each with its NUL */
    uint64_t sum[2]; /* of them */
};
static const char magic[8] = "lilycall";

static void put_record(const char *const field[N_FIELDS], struct buf *out)
{
    struct buf body = {0};
    struct record_head h = {.n = 0};
    for (int i = 0; i < N_FIELDS; i++) buf_add(&body, field[i], strlen(field[i]) + 1);
    struct hash128 sum = hash128_of(body.data, body.len);
    memcpy(h.magic, magic, sizeof magic);
    h.n = body.len;
    h.sum[0] = sum.lo;
    h.sum[1] = sum.hi;
    buf_add(out, &h, sizeof h);
    buf_add(out, body.data, body.len);
    buf_free(&body);
}

/* The fields of a record's body as views; false when they are not four strings. */
static bool split(const char *body, size_t n, const char *field[N_FIELDS])
{
    const char *end = body + n;
    for (int i = 0; i < N_FIELDS; i++) {
        const char *nul = memchr(body, 0, (size_t)(end - body));
        if (!nul) return false;
        field[i] = body;
        body = nul + 1;
    }
    return body == end;
}

/* Takes every whole record; one that is damaged is skipped up to the next. Returns whether there was any damage. */
static bool take_records(struct call_memory *m, const struct buf *all)
{
    bool damaged = false;
    for (size_t at = 0; at < all->len;) {
        const char *field[N_FIELDS], *p = all->data + at, *body = p + sizeof(struct record_head);
        struct record_head h = {.n = 0};
        size_t rest = all->len - at;
        if (rest >= sizeof h) memcpy(&h, p, sizeof h);
        bool good = rest >= sizeof h && memcmp(h.magic, magic, sizeof magic) == 0 && h.n <= rest - sizeof h;
        struct hash128 sum = good ? hash128_of(body, (size_t)h.n) : (struct hash128){0};
        if (good && sum.lo == h.sum[0] && sum.hi == h.sum[1] && split(body, (size_t)h.n, field)) {
            remember(m, field);
            at += sizeof h + (size_t)h.n;
            continue;
        }
        damaged = true;
        const char *next = memmem(p + 1, rest - 1, magic, sizeof magic);
        at = next ? (size_t)(next - all->data) : all->len;
    }
    return damaged;
}

/* Damage, and what is no longer kept, goes by writing the file anew. */
static lily_status rewrite(const struct call_memory *m, const char *path, struct lily_err *err)
{
    struct buf all = {0};
    for (const struct kept *k = m->oldest; k; k = k->newer) put_record((const char *const *)k->field, &all);
    lily_status st = file_write_atomic(path, buf_str(&all), all.len, err);
    buf_free(&all);
    return st;
}

static size_t most_on_disk(const struct call_memory *m)
{
    return 2 * m->max_bytes;
}

/* Takes what the file holds; only its end where it is longer than any that was written here. */
static lily_status take_file(struct call_memory *m, struct lily_err *err)
{
    struct buf all = {0};
    lily_status st = file_read_end(m->path, most_on_disk(m) + MAX_RECORD, &all, err);
    if (st == LILY_OK) {
        bool damaged = take_records(m, &all);
        if (damaged) log_warn("%s: a part of it is damaged and left out", m->path);
        if (damaged || all.len > most_on_disk(m)) st = rewrite(m, m->path, err);
    }
    buf_free(&all);
    return st;
}

static lily_status open_file(struct call_memory *m, struct lily_err *err)
{
    m->fd = open(m->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (m->fd < 0) LILY_FAIL(err, LILY_ERR_IO, "%s: cannot open: %s", m->path, strerror(errno));
    return LILY_OK;
}

static lily_status use_file(struct call_memory *m, struct lily_err *err)
{
    if (file_exists(m->path)) LILY_TRY(take_file(m, err));
    return open_file(m, err);
}

static lily_status make_folder(const char *path, struct lily_err *err)
{
    char *folder = file_folder(path);
    lily_status st = file_make_dirs(folder, err);
    free(folder);
    return st;
}

static void close_file(struct call_memory *m)
{
    if (m->fd >= 0) close(m->fd);
    m->fd = -1;
}

/*
 * The file is what the processes of a folder write together. When it has grown too long its last records are written anew, as a start
 * would take them; when another process has done that, or somebody has removed it, the file of that name is gone on with.
 */
static lily_status keep_short(struct call_memory *m, struct lily_err *err)
{
    struct stat ours, there;
    if (fstat(m->fd, &ours) != 0) return LILY_OK;
    bool same = stat(m->path, &there) == 0 && ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
    if (same && (size_t)ours.st_size <= most_on_disk(m)) return LILY_OK;
    close_file(m);
    if (same) {
        struct call_memory last = {.max_bytes = m->max_bytes, .path = m->path, .fd = -1};
        lily_status st = take_file(&last, err);
        while (last.oldest) forget_oldest(&last);
        LILY_TRY(st);
    } else {
        LILY_TRY(make_folder(m->path, err)); /* gone with the file, maybe */
    }
    return open_file(m, err);
}

/* ---- the interface ---- */

struct call_memory *call_memory_new(size_t max_bytes, const char *path)
{
    struct call_memory *m = mem_new(sizeof *m);
    struct lily_err err;
    pthread_mutex_init(&m->lock, NULL);
    m->max_bytes = max_bytes;
    m->fd = -1;
    m->path = path ? mem_dupz(path) : NULL;
    if (path && use_file(m, &err) != LILY_OK) log_warn("tool calls are not kept on disk: %s", err.msg);
    return m;
}

void call_memory_free(struct call_memory *m)
{
    if (!m) return;
    while (m->oldest) forget_oldest(m);
    close_file(m);
    free(m->path);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void append(struct call_memory *m, const char *const field[N_FIELDS])
{
    struct buf record = {0};
    struct lily_err err;
    lily_status st = keep_short(m, &err);
    put_record(field, &record);
    if (st == LILY_OK && write(m->fd, record.data, record.len) != (ssize_t)record.len) /* the next start leaves out what is not whole */
        st = err_set(&err, LILY_ERR_IO, "%s", strerror(errno));
    if (st != LILY_OK) {
        log_warn("tool calls are no longer kept on disk: %s", err.msg);
        close_file(m);
    }
    buf_free(&record);
}

static bool complete(const char *text, struct buf *out)
{
    static const char open[] = "<tool_call>", close[] = "</tool_call>";
    size_t n = strlen(text), n_close = sizeof close - 1;
    if (strncmp(text, open, sizeof open - 1) != 0) return false;
    buf_add(out, text, n);
    if (n < sizeof open - 1 + n_close || strcmp(text + n - n_close, close) != 0) buf_printf(out, "\n%s", close);
    return true;
}

void call_memory_put(struct call_memory *m, const char *id, const char *name, const char *arguments, const char *text)
{
    struct json *parsed;
    struct buf written = {0}, whole = {0};
    if (strlen(arguments) > MAX_FIELD || strlen(text) > MAX_FIELD || !complete(text, &whole)) return;
    if (json_parse(arguments, strlen(arguments), "arguments", &parsed, NULL) == LILY_OK) {
        json_write(parsed, 0, &written);
        json_free(parsed);
        const char *const field[N_FIELDS] = {id, name, buf_str(&written), buf_str(&whole)};
        pthread_mutex_lock(&m->lock);
        remember(m, field);
        if (m->fd >= 0) append(m, field);
        pthread_mutex_unlock(&m->lock);
    }
    buf_free(&written);
    buf_free(&whole);
}

/* The arguments in the one form in which they are compared; false when they are no JSON. */
static bool write_arguments(const struct json *v, struct buf *out)
{
    struct json *parsed = NULL;
    if (v && json_kind(v) == JSON_STRING) {
        if (json_parse(json_string(v), json_string_len(v), "arguments", &parsed, NULL) != LILY_OK) return false;
        v = parsed;
    }
    if (v) json_write(v, 0, out);
    else buf_addz(out, "{}");
    json_free(parsed);
    return true;
}

bool call_memory_find(struct call_memory *m, const char *id, const char *name, const struct json *arguments, struct buf *out)
{
    struct buf written = {0};
    bool found = false;
    pthread_mutex_lock(&m->lock);
    const struct kept *k = find(m, id);
    if (k && strcmp(k->field[NAME], name) == 0 && write_arguments(arguments, &written))
        found = strcmp(k->field[ARGUMENTS], buf_str(&written)) == 0;
    if (found) buf_addz(out, k->field[TEXT]);
    pthread_mutex_unlock(&m->lock);
    buf_free(&written);
    return found;
}
