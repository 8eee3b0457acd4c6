/*
 * Hashes: SHA-256 (trust: downloads, names of content) and XXH3-128 (sums of our own files, never trust). Any thread.
 */
#ifndef LILY_BASE_HASH_H
#define LILY_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct sha256; /* opaque running hash; owned by its creator until sha256_end */

struct sha256 *sha256_begin(void);
void sha256_add(struct sha256 *h, const void *data, size_t n);
void sha256_end(struct sha256 *h, char hex[65]); /* writes 64 hex digits and a NUL, frees h */
void sha256_of(const void *data, size_t n, char hex[65]);

/* The id that git gives to a file of these bytes (SHA-1; for telling versions apart): 40 hex digits and a NUL. */
void git_blob_id(const void *data, size_t n, char hex[41]);

struct hash128 {
    uint64_t lo, hi;
};
struct hash128 hash128_of(const void *data, size_t n);

struct hash128_run; /* opaque running hash; owned by its creator until hash128_free */
struct hash128_run *hash128_begin(void);
void hash128_add(struct hash128_run *h, const void *data, size_t n);
struct hash128 hash128_take(struct hash128_run *h); /* the hash of what was added; begins anew */
void hash128_free(struct hash128_run *h);

#endif
