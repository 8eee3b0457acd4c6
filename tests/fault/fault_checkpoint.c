/*
 * Damaged, lying and hostile checkpoints. Each case bends a copy of a good folder and loads it: within its time and memory
 * that must give an error that says something, or a model that reads. The cases of a test run in one child process, so
 * that a crash or a hang is reported with the name of its case.
 */
#include "../unit/testing.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/minickpt.h"
#include "alloc_peak.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "inject.h"
#include "try_load.h"

enum outcome { LOADED, REFUSED };
enum { CASE_SECONDS = 60, MEMORY_TIMES = 16, MEMORY_PLUS = 16 << 20 };

struct folder {
    char *dir;
    const char *names[6];
    int n;
};

static struct folder single_file(void)
{
    struct mini m;
    struct folder f = {mini_dir(), {"config.json", "generation_config.json", "model.safetensors"}, 3};
    mini_make(&m, (struct mini_options){0});
    mini_write(&m, f.dir, 1);
    mini_free(&m);
    return f;
}

static struct folder sharded(void)
{
    struct mini m;
    struct folder f = {mini_dir(),
                       {"model.safetensors.index.json", "model-00001-of-00002.safetensors",
                        "model-00002-of-00002.safetensors"},
                       3};
    mini_make(&m, (struct mini_options){.prefix = ""});
    mini_write(&m, f.dir, 2);
    mini_free(&m);
    return f;
}

/* What the child tells its parent, also when it dies. */
static struct {
    char what[200];    /* the case at work */
    char problem[600]; /* why it is a failure */
} *told;

/* In the child: the case failed. */
static void __attribute__((format(printf, 1, 2), noreturn)) fail_case(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(told->problem, sizeof told->problem, fmt, ap);
    va_end(ap);
    _exit(1);
}

static void in_child(void (*cases)(void))
{
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        cases();
        exit(0); /* and not _exit: the sanitizer looks for leaks */
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        fail_msg("%s: signal %d%s", told->what, WTERMSIG(status), WTERMSIG(status) == SIGALRM ? " (hung)" : "");
    if (status != 0) fail_msg("%s: %s (exit status %d)", told->what, told->problem, WEXITSTATUS(status));
    munmap(told, sizeof *told);
}

/* One case, in the child; `json_bytes` is the size of the largest JSON text there. */
static enum outcome load_case(const char *dir, size_t json_bytes, const char *what)
{
    struct lily_err err = {0};
    snprintf(told->what, sizeof told->what, "%s", what);
    alarm(CASE_SECONDS);
    long before = atomic_load(&alloc_live);
    alloc_peak_reset();
    lily_status st = try_load(dir, &err);
    long peak = alloc_peak_since(before);
    if (peak > (long)(MEMORY_TIMES * json_bytes + MEMORY_PLUS))
        fail_case("%ld bytes for %zu bytes of JSON, at most %d times as much + 16 MB are allowed", peak, json_bytes, MEMORY_TIMES);
    if (atomic_load(&alloc_live) > before) fail_case("%ld bytes were not freed", atomic_load(&alloc_live) - before);
    if (st != LILY_OK && (!err.msg[0] || err.status != st)) fail_case("refused without a message");
    return st == LILY_OK ? LOADED : REFUSED;
}

static void must_be(enum outcome want, enum outcome found)
{
    if (found != want) fail_case("%s", found == LOADED ? "accepted" : "refused");
}

static size_t json_size_of(const char *name, const uint8_t *data, size_t n)
{
    uint64_t header = 0;
    if (strstr(name, ".json")) return n;
    for (int i = 0; i < 8 && n >= 8; i++) header |= (uint64_t)data[i] << 8 * i;
    return header < n ? (size_t)header : 0;
}

/* Puts `bent` in place of a file, loads, puts the file back. */
static enum outcome load_bent(const struct folder *f, const char *name, const uint8_t *bent, size_t n, const char *what)
{
    size_t was;
    uint8_t *good = mini_read(f->dir, name, &was);
    mini_put(f->dir, name, bent, n);
    enum outcome o = load_case(f->dir, json_size_of(name, bent, n), what);
    mini_put(f->dir, name, good, was);
    free(good);
    return o;
}

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void each_folder(void (*fn)(const struct folder *f, const char *name))
{
    struct folder folders[] = {single_file(), sharded()};
    for (int i = 0; i < 2; i++) {
        must_be(LOADED, load_case(folders[i].dir, 0, "the good folder"));
        for (int k = 0; k < folders[i].n; k++) fn(&folders[i], folders[i].names[k]);
        must_be(LOADED, load_case(folders[i].dir, 0, "the folder put back"));
        mini_remove(folders[i].dir);
    }
}

