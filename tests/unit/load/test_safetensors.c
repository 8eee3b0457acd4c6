/* safetensors headers: what is accepted, every lie that is refused, and the writer. */
#include "../testing.h"

#include <sys/stat.h>
#include <unistd.h>

#include "../../support/minickpt.h"
#include "base/file.h"
#include "load/safetensors.h"

enum { AREA = 64 };

/* A file of `header` and AREA data bytes, behind `shift` bytes so that data begins at any alignment. */
struct image {
    uint8_t *bytes; /* owned */
    size_t n;
};

static struct image image_of(const char *header)
{
    size_t n = strlen(header);
    struct image m = {calloc(1, 8 + n + AREA), 8 + n + AREA};
    for (int i = 0; i < 8; i++) m.bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(m.bytes + 8, header, n);
    for (int i = 0; i < AREA; i++) m.bytes[8 + n + (size_t)i] = (uint8_t)i;
    return m;
}

static lily_status parse(const char *header, struct safetensors *st, struct lily_err *err)
{
    static struct image m;
    free(m.bytes);
    m = image_of(header);
    return safetensors_parse_header(m.bytes, m.n, "f.safetensors", st, err);
}

static void reads_tensors_at_any_offset(void **state)
{
    (void)state;
    struct lily_err err;
    struct safetensors st;
    assert_ok(parse("{\"__metadata__\":{\"format\":\"mlx\"},"
                    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[1,13]},"
                    "\"a\":{\"data_offsets\":[13,21],\"dtype\":\"U32\",\"shape\":[1,2]},"
                    "\"c\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[56,64]},"
                    "\"v\":{\"dtype\":\"U8\",\"shape\":[1,2,1,2,3],\"data_offsets\":[30,42]},"
                    "\"e\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[2,2]}}      ",
                    &st, &err));
    assert_int_equal(st.n_tensors, 5);
    const struct tensor_view *b = safetensors_find(&st, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, DTYPE_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_true(b->dim[0] == 2 && b->dim[1] == 3 && b->bytes == 12);
    assert_int_equal(b->data[0], 1);
    assert_string_equal(b->file, "f.safetensors");
    assert_int_equal(safetensors_find(&st, "a")->data[0], 13);
    assert_int_equal(safetensors_find(&st, "c")->dtype, DTYPE_OTHER);
    assert_int_equal(safetensors_find(&st, "c")->n_dims, 0);
    assert_int_equal(safetensors_find(&st, "v")->n_dims, 5);
    assert_int_equal(safetensors_find(&st, "e")->bytes, 0);
    assert_null(safetensors_find(&st, "d"));
    assert_null(safetensors_find(&st, "__metadata__"));
    safetensors_free(&st);
    assert_ok(parse("{}", &st, &err));
    assert_int_equal(st.n_tensors, 0);
    assert_null(safetensors_find(&st, "a"));
    safetensors_free(&st);
}

