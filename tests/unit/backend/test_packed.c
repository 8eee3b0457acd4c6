/*
 * Packed files: every matrix bit for bit as packing in memory gives it (4 and 8 bits, stacks, ragged rows and columns, from
 * files and from rules), packed values as the checkpoint has them, and no damage that goes unnoticed.
 */
#include "../testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../support/minickpt.h"
#include "backend/cpu/packed.h"
#include "backend/cpu/packed_form.h"
#include "base/buf.h"
#include "base/file.h"
#include "load/inventory.h"
#include "load/synth.h"

#ifdef SANITIZED
enum { DAMAGE_STRIDE = 3333333 };
#else
enum { DAMAGE_STRIDE = 333333 };
#endif

static char key[65] = "0123456789012345678901234567890123456789012345678901234567890123";

struct world {
    struct synth_plan plan;
    struct checkpoint *ck;
    struct pool *pool;
    char *dir;
    struct buf path;
    struct packed_writer *w;
    struct packed *p;
    int n;
};

static lily_status add(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct world *w = arg;
    struct module_view m;
    if (!item->is_module) return LILY_OK;
    LILY_TRY(checkpoint_module(w->ck, &(struct module_want){item->path, item->experts, item->rows, item->cols}, &m, err));
    return packed_add(w->w, m.weight.name, &m, w->pool, err);
}

static void write_file(struct world *w)
{
    struct lily_err err;
    assert_ok(packed_create(w->path.data, key, 200, &w->w, &err));
    assert_ok(inventory_walk(&w->plan.config.shape, add, w, &err));
    assert_ok(packed_finish(w->w, &err));
}

static void setup(struct world *w, int threads)
{
    struct lily_err err;
    memset(w, 0, sizeof *w);
    w->dir = mini_dir();
    file_join(&w->path, w->dir, "p.lily");
    assert_ok(synth_plan_make(SYNTH_TINY, 1, &w->plan, &err));
    assert_ok(pool_create(threads, &w->pool, &err));
    checkpoint_of_synth(&w->plan, &w->ck);
    write_file(w);
}

static void teardown(struct world *w)
{
    packed_close(w->p);
    checkpoint_close(w->ck);
    synth_plan_free(&w->plan);
    pool_free(w->pool);
    buf_free(&w->path);
    mini_remove(w->dir);
}

/* The rows from `from` on as a matrix of their own: the last one is the whole matrix's last. */
static void same_rows(const struct matrix *m, int from)
{
    struct matrix part = matrix_rows(m, from, m->rows);
    float row[2][4096];
    matrix_row(m, 0, m->rows - 1, row[0]);
    matrix_row(&part, 0, part.rows - 1, row[1]);
    assert_int_equal(part.rows, m->rows - from);
    assert_memory_equal(row[0], row[1], sizeof(float) * (size_t)m->cols);
    assert_true(part.data + part.bytes == m->data + m->bytes);
}

/* The file's matrix, one packed in memory, and the checkpoint's own numbers agree. */
static lily_status compare(void *arg, const struct inventory_item *item, struct lily_err *err)
{
    struct world *w = arg;
    struct module_view m;
    struct matrix want, found, *packed;
    struct arena arena = {0};
    float row[4096];
    if (!item->is_module) return LILY_OK;
    LILY_TRY(checkpoint_module(w->ck, &(struct module_want){item->path, item->experts, item->rows, item->cols}, &m, err));
    LILY_TRY(matrix_pack(&m, w->pool, &arena, &packed, err));
    LILY_TRY(matrix_describe(&m, &want, err));
    assert_true(packed_find(w->p, m.weight.name, &want, &found));
    assert_int_equal((uintptr_t)found.data % 64, 0);
    assert_int_equal(found.bytes, packed->bytes);
    assert_memory_equal(found.data, packed->data, found.bytes);
    for (int r = 0; r < m.rows; r += 7) {
        matrix_row(&found, m.n_experts - 1, r, row);
        for (int c = 0; c < m.cols; c++)
            if (row[c] != module_element(&m, m.n_experts - 1, r, c)) fail_msg("%s: row %d, column %d", item->path, r, c);
    }
    if (m.n_experts == 1 && m.rows > BLOCK_ROWS) same_rows(&found, BLOCK_ROWS);
    free(packed);
    arena_free(&arena);
    want.rows++;
    assert_false(packed_find(w->p, m.weight.name, &want, &found));
    w->n++;
    return LILY_OK;
}

