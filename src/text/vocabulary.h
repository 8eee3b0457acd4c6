/*
 * Collecting the vocabulary of a checkpoint, piece by piece and checked, and building the image from it.
 *
 * Order: added tokens first, then base tokens, then merges in rank order, then vocabulary_build. Everything given is
 * untrusted: each call refuses what does not fit with a message that names the key. Threads: one at a time.
 * Lifetime: vocabulary_free releases it; texts given are copied.
 */
#ifndef LILY_TEXT_VOCABULARY_H
#define LILY_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/image.h"
#include "text/scan.h"

struct vocabulary;

/* seed: of the image's hashes (struct image_head). */
struct vocabulary *vocabulary_new(uint64_t seed);
void vocabulary_free(struct vocabulary *v);

/* An added token. The same one again (same id and text) is ignored: the first flags count. */
lily_status vocabulary_add_added(struct vocabulary *v, int64_t id, struct text_view text, bool special,
                                 struct lily_err *err);
/* A base token, spelled in the byte alphabet of MODEL.md ("Ġthe"). It may be an added token's if text and id agree. */
lily_status vocabulary_add_base(struct vocabulary *v, int64_t id, struct text_view spelling, struct lily_err *err);
/* The next merge: both parts and the two joined must be base tokens. */
lily_status vocabulary_add_merge(struct vocabulary *v, struct text_view left, struct text_view right,
                                 struct lily_err *err);

/* The finished image as one owned 64-byte aligned block (mem_big_free with *size). */
lily_status vocabulary_build(struct vocabulary *v, bool nfc, void **block, size_t *size, struct lily_err *err);

#endif
