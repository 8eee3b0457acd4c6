/* Files: mappings, bounded reads, atomic writes, folders; and what is no regular file. */
#include "../testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static char dir[64];
static struct buf path;

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/lily-file-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "chmod -R u+rwx %s && rm -rf %s", dir, dir);
    buf_free(&path);
    return system(command);
}

/* dir/name; valid until the next call. */
static const char *in_dir(const char *name)
{
    file_join(&path, dir, name);
    return buf_str(&path);
}

static void put(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static int count_entries(const char *of)
{
    DIR *d = opendir(of);
    int n = 0;
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static void a_mapping_shows_the_file(void **state)
{
    (void)state;
    char data[10000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7);
    put("f", data, sizeof data);
    struct lily_err err;
    struct file_map m;
    assert_ok(file_map_open(in_dir("f"), &m, &err));
    assert_int_equal(m.size, sizeof data);
    assert_memory_equal(m.data, data, sizeof data);
    file_map_drop(&m, 0, m.size);
    file_map_drop(&m, 1, 5000);
    file_map_drop(&m, 9999, 1);
    assert_memory_equal(m.data, data, sizeof data);
    file_map_close(&m);
    assert_null(m.data);
    file_map_close(&m);
}

static void an_empty_file_maps_to_nothing(void **state)
{
    (void)state;
    put("empty", "", 0);
    struct lily_err err;
    struct file_map m;
    assert_ok(file_map_open(in_dir("empty"), &m, &err));
    assert_non_null(m.data);
    assert_int_equal(m.size, 0);
    file_map_drop(&m, 0, 4096);
    file_map_close(&m);
    assert_null(m.data);
    struct buf b = {0};
    assert_ok(file_read(in_dir("empty"), 10, &b, &err));
    assert_string_equal(buf_str(&b), "");
    buf_free(&b);
}

/* Both ways to read refuse; a FIFO without a writer would hang a plain open. */
static void assert_refused(const char *name, const char *why)
{
    struct lily_err err;
    struct file_map m;
    struct buf b = {0};
    assert_int_equal(file_map_open(in_dir(name), &m, &err), LILY_ERR_IO);
    assert_non_null(strstr(err.msg, in_dir(name)));
    assert_non_null(strstr(err.msg, why));
    assert_null(m.data);
    assert_int_equal(file_read(in_dir(name), 100, &b, &err), LILY_ERR_IO);
    assert_non_null(strstr(err.msg, why));
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

static void what_is_no_regular_file_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    assert_int_equal(mkdir(in_dir("folder"), 0700), 0);
    assert_int_equal(symlink("nowhere", in_dir("dangling")), 0);
    assert_refused("fifo", "not a regular file");
    assert_refused("folder", "not a regular file");
    assert_refused("dangling", "No such file");
    assert_refused("absent", "No such file");
    assert_refused("../../../../dev/null", "not a regular file");
}

static void a_read_appends_and_keeps_to_its_limit(void **state)
{
    (void)state;
    put("ten", "0123456789", 10);
    struct lily_err err;
    struct buf b = {0};
    buf_addz(&b, "> ");
    assert_ok(file_read(in_dir("ten"), 10, &b, &err));
    assert_string_equal(buf_str(&b), "> 0123456789");
    assert_int_equal(file_read(in_dir("ten"), 9, &b, &err), LILY_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "10 bytes, at most 9"));
    assert_string_equal(buf_str(&b), "> 0123456789");
    buf_free(&b);
}

static void a_written_file_replaces_the_old_one(void **state)
{
    (void)state;
    struct lily_err err;
    struct buf b = {0};
    put("target", "old", 3);
    char *target = mem_dupz(in_dir("target"));
    int before = count_entries(dir);
    assert_ok(file_write_atomic(target, "new content", 11, &err));
    assert_ok(file_read(target, 100, &b, &err));
    assert_string_equal(buf_str(&b), "new content");
    assert_ok(file_write_atomic(target, NULL, 0, &err));
    buf_clear(&b);
    assert_ok(file_read(target, 100, &b, &err));
    assert_string_equal(buf_str(&b), "");
    assert_int_equal(count_entries(dir), before); /* no temporary file stays */
    buf_free(&b);
    free(target);
}

/* What a killed writer left: gone an hour later, and nothing that only looks like it. */
static void a_write_removes_stale_temporary_files(void **state)
{
    (void)state;
    struct lily_err err;
    static const char *const stay[] = {"key.lily-tmp-aaaaaa", "key.backup", "key.lily-tmp-bbbbb", ".lily-tmp-cccccc"};
    const struct timespec old[2] = {{time(NULL) - 4000, 0}, {time(NULL) - 4000, 0}};
    for (size_t i = 0; i < sizeof stay / sizeof stay[0]; i++) {
        put(stay[i], "x", 1);
        if (i) assert_int_equal(utimensat(AT_FDCWD, in_dir(stay[i]), old, 0), 0);
    }
    put("other.lily-tmp-dddddd", "x", 1);
    assert_int_equal(utimensat(AT_FDCWD, in_dir("other.lily-tmp-dddddd"), old, 0), 0);
    assert_ok(file_write_atomic(in_dir("target"), "new", 3, &err));
    assert_false(file_exists(in_dir("other.lily-tmp-dddddd")));
    for (size_t i = 0; i < sizeof stay / sizeof stay[0]; i++) {
        assert_true(file_exists(in_dir(stay[i])));
        assert_int_equal(unlink(in_dir(stay[i])), 0);
    }
}

static void a_failed_write_leaves_the_old_file_and_nothing_else(void **state)
{
    (void)state;
    struct lily_err err;
    assert_int_equal(file_write_atomic(in_dir("absent/file"), "x", 1, &err), LILY_ERR_IO);
    assert_non_null(strstr(err.msg, "absent/file"));
    /* A folder in the place of the file: the rename fails after the temporary file was written. */
    assert_int_equal(mkdir(in_dir("taken"), 0700), 0);
    assert_int_equal(mkdir(in_dir("taken/inner"), 0700), 0);
    int before = count_entries(dir);
    assert_int_equal(file_write_atomic(in_dir("taken"), "x", 1, &err), LILY_ERR_IO);
    assert_non_null(strstr(err.msg, "rename"));
    assert_int_equal(count_entries(dir), before);
    assert_true(file_is_dir(in_dir("taken/inner")));
}

/* The limit on a file's size fails the write itself, half way, as a full disk does. */
static void a_write_that_stops_half_way_is_an_error(void **state)
{
    (void)state;
    struct lily_err err;
    struct buf b = {0};
    char *target = mem_dupz(in_dir("target")), *big = mem_new(100000);
    put("target", "old", 3);
    int before = count_entries(dir);
    struct rlimit was, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    low = (struct rlimit){50000, was.rlim_max};
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    lily_status st = file_write_atomic(target, big, 100000, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, old);
    assert_int_equal(st, LILY_ERR_IO);
    assert_non_null(strstr(err.msg, "cannot write"));
    assert_int_equal(count_entries(dir), before);
    assert_ok(file_read(target, 100, &b, &err));
    assert_string_equal(buf_str(&b), "old");
    buf_free(&b);
    free(big);
    free(target);
}

static void folders_are_made_with_their_parents(void **state)
{
    (void)state;
    struct lily_err err;
    assert_ok(file_make_dirs(in_dir("a/b/c"), &err));
    assert_true(file_is_dir(in_dir("a/b/c")));
    assert_ok(file_make_dirs(in_dir("a/b/c"), &err));
    assert_ok(file_make_dirs(in_dir("a//x/"), &err));
    assert_true(file_is_dir(in_dir("a/x")));
    assert_ok(file_make_dirs("/", &err));
    struct stat sb;
    assert_int_equal(stat(in_dir("a/b"), &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0700);
}

/* What the umask takes away is missing, and nothing else. */
static void what_is_shared_has_the_modes_of_the_umask(void **state)
{
    (void)state;
    static const mode_t masks[] = {022, 027, 077, 0};
    struct lily_err err;
    struct stat sb;
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        char folder[40], file[60];
        snprintf(folder, sizeof folder, "shared%zu/below", i);
        snprintf(file, sizeof file, "%s/file", folder);
        mode_t was = umask(masks[i]);
        assert_ok(file_make_shared_dirs(in_dir(folder), &err));
        assert_ok(file_write_shared(in_dir(file), "x", 1, &err));
        assert_int_equal(umask(was), masks[i]);
        assert_int_equal(stat(in_dir(folder), &sb), 0);
        assert_int_equal(sb.st_mode & 0777, 0777 & ~masks[i]);
        assert_int_equal(stat(in_dir(file), &sb), 0);
        assert_int_equal(sb.st_mode & 0777, 0666 & ~masks[i]);
        assert_ok(file_write_atomic(in_dir(file), "y", 1, &err));
        assert_int_equal(stat(in_dir(file), &sb), 0);
        assert_int_equal(sb.st_mode & 0777, 0600);
    }
}

static void a_file_in_the_place_of_a_folder_is_an_error(void **state)
{
    (void)state;
    struct lily_err err;
    put("plain", "x", 1);
    assert_int_equal(file_make_dirs(in_dir("plain/below"), &err), LILY_ERR_IO);
    assert_int_equal(file_make_dirs(in_dir("plain"), &err), LILY_ERR_IO);
    assert_non_null(strstr(err.msg, "not a folder"));
    assert_int_equal(file_make_dirs("", &err), LILY_ERR_USAGE);
}

/* Only what is ours, or empty, may be replaced by a name that a user gives. */
static void other_files_are_not_replaced(void **state)
{
    (void)state;
    struct lily_err err;
    put("ours", "magic and more", 14);
    put("other", "magi", 4);
    put("empty", "", 0);
    assert_ok(file_may_replace(in_dir("ours"), "magic", "thing", &err));
    assert_ok(file_may_replace(in_dir("empty"), "magic", "thing", &err));
    assert_ok(file_may_replace(in_dir("nothing"), "magic", "thing", &err));
    char *to_empty = mem_dupz(in_dir("to empty"));
    assert_int_equal(symlink("empty", to_empty), 0);
    assert_int_equal(file_may_replace(to_empty, "magic", "thing", &err), LILY_ERR_USAGE);
    free(to_empty);
    assert_int_equal(file_may_replace(in_dir("other"), "magic", "thing", &err), LILY_ERR_USAGE);
    assert_non_null(strstr(err.msg, "no thing"));
    assert_int_equal(file_may_replace(dir, "magic", "thing", &err), LILY_ERR_IO);
    assert_int_equal(file_may_replace("/dev/null", "magic", "thing", &err), LILY_ERR_IO);
}

/* A device is written to and a link followed; neither becomes a file. */
static void named_files_keep_what_they_are(void **state)
{
    (void)state;
    struct lily_err err = {0};
    struct stat sb;
    struct buf text = {0};
    assert_ok(file_write_named(in_dir("target"), "old", 3, false, &err));
    char *link = mem_dupz(in_dir("link"));
    assert_int_equal(symlink("target", link), 0);
    assert_ok(file_write_named(link, "new", 3, false, &err));
    assert_int_equal(lstat(link, &sb), 0);
    assert_true(S_ISLNK(sb.st_mode));
    assert_ok(file_read(in_dir("target"), 10, &text, &err));
    assert_string_equal(buf_str(&text), "new");
    buf_clear(&text);
    assert_ok(file_read_end(in_dir("target"), 2, &text, &err));
    assert_string_equal(buf_str(&text), "ew");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("/dev/null", link), 0); /* were it replaced, then as a link */
    assert_ok(file_write_named(link, "new", 3, false, &err));
    assert_int_equal(lstat(link, &sb), 0);
    assert_true(S_ISLNK(sb.st_mode));
    assert_int_equal(file_write_named(dir, "new", 3, false, &err), LILY_ERR_IO);
    free(link);
    buf_free(&text);
}

