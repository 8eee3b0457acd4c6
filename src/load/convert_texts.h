/* The small files of a converted checkpoint. Internal to load/; any thread. */
#ifndef LILY_LOAD_CONVERT_TEXTS_H
#define LILY_LOAD_CONVERT_TEXTS_H

#include "load/convert_plan.h"

/* Copies tokenizer, template and generation settings, those that are there. */
lily_status convert_copy_texts(const char *src, const char *dst, struct lily_err *err);
/* config.json with the quantization block of this conversion, keys sorted. */
lily_status convert_write_config(const char *src, const char *dst, const struct model_config *config, struct lily_err *err);
/* model.safetensors.index.json; file_of names the file of a shard. */
lily_status convert_write_index(const char *dst, const struct convert_plan *plan, struct lily_err *err);
/* "model-00001-of-00004.safetensors", or "model.safetensors" for a single one. */
void convert_shard_name(int shard, int n_shards, char out[48]);

#endif