static void a_file_has_what_memory_would(void **state)
{
    (void)state;
    struct lily_err err;
    for (int threads = 1; threads <= 3; threads++) {
        struct world w;
        setup(&w, threads);
        assert_ok(packed_open(w.path.data, key, &w.p, &err));
        assert_true(packed_is_stamped(w.path.data));
        packed_populate(w.p, w.pool);
        assert_ok(packed_verify(w.p, w.pool, &err));
        assert_ok(inventory_walk(&w.plan.config.shape, compare, &w, &err));
        assert_true(w.n > 50);
        teardown(&w);
    }
}

static lily_status open_bytes(const struct world *w, const uint8_t *data, size_t n)
{
    struct lily_err err;
    struct packed *p;
    mini_put(w->dir, "q.lily", data, n);
    struct buf path = {0};
    file_join(&path, w->dir, "q.lily");
    lily_status st = packed_open(path.data, key, &p, &err);
    if (st == LILY_OK) {
        assert_false(packed_is_stamped(path.data));
        st = packed_verify(p, w->pool, &err);
        packed_close(p);
    }
    buf_free(&path);
    return st;
}

static void no_damage_goes_unnoticed(void **state)
{
    (void)state;
    struct world w;
    size_t n;
    setup(&w, 2);
    uint8_t *bytes = mini_read(w.dir, "p.lily", &n);
    assert_int_equal(open_bytes(&w, bytes, n), LILY_OK);
    for (size_t cut = 0; cut < n; cut += n / 17 + 1) assert_int_equal(open_bytes(&w, bytes, cut), LILY_ERR_FORMAT);
    const struct packed_header *h = (const void *)bytes;
    size_t front = packed_hashes_at(h->n_matrices) + h->n_chunks * 16;
    for (size_t at = 0; at < front; at += at < 300 ? 11 : at < 4096 ? 4096 - at : 997) {
        if (at >= sizeof *h && at < PACKED_HEADER) continue; /* padding */
        bytes[at] ^= 0x10;
        lily_status st = open_bytes(&w, bytes, n);
        if (st != LILY_ERR_FORMAT && st != LILY_ERR_USAGE) fail_msg("byte %zu changed: status %d", at, (int)st);
        bytes[at] ^= 0x10;
    }
    for (size_t at = h->data_at; at < n; at += DAMAGE_STRIDE) {
        bytes[at] ^= 1;
        if (open_bytes(&w, bytes, n) != LILY_ERR_FORMAT) fail_msg("byte %zu changed", at);
        bytes[at] ^= 1;
    }
    free(bytes);
    teardown(&w);
}

static void other_checkpoints_and_half_files_are_refused(void **state)
{
    (void)state;
    struct lily_err err;
    struct world w;
    setup(&w, 2);
    char other[65];
    memcpy(other, key, 65);
    other[3] = 'f';
    assert_int_equal(packed_open(w.path.data, other, &w.p, &err), LILY_ERR_USAGE);
    assert_non_null(strstr(err.msg, "another checkpoint"));
    /* Abandoned: the old file stays, nothing else does. */
    assert_ok(packed_create(w.path.data, key, 3, &w.w, &err));
    packed_abandon(w.w);
    assert_ok(packed_open(w.path.data, key, &w.p, &err));
    assert_true(packed_is_stamped(w.path.data));
    /* Touched: the stamp no longer holds until the content has been verified. */
    struct timespec times[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, w.path.data, times, 0), 0);
    assert_false(packed_is_stamped(w.path.data));
    assert_ok(packed_verify(w.p, w.pool, &err));
    assert_true(packed_is_stamped(w.path.data));
    teardown(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_what_memory_would),
        cmocka_unit_test(no_damage_goes_unnoticed),
        cmocka_unit_test(other_checkpoints_and_half_files_are_refused),
    };
    return RUN_TESTS(tests);
}