#define ONE(body) "{\"tensor.x\":{" body "}}"
static const struct lie {
    const char *header;
    lily_status status;
    const char *word;
} lies[] = {
    {"[]", LILY_ERR_FORMAT, "array"},
    {"{\"tensor.x\":3}", LILY_ERR_FORMAT, "integer"},
    {"{\"\":{}}", LILY_ERR_FORMAT, "name of 0 bytes"},
    {"{\"tensor.x\" {}}", LILY_ERR_FORMAT, "f.safetensors"},
    {ONE("\"shape\":[1],\"data_offsets\":[0,4]"), LILY_ERR_FORMAT, "dtype is missing"},
    {ONE("\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]"), LILY_ERR_FORMAT, "dtype is integer"},
    {ONE("\"dtype\":\"F5\",\"shape\":[1],\"data_offsets\":[0,4]"), LILY_ERR_UNSUPPORTED, "\"F5\""},
    {ONE("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), LILY_ERR_FORMAT, "shape is missing"},
    {ONE("\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]"), LILY_ERR_FORMAT, "shape is integer"},
    {ONE("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), LILY_ERR_FORMAT, "dimension 0"},
    {ONE("\"dtype\":\"F32\",\"shape\":[1,1.5],\"data_offsets\":[0,4]"), LILY_ERR_FORMAT, "dimension 1"},
    {ONE("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), LILY_ERR_UNSUPPORTED, "9 dimensions"},
    {ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), LILY_ERR_FORMAT, "overflows"},
    {ONE("\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"), LILY_ERR_FORMAT, "overflows"},
    {ONE("\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]"), LILY_ERR_FORMAT, "tensor"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), LILY_ERR_FORMAT, "4 bytes by data_offsets, expected 8"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2]"), LILY_ERR_FORMAT, "data_offsets"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":8"), LILY_ERR_FORMAT, "data_offsets"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8]"), LILY_ERR_FORMAT, "data_offsets"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]"), LILY_ERR_FORMAT, "data_offsets"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), LILY_ERR_FORMAT, "data_offsets"},
    {ONE("\"dtype\":\"F64\",\"shape\":[2305843009213693951],\"data_offsets\":[8,0]"), LILY_ERR_FORMAT, "data_offsets is not"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]"), LILY_ERR_FORMAT, "data_offsets"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[57,65]"), LILY_ERR_FORMAT, "byte 65"},
    {ONE("\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,9223372036854775807]"), LILY_ERR_FORMAT, "has only 64"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":[8],"
     "\"data_offsets\":[7,15]}}", LILY_ERR_FORMAT, "tensor b overlap those of a"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[20],\"data_offsets\":[0,20]},\"z\":{\"dtype\":\"U8\",\"shape\":[0],"
     "\"data_offsets\":[10,10]},\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[12,20]}}", LILY_ERR_FORMAT,
     "tensor b overlap those of a"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"U8\",\"shape\":[8],"
     "\"data_offsets\":[8,16]}}", LILY_ERR_FORMAT, "names a tensor twice"},
};

static void refuses_every_lie(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct lily_err err = {0};
        struct safetensors st;
        lily_status got = parse(lies[i].header, &st, &err);
        if (got != lies[i].status) fail_msg("%s: %s: %s", lies[i].header, lily_status_name(got), err.msg);
        if (!strstr(err.msg, lies[i].word)) fail_msg("%s: no \"%s\" in: %s", lies[i].header, lies[i].word, err.msg);
        assert_non_null(strstr(err.msg, "f.safetensors"));
        assert_null(st.tensors);
    }
}

static void refuses_wrong_lengths(void **state)
{
    (void)state;
    struct lily_err err;
    struct safetensors st;
    struct image m = image_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[0,64]}}");
    size_t area = m.n - AREA;
    for (size_t n = 0; n < m.n; n++) {
        uint8_t *exact = malloc(n ? n : 1); /* a read past the end shows under the sanitizer */
        memcpy(exact, m.bytes, n);
        assert_int_equal(safetensors_parse_header(exact, n, "cut", &st, &err), LILY_ERR_FORMAT);
        assert_non_null(strstr(err.msg, "cut"));
        assert_non_null(strstr(err.msg, n < 8 ? "too short" : n < area ? "the header takes" : "has only"));
        free(exact);
    }
    assert_ok(safetensors_parse_header(m.bytes, m.n, "whole", &st, &err));
    safetensors_free(&st);
    static const uint64_t lengths[] = {0, 1, MAX_HEADER_BYTES + 1, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int k = 0; k < 8; k++) m.bytes[k] = (uint8_t)(lengths[i] >> 8 * k);
        assert_int_equal(safetensors_parse_header(m.bytes, m.n, "f", &st, &err), LILY_ERR_FORMAT);
        assert_non_null(strstr(err.msg, "header length"));
    }
    free(m.bytes);
    const char *pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    assert_int_equal(safetensors_parse_header((const uint8_t *)pointer, strlen(pointer), "f", &st, &err), LILY_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "LFS"));
}

static void long_names_and_shapes_fit_messages(void **state)
{
    (void)state;
    struct lily_err err;
    struct safetensors st;
    struct buf h = {0};
    buf_addz(&h, "{\"");
    for (int i = 0; i < MAX_TENSOR_NAME; i++) buf_addc(&h, 'n');
    buf_addz(&h, "\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,1,1,1,1,1,1,0],\"data_offsets\":[0,1]}}");
    assert_int_not_equal(parse(h.data, &st, &err), LILY_OK);
    buf_clear(&h);
    buf_addz(&h, "{\"");
    for (int i = 0; i <= MAX_TENSOR_NAME; i++) buf_addc(&h, 'n');
    buf_addz(&h, "\":{}}");
    assert_int_equal(parse(h.data, &st, &err), LILY_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "257 bytes"));
    buf_free(&h);
    struct tensor_view t = {.n_dims = MAX_DIMS};
    char text[SHAPE_TEXT];
    for (int i = 0; i < MAX_DIMS; i++) t.dim[i] = INT64_MAX;
    assert_true(strlen(shape_text(&t, text)) == 8 * 19 + 7 * 2 + 2);
    t.n_dims = 0;
    assert_string_equal(shape_text(&t, text), "[]");
}

