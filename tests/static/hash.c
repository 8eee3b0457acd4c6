/*
 * A stand-in for base/hash.c in programs without libraries, which keep nothing that another program reads: FNV-1a under the
 * same names.
 */
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

struct sha256 {
    uint64_t state;
};
struct hash128_run {
    uint64_t state;
};

static const uint64_t start = 0xcbf29ce484222325u;

static void add(uint64_t *state, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) *state = (*state ^ p[i]) * 0x100000001b3u;
}

struct sha256 *sha256_begin(void)
{
    struct sha256 *h = mem_new(sizeof *h);
    h->state = start;
    return h;
}

void sha256_add(struct sha256 *h, const void *data, size_t n)
{
    add(&h->state, data, n);
}

void sha256_end(struct sha256 *h, char hex[65])
{
    snprintf(hex, 65, "%064llx", (unsigned long long)h->state);
    free(h);
}

void sha256_of(const void *data, size_t n, char hex[65])
{
    struct sha256 *h = sha256_begin();
    sha256_add(h, data, n);
    sha256_end(h, hex);
}

struct hash128_run *hash128_begin(void)
{
    struct hash128_run *h = mem_new(sizeof *h);
    h->state = start;
    return h;
}

void hash128_add(struct hash128_run *h, const void *data, size_t n)
{
    add(&h->state, data, n);
}

struct hash128 hash128_take(struct hash128_run *h)
{
    struct hash128 out = {h->state, ~h->state};
    h->state = start;
    return out;
}

void hash128_free(struct hash128_run *h)
{
    free(h);
}

struct hash128 hash128_of(const void *data, size_t n)
{
    struct hash128_run h = {start};
    hash128_add(&h, data, n);
    return hash128_take(&h);
}
