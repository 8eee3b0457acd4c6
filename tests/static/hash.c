/* A stand-in for base/hash.c in programs without libraries, whose keys name nothing that is kept: FNV-1a, filled up. */
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

struct sha256 {
    uint64_t state;
};

struct sha256 *sha256_begin(void)
{
    struct sha256 *h = mem_new(sizeof *h);
    h->state = 0xcbf29ce484222325u;
    return h;
}

void sha256_add(struct sha256 *h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) h->state = (h->state ^ p[i]) * 0x100000001b3u;
}

void sha256_end(struct sha256 *h, char hex[65])
{
    snprintf(hex, 65, "%064llx", (unsigned long long)h->state);
    free(h);
}
