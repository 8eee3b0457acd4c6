/*
 * The disk cache while calls of the system fail: a full disk, a folder that cannot be written, reads that are short or fail.
 * Whatever fails, what is read is what was saved, or nothing; and the next process finds a folder it can work with.
 */
#include "unit/testing.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/log.h"
#include "inject.h"
#include "run/disk.h"
#include "spec/family.h"

enum { FIXED = 5000, PAGE = 3000, LENGTH = 192, QUOTA = 1 << 20 };
static const char key[] = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";
static char dir[] = "/tmp/lily-fault-XXXXXX";
static struct cache_counters counters;
static int32_t ids[2][LENGTH + 1];

static uint8_t byte_of(const int32_t *t, int length, int part, int i)
{
    return (uint8_t)(t[length - 1] * 7 + length + part * 3 + i);
}

static void clear(void)
{
    struct buf at = {0}, path = {0};
    buf_printf(&at, "%s/%.32s", dir, key);
    DIR *d = opendir(buf_str(&at));
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", buf_str(&at), e->d_name);
        unlink(buf_str(&path));
    }
    if (d) closedir(d);
    buf_free(&at);
    buf_free(&path);
}

static void try_save(struct disk *d, const int32_t *t, int length)
{
    if (!disk_can_save(d) || !disk_save_begin(d, t, length, 0)) return;
    for (int part; (part = disk_save_next(d)) != DISK_ALL_GIVEN;) {
        if (part == DISK_WAIT) {
            disk_wait(d, 1000);
            continue;
        }
        int end = part == BORDER_FIXED ? length : (part + 1) * GRID, n = part == BORDER_FIXED ? FIXED : PAGE;
        uint8_t *to = disk_save_buffer(d);
        if (!to) return; /* no memory */
        for (int i = 0; i < n; i++) to[i] = byte_of(t, end, part == BORDER_FIXED ? 50 : part, i);
        disk_save_put(d);
    }
    disk_wait(d, 10000);
    (void)disk_poll(d);
}

/* Reads the deepest state until one can be read whole, or none is left. Returns its length. */
static int try_load(struct disk *d, const int32_t *t)
{
    static uint8_t got[FIXED];
    struct lily_err err;
    for (int length; (length = disk_depth(d, t, LENGTH + 1)) > 0;) {
        struct disk_read *r = disk_read_begin(d, t, length);
        lily_status st = LILY_OK;
        for (int part = BORDER_FIXED; part < length / GRID && st == LILY_OK; part++) {
            int end = part == BORDER_FIXED ? length : (part + 1) * GRID, n = part == BORDER_FIXED ? FIXED : PAGE;
            st = disk_read_part(r, part, 0, (size_t)n, got, &err);
            for (int i = 0; i < n && st == LILY_OK; i++) assert_int_equal(got[i], byte_of(t, end, part == BORDER_FIXED ? 50 : part, i));
        }
        disk_read_end(r);
        if (st == LILY_OK) return length;
        assert_int_not_equal(disk_depth(d, t, LENGTH + 1), length); /* it is gone from the index, so this ends */
    }
    return 0;
}

static struct disk *try_open(void)
{
    struct lily_err err;
    struct disk *d;
    memset(&counters, 0, sizeof counters);
    const struct disk_options o = {.dir = dir, .quota = QUOTA, .key = key, .fixed_bytes = FIXED, .page_bytes = PAGE, .counters = &counters};
    if (disk_open(&o, &d, &err) != LILY_OK) {
        assert_true(err.msg[0] != 0);
        return NULL;
    }
    return d;
}

/* Two states that share a page, saved and read back, then read by the next process. */
static void scenario(void)
{
    for (int round = 0; round < 2; round++) {
        struct disk *d = try_open();
        if (!d) continue;
        for (int i = 0; i < 2; i++) {
            try_save(d, ids[i], LENGTH);
            (void)try_load(d, ids[i]);
        }
        assert_true(counters.disk_bytes <= QUOTA);
        disk_close(d);
    }
}

static void test_failures(void **state)
{
    (void)state;
    const struct {
        enum inject_call call;
        int error; /* 0: a short read */
    } ways[] = {{INJECT_OPEN, EROFS},  {INJECT_OPEN, EMFILE},   {INJECT_READ, EIO},      {INJECT_READ, 0},
                {INJECT_WRITE, ENOSPC}, {INJECT_FSYNC, EIO},     {INJECT_RENAME, ENOSPC}, {INJECT_MKOSTEMP, EROFS},
                {INJECT_MEM_TRY, ENOMEM}, {INJECT_PTHREAD_CREATE, EAGAIN}};
    int carried = 0;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
        for (int nth = 0;; nth++) {
            clear();
            inject_fail(ways[w].call, nth, ways[w].error);
            scenario();
            if (!inject_end()) break;
            carried++;
            struct disk *d = try_open(); /* without failures all is well again */
            assert_non_null(d);
            for (int i = 0; i < 2; i++) {
                try_save(d, ids[i], LENGTH);
                assert_int_equal(try_load(d, ids[i]), LENGTH);
            }
            disk_close(d);
        }
    printf("%d failures carried out\n", carried);
    assert_true(carried > 60);
}

int main(void)
{
    if (!mkdtemp(dir)) return 1;
    for (int i = 0; i < LENGTH + 1; i++) ids[0][i] = ids[1][i] = i;
    ids[1][100] = 7;
    log_quiet(true);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failures)};
    int rc = RUN_TESTS(tests);
    clear();
    return rc;
}