static void too_many_tensors(void **state)
{
    (void)state;
    struct lily_err err;
    struct safetensors st;
    struct buf h = {0};
    buf_addc(&h, '{');
    for (int i = 0; i <= MAX_TENSORS; i++)
        buf_printf(&h, "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", i);
    buf_addc(&h, '}');
    assert_int_equal(parse(h.data, &st, &err), LILY_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "100001"));
    buf_free(&h);
}

static void writer_round_trip(void **state)
{
    (void)state;
    struct lily_err err;
    struct safetensors st;
    struct safetensors_writer *w;
    struct file_map map;
    char *dir = mini_dir();
    struct buf path = {0};
    file_join(&path, dir, "out.safetensors");
    const struct tensor_decl decls[] = {
        {"z.weight", DTYPE_U32, 2, {2, 3}}, {"quote\"\\ü", DTYPE_BF16, 1, {5}}, {"a", DTYPE_F32, 3, {1, 1, 1}}};
    uint8_t data[38];
    for (int i = 0; i < 38; i++) data[i] = (uint8_t)(i + 100);
    assert_ok(safetensors_create(path.data, decls, 3, &w, &err));
    assert_ok(safetensors_put(w, data, 30, &err));
    assert_false(file_exists(path.data));
    assert_ok(safetensors_put(w, data + 30, 8, &err));
    assert_int_equal(safetensors_put(w, data, 1, &err), LILY_ERR_INTERNAL);
    assert_ok(safetensors_finish(w, &err));
    assert_ok(file_map_open(path.data, &map, &err));
    assert_ok(safetensors_parse_header(map.data, map.size, path.data, &st, &err));
    assert_int_equal(st.n_tensors, 3);
    const struct tensor_view *t = safetensors_find(&st, "quote\"\\ü");
    assert_non_null(t);
    assert_true(t->bytes == 10 && t->dtype == DTYPE_BF16 && t->data[0] == 124);
    assert_int_equal(safetensors_find(&st, "a")->data[3], 137);
    assert_int_equal((safetensors_find(&st, "z.weight")->data - map.data) % 8, 0);
    assert_int_equal(map.size, (size_t)(safetensors_find(&st, "z.weight")->data - map.data) + 38);
    safetensors_free(&st);
    file_map_close(&map);
    buf_free(&path);
    mini_remove(dir);
}

static void unfinished_files_leave_nothing(void **state)
{
    (void)state;
    struct lily_err err;
    struct safetensors_writer *w;
    char *dir = mini_dir();
    struct buf path = {0};
    const struct tensor_decl d = {"a", DTYPE_U8, 1, {4}};
    file_join(&path, dir, "out.safetensors");
    assert_ok(safetensors_create(path.data, &d, 1, &w, &err));
    assert_ok(safetensors_put(w, "abc", 3, &err));
    assert_int_equal(safetensors_finish(w, &err), LILY_ERR_INTERNAL);
    assert_ok(safetensors_create(path.data, &d, 1, &w, &err));
    safetensors_abandon(w);
    safetensors_abandon(NULL);
    assert_int_equal(rmdir(dir), 0); /* so it is empty */
    assert_int_equal(safetensors_create(path.data, &d, 1, &w, &err), LILY_ERR_IO);
    assert_null(w);
    assert_non_null(strstr(err.msg, dir));
    buf_free(&path);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tensors_at_any_offset), cmocka_unit_test(refuses_every_lie),
        cmocka_unit_test(refuses_wrong_lengths),       cmocka_unit_test(long_names_and_shapes_fit_messages),
        cmocka_unit_test(too_many_tensors),            cmocka_unit_test(writer_round_trip),
        cmocka_unit_test(unfinished_files_leave_nothing),
    };
    return RUN_TESTS(tests);
}
