/* The disk cache over made-up parts: what is read back is what was saved, the quota holds, damage is found. */
#include "unit/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/log.h"
#include "run/disk.h"
#include "spec/family.h"

enum { FIXED = 1000, PAGE = 300, N = 640 };
static const char key_a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const char key_b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
static struct cache_counters counters;
static char dir[] = "/tmp/lily-disk-XXXXXX";

static void fill_ids(int32_t *ids, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 16) % 300;
    }
}

/* What a part holds is a function of the tokens up to its end, as it is with the model. */
static void fill_part(const int32_t *ids, int length, int part, uint8_t *out)
{
    int end = part == BORDER_FIXED ? length : (part + 1) * GRID, n = part == BORDER_FIXED ? FIXED : PAGE;
    uint32_t sum = (uint32_t)part;
    for (int i = 0; i < end; i++) sum = sum * 31 + (uint32_t)ids[i];
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(sum >> i % 24);
}

static struct disk *open_disk(const char *key, size_t quota)
{
    struct lily_err err = {0};
    struct disk *d;
    memset(&counters, 0, sizeof counters);
    const struct disk_options o = {.dir = dir, .quota = quota, .key = key, .fixed_bytes = FIXED, .page_bytes = PAGE, .counters = &counters};
    assert_ok(disk_open(&o, &d, &err));
    return d;
}

static bool save(struct disk *d, const int32_t *ids, int length)
{
    if (!disk_save_begin(d, ids, length, 0)) return false;
    for (;;) {
        int part = disk_save_next(d);
        if (part == DISK_ALL_GIVEN) break;
        if (part == DISK_WAIT) {
            disk_wait(d, 1000);
            continue;
        }
        fill_part(ids, length, part, disk_save_buffer(d));
        disk_save_put(d);
    }
    disk_wait(d, 10000);
    return disk_poll(d) == 1;
}

/* LILY_OK when all of it came back right. */
static lily_status load(struct disk *d, const int32_t *ids, int length)
{
    struct lily_err err;
    struct disk_read *r = disk_read_begin(d, ids, length);
    uint8_t got[FIXED], expected[FIXED];
    lily_status st = LILY_OK;
    for (int part = BORDER_FIXED; part < length / GRID && st == LILY_OK; part++) {
        size_t n = part == BORDER_FIXED ? FIXED : PAGE;
        st = disk_read_part(r, part, 0, n, got, &err);
        if (st != LILY_OK) continue;
        fill_part(ids, length, part, expected);
        assert_memory_equal(got, expected, n);
    }
    disk_read_end(r);
    return st;
}

static void folder(const char *key, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "%s/%.32s", dir, key);
}

/* Calls f for every file of the key's folder whose name begins with prefix; returns how many. */
static int each_file(const char *key, const char *prefix, void (*f)(const char *path))
{
    struct buf at = {0}, path = {0};
    int n = 0;
    folder(key, &at);
    DIR *d = opendir(buf_str(&at));
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        n++;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", buf_str(&at), e->d_name);
        if (f) f(buf_str(&path));
    }
    if (d) closedir(d);
    buf_free(&at);
    buf_free(&path);
    return n;
}

