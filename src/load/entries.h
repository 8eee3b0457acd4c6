/* The inside of a checkpoint, for the files of load/ only: its tensors by name. */
#ifndef LILY_LOAD_ENTRIES_H
#define LILY_LOAD_ENTRIES_H

#include "load/checkpoint.h"

struct entry {
    char *name; /* owned; as lookups write it */
    struct tensor_view view;
    int rule_bits; /* what config.json says of the module that this tensor belongs to */
};

/* NULL: no such tensor. */
const struct entry *entries_find(const struct checkpoint *c, const char *name);
/* The same for PATH.SUFFIX. */
const struct entry *entries_find_part(const struct checkpoint *c, const char *path, const char *suffix);
int entries_index(const struct checkpoint *c, const struct entry *e); /* as checkpoint_tensor_at counts */
const char *entries_dir(const struct checkpoint *c);

/* Refuses a vector of another number of elements or without a float type. */
lily_status entry_check_vector(const struct entry *e, size_t n, struct lily_err *err);

#endif
