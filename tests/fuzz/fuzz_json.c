/* The JSON parser and writers: whatever parses is written, read again, and must come out the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json/json.h"

static void same_again(const struct json *v, void (*write)(const struct json *, struct buf *))
{
    struct buf once = {0}, twice = {0};
    struct json *back = NULL;
    struct lily_err err;
    write(v, &once);
    if (json_parse(buf_str(&once), once.len, "written", &back, &err) != LILY_OK) abort();
    write(back, &twice);
    if (once.len != twice.len || memcmp(buf_str(&once), buf_str(&twice), once.len) != 0) abort();
    json_free(back);
    buf_free(&once);
    buf_free(&twice);
}

static void write_compact(const struct json *v, struct buf *out)
{
    json_write(v, 0, out);
}

static void write_indented(const struct json *v, struct buf *out)
{
    json_write(v, 2, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json *v = NULL;
    struct lily_err err;
    if (json_parse((const char *)data, size, "input", &v, &err) != LILY_OK) {
        if (v || err.status == LILY_OK || !err.msg[0]) abort();
        return 0;
    }
    struct buf python = {0};
    json_write_python_str(v, &python);
    same_again(v, write_compact);
    same_again(v, write_indented);
    struct json *copy = json_copy(v);
    same_again(copy, write_compact);
    json_free(copy);
    buf_free(&python);
    json_free(v);
    return 0;
}
