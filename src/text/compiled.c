/* The compiled form on disk. */
#include "text/compiled.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

/* Change with every change of the image's layout, of a hash, or of what encoding a token's bytes gives. */
#define COMPILED_MAGIC "lily tokenizer 1"

struct compiled_head { /* 64 bytes, so that the image behind it is aligned */
    char magic[16];
    uint8_t key[32];
    uint64_t sum_lo, sum_hi; /* XXH3-128 of the image */
};

static void path_of(struct buf *out, const char *cache_dir, const char *key)
{
    file_join(out, cache_dir, key);
    buf_addz(out, ".tok");
}

static void fill_head(struct compiled_head *head, const char *key, const void *image, size_t size)
{
    struct hash128 sum = hash128_of(image, size);
    memset(head, 0, sizeof *head);
    memcpy(head->magic, COMPILED_MAGIC, sizeof head->magic);
    for (int i = 0; i < 32; i++) {
        char digits[3] = {key[2 * i], key[2 * i + 1], 0};
        head->key[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    head->sum_lo = sum.lo;
    head->sum_hi = sum.hi;
}

bool compiled_open(const char *cache_dir, const char *key, struct file_map *map, struct image *out)
{
    struct buf path = {0};
    struct compiled_head head;
    if (!*cache_dir) return false;
    path_of(&path, cache_dir, key);
    bool good = file_map_open(path.data, map, NULL) == LILY_OK && map->size > sizeof head;
    if (good) {
        fill_head(&head, key, map->data + sizeof head, map->size - sizeof head);
        good = memcmp(&head, map->data, sizeof head) == 0 &&
               image_check(map->data + sizeof head, map->size - sizeof head, out, NULL) == LILY_OK;
    }
    if (!good) file_map_close(map);
    buf_free(&path);
    return good;
}

void compiled_save(const char *cache_dir, const char *key, const void *block, size_t size)
{
    struct buf path = {0}, file = {0};
    struct compiled_head head;
    struct lily_err err;
    if (!*cache_dir) return;
    fill_head(&head, key, block, size);
    buf_add(&file, &head, sizeof head);
    buf_add(&file, block, size);
    path_of(&path, cache_dir, key);
    if (file_make_dirs(cache_dir, &err) != LILY_OK || file_write_atomic(path.data, file.data, file.len, &err) != LILY_OK)
        log_note("the compiled tokenizer is not kept: %s", err.msg);
    buf_free(&path);
    buf_free(&file);
}