static void remove_path(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static void clear(void)
{
    const char *keys[] = {key_a, key_b};
    struct buf at = {0};
    for (int i = 0; i < 2; i++) {
        each_file(keys[i], "s-", remove_path);
        each_file(keys[i], "p-", remove_path);
        each_file(keys[i], "lock", remove_path);
        folder(keys[i], &at);
        rmdir(buf_str(&at));
    }
    buf_free(&at);
}

static void check_mode(const char *path)
{
    struct stat sb;
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
}

static void test_round_trip(void **state)
{
    (void)state;
    int32_t a[N], b[N];
    clear();
    fill_ids(a, N, 1);
    memcpy(b, a, sizeof a);
    b[300]++;
    struct disk *d = open_disk(key_a, 1 << 20);
    assert_int_equal(disk_depth(d, a, N), 0);
    assert_true(disk_can_save(d));
    assert_true(save(d, a, 256));
    assert_false(disk_save_begin(d, a, 256, 0)); /* it is there */
    assert_true(save(d, a, 512));
    assert_true(save(d, b, 448));
    assert_int_equal(each_file(key_a, "p-", check_mode), 8 + 3); /* the first 256 tokens are written once */
    assert_int_equal(each_file(key_a, "s-", check_mode), 3);
    struct stat sb;
    struct buf at = {0};
    folder(key_a, &at);
    assert_int_equal(stat(buf_str(&at), &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0700);
    buf_free(&at);
    for (int round = 0; round < 2; round++) { /* the second time after a restart */
        assert_int_equal(disk_depth(d, a, N), 512);
        assert_int_equal(disk_depth(d, a, 512), 256); /* a proper prefix */
        assert_int_equal(disk_depth(d, b, N), 448);
        assert_int_equal(disk_depth(d, b, 448), 256);
        assert_int_equal(load(d, a, 512), LILY_OK);
        assert_int_equal(load(d, b, 448), LILY_OK);
        assert_int_equal(counters.disk_states, 3);
        size_t bytes = counters.disk_bytes;
        disk_close(d);
        d = open_disk(key_a, 1 << 20);
        assert_int_equal(counters.disk_bytes, bytes);
    }
    disk_close(d);
}

static void test_other_keys_and_locks(void **state)
{
    (void)state;
    int32_t a[N], b[N];
    clear();
    fill_ids(a, N, 2);
    fill_ids(b, N, 3);
    struct disk *d = open_disk(key_a, 1 << 20);
    assert_true(save(d, a, 640));
    struct disk *second = open_disk(key_a, 1 << 20); /* another process has it: this one only reads */
    assert_false(disk_can_save(second));
    assert_int_equal(load(second, a, 640), LILY_OK);
    disk_close(second);
    size_t used = counters.disk_bytes;
    struct disk *other = open_disk(key_b, used + 3000);
    assert_int_equal(disk_depth(other, a, N), 0); /* made by something else */
    assert_int_equal(counters.disk_bytes, used);  /* but it counts */
    assert_true(save(other, b, 64));
    assert_false(save(other, b, 640)); /* the folder in use cannot go */
    disk_close(other);
    disk_close(d);
    other = open_disk(key_b, used + 3000);
    assert_true(save(other, b, 640));
    assert_int_equal(each_file(key_a, "p-", NULL), 0);
    assert_true(counters.disk_peak_bytes <= used + 3000);
    disk_close(other);
}

static void in_cache(const char *name, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "%s/%s", dir, name);
}

static void put_file(const char *name)
{
    struct buf at = {0};
    in_cache(name, &at);
    FILE *f = fopen(buf_str(&at), "w");
    assert_non_null(f);
    fputs("mine", f);
    fclose(f);
    buf_free(&at);
}

/* Folders that are named like a key's are somebody else's unless lily made them, and so are other files in those that it made. */
static void test_what_is_not_ours_stays(void **state)
{
    static const char *const folders[] = {"mine", "dddddddddddddddddddddddddddddddd", "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"};
    static const char *const kept[] = {"mine/lock", "mine/file", "dddddddddddddddddddddddddddddddd/file", "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee/file"};
    struct buf at = {0}, to = {0};
    int32_t a[N];
    struct stat sb;
    (void)state;
    clear();
    fill_ids(a, N, 9);
    for (int i = 0; i < 3; i++) {
        in_cache(folders[i], &at);
        assert_int_equal(mkdir(buf_str(&at), 0700), 0);
    }
    for (int i = 0; i < 4; i++) put_file(kept[i]);
    put_file("eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee/lock"); /* lily's, with a file beside */
    in_cache("mine", &to);
    in_cache("ffffffffffffffffffffffffffffffff", &at);
    assert_int_equal(symlink(buf_str(&to), buf_str(&at)), 0);
    struct disk *d = open_disk(key_a, 3000);
    assert_int_equal(counters.disk_bytes, 4); /* the lock alone */
    assert_false(save(d, a, 640));
    assert_int_equal(counters.disk_bytes, 0);
    disk_close(d);
    unlink(buf_str(&at));
    for (int i = 0; i < 4; i++) {
        in_cache(kept[i], &at);
        assert_int_equal(stat(buf_str(&at), &sb), 0);
        unlink(buf_str(&at));
    }
    in_cache("dddddddddddddddddddddddddddddddd/lock", &at);
    assert_int_not_equal(stat(buf_str(&at), &sb), 0); /* nor is anything put there */
    for (int i = 0; i < 3; i++) {
        in_cache(folders[i], &at);
        assert_int_equal(rmdir(buf_str(&at)), 0);
    }
    buf_free(&at);
    buf_free(&to);
}

static void test_quota(void **state)
{
    (void)state;
    enum { QUOTA = 40000 };
    int32_t ids[N], long_one[N];
    clear();
    fill_ids(long_one, N, 100);
    struct disk *d = open_disk(key_a, QUOTA);
    assert_true(save(d, long_one, 640));
    for (int i = 0; i < 60; i++) {
        fill_ids(ids, N, (uint32_t)i);
        save(d, ids, 64 * (1 + i % 4));
        assert_true(counters.disk_bytes <= QUOTA && counters.disk_peak_bytes <= QUOTA);
        if (i % 5 == 0) disk_used(d, long_one, 640);
    }
    assert_true(counters.disk_dropped > 10);
    assert_int_equal(load(d, long_one, 640), LILY_OK); /* the most tokens, and used */
    disk_close(d);
    d = open_disk(key_a, 12000); /* a smaller quota from now on */
    assert_true(counters.disk_bytes <= 12000 && counters.disk_states > 0);
    disk_close(d);
    d = open_disk(key_a, QUOTA);
    assert_true(counters.disk_bytes <= 12000); /* the files are gone, too */
    disk_close(d);
}

static int flip_at;
static void flip(const char *path)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    struct stat sb;
    assert_true(fd >= 0 && fstat(fd, &sb) == 0);
    off_t at = flip_at % sb.st_size;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (uint8_t)(1 << flip_at % 8);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void cut(const char *path)
{
    struct stat sb;
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(truncate(path, sb.st_size - 1 - flip_at % 5 * 50), 0);
}

static void lengthen(const char *path)
{
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputc('x', f);
    fclose(f);
}

/* Any flipped bit, any missing byte: the file is not used, and set aside. */
static void test_damage(void **state)
{
    (void)state;
    int32_t a[N];
    void (*const ways[])(const char *) = {flip, cut, lengthen};
    fill_ids(a, N, 5);
    log_quiet(true);
    for (int i = 0; i < 120; i++) {
        clear();
        struct disk *d = open_disk(key_a, 1 << 20);
        assert_true(save(d, a, 64));
        assert_true(save(d, a, 128));
        bool restart = i % 2, page = i / 2 % 2;
        if (restart) disk_close(d);
        flip_at = i * 37;
        each_file(key_a, page ? "p-" : "s-", ways[i % 3]);
        if (restart) d = open_disk(key_a, 1 << 20);
        int depth = disk_depth(d, a, N);
        if (page || !restart) assert_int_equal(depth, 128); /* else the heads of the states were looked at */
        while ((depth = disk_depth(d, a, N)) > 0) assert_int_equal(load(d, a, depth), LILY_ERR_FORMAT);
        assert_true(counters.disk_damaged >= 1 && counters.disk_damaged <= 2);
        assert_true(save(d, a, 128)); /* and it can be made again */
        assert_int_equal(load(d, a, 128), LILY_OK);
        disk_close(d);
        d = open_disk(key_a, 1 << 20); /* what was set aside is removed now */
        assert_int_equal(each_file(key_a, "s-", NULL), 1);
        assert_int_equal(each_file(key_a, "p-", NULL), 2);
        disk_close(d);
    }
    log_quiet(false);
}

/* What a killed process leaves: pages without a state, a state whose page is missing, files that are not whole. */
static void test_leftovers(void **state)
{
    (void)state;
    int32_t a[N];
    struct buf path = {0}, at = {0};
    clear();
    fill_ids(a, N, 6);
    struct disk *d = open_disk(key_a, 1 << 20);
    assert_true(save(d, a, 128));
    assert_true(disk_save_begin(d, a, 256, 0));
    assert_int_equal(disk_save_next(d), 2);
    fill_part(a, 256, 2, disk_save_buffer(d));
    disk_save_put(d);
    disk_wait(d, 10000);
    assert_int_equal(disk_depth(d, a, N), 128); /* what is being written cannot be read */
    assert_int_equal(each_file(key_a, "p-", NULL), 3);
    disk_save_abort(d);
    disk_wait(d, 10000);
    assert_int_equal(each_file(key_a, "p-", NULL), 2);
    disk_close(d);
    folder(key_a, &at);
    const char *const names[] = {"p-0000000000000000000000000000000000000000000000000000000000000000", "s-1234.AbCdEf", "p-12", "notes"};
    for (int i = 0; i < 4; i++) {
        buf_clear(&path);
        buf_printf(&path, "%s/%s", buf_str(&at), names[i]);
        lengthen(buf_str(&path));
    }
    d = open_disk(key_a, 1 << 20);
    assert_int_equal(each_file(key_a, "p-", NULL), 2);
    assert_int_equal(each_file(key_a, "s-", NULL), 1);
    assert_int_equal(each_file(key_a, "notes", remove_path), 1); /* what is not ours stays */
    assert_int_equal(load(d, a, 128), LILY_OK);
    each_file(key_a, "p-", remove_path); /* somebody cleans up while we run */
    assert_int_equal(load(d, a, 128), LILY_ERR_IO);
    assert_int_equal(disk_depth(d, a, N), 0);
    assert_int_equal(counters.disk_damaged, 0);
    disk_close(d);
    d = open_disk(key_a, 1 << 20);
    assert_int_equal(each_file(key_a, "s-", NULL), 0);
    disk_close(d);
    buf_free(&path);
    buf_free(&at);
}

/* Somebody clears the cache while we run: the folder comes back, locked, and saves go on. */
static void test_removed(void **state)
{
    (void)state;
    int32_t a[N], b[N];
    clear();
    fill_ids(a, N, 7);
    fill_ids(b, N, 8);
    struct disk *d = open_disk(key_a, 1 << 20);
    assert_true(save(d, a, 128));
    assert_false(disk_renew(d));
    clear();
    log_quiet(true);
    assert_false(save(d, b, 128)); /* not noticed before */
    assert_true(disk_can_save(d)); /* and no reason to wait */
    assert_true(disk_renew(d));
    assert_false(disk_renew(d));
    log_quiet(false);
    assert_int_equal(disk_depth(d, a, N), 0);
    assert_int_equal(counters.disk_bytes, 0);
    assert_true(save(d, a, 128));
    assert_int_equal(each_file(key_a, "s-", NULL), 1);
    assert_int_equal(each_file(key_a, "p-", NULL), 2);
    assert_int_equal(load(d, a, 128), LILY_OK);
    log_quiet(true);
    struct disk *second = open_disk(key_a, 1 << 20);
    assert_false(disk_can_save(second)); /* the lock is held as before */
    disk_close(second);
    /* Another process comes first after the folder is gone: it writes, we read. */
    clear();
    second = open_disk(key_a, 1 << 20);
    assert_true(save(second, b, 128));
    assert_true(disk_renew(d));
    log_quiet(false);
    assert_false(disk_can_save(d));
    assert_int_equal(load(d, b, 128), LILY_OK);
    disk_close(second);
    disk_close(d);
}

/* Or moves it away, after which the locked file still has a name; in the second round another process has made the folder again. */
static void test_moved(void **state)
{
    (void)state;
    int32_t a[N];
    struct buf at = {0}, away = {0};
    clear();
    fill_ids(a, N, 9);
    folder(key_a, &at);
    folder(key_b, &away);
    struct disk *d = open_disk(key_a, 1 << 20);
    log_quiet(true);
    for (int round = 0; round < 2; round++) {
        assert_true(save(d, a, 128));
        assert_false(disk_renew(d));
        assert_int_equal(rename(buf_str(&at), buf_str(&away)), 0);
        if (round) disk_close(open_disk(key_a, 1 << 20));
        assert_true(disk_renew(d));
        assert_false(disk_renew(d));
        assert_int_equal(disk_depth(d, a, N), 0);
        assert_int_equal(each_file(key_b, "s-", remove_path), 1);
        each_file(key_b, "p-", remove_path);
        each_file(key_b, "lock", remove_path);
    }
    log_quiet(false);
    assert_true(save(d, a, 128));
    assert_int_equal(each_file(key_a, "s-", NULL), 1);
    disk_close(d);
    buf_free(&at);
    buf_free(&away);
}

/* A file lies where the folder was: told once, nothing breaks, and the folder is filled when the file is gone. */
static void test_replaced(void **state)
{
    (void)state;
    int32_t a[N];
    struct buf at = {0};
    clear();
    fill_ids(a, N, 10);
    folder(key_a, &at);
    struct disk *d = open_disk(key_a, 1 << 20);
    log_quiet(true);
    assert_true(save(d, a, 128));
    clear();
    int fd = open(buf_str(&at), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && close(fd) == 0);
    assert_false(save(d, a, 192)); /* not noticed before */
    for (int i = 0; i < 2; i++) {
        assert_true(disk_renew(d));
        assert_false(disk_can_save(d)); /* not at once: the file is still there */
        assert_int_equal(disk_depth(d, a, N), 0);
        assert_int_equal(counters.disk_bytes, 0);
    }
    remove_path(buf_str(&at));
    assert_true(disk_renew(d));
    assert_false(disk_renew(d));
    log_quiet(false);
    assert_true(save(d, a, 128));
    assert_int_equal(each_file(key_a, "s-", NULL), 1);
    assert_int_equal(load(d, a, 128), LILY_OK);
    disk_close(d);
    buf_free(&at);
}

int main(void)
{
    if (!mkdtemp(dir)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_other_keys_and_locks),
                                       cmocka_unit_test(test_quota), cmocka_unit_test(test_what_is_not_ours_stays), cmocka_unit_test(test_damage), cmocka_unit_test(test_leftovers),
                                       cmocka_unit_test(test_removed), cmocka_unit_test(test_moved), cmocka_unit_test(test_replaced)};
    int rc = RUN_TESTS(tests);
    clear();
    rmdir(dir);
    return rc;
}
