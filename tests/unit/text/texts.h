/*
 * What the tokenizer tests share: the real tokenizer's folder, files and their expectations, comparing ids.
 * Every function fails the running test when something is missing.
 */
#ifndef LILY_TESTS_TEXT_TEXTS_H
#define LILY_TESTS_TEXT_TEXTS_H

#include "base/buf.h"
#include "json/json.h"
#include "text/tokenizer.h"

/* Folder of the unpacked published tokenizer.json, below the build folder of this program. */
const char *real_dir(void);
/* Loads without a cache folder. Owned by the caller. */
struct tokenizer *load_from(const char *dir);
/* The real one, loaded once and kept. */
const struct tokenizer *real_tokenizer(void);

/* A member that must be there. */
const struct json *member(const struct json *object, const char *key);
/* Calls fn for every line of a file of JSON objects; returns how many. */
size_t each_json_line(const char *path, void (*fn)(const struct json *line, void *arg), void *arg);
/* A whole file; a name that ends in .xz is unpacked. False when it is not there. */
bool read_text(const char *path, struct buf *out);

/* Compares ids with a JSON array; `name` is for the message. */
void assert_ids(const struct ids *ids, const struct json *expected, const char *name);
/* A fresh folder under TMPDIR; removed with remove_dir. The path is owned by the caller. */
char *make_dir(void);
void remove_dir(char *path); /* frees path, too */
void write_file(const char *dir, const char *name, const void *data, size_t n);

#endif
