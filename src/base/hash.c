/* SHA-256 through libcrypto, XXH3-128 through libxxhash. */
#include "base/hash.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/mem.h"

struct sha256 {
    EVP_MD_CTX *ctx; /* owned */
};

struct sha256 *sha256_begin(void)
{
    struct sha256 *h = mem_new(sizeof *h);
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
        fprintf(stderr, "lily: libcrypto offers no SHA-256\n");
        abort();
    }
    return h;
}

void sha256_add(struct sha256 *h, const void *data, size_t n)
{
    EVP_DigestUpdate(h->ctx, data, n);
}

void sha256_end(struct sha256 *h, char hex[65])
{
    unsigned char md[32];
    unsigned n = sizeof md;
    EVP_DigestFinal_ex(h->ctx, md, &n);
    for (unsigned i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", md[i]);
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

void sha256_of(const void *data, size_t n, char hex[65])
{
    struct sha256 *h = sha256_begin();
    sha256_add(h, data, n);
    sha256_end(h, hex);
}

void git_blob_id(const void *data, size_t n, char hex[41])
{
    unsigned char md[20];
    unsigned len = sizeof md;
    char head[32];
    int head_len = snprintf(head, sizeof head, "blob %zu", n) + 1; /* with its NUL */
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha1(), NULL) != 1) {
        fprintf(stderr, "lily: libcrypto offers no SHA-1\n");
        abort();
    }
    EVP_DigestUpdate(ctx, head, (size_t)head_len);
    EVP_DigestUpdate(ctx, data, n);
    EVP_DigestFinal_ex(ctx, md, &len);
    EVP_MD_CTX_free(ctx);
    for (unsigned i = 0; i < sizeof md; i++) snprintf(hex + 2 * i, 3, "%02x", md[i]);
}

struct hash128 hash128_of(const void *data, size_t n)
{
    XXH128_hash_t h = XXH3_128bits(data, n);
    return (struct hash128){h.low64, h.high64};
}

struct hash128_run {
    XXH3_state_t *state; /* owned */
};

struct hash128_run *hash128_begin(void)
{
    struct hash128_run *h = mem_new(sizeof *h);
    h->state = XXH3_createState();
    if (!h->state) {
        fprintf(stderr, "lily: out of memory (hash)\n");
        abort();
    }
    XXH3_128bits_reset(h->state);
    return h;
}

void hash128_add(struct hash128_run *h, const void *data, size_t n)
{
    XXH3_128bits_update(h->state, data, n);
}

struct hash128 hash128_take(struct hash128_run *h)
{
    XXH128_hash_t v = XXH3_128bits_digest(h->state);
    XXH3_128bits_reset(h->state);
    return (struct hash128){v.low64, v.high64};
}

void hash128_free(struct hash128_run *h)
{
    if (!h) return;
    XXH3_freeState(h->state);
    free(h);
}