static void cut_file(const struct folder *f, const char *name)
{
    size_t n;
    char what[160];
    uint32_t random = 7;
    uint8_t *data = mini_read(f->dir, name, &n);
    /* What follows the last bracket of a JSON file is no loss. */
    size_t content = n;
    while (strstr(name, ".json") && content > 0 && data[content - 1] != '}') content--;
    for (int i = 0; i < 50; i++) {
        size_t at = i < 10 ? (size_t)i : i < 20 ? content - 1 - (size_t)(i - 10) : next_random(&random) % content;
        snprintf(what, sizeof what, "%s cut at %zu", name, at);
        must_be(REFUSED, load_bent(f, name, data, at, what));
    }
    free(data);
}

static void cut_files(void)
{
    each_folder(cut_file);
}

static void flip_file(const struct folder *f, const char *name)
{
    size_t n;
    char what[160];
    uint32_t random = 11;
    uint8_t *data = mini_read(f->dir, name, &n);
    for (int i = 0; i < 500; i++) {
        /* Most flips go where the structure is. */
        size_t structure = strstr(name, ".json") ? n : json_size_of(name, data, n) + 8;
        size_t at = next_random(&random) % (i % 10 ? structure : n);
        int bit = (int)(next_random(&random) % 8);
        data[at] ^= (uint8_t)(1 << bit);
        snprintf(what, sizeof what, "%s with bit %d of byte %zu flipped", name, bit, at);
        load_bent(f, name, data, n, what);
        data[at] ^= (uint8_t)(1 << bit);
    }
    free(data);
}

static void flip_files(void)
{
    each_folder(flip_file);
}

/* A file whose header text is `header` and whose data are those of `old`. */
static void put_header(struct buf *out, const char *header, size_t n, const uint8_t *old, size_t old_n)
{
    size_t data = 8 + json_size_of("x.safetensors", old, old_n);
    buf_clear(out);
    for (int i = 0; i < 8; i++) buf_addc(out, (char)((uint64_t)n >> 8 * i & 255));
    buf_add(out, header, n);
    buf_add(out, old + data, old_n - data);
}

/* The place of the k-th number, or the k-th dtype, of a header; false behind the last one. */
static bool find_kth(const char *text, bool number, int k, size_t *at, size_t *len)
{
    for (const char *p = text; *p; p++) {
        if (number ? (*p >= '0' && *p <= '9' && strchr("[,", p[-1])) : strncmp(p, "\"dtype\":", 8) == 0) {
            if (!number) p += 8;
            *len = number ? strspn(p, "0123456789") : (size_t)(strchr(p + 1, '"') - p) + 1;
            *at = (size_t)(p - text);
            if (k-- == 0) return true;
        }
    }
    return false;
}

static void bend_headers(void)
{
    static const char *const numbers[] = {"0", "1", "-1", "7", "64", "2147483648", "9223372036854775807",
                                          "18446744073709551616", "4e2", "null", "[]", "1,1", "64,1"};
    static const char *const dtypes[] = {"\"F32\"", "\"BF16\"", "\"U32\"", "\"I64\"", "\"U8\"", "\"F64\"", "\"XYZ\"", "4", "null"};
    struct folder f = single_file();
    const char *name = "model.safetensors";
    size_t n, at, len;
    uint8_t *data = mini_read(f.dir, name, &n);
    char *header = mem_dup((char *)data + 8, json_size_of(name, data, n)), what[160];
    struct buf text = {0}, file = {0};
    int cases = 0;
    for (int kind = 0; kind < 2; kind++) {
        const char *const *values = kind ? dtypes : numbers;
        int n_values = kind ? 9 : 13;
        for (int k = 0; find_kth(header, !kind, k, &at, &len); k++) {
            const char *value = values[k % n_values];
            buf_clear(&text);
            buf_add(&text, header, at);
            buf_addz(&text, value);
            buf_addz(&text, header + at + len);
            if (strcmp(text.data, header) == 0) continue;
            put_header(&file, text.data, text.len, data, n);
            snprintf(what, sizeof what, "%s: %s %d is %s", name, kind ? "dtype" : "number", k, value);
            /* More dimensions of 1 are another shape of the same size: fine for a vector. */
            enum outcome o = load_bent(&f, name, (uint8_t *)file.data, file.len, what);
            if (!strchr(value, ',')) must_be(REFUSED, o);
            cases++;
        }
    }
    if (cases < 400) fail_case("only %d headers were bent", cases);
    buf_free(&text);
    buf_free(&file);
    free(header);
    free(data);
    mini_remove(f.dir);
}

