/*
 * Synthetic checkpoints: the tensors of a preset in the names, types, order and shards of the published file, with values
 * by rule (spec/synth.h). They can be written as files, or opened in place of files: then backends make the bytes.
 *
 * Threads: a plan is immutable; any thread. Lifetime: a checkpoint opened from a plan must die before it.
 */
#ifndef LILY_LOAD_SYNTH_H
#define LILY_LOAD_SYNTH_H

#include "base/buf.h"
#include "load/checkpoint.h"
#include "load/safetensors_write.h"
#include "spec/synth.h"

enum synth_preset { SYNTH_35B, SYNTH_DEMO, SYNTH_TINY, SYNTH_PRESETS };
const char *synth_preset_name(enum synth_preset p);            /* "35b", "demo", "tiny" */
bool synth_preset_parse(const char *name, enum synth_preset *out); /* false: no such name */

struct synth_tensor {
    char name[96];           /* as in files: "language_model.…" */
    struct tensor_decl decl; /* decl.name is name */
    struct synth_rule rule;
    int shard;               /* from 0 */
};

struct synth_plan {
    enum synth_preset preset;
    uint64_t seed;
    struct model_config config; /* owned */
    struct buf config_text;     /* owned; config.json */
    struct buf generation_text; /* owned; generation_config.json */
    struct synth_tensor *tensors; /* owned; in the order in which converters write them */
    int n_tensors, n_shards;
    int first_added; /* id of <|endoftext|>; the family's added tokens follow it in their order */
    int64_t bytes;   /* of all tensors */
};

/* Owned: synth_plan_free. On failure *out is empty. */
lily_status synth_plan_make(enum synth_preset preset, uint64_t seed, struct synth_plan *out, struct lily_err *err);
void synth_plan_free(struct synth_plan *p);

/* "model-00001-of-00004.safetensors", or "model.safetensors" where there is only one. */
void synth_shard_name(const struct synth_plan *p, int shard, char out[48]);
/* model.safetensors.index.json, appended; more (may be NULL): names of further tensors, n_more, all in the first shard. */
void synth_index(const struct synth_plan *p, const char *const *more, int n_more, int64_t more_bytes, struct buf *out);

/* Words [first, first + n) of a tensor in the byte order of files, which is this machine's. */
void synth_fill(const struct synth_rule *r, uint32_t first, uint32_t *out, size_t n);

/* A checkpoint whose tensors have rules in place of bytes. Owned: checkpoint_close. */
void checkpoint_of_synth(const struct synth_plan *p, struct checkpoint **out);

#endif
