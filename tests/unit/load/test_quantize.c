/* The quantizer against every word, scale and bias that MLX wrote, on its CPU and on a GPU. */
#include "unit/testing.h"

#include <math.h>

#include "base/buf.h"
#include "base/num.h"
#include "load/quantize.h"
#include "load/safetensors.h"
#include "spec/family.h"

struct recorded {
    struct buf bytes; /* owned */
    struct safetensors file;
};
static struct recorded cpu, cuda;

static void unpack(const char *path, struct recorded *r)
{
    struct lily_err err = {0};
    char command[256], chunk[65536];
    size_t n;
    snprintf(command, sizeof command, "xz -dc %s", path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    while ((n = fread(chunk, 1, sizeof chunk, pipe)) > 0) buf_add(&r->bytes, chunk, n);
    assert_int_equal(pclose(pipe), 0);
    assert_ok(safetensors_parse_header((const uint8_t *)r->bytes.data, r->bytes.len, path, &r->file, &err));
}

static int setup(void **state)
{
    (void)state;
    unpack("tests/data/quant/quant.safetensors.xz", &cpu);
    unpack("tests/data/quant/quant.cuda.safetensors.xz", &cuda);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    safetensors_free(&cpu.file);
    safetensors_free(&cuda.file);
    buf_free(&cpu.bytes);
    buf_free(&cuda.bytes);
    return 0;
}

/* What was recorded for tensor k; the CUDA file holds only what differs from the CPU's. */
static const struct tensor_view *find(int k, const char *part, bool gpu)
{
    char name[32];
    snprintf(name, sizeof name, "t%02d.cuda.%s", k, part);
    const struct tensor_view *t = gpu ? safetensors_find(&cuda.file, name) : NULL;
    snprintf(name, sizeof name, "t%02d.%s", k, part);
    return t ? t : safetensors_find(&cpu.file, name);
}

static void same(int k, const char *part, bool gpu, const uint8_t *got, size_t n)
{
    const struct tensor_view *t = find(k, part, gpu);
    assert_non_null(t);
    assert_int_equal(t->bytes, n);
    if (memcmp(t->data, got, n) != 0) fail_msg("t%02d.%s differs from what MLX's %s wrote", k, part, gpu ? "GPU kernel" : "CPU code");
}

static void check_all(bool gpu)
{
    int n_tensors = 0;
    for (const struct tensor_view *in; (in = find(n_tensors, "input", false)); n_tensors++) {
        size_t elem = dtype_bytes(in->dtype), n = in->bytes / elem / QUANT_GROUP;
        size_t code_bytes = find(n_tensors, "weight", false)->bytes;
        struct quant_form form = {in->dtype, (int)(code_bytes * 8 / (n * QUANT_GROUP)), gpu ? ROUNDING_GPU : ROUNDING_CPU};
        struct quant_groups g = {in->data, n, malloc(code_bytes), malloc(n * elem), malloc(n * elem)};
        assert_true(quantize_groups(&form, &g));
        same(n_tensors, "weight", gpu, g.codes, code_bytes);
        same(n_tensors, "scales", gpu, g.scales, n * elem);
        same(n_tensors, "biases", gpu, g.biases, n * elem);
        free(g.codes);
        free(g.scales);
        free(g.biases);
    }
    assert_int_equal(n_tensors, 21);
}

static void test_cpu(void **state)
{
    (void)state;
    check_all(false);
}

static void test_gpu(void **state)
{
    (void)state;
    check_all(true);
}

/* What is no number is refused wherever it stands in a group. */
static void test_not_finite(void **state)
{
    (void)state;
    static const uint16_t bad[] = {0x7f80, 0xff80, 0x7fc0, 0xff81};
    struct quant_form form = {DTYPE_BF16, 4, ROUNDING_GPU};
    uint8_t in[2 * 2 * QUANT_GROUP], codes[QUANT_GROUP], scales[4], biases[4];
    for (size_t i = 0; i < 2 * QUANT_GROUP * 4; i++) {
        memset(in, 0x3c, sizeof in);
        in[i / 4 * 2] = (uint8_t)(bad[i % 4] & 255);
        in[i / 4 * 2 + 1] = (uint8_t)(bad[i % 4] >> 8);
        struct quant_groups g = {in, 2, codes, scales, biases};
        assert_false(quantize_groups(&form, &g));
    }
}

/* Every half goes through a float and back, and floats between two halves go to the nearer or to the even one. */
static void test_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float a = f16_to_f32((uint16_t)h), b = h + 1 < 0x7c00 ? f16_to_f32((uint16_t)(h + 1)) : 65536.0f;
        float middle = (a + b) / 2;
        assert_int_equal(f16_from_f32(a), h);
        assert_int_equal(f16_from_f32(-a), h | 0x8000);
        assert_int_equal(f16_from_f32(middle), h % 2 ? h + 1 : h);
        assert_int_equal(f16_from_f32(f32_from_bits(f32_bits(middle) + 1)), h + 1);
        if (h) assert_int_equal(f16_from_f32(f32_from_bits(f32_bits(middle) - 1)), h);
    }
    assert_int_equal(f16_from_f32(INFINITY), 0x7c00);
    assert_int_equal(f16_from_f32(NAN) & 0x7e00, 0x7e00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu), cmocka_unit_test(test_gpu), cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_half)};
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    return tests_finish(4, failed);
}