static void bend_lengths(void)
{
    struct folder f = single_file();
    const char *name = "model.safetensors";
    size_t n;
    uint8_t *data = mini_read(f.dir, name, &n);
    uint64_t good = json_size_of(name, data, n);
    const uint64_t lengths[] = {0, 1, 2, good - 64, good + 1, good + 8, n - 8, n - 7, n, 99999999, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char what[80];
        for (int k = 0; k < 8; k++) data[k] = (uint8_t)(lengths[i] >> 8 * k);
        snprintf(what, sizeof what, "header length %" PRIu64, lengths[i]);
        must_be(REFUSED, load_bent(&f, name, data, n, what));
    }
    free(data);
    mini_remove(f.dir);
}

/* Something else than a regular file under each name. */
static void odd_file(const struct folder *f, const char *name)
{
    static const char *const kinds[] = {"FIFO", "folder", "empty file", "circle of links", "broken link", "device"};
    struct buf path = {0};
    size_t n;
    uint8_t *data = mini_read(f->dir, name, &n);
    file_join(&path, f->dir, name);
    for (int kind = 0; kind < 6; kind++) {
        char what[128];
        if (unlink(path.data) != 0) fail_case("cannot unlink");
        int rc = kind == 0   ? mkfifo(path.data, 0600)
                 : kind == 1 ? mkdir(path.data, 0700)
                 : kind == 2 ? mknod(path.data, S_IFREG | 0600, 0)
                 : kind == 3 ? symlink(name, path.data)
                 : kind == 4 ? symlink("not there", path.data)
                             : symlink("/dev/zero", path.data);
        if (rc != 0) fail_case("cannot make a %s", kinds[kind]);
        snprintf(what, sizeof what, "a %s as %s", kinds[kind], name);
        /* Also where the file is optional: a link that leads nowhere means that something is missing. */
        must_be(REFUSED, load_case(f->dir, 0, what));
        if ((kind == 1 ? rmdir(path.data) : unlink(path.data)) != 0) fail_case("cannot unlink");
        mini_put(f->dir, name, data, n);
    }
    free(data);
    buf_free(&path);
}

static void odd_files(void)
{
    each_folder(odd_file);
}

/* n copies of `unit` (%d: their number) between head and tail. */
static void repeat(struct buf *out, const char *head, const char *unit, int n, const char *tail)
{
    buf_clear(out);
    buf_addz(out, head);
    for (int i = 0; i < n; i++) {
        const char *mark = strchr(unit, '#');
        if (i) buf_addc(out, unit[0] == '[' && unit[1] == 0 ? '[' : ',');
        if (mark) buf_printf(out, "%.*s%x%s", (int)(mark - unit), unit, (unsigned)i, mark + 1);
        else buf_addz(out, unit);
    }
    buf_addz(out, tail);
}

static void load_bulk(void)
{
    static const struct {
        const char *head, *unit;
        int n;
        const char *tail;
    } texts[] = {
        {"{\"weight_map\":[", "[]", 600000, "]}"},
        {"{\"weight_map\":{", "\"#\":\"a.safetensors\"", 90000, "}}"},
        {"{\"weight_map\":{", "\"#\":\"#.safetensors\"", 60000, "}}"},
        {"{", "\"#\":0", 250000, "}"},
        {"{", "\"#\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", 99999, "}"},
        {"{\"x\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[", "0", 1000000, "]}}"},
        {"{\"model_type\":\"qwen3_5_moe\",\"quantization\":{\"bits\":4,\"group_size\":64,", "\"#\":false", 150000, "}}"},
        {"{\"model_type\":", "[", 300000, ""},
        {"{\"model_type\":\"", "\\u00e9", 300000, "\"}"},
    };
    struct folder one = single_file(), two = sharded();
    size_t n;
    uint8_t *data = mini_read(one.dir, "model.safetensors", &n);
    struct buf text = {0}, file = {0};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char what[128];
        repeat(&text, texts[i].head, texts[i].unit, texts[i].n, texts[i].tail);
        snprintf(what, sizeof what, "bulk %zu (%.30s)", i, texts[i].head);
        must_be(REFUSED, load_bent(&two, "model.safetensors.index.json", (uint8_t *)text.data, text.len, what));
        must_be(REFUSED, load_bent(&one, "config.json", (uint8_t *)text.data, text.len, what));
        load_bent(&one, "generation_config.json", (uint8_t *)text.data, text.len, what);
        put_header(&file, text.data, text.len, data, n);
        must_be(REFUSED, load_bent(&one, "model.safetensors", (uint8_t *)file.data, file.len, what));
    }
    buf_free(&text);
    buf_free(&file);
    free(data);
    mini_remove(one.dir);
    mini_remove(two.dir);
}

