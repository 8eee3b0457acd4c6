/* Helpers of the tokenizer tests. */
#include "texts.h"

#include <dirent.h>
#include <unistd.h>

#include "../testing.h"
#include "base/file.h"

const char *real_dir(void)
{
    static char dir[4096];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 32);
    assert_true(n > 0);
    dir[n] = 0;
    char *tests = strstr(dir, "/tests/unit/");
    assert_non_null(tests);
    strcpy(tests, "/tests/tokenizer");
    return dir;
}

struct tokenizer *load_from(const char *dir)
{
    struct tokenizer *t;
    struct lily_err err;
    assert_ok(tokenizer_load(dir, NULL, &t, &err));
    return t;
}

static struct tokenizer *real;

static void free_real(void)
{
    tokenizer_free(real);
}

const struct tokenizer *real_tokenizer(void)
{
    if (!real) {
        real = load_from(real_dir());
        atexit(free_real);
    }
    return real;
}

size_t each_json_line(const char *path, void (*fn)(const struct json *line, void *arg), void *arg)
{
    FILE *f = fopen(path, "r");
    struct lily_err err;
    struct json *line;
    char *text = NULL;
    size_t cap = 0, n = 0;
    ssize_t len;
    if (!f) fail_msg("%s is missing", path);
    while ((len = getline(&text, &cap, f)) > 0) {
        assert_ok(json_parse(text, (size_t)len, path, &line, &err));
        fn(line, arg);
        json_free(line);
        n++;
    }
    free(text);
    fclose(f);
    return n;
}

bool read_text(const char *path, struct buf *out)
{
    char command[512], chunk[65536];
    size_t n = strlen(path), got;
    bool packed = n > 3 && strcmp(path + n - 3, ".xz") == 0;
    if (!file_exists(path)) return false;
    snprintf(command, sizeof command, "xz -dc '%s'", path);
    FILE *f = packed ? popen(command, "r") : fopen(path, "r");
    assert_non_null(f);
    while ((got = fread(chunk, 1, sizeof chunk, f)) > 0) buf_add(out, chunk, got);
    assert_int_equal(packed ? pclose(f) : fclose(f), 0);
    return true;
}

const struct json *member(const struct json *object, const char *key)
{
    const struct json *v = json_get(object, key);
    if (!v) fail_msg("the member \"%s\" is missing", key);
    return v;
}

void assert_ids(const struct ids *ids, const struct json *expected, const char *name)
{
    size_t n = json_size(expected);
    for (size_t i = 0; i < ids->n && i < n; i++)
        if (ids->data[i] != json_int(json_at(expected, i)))
            fail_msg("%s: id %zu is %d, expected %lld", name, i, ids->data[i], (long long)json_int(json_at(expected, i)));
    if (ids->n != n) fail_msg("%s: %zu ids, expected %zu", name, ids->n, n);
}

char *make_dir(void)
{
    struct buf path = {0};
    const char *tmp = getenv("TMPDIR");
    file_join(&path, tmp ? tmp : "/tmp", "lily-text-XXXXXX");
    assert_non_null(mkdtemp(path.data));
    return buf_take(&path);
}

void remove_dir(char *path)
{
    struct buf name = {0};
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        file_join(&name, path, e->d_name);
        if (e->d_name[0] != '.') unlink(name.data);
    }
    closedir(d);
    assert_int_equal(rmdir(path), 0);
    buf_free(&name);
    free(path);
}

void write_file(const char *dir, const char *name, const void *data, size_t n)
{
    struct buf path = {0};
    file_join(&path, dir, name);
    FILE *f = fopen(path.data, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    buf_free(&path);
}
