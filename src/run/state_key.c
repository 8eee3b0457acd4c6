/* The key of saved states. */
#include "run/state_key.h"

#include <string.h>

#include "base/file.h"
#include "base/hash.h"

static const char program[] = "/proc/self/exe";

static lily_status add_program(struct sha256 *h, struct lily_err *err)
{
    struct file_map map;
    LILY_TRY(file_map_open(program, &map, err));
    struct hash128 sum = hash128_of(map.data, map.size);
    sha256_add(h, &sum, sizeof sum);
    file_map_close(&map);
    return LILY_OK;
}

lily_status state_key(struct model *m, char key[65], struct lily_err *err)
{
    struct sha256 *h = sha256_begin();
    const char *parts[] = {"lily state", model_identity(m), model_backend(m)->code};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) sha256_add(h, parts[i], strlen(parts[i]) + 1);
    lily_status st = add_program(h, err);
    sha256_end(h, key);
    return st;
}