static void cut_files_are_refused(void **state)
{
    (void)state;
    in_child(cut_files);
}

static void flipped_bits_do_no_harm(void **state)
{
    (void)state;
    in_child(flip_files);
}

static void lying_headers_are_refused(void **state)
{
    (void)state;
    in_child(bend_headers);
}

static void lying_lengths_are_refused(void **state)
{
    (void)state;
    in_child(bend_lengths);
}

static void odd_files_are_refused(void **state)
{
    (void)state;
    in_child(odd_files);
}

static void bulky_json_keeps_to_its_memory(void **state)
{
    (void)state;
    in_child(load_bulk);
}

static void failing_calls_are_reported(void **state)
{
    (void)state;
    static const struct {
        enum inject_call call;
        int error;
    } calls[] = {{INJECT_OPEN, EACCES}, {INJECT_OPEN, EMFILE}, {INJECT_READ, EIO}, {INJECT_MMAP, ENOMEM}, {INJECT_MEM_TRY, ENOMEM}};
    struct folder folders[] = {single_file(), sharded()};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
            int nth = 0;
            for (;; nth++) {
                struct lily_err err = {0};
                inject_fail(calls[i].call, nth, calls[i].error);
                lily_status st = try_load(folders[k].dir, &err);
                if (!inject_end()) {
                    assert_int_equal(st, LILY_OK);
                    break;
                }
                if (st == LILY_OK || !err.msg[0]) fail_msg("%s %d failed, but the load did not", inject_names[calls[i].call], nth);
                if (calls[i].call != INJECT_MEM_TRY && !strstr(err.msg, folders[k].dir)) fail_msg("no file in: %s", err.msg);
                if (calls[i].call == INJECT_MEM_TRY) assert_int_equal(st, LILY_ERR_MEMORY);
            }
            assert_true(nth > 0);
        }
        mini_remove(folders[k].dir);
    }
}

static void failing_writes_leave_nothing(void **state)
{
    (void)state;
    static const enum inject_call calls[] = {INJECT_MKOSTEMP, INJECT_FSYNC, INJECT_RENAME};
    const struct tensor_decl d = {"a", DTYPE_U8, 1, {4}};
    char *dir = mini_dir();
    struct buf path = {0};
    file_join(&path, dir, "out.safetensors");
    for (int i = 0; i < 3; i++) {
        struct lily_err err = {0};
        struct safetensors_writer *w;
        inject_fail(calls[i], 0, ENOSPC);
        lily_status st = safetensors_create(path.data, &d, 1, &w, &err);
        if (st == LILY_OK) st = safetensors_put(w, "abcd", 4, &err);
        if (w) st = safetensors_finish(w, &err);
        assert_true(inject_end());
        assert_int_equal(st, LILY_ERR_IO);
        assert_non_null(strstr(err.msg, "out.safetensors"));
        assert_non_null(strstr(err.msg, strerror(ENOSPC)));
    }
    buf_free(&path);
    assert_int_equal(rmdir(dir), 0); /* so it is empty */
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_files_are_refused),          cmocka_unit_test(flipped_bits_do_no_harm),
        cmocka_unit_test(lying_headers_are_refused),      cmocka_unit_test(lying_lengths_are_refused),
        cmocka_unit_test(odd_files_are_refused),          cmocka_unit_test(bulky_json_keeps_to_its_memory),
        cmocka_unit_test(failing_calls_are_reported),     cmocka_unit_test(failing_writes_leave_nothing),
    };
    return RUN_TESTS(tests);
}