static void questions_about_paths(void **state)
{
    (void)state;
    put("here", "x", 1);
    assert_true(file_exists(in_dir("here")));
    assert_false(file_is_dir(in_dir("here")));
    assert_true(file_exists(dir));
    assert_true(file_is_dir(dir));
    assert_false(file_exists(in_dir("not here")));
    assert_false(file_exists(in_dir("here/below")));
    char *loop = mem_dupz(in_dir("loop"));
    assert_int_equal(symlink("loop", loop), 0);
    assert_true(file_exists(loop));
    free(loop);
    char *broken = mem_dupz(in_dir("broken"));
    assert_int_equal(symlink("not here", broken), 0);
    assert_true(file_exists(broken));
    assert_false(file_is_dir(broken));
    struct lily_err err;
    assert_int_equal(file_write_named(broken, "x", 1, false, &err), LILY_ERR_IO); /* no file in the link's place */
    assert_true(file_exists(broken));
    assert_false(file_exists(in_dir("not here")));
    free(broken);
    assert_false(file_is_dir(in_dir("not here")));
    struct buf b = {0};
    file_join(&b, "a", "b");
    assert_string_equal(buf_str(&b), "a/b");
    file_join(&b, "a/", "b");
    assert_string_equal(buf_str(&b), "a/b");
    file_join(&b, "/", "b");
    assert_string_equal(buf_str(&b), "/b");
    buf_free(&b);
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, make_dir, drop_dir)
    const struct CMUnitTest tests[] = {
        IN_DIR(a_mapping_shows_the_file),
        IN_DIR(an_empty_file_maps_to_nothing),
        IN_DIR(what_is_no_regular_file_is_refused),
        IN_DIR(a_read_appends_and_keeps_to_its_limit),
        IN_DIR(a_written_file_replaces_the_old_one),
        IN_DIR(a_write_removes_stale_temporary_files),
        IN_DIR(a_failed_write_leaves_the_old_file_and_nothing_else),
        IN_DIR(a_write_that_stops_half_way_is_an_error),
        IN_DIR(folders_are_made_with_their_parents),
        IN_DIR(what_is_shared_has_the_modes_of_the_umask),
        IN_DIR(a_file_in_the_place_of_a_folder_is_an_error),
        IN_DIR(questions_about_paths), IN_DIR(other_files_are_not_replaced),
        IN_DIR(named_files_keep_what_they_are),
    };
    return RUN_TESTS(tests);
}
