/*
 * Compiled tokenizers in the cache folder: the image behind a head with a version and a checksum, named by the SHA-256 of
 * the source files. Whatever is not exactly such a file is as good as none and is written anew; deleting files is always
 * safe. Any thread, any number of processes.
 */
#ifndef LILY_TEXT_COMPILED_H
#define LILY_TEXT_COMPILED_H

#include "base/file.h"
#include "text/image.h"

/* Maps the compiled form for a key (64 hex digits); false: there is none to use. cache_dir "": none. */
bool compiled_open(const char *cache_dir, const char *key, struct file_map *map, struct image *out);

/* Writes it; a folder that cannot be written to is only noted. */
void compiled_save(const char *cache_dir, const char *key, const void *block, size_t size);

#endif
