/*
 * The smallest checkpoint of the family (about 170 KB, seeded noise), built in memory so that a test can bend it, then
 * written as one file or as shards. Failures of the helper itself end the program.
 */
#ifndef LILY_TESTS_MINICKPT_H
#define LILY_TESTS_MINICKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "load/safetensors_write.h"

struct mini_tensor {
    char name[128];
    enum dtype dtype;
    int n_dims;
    int64_t dim[MAX_DIMS];
    uint8_t *data; /* owned */
    size_t bytes;
};

struct mini {
    struct mini_tensor *tensors; /* owned */
    int n_tensors;
    char *config; /* owned; text of config.json */
};

struct mini_options {
    const char *prefix; /* in front of every name; NULL: "language_model." */
    bool plain;         /* no quantization: BF16 modules */
    bool f32_a_log;
};

/* hidden 64, a linear and a full layer, vocabulary 64, one head of each kind, 8 experts of 64; routers 8 bits, else 4. */
void mini_make(struct mini *m, struct mini_options options);
void mini_free(struct mini *m);
/* The tensor whose name ends with `end`; it must exist. */
struct mini_tensor *mini_find(struct mini *m, const char *end);
void mini_drop(struct mini *m, const char *end);
/* One more tensor, filled with noise. */
struct mini_tensor *mini_add(struct mini *m, const char *name, enum dtype dtype, const int64_t *dim, int n_dims);
/* Replaces the one place where config holds `from`. */
void mini_config(struct mini *m, const char *from, const char *to);

/* config.json, generation_config.json and the weights: model.safetensors, or shards and their index for n_shards > 1. */
void mini_write(const struct mini *m, const char *dir, int n_shards);

/* A new empty folder (owned text, free()); mini_remove deletes it with the files in it and frees the text. */
char *mini_dir(void);
void mini_remove(char *dir);
/* Writes, and reads, a whole file DIR/NAME. mini_read returns owned bytes. */
void mini_put(const char *dir, const char *name, const void *data, size_t n);
uint8_t *mini_read(const char *dir, const char *name, size_t *n);
/* A copy of text in which the first `from` is `to`; `from` must be there. Owned. */
char *mini_replace(const char *text, const char *from, const char *to);

#endif
