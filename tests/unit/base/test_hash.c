/* SHA-256 against the published vectors, XXH3-128 against the reference library's. */
#include "../testing.h"

#include "base/hash.h"

static void sha256_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char hex[65];
        memset(hex, 'x', sizeof hex);
        sha256_of(cases[i].text, strlen(cases[i].text), hex);
        assert_string_equal(hex, cases[i].hex);
    }
}

static void sha256_in_pieces_of_any_size(void **state)
{
    (void)state;
    /* One million times "a", the third vector of FIPS 180-2, in pieces that do not fit the block of 64. */
    static char a[1000000];
    memset(a, 'a', sizeof a);
    static const size_t steps[] = {1, 63, 64, 65, 4096, 999999};
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        struct sha256 *h = sha256_begin();
        for (size_t at = 0; at < sizeof a; at += steps[k])
            sha256_add(h, a + at, sizeof a - at < steps[k] ? sizeof a - at : steps[k]);
        char hex[65];
        sha256_end(h, hex);
        assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

static void hash128_vectors(void **state)
{
    (void)state;
    struct hash128 empty = hash128_of(NULL, 0), abc = hash128_of("abc", 3);
    assert_true(empty.hi == 0x99aa06d3014798d8u && empty.lo == 0x6001c324468d497fu);
    assert_true(abc.hi == 0x06b05ab6733a6185u && abc.lo == 0x78af5f94892f3950u);
}

static void hash128_sees_every_bit_and_the_length(void **state)
{
    (void)state;
    unsigned char data[300] = {0};
    struct hash128 zero = hash128_of(data, sizeof data), shorter = hash128_of(data, sizeof data - 1);
    assert_true(zero.lo != shorter.lo || zero.hi != shorter.hi);
    for (size_t bit = 0; bit < sizeof data * 8; bit++) {
        data[bit / 8] = (unsigned char)(1u << bit % 8);
        struct hash128 h = hash128_of(data, sizeof data);
        assert_true(h.lo != zero.lo || h.hi != zero.hi);
        data[bit / 8] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_vectors),
        cmocka_unit_test(sha256_in_pieces_of_any_size),
        cmocka_unit_test(hash128_vectors),
        cmocka_unit_test(hash128_sees_every_bit_and_the_length),
    };
    return RUN_TESTS(tests);
}
